//! What `posthaste debezium takeover` decided, on its way to `posthaste run`: where to start, and which rows Debezium has sent.
//!
//! The file lies in the state directory under the slot's name, and is used until the position has passed everything that was in the
//! server's WAL at the takeover; then it is removed. Until then a crash changes nothing: positions stand only between
//! transactions, so the transaction in question either comes again as a whole and the same rows of it are skipped again, or it
//! lies behind for good.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use debezium::offset::{AtPosition, SkipRule};
use pgoutput::Lsn;
use serde::{Deserialize, Serialize};

use crate::codes::{Code, Problem};
use crate::state::Identity;

/// A decision, and what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// Where the positions count.
    pub identity: Identity,
    /// The publication that Debezium read.
    pub publication: String,
    /// Everything before it has been published.
    pub start: Lsn,
    /// Where the server's WAL ended at the takeover: what begins later, Debezium has never seen.
    pub until: Lsn,
    /// Rows that have been published.
    pub skip: Option<SkipRule>,
    /// For people: what was stored, and by which connector.
    pub remark: String,
}

/// What a decision is worth on the server that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It counts.
    Counts,
    /// The server has begun another timeline since, on which numbers and positions may mean something else.
    OtherTimeline,
}

/// The file of one slot.
#[derive(Debug, Clone)]
pub struct HandoverFile {
    directory: PathBuf,
    path: PathBuf,
}

impl HandoverFile {
    /// The place for a slot in a state directory; nothing is read or made. Names of slots are names of files.
    #[must_use]
    pub fn new(directory: &Path, slot: &str) -> Self {
        Self {
            directory: directory.to_owned(),
            path: directory.join(format!("{slot}.takeover.json")),
        }
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the decision; `None` if there is none.
    ///
    /// # Errors
    /// [`Code::TakeoverFile`]: there is one and it cannot be understood. Going on without it would repeat more than was announced.
    pub fn load(&self) -> Result<Option<Handover>, Problem> {
        let mut text = String::new();
        let read = File::open(&self.path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unusable(error.to_string()).caused_by(error)),
            Ok(_) => {}
        }
        let contents: Contents = serde_json::from_str(&text)
            .map_err(|error| self.unusable("not a decision of ours").caused_by(error))?;
        if contents.format_version != FORMAT_VERSION {
            let found = format!("format version {}", contents.format_version);
            return Err(self.unusable(found));
        }
        let handover = contents.decode();
        handover
            .map(Some)
            .ok_or_else(|| self.unusable("a position that is none"))
    }

    /// Writes the decision in place of any earlier one, whole or not at all, and makes the folder if need be.
    ///
    /// # Errors
    /// [`Code::StateUnwritable`].
    pub fn save(&self, handover: &Handover) -> Result<(), Problem> {
        let write = || {
            fs::create_dir_all(&self.directory)?;
            let mut text = serde_json::to_string_pretty(&Contents::encode(handover))?;
            text.push('\n');
            let temporary = self.path.with_extension("json.new");
            let mut file = File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)?;
            // Without this the rename itself may be undone by a power cut.
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error: io::Error| {
            Problem::new(
                Code::StateUnwritable,
                format!("state.directory {}", self.directory.display()),
            )
            .found(format!("cannot be written: {error}"))
            .needed("a folder in which this process may create, rename and remove files")
            .fix("correct its owner, rights or free space, or name another folder")
            .caused_by(error)
        })
    }

    /// Removes the file; that there is none is fine.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn unusable(&self, found: impl Into<String>) -> Problem {
        Problem::new(
            Code::TakeoverFile,
            format!("take-over file {}", self.path.display()),
        )
        .found(found)
        .needed("what `posthaste debezium takeover` of this version wrote for this slot and server")
        .fix(
            "run `posthaste debezium takeover` again; or remove the file, and events that Debezium sent since the slot's own \
             position are sent again",
        )
    }

    /// The warning that the decision is left out, because the server was promoted since.
    pub(crate) fn other_timeline(&self, handover: &Handover, found: u32) -> Problem {
        Problem::new(
            Code::TakeoverFile,
            format!("take-over file {}", self.path.display()),
        )
        .found(format!(
            "timeline {}, and this is {found}: it is left out, and removed",
            handover.identity.timeline
        ))
        .needed("the timeline of the takeover")
        .fix("nothing: the stream starts at the slot's own position, and events that Debezium sent since may be sent again")
    }

    /// Whether the decision counts for this server, slot and publication.
    ///
    /// # Errors
    /// [`Code::TakeoverFile`]: it is about something else.
    pub fn judge(
        &self,
        handover: &Handover,
        found: &Identity,
        publication: &str,
    ) -> Result<Standing, Problem> {
        let written = &handover.identity;
        let pairs = [
            (
                "system identifier",
                written.system_identifier.as_str(),
                found.system_identifier.as_str(),
            ),
            (
                "database",
                written.database.as_str(),
                found.database.as_str(),
            ),
            ("slot", written.slot.as_str(), found.slot.as_str()),
            ("publication", handover.publication.as_str(), publication),
        ];
        let differs = pairs.into_iter().find(|(_, written, now)| written != now);
        if let Some((what, written, now)) = differs {
            return Err(self.unusable(format!("{what} {written}, and this is {now}")));
        }
        Ok(if written.timeline == found.timeline {
            Standing::Counts
        } else {
            Standing::OtherTimeline
        })
    }
}

