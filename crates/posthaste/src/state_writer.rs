//! The state file's own thread: a disk that hangs delays no status update and no shutdown.
//!
//! Newest wins: there is one place for the state to be written next, and a newer one takes it. So nothing piles up
//! behind a slow disk, and what is written is never older than what was written before.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use pgoutput::Lsn;
use tracing::{info, warn};

use crate::codes::{Code, Problem};
use crate::state::{SaveError, Stored};

/// Writes states in the background. Dropping it ends the thread as soon as the disk lets it.
#[derive(Debug)]
pub struct StateWriter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    desk: Mutex<Desk>,
    turned: Condvar,
}

/// What lies between the loop and the thread.
#[derive(Debug, Default)]
struct Desk {
    next: Option<Stored>,
    writing: bool,
    saved: Lsn,
    closed: bool,
}

/// Where states are put to be saved: the thread of a file, or a model of a disk.
pub trait Keep: fmt::Debug + Send {
    /// Leaves a state to be written, in place of an older one that was not begun. Never waits for the disk.
    fn put(&self, stored: Stored);

    /// The position last written.
    fn saved(&self) -> Lsn;

    /// Waits until nothing is left to write, and says whether that came in time.
    fn wait(&self, limit: Duration) -> bool;
}

impl StateWriter {
    /// Starts the thread; `write` does the work and may take as long as it likes.
    ///
    /// # Errors
    ///
    /// The operating system refused a thread.
    pub fn start(
        write: impl FnMut(&Stored) -> Result<(), SaveError> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let at_the_desk = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("state".to_owned())
            .spawn(move || at_the_desk.run(write))?;
        Ok(Self(shared))
    }
}

impl Keep for StateWriter {
    fn put(&self, stored: Stored) {
        let mut desk = self.0.desk();
        desk.next = Some(stored);
        self.0.turned.notify_all();
    }

    fn saved(&self) -> Lsn {
        self.0.desk().saved
    }

    fn wait(&self, limit: Duration) -> bool {
        let desk = self.0.desk();
        let is_busy = |desk: &mut Desk| desk.writing || desk.next.is_some();
        let waited = self.0.turned.wait_timeout_while(desk, limit, is_busy);
        let (_desk, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }
}

impl Drop for StateWriter {
    fn drop(&mut self) {
        // Not joined: the disk may hang for ever, and then the process's end is the thread's.
        self.0.desk().closed = true;
        self.0.turned.notify_all();
    }
}

impl Shared {
    fn run(&self, mut write: impl FnMut(&Stored) -> Result<(), SaveError>) {
        let mut failing = false;
        while let Some(stored) = self.take() {
            let written = write(&stored);
            match (&written, failing) {
                (Ok(()), true) => info!("the state can be saved again"),
                (Err(error), false) => warn!("{}", unwritable(error)),
                _ => {}
            }
            failing = written.is_err();
            let mut desk = self.desk();
            desk.writing = false;
            if !failing {
                desk.saved = stored.confirmed_lsn;
            }
            self.turned.notify_all();
        }
    }

    /// The next state; what was left when the desk was closed is written still.
    fn take(&self) -> Option<Stored> {
        let desk = self.desk();
        let is_idle = |desk: &mut Desk| desk.next.is_none() && !desk.closed;
        let waited = self.turned.wait_while(desk, is_idle);
        let mut desk = waited.unwrap_or_else(PoisonError::into_inner);
        let next = desk.next.take();
        desk.writing = next.is_some();
        next
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unwritable(error: &SaveError) -> Problem {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    Problem::new(Code::StateUnwritable, "state file")
        .found(format!("{error}: {}", cause.unwrap_or_default()))
        .needed("room and rights to write it; delivery goes on, a restart may repeat events")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::state::Identity;

    fn stored(position: u64) -> Stored {
        Stored {
            identity: Identity::default(),
            confirmed_lsn: Lsn::new(position),
            parked_lsn: Lsn::ZERO,
            saved_at_unix_micros: 0,
        }
    }

    /// A disk that begins each write, tells of it, and ends it when it is let.
    fn hanging() -> (StateWriter, Receiver<Lsn>, Sender<()>) {
        let (began, begun) = channel();
        let (go, may_go) = channel::<()>();
        let writer = StateWriter::start(move |stored| {
            began.send(stored.confirmed_lsn).ok();
            may_go.recv().ok();
            Ok(())
        });
        (writer.expect("a thread"), begun, go)
    }

    #[test]
    fn a_hanging_disk_holds_up_nobody_and_gets_the_newest_state_next() {
        let (writer, begun, go) = hanging();
        writer.put(stored(1));
        assert_eq!(begun.recv(), Ok(Lsn::new(1)));
        for position in 2..=1_000 {
            writer.put(stored(position));
        }
        assert!(!writer.wait(Duration::from_millis(1)), "it hangs");
        assert_eq!(writer.saved(), Lsn::ZERO);
        go.send(()).expect("waiting");
        assert_eq!(
            begun.recv(),
            Ok(Lsn::new(1_000)),
            "those between are passed"
        );
        go.send(()).expect("waiting");
        assert!(writer.wait(Duration::from_secs(60)));
        assert_eq!(writer.saved(), Lsn::new(1_000));
    }

    #[test]
    fn what_was_put_before_the_end_is_written() {
        let (writer, begun, go) = hanging();
        writer.put(stored(7));
        drop(writer);
        assert_eq!(begun.recv(), Ok(Lsn::new(7)));
        go.send(()).expect("waiting");
        assert!(begun.recv().is_err(), "the thread has ended");
    }

    #[test]
    fn a_state_that_was_not_saved_is_not_called_saved() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = crate::state::StateFile::open(folder.path(), "p").expect("usable");
        std::fs::remove_dir_all(folder.path()).expect("ours");
        let writer = StateWriter::start(move |stored| file.save(stored)).expect("a thread");
        writer.put(stored(7));
        assert!(writer.wait(Duration::from_secs(60)));
        assert_eq!(writer.saved(), Lsn::ZERO);
    }
}
