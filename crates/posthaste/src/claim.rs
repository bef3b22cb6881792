//! Exactly once, at the start of a stream: the producer is claimed, the position topic is read, the position is judged.
//!
//! The order is what makes it safe, and `supervisor` keeps it: this process owns the slot; then no older producer can write
//! any more; then the position topic says what was committed; then records go out.

use std::pin::pin;
use std::time::Duration;

use pgoutput::{Lsn, RowId};
use serde::{Deserialize, Serialize};
use sink::{
    Confirmed, Kept, OpenTransaction, POSITION_FORMAT_VERSION, POSITION_PLAIN_VERSION, Position,
    Resume, UNNOTED_ROWS_MAX,
};

use crate::clock::Clock;
use crate::codes::{Code, Problem};
use crate::feed::Feed;
use crate::policy::RunError;
use crate::positions::{Positions, timed_out};
use crate::progress::Progress;
use crate::publishing::Publishing;
use crate::state::Identity;
use crate::timeline::{ACCEPT, History};

/// Fences older producers and reads what was committed last. The server is kept content meanwhile.
///
/// # Errors
///
/// No broker answers in time, or one refuses; or the connection to the server was lost.
///
/// # Cancel safety
///
/// When dropped, the threads give up at their next step.
pub(crate) async fn claim(
    clock: &impl Clock,
    source: &mut impl Feed,
    publishing: &Publishing,
    start: Confirmed,
    positions: &impl Positions,
    key: &str,
) -> Result<Kept, RunError> {
    let work = async {
        publishing.claim().await?;
        positions.read(key).await
    };
    beside(clock, source, start, work).await
}

/// Tells the producer where the stream goes on. What is written at once is committed when this returns: nothing may be
/// confirmed before.
///
/// # Errors
///
/// Kafka does not take it, or the connection to the server was lost.
///
/// # Cancel safety
///
/// When dropped, the position may be written or not.
pub(crate) async fn resume(
    clock: &impl Clock,
    source: &mut impl Feed,
    publishing: &Publishing,
    start: Confirmed,
    resume: Resume,
) -> Result<(), RunError> {
    beside(clock, source, start, publishing.resume(resume)).await
}

/// Does the work and keeps the server content meanwhile.
async fn beside<T>(
    clock: &impl Clock,
    source: &mut impl Feed,
    start: Confirmed,
    work: impl Future<Output = Result<T, RunError>>,
) -> Result<T, RunError> {
    let mut work = pin!(work);
    let give_up_at = clock.instant() + CLAIM_TIMEOUT;
    let mut progress = Progress::new(start, clock.now(), source.timing());
    loop {
        // Nothing is read meanwhile, so the server's silence is our own doing.
        progress.handle_paused(clock.now());
        if let Some(status) = progress.poll_status(clock.now()) {
            source.send(&status.encode()).await?;
        }
        let wake_at = progress.next_deadline(clock.now()).min(give_up_at);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = clock.sleep_until(wake_at) => {}
        }
        if clock.instant() >= give_up_at {
            return Err(timed_out());
        }
    }
}

/// What this stream is, to be compared with what the position was taken in.
#[derive(Debug)]
pub(crate) struct Here<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) history: &'a History,
    pub(crate) publication: &'a str,
    pub(crate) options: String,
    /// Where the stream was asked to start.
    pub(crate) start: Lsn,
    /// How far the server has written its log, asked after the position was read.
    pub(crate) server_wal_position: Lsn,
    /// The slot has not moved since anything was read from it, so that no position can be missing.
    pub(crate) is_first: bool,
    /// The operator wants to go on from the slot's position, whatever is written.
    pub(crate) is_accepted: bool,
}

/// What the last committed position record says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Where to go on.
    pub(crate) resume: Resume,
    /// Parked rows that are published and not noted so in their table.
    pub(crate) unnoted: Vec<RowId>,
}

