//! The model of Kafka's transactions: who may write, what read-committed consumers see, and the position beside it.

use std::collections::HashSet;
use std::rc::Rc;

use pgoutput::Lsn;
use posthaste::policy::RunError;
use posthaste::positions::Positions;
use sink::{Kept, PositionRecord};

use crate::random::Random;
use crate::server::{Event, Server};
use crate::stage::{Once, Stage};
use crate::table::Table;
use crate::trouble::Trouble;

/// What all instances of a world write to.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// Of the newest producer; older ones cannot commit.
    epoch: u64,
    claimed_by: Option<usize>,
    committed: Vec<Event>,
    ids: HashSet<u64>,
    position: Option<Vec<u8>>,
    has_unnoted: bool,
    beginning: Option<Vec<u8>>,
    /// Its end was asked for by somebody who did not wait for the answer.
    in_doubt: Option<Transaction>,
    /// The newest position that an instance told the server, or started from. What lies before it rests on the stream, which
    /// has passed the commits that parked it.
    told: Lsn,
    pub(crate) counts: Counts,
}

/// What becomes visible together.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) epoch: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) record: PositionRecord,
    pub(crate) value: Vec<u8>,
}

/// How often each thing happened.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) aborts: u64,
    pub(crate) lost_answers: u64,
    pub(crate) fenced: u64,
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) takeovers: u64,
    /// Looks at a slot that another instance held.
    pub(crate) held: u64,
    /// Starts in the middle of a transaction.
    pub(crate) midway: u64,
    /// First starts that were cut short, and began anew.
    pub(crate) begun_again: u64,
    /// Rows parked, and published from the table.
    pub(crate) parked: u64,
    pub(crate) published: u64,
    /// Starts with rows that are published and not noted.
    pub(crate) unnoted: u64,
    /// Writes to the table by an instance that had been replaced.
    pub(crate) stale: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.aborts += other.aborts;
        self.lost_answers += other.lost_answers;
        self.fenced += other.fenced;
        self.kills += other.kills;
        self.stops += other.stops;
        self.takeovers += other.takeovers;
        self.held += other.held;
        self.midway += other.midway;
        self.begun_again += other.begun_again;
        self.parked += other.parked;
        self.published += other.published;
        self.unnoted += other.unnoted;
        self.stale += other.stale;
    }
}

impl Cluster {
    pub(crate) fn has(&self, event: u64) -> bool {
        self.ids.contains(&event)
    }

    pub(crate) fn arrived(&self) -> u64 {
        self.committed.len() as u64
    }

    /// A new epoch. What the one before was about to commit is decided first.
    pub(crate) fn claim(&mut self, instance: usize, table: &Table, random: &mut Random) -> u64 {
        if let Some(transaction) = self.in_doubt.take()
            && random.chance(500)
        {
            self.commit(transaction, table);
        }
        if self.claimed_by.replace(instance) != Some(instance) {
            self.counts.takeovers += 1;
        }
        self.epoch += 1;
        self.epoch
    }

    pub(crate) fn tell(&mut self, position: Lsn) {
        self.told = self.told.max(position);
    }

    /// Nobody waits for the answer; it may be committed until the next claim.
    pub(crate) fn leave_in_doubt(&mut self, transaction: Transaction) {
        if transaction.epoch == self.epoch {
            self.in_doubt = Some(transaction);
        }
    }

    /// True if it is committed; otherwise a newer producer has fenced this one.
    pub(crate) fn commit(&mut self, transaction: Transaction, table: &Table) -> bool {
        if transaction.epoch != self.epoch {
            return false;
        }
        for event in &transaction.events {
            assert!(self.ids.insert(event.id), "twice: {event:?}");
        }
        check_parked(&transaction.record, table, self.told);
        self.committed.extend(transaction.events);
        self.has_unnoted = !transaction.record.unnoted.is_empty();
        self.position = Some(transaction.value);
        true
    }

    /// Each event once, in commit order for each key; in commit order altogether where none was parked.
    pub(crate) fn check(&self, server: &Server) {
        let mut expected: Vec<Event> = server.events().collect();
        let mut committed = self.committed.clone();
        if server.has_poison {
            // Stable: the order within a key stays as it is.
            committed.sort_by_key(|event| event.key);
            expected.sort_by_key(|event| event.key);
        }
        assert_eq!(committed, expected);
    }
}

/// What a position says is done because it is parked, or is published from the table, is so by commits that it knows of.
fn check_parked(record: &PositionRecord, table: &Table, told: Lsn) {
    let position = record.position;
    for (row, at, is_noted) in table.settled_at() {
        let is_passed = row.commit_lsn < position.end_lsn
            || position.open.is_some_and(|open| {
                open.commit_lsn == row.commit_lsn && row.insert_index < open.inserts
            });
        let is_listed = is_noted && record.unnoted.contains(&row);
        assert!(
            !is_passed
                || is_listed
                || row.commit_lsn < told
                || position.parked_lsn.max(position.end_lsn) >= at,
            "{position:?} rests on the commit at {at} about {row}, and does not say so"
        );
    }
}

/// The position topic, for one instance.
#[derive(Debug)]
pub(crate) struct SimPositions(pub(crate) Rc<Stage>);

impl SimPositions {
    fn once(&self) -> &Once {
        self.0.once.as_ref().expect("exactly once")
    }

    /// An answer takes its time, does not come, or is none.
    async fn ask(&self) -> Result<(), RunError> {
        self.0.take_time(ANSWER_MILLIS_MAX).await;
        if self.0.answers().await && !self.0.chance(ASKING_FAILS_PER_MILLE) {
            Ok(())
        } else {
            Err(Trouble::KafkaAway.error())
        }
    }
}

impl Positions for SimPositions {
    async fn read(&self, _: &str) -> Result<Kept, RunError> {
        self.ask().await?;
        let cluster = &mut *self.once().cluster.borrow_mut();
        cluster.counts.unnoted += u64::from(cluster.has_unnoted);
        let is_first = cluster.position.is_none() && cluster.epoch > 1;
        cluster.counts.begun_again += u64::from(is_first);
        Ok(Kept {
            position: cluster.position.clone(),
            beginning: cluster.beginning.clone(),
        })
    }

    async fn note_beginning(&self, _: &str, at: Lsn) -> Result<(), RunError> {
        self.ask().await?;
        let note = at.to_string().into_bytes();
        self.once().cluster.borrow_mut().beginning = Some(note);
        self.ask().await
    }
}

const ANSWER_MILLIS_MAX: u64 = 60;
const ASKING_FAILS_PER_MILLE: u64 = 10;
