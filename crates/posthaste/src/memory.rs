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
pub(crate) mod tests {
    use std::collections::HashMap;

    use sink::Tracker;

    use super::*;
    use crate::preconditions::Created;
    use crate::timeline::History;

    fn config(directory: Option<&std::path::Path>) -> Config {
        Config {
            remarks: Vec::new(),
            pipelines: Vec::new(),
            http: crate::config::Http { listen: None },
            state: crate::config::State {
                directory: directory.map(Into::into),
            },
            log: crate::config::Log {
                format: crate::config::LogFormat::Auto,
                level: "info".to_owned(),
            },
        }
    }

    /// Timeline 2 left timeline 1 at 400.
    fn branched(timeline: u32) -> History {
        let switches = match timeline {
            1 => Vec::new(),
            _ => vec![replication::TimelineSwitch {
                timeline: 1,
                end: 400,
            }],
        };
        History {
            timeline,
            switches: Some(switches),
        }
    }

    pub(crate) fn checked(slot_confirmed: u64, timeline: u32, system: &str) -> Checked {
        Checked {
            catalog: None,
            server_version: 150_020,
            identity: Identity {
                system_identifier: system.to_owned(),
                timeline,
                database: "orders".to_owned(),
                slot: "outbox".to_owned(),
            },
            slot_confirmed: Lsn::new(slot_confirmed),
            server_wal_position: Lsn::new(10_000),
            history: branched(timeline),
            slot_unread: false,
            wal_sender_timeout: Duration::from_secs(60),
            base_types: HashMap::new(),
            created: Created::default(),
            gap: None,
            warnings: Vec::new(),
        }
    }

    fn confirmed(position: u64) -> Confirmed {
        Tracker::new(Lsn::new(position)).confirmed()
    }