impl Here<'_> {
    /// Where to go on, from the last committed position record.
    ///
    /// # Errors
    ///
    /// The record is missing though the slot was read before, belongs to something else, lies outside the history of the
    /// server, or was taken in a stream that went through another publication or other options.
    pub(crate) fn judge(&self, record: Option<&[u8]>) -> Result<Judged, Problem> {
        let (position, unnoted) = match record {
            Some(record) if self.is_accepted => (None, self.unnoted_in(record)),
            None if self.is_accepted || self.is_first => (None, Vec::new()),
            None => return Err(self.missing()),
            Some(record) => {
                let contents = Contents::read(record).map_err(|found| self.foreign(&found))?;
                let position = self.judge_contents(&contents)?;
                let unnoted = contents.unnoted();
                let unnoted = unnoted.ok_or_else(|| self.foreign("a parked row that is none"))?;
                (Some(position), unnoted)
            }
        };
        let resume = Resume {
            position: position.unwrap_or(Position::at(self.start)),
            origin: self.origin(),
            record_now: position.is_none(),
        };
        Ok(Judged { resume, unnoted })
    }

    /// Whatever the operator decided about the position: these rows are published.
    fn unnoted_in(&self, record: &[u8]) -> Vec<RowId> {
        let contents = Contents::read(record).ok();
        let ours =
            contents.filter(|contents| contents.identity.differs_in_place(self.identity).is_none());
        ours.and_then(|contents| contents.unnoted())
            .unwrap_or_default()
    }

    fn judge_contents(&self, contents: &Contents) -> Result<Position, Problem> {
        if let Some(found) = contents.identity.differs_in_place(self.identity) {
            return Err(self.foreign(&found));
        }
        let position = contents
            .position()
            .ok_or_else(|| self.foreign("an LSN that is none"))?;
        let reach = position.reach();
        self.history
            .judge("committed position", reach, contents.identity.timeline)?;
        let position = position.confirmed_up_to(self.start);
        self.history
            .judge_table(position.parked_lsn, contents.identity.timeline)?;
        if reach > self.server_wal_position {
            return Err(self.ahead(reach));
        }
        let Some(open) = position.open else {
            return Ok(position);
        };
        let stream =
            |publication: &str, options: &str| format!("publication {publication} with {options}");
        let (then, now) = (
            stream(&contents.publication, &contents.options),
            stream(self.publication, &self.options),
        );
        if then != now {
            return Err(half_done(open)
                .found(format!(
                    "it was read through {then}, and now it would be through {now}"
                ))
                .needed("the same stream until the transaction is done, since its rows are counted")
                .fix(format!(
                    "go back to {then}, and change it after the transaction; or {ACCEPT}"
                )));
        }
        Ok(position)
    }

    fn missing(&self) -> Problem {
        Problem::new(
            Code::PositionMissing,
            format!("position of slot {}", self.identity.slot),
        )
        .found(format!(
            "none in the position topic, though the slot was read before and stands at {}: what was published behind that \
             is not known",
            self.start
        ))
        .needed("the position topic as this pipeline wrote it")
        .fix(format!(
            "if this is the first start with exactly-once, or the topic was lost: {ACCEPT}; events behind it may then repeat"
        ))
    }

    fn foreign(&self, found: &str) -> Problem {
        Problem::new(
            Code::PositionForeign,
            format!("position of slot {}", self.identity.slot),
        )
        .found(found)
        .needed("a position that this pipeline wrote for this slot")
        .fix(format!(
            "give each pipeline a kafka.position_topic or a name of its own; or {ACCEPT}"
        ))
    }

    fn ahead(&self, reach: Lsn) -> Problem {
        Problem::new(Code::StateAhead, format!("committed position {reach}"))
            .found(format!(
                "the server's WAL ends at {}, before it: the server was restored from an older state",
                self.server_wal_position
            ))
            .needed("a server that still has everything up to the position")
            .fix(format!(
                "events between {} and {reach} may be in Kafka and not in the database: {ACCEPT}",
                self.server_wal_position
            ))
    }

    /// The members of the position record that say what it belongs to.
    fn origin(&self) -> String {
        let origin = Origin {
            identity: self.identity,
            publication: self.publication,
            options: &self.options,
        };
        // A struct of texts and numbers always can be written.
        let json = serde_json::to_string(&origin).unwrap_or_default();
        json.trim_start_matches('{')
            .trim_end_matches('}')
            .to_owned()
    }
}

fn half_done(open: OpenTransaction) -> Problem {
    Problem::new(
        Code::PositionHalfDone,
        format!(
            "transaction {} that commits at {}, published up to its row {}",
            open.xid, open.commit_lsn, open.inserts
        ),
    )
}

#[derive(Serialize)]
struct Origin<'a> {
    #[serde(flatten)]
    identity: &'a Identity,
    publication: &'a str,
    options: &'a str,
}

/// A position record, as `sink` writes it.
#[derive(Debug, Deserialize)]
struct Contents {
    format_version: u32,
    #[serde(flatten)]
    identity: Identity,
    publication: String,
    options: String,
    end_lsn: String,
    message_lsn: String,
    open: Option<Open>,
    /// Of version 2, as the next.
    parked_lsn: Option<String>,
    #[serde(default)]
    unnoted: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Open {
    commit_lsn: String,
    xid: u32,
    inserts: u64,
}

impl Contents {
    fn read(record: &[u8]) -> Result<Self, String> {
        let contents: Self = serde_json::from_slice(record)
            .map_err(|error| format!("a record that is no position of ours ({error})"))?;
        let is_known = match contents.format_version {
            POSITION_PLAIN_VERSION => true,
            POSITION_FORMAT_VERSION => contents.parked_lsn.is_some(),
            _ => false,
        };
        if !is_known || contents.unnoted.len() > UNNOTED_ROWS_MAX {
            return Err(format!("format version {}", contents.format_version));
        }
        Ok(contents)
    }

    fn position(&self) -> Option<Position> {
        let open = match &self.open {
            Some(open) => Some(OpenTransaction {
                commit_lsn: open.commit_lsn.parse().ok()?,
                xid: open.xid,
                inserts: open.inserts,
            }),
            None => None,
        };
        Some(Position {
            end_lsn: self.end_lsn.parse().ok()?,
            message_lsn: self.message_lsn.parse().ok()?,
            open,
            parked_lsn: match &self.parked_lsn {
                Some(lsn) => lsn.parse().ok()?,
                None => Lsn::ZERO,
            },
        })
    }

    fn unnoted(&self) -> Option<Vec<RowId>> {
        self.unnoted.iter().map(|row| row.parse().ok()).collect()
    }
}

/// Longest wait for the brokers at the start of a stream. The slot is held for this long, so it is given back after it.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
