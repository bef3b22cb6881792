//! The state file: the last confirmed position, kept to save repeats over a restart and never needed to avoid loss.
//!
//! The server may come back from a restart with an older position of the slot than it had confirmed to us; everything
//! delivered in between would come again. So what we confirmed is remembered here too, and START_REPLICATION is given
//! the later of the two, if both are positions of the same slot in the same history.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use pgoutput::Lsn;
use serde::{Deserialize, Serialize};

use crate::codes::{Code, Problem};
use crate::timeline::History;

/// The file of one pipeline.
///
/// Invariant: what stands under its name is always a whole state, the old one or the new one.
#[derive(Debug, Clone)]
pub struct StateFile {
    pipeline: String,
    directory: PathBuf,
    path: PathBuf,
}

/// Where a position counts: the same cluster, history, database and slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The cluster, as IDENTIFY_SYSTEM gives it.
    pub system_identifier: String,
    /// The history; a promotion begins a new one.
    pub timeline: u32,
    /// The database the slot belongs to.
    pub database: String,
    /// The slot.
    pub slot: String,
}

/// A position and what it is a position of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Where the position counts.
    pub identity: Identity,
    /// Everything before it was acknowledged by Kafka.
    pub confirmed_lsn: Lsn,
    /// Behind the commits that parked events which the position has passed, or noted them as published; zero for none.
    pub parked_lsn: Lsn,
    /// When it was written, in microseconds since 1970; for people only.
    pub saved_at_unix_micros: i64,
}

/// What reading the file gave.
#[derive(Debug)]
pub enum Loaded {
    /// There is none: a first start, or nothing to remember.
    Missing,
    /// A whole state.
    Stored(Stored),
    /// A file that cannot be used. Start without it, and say so.
    Unusable(Problem),
}

/// The state could not be written. Delivery goes on; a restart may repeat events.
#[derive(Debug, thiserror::Error)]
#[error("cannot save the state: {action} {}", path.display())]
pub struct SaveError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Identity {
    /// What of cluster, database and slot is another one, in words; the timeline is judged by its history.
    pub(crate) fn differs_in_place(&self, found: &Self) -> Option<String> {
        let pairs = [
            (
                "system identifier",
                &self.system_identifier,
                &found.system_identifier,
            ),
            ("database", &self.database, &found.database),
            ("slot", &self.slot, &found.slot),
        ];
        let named = pairs.into_iter().find(|(_, stored, found)| stored != found);
        named.map(|(what, stored, found)| format!("{what} {stored}, and this is {found}"))
    }
}

impl StateFile {
    /// Makes the folder if need be and proves that it can be written.
    ///
    /// # Errors
    /// [`Code::StateUnwritable`]: told at the start, because later it would only be a repeat nobody expects.
    pub fn open(directory: &Path, pipeline: &str) -> Result<Self, Problem> {
        let file = Self {
            pipeline: pipeline.to_owned(),
            directory: directory.to_owned(),
            path: directory.join(format!("{}.json", file_name(pipeline))),
        };
        fs::create_dir_all(directory)
            .and_then(|()| file.prove_writable())
            .map_err(|error| {
                Problem::new(
                    Code::StateUnwritable,
                    format!("state.directory {}", directory.display()),
                )
                .found(format!("cannot be written: {error}"))
                .needed("a folder in which this process may create, rename and remove files")
                .fix("correct its owner, rights or free space, or name another folder")
                .caused_by(error)
            })?;
        Ok(file)
    }

    /// Reads the last state; never a reason not to start.
    #[must_use]
    pub fn load(&self) -> Loaded {
        let text = match read_limited(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Loaded::Missing,
            Err(error) => {
                return Loaded::Unusable(self.unreadable(&error.to_string()).caused_by(error));
            }
        };
        match serde_json::from_str::<Contents>(&text) {
            Err(error) => Loaded::Unusable(self.unreadable("not a state of ours").caused_by(error)),
            Ok(contents) if contents.format_version != FORMAT_VERSION => Loaded::Unusable(
                self.unreadable(&format!("format version {}", contents.format_version)),
            ),
            Ok(contents) if contents.pipeline != self.pipeline => Loaded::Unusable(
                self.foreign(&format!("written by pipeline {:?}", contents.pipeline)),
            ),
            Ok(contents) => match contents.decode() {
                Some(stored) => Loaded::Stored(stored),
                None => Loaded::Unusable(self.unreadable("its position is none")),
            },
        }
    }

