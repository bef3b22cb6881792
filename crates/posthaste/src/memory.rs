//! Memory: the highest position confirmed on this slot, over reconnects and, with a state file, over restarts.
//!
//! It saves repeats and is never needed to avoid loss.

use std::time::{Duration, Instant};

use pgoutput::Lsn;
use sink::Confirmed;
use tracing::{info, warn};

use crate::clock::Now;
use crate::codes::{Code, Problem};
use crate::config::Config;
use crate::handover::{Handover, HandoverFile, Standing};
use crate::intake::TakenOver;
use crate::preconditions::Checked;
use crate::state::{Identity, Loaded, StateFile, Stored, start_position};
use crate::state_writer::{Keep, StateWriter};

/// What this pipeline knows about its slot beyond what the server says.
#[derive(Debug)]
pub struct Memory {
    writer: Option<Box<dyn Keep>>,
    stored: Option<Stored>,
    /// What a takeover from Debezium decided, until it is used up.
    handover: Option<(HandoverFile, Handover)>,
    /// The server of this process's last connection; unlike a stored one it must never change.
    seen: Option<Identity>,
    /// The operator wants to start from the slot's own position, once.
    slot_decides: bool,
    confirmed: Lsn,
    /// The position last told to the server.
    told: Lsn,
    /// The position last given to the writer.
    put: Lsn,
    saved_at: Option<Instant>,
}

/// Where to start the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartAt {
    /// The position for START_REPLICATION.
    pub position: Lsn,
    /// Positions from before mean nothing here: the server is on another timeline, or another one altogether.
    pub new_history: bool,
}

impl Memory {
    /// Reads the state file, if there is a state directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be used. A file that cannot is only a warning.
    pub fn open(config: &Config, pipeline: &str) -> Result<Self, Problem> {
        let mut memory = Self::new(None, None);
        let Some(directory) = &config.state.directory else {
            info!("no state directory: a server restart between two runs may repeat events");
            return Ok(memory);
        };
        let file = StateFile::open(directory, pipeline)?;
        match file.load() {
            Loaded::Missing => {}
            Loaded::Stored(stored) => memory.stored = Some(stored),
            Loaded::Unusable(problem) => warn!(code = %problem.code, "{problem}"),
        }
        let writer = StateWriter::start(move |stored| file.save(stored)).map_err(|error| {
            Problem::new(Code::Unexpected, "a thread for the state file")
                .found(error.to_string())
                .caused_by(error)
        })?;
        memory.writer = Some(Box::new(writer));
        Ok(memory)
    }

    /// Reads what a takeover decided for this slot, if there is a state directory.
    ///
    /// # Errors
    ///
    /// It cannot be understood.
    pub fn open_handover(&mut self, config: &Config, slot: &str) -> Result<(), Problem> {
        if let Some(directory) = &config.state.directory {
            let file = HandoverFile::new(directory, slot);
            self.handover = file.load()?.map(|handover| (file, handover));
        }
        Ok(())
    }

    /// Makes the next start one from the slot's own position, whatever is remembered.
    pub fn accept_slot_position(&mut self) {
        self.slot_decides = true;
    }

    /// What was kept before, and where to keep what comes; without either it is only good for one process.
    #[must_use]
    pub fn new(stored: Option<Stored>, writer: Option<Box<dyn Keep>>) -> Self {
        Self {
            writer,
            stored,
            handover: None,
            seen: None,
            slot_decides: false,
            confirmed: Lsn::ZERO,
            told: Lsn::ZERO,
            put: Lsn::ZERO,
            saved_at: None,
        }
    }

    /// The position stored for a slot, for the check that a lost slot is not silently made anew.
    #[must_use]
    pub fn previous(&self) -> Option<Stored> {
        self.stored.clone()
    }

