//! What a stop without a connection keeps, and what it calls whole.

use std::sync::{Arc, Mutex};

use sink::{Limits, Publisher};

use super::*;
use crate::clock::SystemClock;
use crate::publishing::tests::{Prompt, fill};
use crate::reach::Reach;
use crate::state::Stored;
use crate::state_writer::Keep;

/// A state file.
#[derive(Debug, Clone, Default)]
struct File(Arc<Mutex<Option<Stored>>>);

impl File {
    fn position(&self) -> Option<Lsn> {
        let stored = self.0.lock().expect("nobody panicked");
        stored.as_ref().map(|stored| stored.confirmed_lsn)
    }
}

impl Keep for File {
    fn put(&self, stored: Stored) {
        *self.0.lock().expect("nobody panicked") = Some(stored);
    }

    fn saved(&self) -> Lsn {
        self.position().unwrap_or(Lsn::ZERO)
    }

    fn wait(&self, _: Duration) -> bool {
        true
    }
}

/// A transaction that begins to commit at 100 was handed over, and is acknowledged up to its end at 108. The server knows of
/// nothing behind 50.
async fn acknowledged(memory: &mut Memory) -> Publishing {
    let checked = crate::memory::tests::checked(50, 1, "7");
    memory.start_position(&checked, "outbox").expect("a start");
    let publisher = Publisher::new(Prompt::default(), Limits::default(), Lsn::ZERO);
    let metrics = PipelineMetrics::new("test");
    let (mut publishing, mut worker) = Publishing::without_thread(publisher, SystemClock, metrics);
    publishing.next().await.expect("a batch");
    fill(publishing.current().expect("a batch"), "orders", 100);
    let reach = Reach::transaction(Lsn::new(100));
    publishing.submit(reach).expect("running");
    while publishing.state().confirmed.as_lsn() < Lsn::new(108) {
        worker.turn(Duration::ZERO);
    }
    publishing
}

#[tokio::test]
async fn a_stop_between_two_connections_keeps_what_was_acknowledged_since() {
    let file = File::default();
    let mut memory = Memory::new(None, Some(Box::new(file.clone())));
    let publishing = acknowledged(&mut memory).await;
    let drained = left_behind(&publishing, &mut memory, &Hold::default());
    assert_eq!(drained, Drained::Whole);
    memory.save();
    assert_eq!(file.position(), Some(Lsn::new(108)));
}

#[tokio::test]
async fn without_a_state_file_it_is_whole_only_if_the_server_was_told() {
    let mut memory = Memory::new(None, None);
    let publishing = acknowledged(&mut memory).await;
    let drained = left_behind(&publishing, &mut memory, &Hold::default());
    assert_eq!(drained, Drained::Unacknowledged(0));
    memory.told(Lsn::new(108));
    let drained = left_behind(&publishing, &mut memory, &Hold::default());
    assert_eq!(drained, Drained::Whole);
}

#[tokio::test]
async fn what_is_held_back_for_parked_rows_is_not_kept() {
    let file = File::default();
    let mut memory = Memory::new(None, Some(Box::new(file.clone())));
    let publishing = acknowledged(&mut memory).await;
    let mut hold = Hold::default();
    hold.begin(Lsn::new(200));
    let drained = left_behind(&publishing, &mut memory, &hold);
    assert_eq!(drained, Drained::Unacknowledged(0));
    memory.save();
    assert_eq!(file.position(), Some(Lsn::new(50)));
}