    /// Writes a state so that a crash at any moment leaves the old one or the new one.
    ///
    /// # Errors
    /// [`SaveError`], with the old state still in place. Try again later; nothing is lost by going on.
    pub fn save(&self, stored: &Stored) -> Result<(), SaveError> {
        let contents = Contents {
            format_version: FORMAT_VERSION,
            pipeline: self.pipeline.clone(),
            identity: stored.identity.clone(),
            confirmed_lsn: stored.confirmed_lsn.to_string(),
            parked_lsn: (stored.parked_lsn > Lsn::ZERO).then(|| stored.parked_lsn.to_string()),
            saved_at_unix_micros: stored.saved_at_unix_micros,
        };
        let fail = |action| {
            move |source: io::Error| SaveError {
                action,
                path: self.path.clone(),
                source,
            }
        };
        let mut text = serde_json::to_string_pretty(&contents)
            .map_err(|error| fail("encoding")(error.into()))?;
        text.push('\n');
        self.write_temporary(text.as_bytes())
            .map_err(fail("writing"))?;
        fs::rename(self.temporary(), &self.path).map_err(fail("replacing"))?;
        // Without this the rename itself may be undone by a power cut.
        File::open(&self.directory)
            .and_then(|directory| directory.sync_all())
            .map_err(fail("syncing the folder of"))
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write_temporary(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(self.temporary())?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn prove_writable(&self) -> io::Result<()> {
        self.write_temporary(b"{}\n")?;
        fs::remove_file(self.temporary())
    }

    fn temporary(&self) -> PathBuf {
        self.path.with_extension("json.new")
    }

    fn unreadable(&self, found: &str) -> Problem {
        self.unusable(Code::StateUnreadable, found)
    }

    fn foreign(&self, found: &str) -> Problem {
        self.unusable(Code::StateForeign, found)
    }

    fn unusable(&self, code: Code, found: &str) -> Problem {
        Problem::new(code, format!("state file {}", self.path.display()))
            .found(format!(
                "{found}; it is ignored, so a restart of the server may have repeated events"
            ))
            .needed("the state this pipeline wrote")
            .fix("remove the file, or give each pipeline a name or folder of its own")
    }
}

/// Where to start, and what was left out of the decision.
#[derive(Debug)]
pub struct Start {
    /// What START_REPLICATION is given; the server takes the later of this and its own.
    pub position: Lsn,
    /// Why the stored position was not used, to be logged.
    pub ignored: Option<Problem>,
}

/// Chooses between the slot's position and the stored one. Pure.
///
/// # Errors
/// [`Code::HistoryDiverged`]: the position lies beyond the place where the server's timeline left its own, so what was
/// published up to it is no longer in the database. [`Code::StateAhead`]: it lies beyond the end of the server's WAL, so the
/// server has lost what it had told us. Going on by itself would pass over new events that reuse those positions.
pub fn start_position(
    slot_confirmed: Lsn,
    stored: Option<&Stored>,
    identity: &Identity,
    history: &History,
    server_wal_position: Lsn,
) -> Result<Start, Problem> {
    let Some(stored) = stored else {
        return Ok(Start {
            position: slot_confirmed,
            ignored: None,
        });
    };
    if let Some(difference) = stored.identity.differs_in_place(identity) {
        let what = format!("stored position {}", stored.confirmed_lsn);
        let ignored = Problem::new(Code::StateForeign, what).found(format!(
            "it belongs to {difference}; it is not used, the stream starts from the slot's own position {slot_confirmed}"
        ));
        return Ok(Start {
            position: slot_confirmed,
            ignored: Some(ignored),
        });
    }
    history.judge(
        "stored position",
        stored.confirmed_lsn,
        stored.identity.timeline,
    )?;
    history.judge_table(stored.parked_lsn, stored.identity.timeline)?;
    if stored.confirmed_lsn > server_wal_position {
        return Err(ahead(stored, server_wal_position));
    }
    Ok(Start {
        position: slot_confirmed.max(stored.confirmed_lsn),
        ignored: None,
    })
}

fn ahead(stored: &Stored, server_wal_position: Lsn) -> Problem {
    let confirmed = stored.confirmed_lsn;
    Problem::new(Code::StateAhead, format!("stored position {confirmed}"))
        .found(format!("the server's WAL ends at {server_wal_position}, before it: the server was restored from an older state"))
        .needed("a server that still has everything up to the stored position")
        .fix(format!(
            "events between {server_wal_position} and {confirmed} may be in Kafka and not in the database: decide about \
             them, then remove the state file to go on from the slot's own position"
        ))
}

/// What stands in the file. Positions are text, as PostgreSQL writes them: a person reads this file in bad hours.
#[derive(Serialize, Deserialize)]
struct Contents {
    format_version: u32,
    pipeline: String,
    #[serde(flatten)]
    identity: Identity,
    confirmed_lsn: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parked_lsn: Option<String>,
    saved_at_unix_micros: i64,
}

impl Contents {
    fn decode(self) -> Option<Stored> {
        Some(Stored {
            identity: self.identity,
            confirmed_lsn: self.confirmed_lsn.parse().ok()?,
            parked_lsn: match self.parked_lsn {
                Some(lsn) => lsn.parse().ok()?,
                None => Lsn::ZERO,
            },
            saved_at_unix_micros: self.saved_at_unix_micros,
        })
    }
}

/// Reads no more than a state can be long, whatever lies under the name.
fn read_limited(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// A pipeline's name as a file name that stays within the folder.
fn file_name(pipeline: &str) -> String {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut name = String::with_capacity(pipeline.len());
    for byte in pipeline.bytes() {
        if legal(byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

const FORMAT_VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            system_identifier: "7300000000000000001".to_owned(),
            timeline: 1,
            database: "app".to_owned(),
            slot: "outbox".to_owned(),
        }
    }

    fn stored(position: u64) -> Stored {
        Stored {
            identity: identity(),
            confirmed_lsn: Lsn::new(position),
            parked_lsn: Lsn::ZERO,
            saved_at_unix_micros: 1,
        }
    }

    fn file(folder: &tempfile::TempDir) -> StateFile {
        StateFile::open(folder.path(), "default").unwrap()
    }

    #[track_caller]
    fn check_unusable(file: &StateFile, text: &str, code: Code) {
        fs::write(file.path(), text).unwrap();
        match file.load() {
            Loaded::Unusable(problem) => assert_eq!(problem.code, code, "{problem}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder);
        assert!(matches!(file.load(), Loaded::Missing));
        for (position, parked) in [(0x16_B374_D848, 0), (0x16_B374_D900, 0x16_B374_D950)] {
            let saved = Stored {
                parked_lsn: Lsn::new(parked),
                ..stored(position)
            };
            file.save(&saved).unwrap();
            match file.load() {
                Loaded::Stored(loaded) => assert_eq!(loaded, saved),
                other => panic!("{other:?}"),
            }
        }
        let names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["default.json"], "no temporary file is left");
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(
            text.contains("\"confirmed_lsn\": \"16/B374D900\""),
            "{text}"
        );
    }

    #[test]
    fn a_damaged_file_is_a_warning_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder);
        file.save(&stored(1)).unwrap();
        let whole = fs::read_to_string(file.path()).unwrap();
        for length in 0..whole.len() - 2 {
            check_unusable(&file, &whole[..length], Code::StateUnreadable);
        }
        check_unusable(
            &file,
            &whole.replace("0/1", "nonsense"),
            Code::StateUnreadable,
        );
        check_unusable(
            &file,
            &whole.replace("\"format_version\": 1", "\"format_version\": 2"),
            Code::StateUnreadable,
        );
        check_unusable(
            &file,
            &whole.replace("default", "other"),
            Code::StateForeign,
        );
        fs::write(file.path(), [0xFF, 0xFE]).unwrap();
        assert!(matches!(file.load(), Loaded::Unusable(_)));
        file.save(&stored(2)).unwrap();
        assert!(
            matches!(file.load(), Loaded::Stored(_)),
            "the next save heals it"
        );
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let in_the_way = folder.path().join("file");
        fs::write(&in_the_way, "").unwrap();
        let problem = StateFile::open(&in_the_way.join("below"), "default").unwrap_err();
        assert_eq!(problem.code, Code::StateUnwritable);
    }

    #[test]
    fn a_full_disk_is_an_error_that_leaves_the_old_state() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder);
        file.save(&stored(1)).unwrap();
        // Every write to this device fails with "no space left".
        std::os::unix::fs::symlink("/dev/full", file.temporary()).unwrap();
        let error = file.save(&stored(2)).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
        match file.load() {
            Loaded::Stored(loaded) => assert_eq!(loaded.confirmed_lsn, Lsn::new(1)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_cannot_leave_the_folder() {
        assert_eq!(file_name("orders-1"), "orders-1");
        assert_eq!(file_name("../x/ü"), "%2E%2E%2Fx%2F%C3%BC");
    }

    #[track_caller]
    fn check_start(slot: u64, remembered: Option<&Stored>, expected: u64) {
        let start = start_position(
            Lsn::new(slot),
            remembered,
            &identity(),
            &History::only(1),
            Lsn::new(1000),
        )
        .unwrap();
        assert_eq!(start.position, Lsn::new(expected));
        assert!(start.ignored.is_none(), "{:?}", start.ignored);
    }

    #[test]
    fn the_later_position_of_the_same_slot_is_taken() {
        check_start(10, None, 10);
        check_start(10, Some(&stored(20)), 20);
        check_start(30, Some(&stored(20)), 30);
        check_start(10, Some(&stored(1000)), 1000);
    }

    #[test]
    fn a_position_of_another_history_is_ignored_and_said() {
        type Change = fn(&mut Identity);
        let elsewhere: [(Change, Code); 3] = [
            (
                |identity| identity.system_identifier.push('2'),
                Code::StateForeign,
            ),
            (|identity| identity.database.push('2'), Code::StateForeign),
            (|identity| identity.slot.push('2'), Code::StateForeign),
        ];
        for (change, code) in elsewhere {
            // Beyond the server's end as well: of another history, that says nothing.
            let mut other = stored(2000);
            change(&mut other.identity);
            let start = start_position(
                Lsn::new(10),
                Some(&other),
                &identity(),
                &History::only(1),
                Lsn::new(1000),
            );
            let start = start.unwrap();
            assert_eq!(start.position, Lsn::new(10));
            assert_eq!(start.ignored.expect("said").code, code);
        }
    }

    #[test]
    fn after_a_promotion_the_position_counts_up_to_the_branch() {
        let mut promoted = identity();
        promoted.timeline = 2;
        let history = History {
            timeline: 2,
            switches: Some(vec![replication::TimelineSwitch {
                timeline: 1,
                end: 500,
            }]),
        };
        let start = |position, parked| {
            let stored = Stored {
                parked_lsn: Lsn::new(parked),
                ..stored(position)
            };
            let end = Lsn::new(1000);
            start_position(Lsn::new(10), Some(&stored), &promoted, &history, end)
        };
        assert_eq!(start(500, 0).unwrap().position, Lsn::new(500));
        assert_eq!(start(501, 0).unwrap_err().code, Code::HistoryDiverged);
        // Events that the position has passed stand in a table that this server does not have.
        assert_eq!(start(400, 500).unwrap().position, Lsn::new(400));
        let problem = start(400, 501).unwrap_err();
        assert_eq!(problem.code, Code::HistoryDiverged);
        assert!(problem.what.contains("table of parked events"), "{problem}");
    }

    #[test]
    fn a_position_the_server_no_longer_has_stops_the_start() {
        let stored = stored(0x2000);
        let here = (identity(), History::only(1));
        let problem = start_position(
            Lsn::new(10),
            Some(&stored),
            &here.0,
            &here.1,
            Lsn::new(0x1000),
        )
        .unwrap_err();
        assert_eq!(problem.code, Code::StateAhead);
        let text = problem.to_string();
        assert!(text.contains("0/2000") && text.contains("0/1000"), "{text}");
    }
}