    /// Where to start: the later of the slot's position and the one remembered, if that one counts here.
    ///
    /// # Errors
    ///
    /// Another server answers than before, or the server has lost what it had told us: its WAL ends before the position, or
    /// its timeline branched off before it.
    pub fn start_position(
        &mut self,
        checked: &Checked,
        publication: &str,
    ) -> Result<StartAt, Problem> {
        self.refuse_another_system(&checked.identity)?;
        self.judge_handover(&checked.identity, publication)?;
        let remembered = self.stored.as_ref().filter(|_| !self.slot_decides);
        let start = start_position(
            checked.slot_confirmed,
            remembered,
            &checked.identity,
            &checked.history,
            checked.server_wal_position,
        )?;
        let new_history = start.ignored.is_some();
        if new_history || self.slot_decides {
            // What was parked then is that history's affair, or decided about.
            if let Some(stored) = &mut self.stored {
                stored.parked_lsn = Lsn::ZERO;
            }
        }
        if let Some(ignored) = start.ignored {
            warn!(code = %ignored.code, "{ignored}");
        }
        if !std::mem::take(&mut self.slot_decides) {
            self.tell_other_timeline(&checked.identity);
        }
        let position = self.handover_start(start.position, checked.server_wal_position)?;
        self.seen = Some(checked.identity.clone());
        self.told = checked.slot_confirmed;
        self.remember(position);
        Ok(StartAt {
            position,
            new_history,
        })
    }

    /// The tracker moved on.
    pub fn confirm(&mut self, confirmed: Confirmed) {
        if confirmed.as_lsn() > self.confirmed {
            self.remember(confirmed.as_lsn());
            self.retire_handover();
        }
    }

    /// The position is about to pass events that stand in the table of parked ones since a commit before `lsn`, which the stream
    /// has passed: a server that lacks it lacks events.
    pub fn parked_up_to(&mut self, lsn: Lsn) {
        if let Some(stored) = &mut self.stored {
            stored.parked_lsn = stored.parked_lsn.max(lsn);
        }
    }

    /// The rows that Debezium has sent and the slot sends again.
    #[must_use]
    pub fn taken_over(&self) -> Option<TakenOver> {
        let (_, handover) = self.handover.as_ref()?;
        Some(TakenOver::new(handover.skip?, handover.until))
    }