/// What stands in the file. Positions are text, as PostgreSQL writes them.
#[derive(Serialize, Deserialize)]
struct Contents {
    format_version: u32,
    remark: String,
    #[serde(flatten)]
    identity: Identity,
    publication: String,
    start_lsn: String,
    until_lsn: String,
    skip: Option<Skip>,
}

#[derive(Serialize, Deserialize)]
struct Skip {
    transaction: u32,
    position_lsn: String,
    /// How many rows at the position itself.
    rows_at_position: u64,
}

impl Contents {
    fn encode(handover: &Handover) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            remark: handover.remark.clone(),
            identity: handover.identity.clone(),
            publication: handover.publication.clone(),
            start_lsn: handover.start.to_string(),
            until_lsn: handover.until.to_string(),
            skip: handover.skip.map(|rule| Skip {
                transaction: rule.transaction,
                position_lsn: rule.position.to_string(),
                rows_at_position: match rule.at {
                    AtPosition::SkipFirst(count) => count,
                    AtPosition::SkipIfAlone | AtPosition::Send => 0,
                },
            }),
        }
    }

    fn decode(self) -> Option<Handover> {
        let skip = match self.skip {
            None => None,
            Some(skip) => Some(SkipRule {
                transaction: skip.transaction,
                position: skip.position_lsn.parse().ok()?,
                at: AtPosition::SkipFirst(skip.rows_at_position),
            }),
        };
        Some(Handover {
            identity: self.identity,
            publication: self.publication,
            start: self.start_lsn.parse().ok()?,
            until: self.until_lsn.parse().ok()?,
            skip,
            remark: self.remark,
        })
    }
}

const FORMAT_VERSION: u32 = 1;

const FILE_BYTES_MAX: u64 = 64 * 1024;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn handover(identity: Identity) -> Handover {
        Handover {
            identity,
            publication: "pub".to_owned(),
            start: Lsn::new(100),
            until: Lsn::new(300),
            skip: Some(SkipRule {
                transaction: 7,
                position: Lsn::new(150),
                at: AtPosition::SkipFirst(1),
            }),
            remark: "connector orders".to_owned(),
        }
    }

    fn identity() -> Identity {
        Identity {
            system_identifier: "7".to_owned(),
            timeline: 1,
            database: "app".to_owned(),
            slot: "outbox".to_owned(),
        }
    }

    #[test]
    fn what_was_decided_is_found_by_slot_and_can_be_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("made");
        let file = HandoverFile::new(&directory, "outbox");
        assert_eq!(file.load().unwrap(), None);
        for skip in [None, handover(identity()).skip] {
            let written = Handover {
                skip,
                ..handover(identity())
            };
            file.save(&written).unwrap();
            assert_eq!(file.load().unwrap(), Some(written));
        }
        assert_eq!(
            HandoverFile::new(&directory, "other").load().unwrap(),
            None,
            "of another slot"
        );
        file.remove().unwrap();
        file.remove().unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn a_decision_that_cannot_be_understood_stops_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = HandoverFile::new(folder.path(), "outbox");
        file.save(&handover(identity())).unwrap();
        let whole = fs::read_to_string(file.path()).unwrap();
        let texts = [
            whole.replace("\"format_version\": 1", "\"format_version\": 2"),
            whole.replace("0/12C", "nowhere"),
            whole.chars().take(whole.len() / 2).collect(),
            String::new(),
        ];
        for text in texts {
            fs::write(file.path(), &text).unwrap();
            let problem = file.load().unwrap_err();
            assert_eq!(problem.code, Code::TakeoverFile, "{text}");
        }
    }

    #[test]
    fn a_decision_about_something_else_is_refused() {
        let file = HandoverFile::new(Path::new("/state"), "outbox");
        let handover = handover(identity());
        let standing = |change: fn(&mut Identity), publication| {
            let mut found = identity();
            change(&mut found);
            file.judge(&handover, &found, publication)
        };
        assert_eq!(standing(|_| {}, "pub").unwrap(), Standing::Counts);
        let promoted = standing(|found| found.timeline = 2, "pub");
        assert_eq!(promoted.unwrap(), Standing::OtherTimeline);
        let changes: [fn(&mut Identity); 3] = [
            |found| found.system_identifier.push('1'),
            |found| found.database.push('1'),
            |found| found.slot.push('1'),
        ];
        for change in changes {
            let problem = standing(change, "pub").unwrap_err();
            assert_eq!(problem.code, Code::TakeoverFile);
        }
        let problem = standing(|_| {}, "pub2").unwrap_err().to_string();
        assert!(
            problem.contains("publication pub, and this is pub2"),
            "{problem}"
        );
    }
}