    #[test]
    fn a_server_that_forgot_is_told_the_position_again_after_a_restart_of_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(Some(folder.path()));
        let mut memory = Memory::open(&config, "default").expect("usable");
        memory
            .start_position(&checked(100, 1, "7"), "pub")
            .expect("a start");
        memory.confirm(confirmed(500));
        memory.save();
        let mut again = Memory::open(&config, "default").expect("usable");
        let start = again
            .start_position(&checked(100, 1, "7"), "pub")
            .expect("a start");
        assert_eq!(
            start,
            StartAt {
                position: Lsn::new(500),
                new_history: false
            }
        );
    }

    #[test]
    fn a_promotion_before_the_position_stops_and_one_behind_it_goes_on() {
        let mut memory = Memory::open(&config(None), "default").expect("usable");
        memory
            .start_position(&checked(100, 1, "7"), "pub")
            .expect("a start");
        memory.confirm(confirmed(350));
        let start = memory
            .start_position(&checked(300, 2, "7"), "pub")
            .expect("a start");
        let goes_on = StartAt {
            position: Lsn::new(350),
            new_history: false,
        };
        assert_eq!(start, goes_on);
        let mut memory = Memory::open(&config(None), "default").expect("usable");
        memory
            .start_position(&checked(100, 1, "7"), "pub")
            .expect("a start");
        memory.confirm(confirmed(500));
        let problem = memory
            .start_position(&checked(300, 2, "7"), "pub")
            .expect_err("refused");
        assert_eq!(problem.code, Code::HistoryDiverged);
        assert_eq!(memory.confirmed(), Lsn::new(500));
    }

    #[test]
    fn the_operator_can_let_the_slot_decide_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(Some(folder.path()));
        let mut memory = Memory::open(&config, "default").expect("usable");
        memory
            .start_position(&checked(100, 1, "7"), "pub")
            .expect("a start");
        memory.confirm(confirmed(500));
        memory.save();
        let mut again = Memory::open(&config, "default").expect("usable");
        again.accept_slot_position();
        let start = again.start_position(&checked(300, 2, "7"), "pub");
        assert_eq!(start.expect("accepted").position, Lsn::new(300));
        again.confirm(confirmed(320));
        let start = again.start_position(&checked(300, 2, "7"), "pub");
        assert_eq!(start.expect("of this history").position, Lsn::new(320));
    }

    #[test]
    fn another_system_in_the_same_process_is_refused() {
        let mut memory = Memory::open(&config(None), "default").expect("usable");
        memory
            .start_position(&checked(100, 1, "7"), "pub")
            .expect("a start");
        let problem = memory
            .start_position(&checked(100, 1, "8"), "pub")
            .expect_err("refused");
        assert_eq!(problem.code, Code::SystemChanged);
    }

    /// A decision in the state directory, and a memory that has read it.
    fn taken_over(folder: &tempfile::TempDir, timeline: u32) -> (HandoverFile, Memory) {
        let config = config(Some(folder.path()));
        let file = HandoverFile::new(folder.path(), "outbox");
        let identity = checked(0, timeline, "7").identity;
        file.save(&crate::handover::tests::handover(identity))
            .expect("saved");
        let mut memory = Memory::open(&config, "default").expect("usable");
        memory.open_handover(&config, "outbox").expect("usable");
        (file, memory)
    }

    #[test]
    fn a_takeover_says_where_to_start_until_everything_before_it_is_confirmed() {
        let folder = tempfile::tempdir().expect("a folder");
        for crash in [false, true] {
            let (file, mut memory) = taken_over(&folder, 1);
            let start = memory.start_position(&checked(90, 1, "7"), "pub");
            assert_eq!(start.expect("a start").position, Lsn::new(100));
            assert!(memory.taken_over().is_some());
            // Inside, whatever happens: the next start decides the same.
            memory.confirm(confirmed(299));
            assert!(memory.taken_over().is_some());
            if crash {
                let (_, again) = taken_over(&folder, 1);
                memory = again;
                let start = memory.start_position(&checked(90, 1, "7"), "pub");
                assert_eq!(start.expect("a start").position, Lsn::new(100));
            }
            memory.confirm(confirmed(300));
            assert!(memory.taken_over().is_none());
            assert_eq!(file.load().expect("no file"), None, "used once");
            let stored = StateFile::open(folder.path(), "default")
                .expect("usable")
                .load();
            assert!(
                matches!(stored, Loaded::Stored(stored) if stored.confirmed_lsn == Lsn::new(300))
            );
            std::fs::remove_file(folder.path().join("default.json")).expect("removed");
        }
    }

    #[test]
    fn a_takeover_never_moves_a_position_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, mut memory) = taken_over(&folder, 1);
        let start = memory.start_position(&checked(200, 1, "7"), "pub");
        assert_eq!(start.expect("a start").position, Lsn::new(200));
        assert!(memory.taken_over().is_some());
        let (_, mut memory) = taken_over(&folder, 1);
        let start = memory.start_position(&checked(400, 1, "7"), "pub");
        assert_eq!(start.expect("a start").position, Lsn::new(400));
        assert!(memory.taken_over().is_none());
        assert_eq!(file.load().expect("no file"), None);
    }

    #[test]
    fn a_takeover_on_another_timeline_skips_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, mut memory) = taken_over(&folder, 1);
        let start = memory.start_position(&checked(90, 2, "7"), "pub");
        assert_eq!(start.expect("a start").position, Lsn::new(90));
        assert!(memory.taken_over().is_none());
        assert_eq!(file.load().expect("no file"), None);
    }

    #[test]
    fn a_takeover_of_something_else_or_of_lost_positions_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_, mut memory) = taken_over(&folder, 1);
        let mut restored = checked(90, 1, "7");
        restored.server_wal_position = Lsn::new(250);
        for (checked, publication) in [
            (checked(90, 1, "8"), "pub"),
            (checked(90, 1, "7"), "other"),
            (restored, "pub"),
        ] {
            let problem = memory
                .start_position(&checked, publication)
                .expect_err("refused");
            assert_eq!(problem.code, Code::TakeoverFile);
        }
    }

    #[test]
    fn the_file_is_not_written_for_every_confirmation() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut memory = Memory::open(&config(Some(folder.path())), "default").expect("usable");
        memory
            .start_position(&checked(100, 1, "7"), "pub")
            .expect("a start");
        let now = Now::read();
        memory.confirm(confirmed(200));
        memory.save_if_due(now);
        memory.confirm(confirmed(300));
        memory.save_if_due(now);
        assert_eq!(memory.put, Lsn::new(200));
        memory.save_if_due(Now {
            instant: now.instant + SAVE_INTERVAL,
            ..now
        });
        assert_eq!(memory.put, Lsn::new(300));
    }
}