    /// Whether this slot was taken over from Debezium, and is still read behind what Debezium had seen.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.handover.is_some()
    }

    /// The highest position confirmed in this history of the server.
    #[must_use]
    pub fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    /// The server was told this position.
    pub fn told(&mut self, position: Lsn) {
        self.told = self.told.max(position);
    }

    /// The position that the next process starts from at least: what is kept in a file, or what the server was told last.
    #[must_use]
    pub fn safe(&self) -> Lsn {
        if self.writer.is_some() {
            self.confirmed
        } else {
            self.told
        }
    }

    /// Saves now and then, at most once in five seconds, on another thread.
    pub fn save_if_due(&mut self, now: Now) {
        let due = self
            .saved_at
            .is_none_or(|at| now.instant >= at + SAVE_INTERVAL);
        if due && self.put() {
            self.saved_at = Some(now.instant);
        }
    }

    /// Saves what is not saved yet, and waits for it, though not for ever. A failure is told and changes nothing else: a
    /// restart may then repeat events.
    pub fn save(&mut self) {
        self.put();
        if let Some(writer) = &self.writer
            && !writer.wait(LAST_SAVE_TIMEOUT)
        {
            let problem = Problem::new(Code::StateUnwritable, "state file")
                .found(format!(
                    "not written within {} s",
                    LAST_SAVE_TIMEOUT.as_secs()
                ))
                .needed("a disk that answers; a restart of the server may repeat events");
            warn!("{problem}");
        }
    }

    /// True if there was something to save.
    fn put(&mut self) -> bool {
        let (Some(writer), Some(stored)) = (&self.writer, &mut self.stored) else {
            return false;
        };
        // What failed to be written is tried again.
        if stored.confirmed_lsn == self.put.min(writer.saved()) {
            return false;
        }
        stored.saved_at_unix_micros = Now::read().wall.unix_micros();
        self.put = stored.confirmed_lsn;
        writer.put(stored.clone());
        true
    }

    fn judge_handover(&mut self, found: &Identity, publication: &str) -> Result<(), Problem> {
        let Some((file, handover)) = &self.handover else {
            return Ok(());
        };
        if file.judge(handover, found, publication)? == Standing::OtherTimeline {
            let problem = file.other_timeline(handover, found.timeline);
            warn!(code = %problem.code, "{problem}");
            self.drop_handover();
        }
        Ok(())
    }

    /// The later of the two, so that a takeover never moves a position back.
    fn handover_start(&mut self, position: Lsn, server_wal_position: Lsn) -> Result<Lsn, Problem> {
        let Some((file, handover)) = &self.handover else {
            return Ok(position);
        };
        if handover.until > server_wal_position {
            return Err(file.unusable(format!(
                "positions up to {}, and the server's WAL ends at {server_wal_position}: it was restored from an older state",
                handover.until
            )));
        }
        let start = position.max(handover.start);
        info!(
            "taking over from Debezium at {start} ({}); {}",
            handover.remark,
            handover
                .skip
                .map_or_else(|| "no row is skipped".to_owned(), |rule| rule.to_string())
        );
        if position >= handover.until {
            self.drop_handover();
        }
        Ok(start)
    }

    /// Everything that Debezium can have sent is confirmed. The position is saved first, so that a server that forgets it is
    /// told it again.
    fn retire_handover(&mut self) {
        let spent = |(_, handover): &(_, Handover)| self.confirmed >= handover.until;
        if self.handover.as_ref().is_some_and(spent) {
            self.save();
            self.drop_handover();
        }
    }

    fn drop_handover(&mut self) {
        let Some((file, _)) = self.handover.take() else {
            return;
        };
        match file.remove() {
            Ok(()) => info!(
                "the takeover from Debezium is done; {} is removed",
                file.path().display()
            ),
            // It says itself until when it counts, so that it harms nobody.
            Err(error) => {
                let problem =
                    Problem::new(Code::StateUnwritable, file.path().display().to_string())
                        .found(format!("it is used up and cannot be removed: {error}"))
                        .needed("the right to remove it")
                        .fix("remove it by hand");
                warn!(code = %problem.code, "{problem}");
            }
        }
    }

    fn remember(&mut self, position: Lsn) {
        self.confirmed = position;
        if let Some(identity) = &self.seen {
            let stored = self.stored.get_or_insert_with(|| Stored {
                identity: identity.clone(),
                confirmed_lsn: position,
                parked_lsn: Lsn::ZERO,
                saved_at_unix_micros: 0,
            });
            stored.identity.clone_from(identity);
            stored.confirmed_lsn = position;
        }
    }

    /// A promotion that took over everything we know of still deserves a word.
    fn tell_other_timeline(&self, found: &Identity) {
        let Some(stored) = &self.stored else { return };
        let (then, now) = (stored.identity.timeline, found.timeline);
        if then != now && stored.identity.differs_in_place(found).is_none() {
            let what = format!("stored position {}", stored.confirmed_lsn);
            let problem = Problem::new(Code::TimelineChanged, what).found(format!(
                "it is of timeline {then}, and the server is on timeline {now}, which contains it"
            ));
            warn!(code = %problem.code, "{problem}");
        }
    }

    fn refuse_another_system(&self, found: &Identity) -> Result<(), Problem> {
        match &self.seen {
            Some(seen) if seen.system_identifier != found.system_identifier => {
                Err(Problem::new(Code::SystemChanged, "server")
                    .found(format!("system identifier {}", found.system_identifier))
                    .needed(format!("system identifier {}, as before", seen.system_identifier))
                    .fix("name only hosts of one cluster in source.host; if the cluster was replaced on purpose, start again"))
            }
            _ => Ok(()),
        }
    }
}

/// Time between two writes of the state file while streaming.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long the end of the process waits for the disk.
const LAST_SAVE_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
#[path = "memory_tests.rs"]
pub(crate) mod tests;
