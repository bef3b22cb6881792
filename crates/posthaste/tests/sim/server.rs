//! The model of a PostgreSQL server: a log of committed transactions, one slot, at most one walsender.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use pgoutput::{Column, Lsn, Relation, RowId};
use posthaste::timeline::History;
use replication::TimelineSwitch;

use crate::encode::{Cell, Plain};
use crate::random::Random;

/// An event of the outbox; versions of a key count from 1 in commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) key: u64,
    pub(crate) version: u64,
}

impl Event {
    /// The brokers refuse it for good.
    pub(crate) fn is_refused(self) -> bool {
        self.id % 61 == 7
    }

    /// It cannot be routed.
    pub(crate) fn is_unroutable(self) -> bool {
        self.id % 59 == 3
    }
}

/// A committed transaction, and what a walsender says of it.
#[derive(Debug)]
pub(crate) struct Transaction {
    xid: u32,
    pub(crate) commit_lsn: Lsn,
    pub(crate) end_lsn: Lsn,
    rows: Vec<Row>,
}

#[derive(Debug, Clone, Copy)]
enum Row {
    Outbox(Event),
    Other,
}

#[derive(Debug, Default)]
pub(crate) struct Server {
    /// Whether there are events that cannot be routed.
    pub(crate) has_poison: bool,
    pub(crate) transactions: Vec<Transaction>,
    /// Events that a promoted standby did not have.
    pub(crate) lost: Vec<Event>,
    switches: Vec<TimelineSwitch>,
    promotions: u32,
    wal_end: u64,
    /// Whether they are rare.
    pub(crate) has_rare_poison: bool,
    /// How often the walsender sends a keepalive where it could send a change.
    pub(crate) keepalives_per_mille: u64,
    /// How far any walsender has told of the log.
    sent: u64,
    /// Whether any transaction was sent whole, as the statistics of the slot say.
    has_decoded: bool,
    last_event: u64,
    events: u64,
    versions: Vec<u64>,
    /// `confirmed_flush_lsn` in memory, and what of it survives a restart of the server.
    confirmed: Lsn,
    confirmed_on_disk: Lsn,
    walsender: Option<Walsender>,
    /// The link that nothing comes through any more, though neither end knows.
    silent: Option<Rc<RefCell<Link>>>,
    /// Changes when all its connections end.
    session: u64,
}

#[derive(Debug)]
struct Walsender {
    transaction: usize,
    step: usize,
    to_describe: Vec<Vec<u8>>,
    link: Rc<RefCell<Link>>,
}

/// A connection between a walsender and a process: what is on its way, and whether more can come.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) frames: VecDeque<Vec<u8>>,
    pub(crate) is_cut: bool,
    pub(crate) is_silent: bool,
}

impl Server {
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            wal_end: WAL_START,
            versions: vec![0; keys],
            confirmed: Lsn::new(WAL_START),
            confirmed_on_disk: Lsn::new(WAL_START),
            ..Self::default()
        }
    }

    /// Commits a transaction of random shape; some have no row of the outbox.
    pub(crate) fn commit(&mut self, random: &mut Random) {
        let size = match random.below(10) {
            0 => 20 + random.below(60),
            1 => 0,
            _ => 1 + random.below(6),
        };
        let rows = (0..size).map(|_| self.row(random)).collect();
        self.write_elsewhere(random);
        let commit_lsn = self.wal_end;
        self.wal_end += 48;
        self.transactions.push(Transaction {
            xid: u32::try_from(self.transactions.len()).expect("few") + 700,
            commit_lsn: Lsn::new(commit_lsn),
            end_lsn: Lsn::new(self.wal_end),
            rows,
        });
    }

    fn row(&mut self, random: &mut Random) -> Row {
        self.wal_end += 64;
        if random.chance(150) {
            return Row::Other;
        }
        let key = random.below(self.versions.len() as u64);
        let version = &mut self.versions[usize::try_from(key).expect("few keys")];
        *version += 1;
        let mut event = Event {
            id: self.last_event + 1,
            key,
            version: *version,
        };
        while self.has_rare_poison
            && (event.is_unroutable() || event.is_refused())
            && random.chance(800)
        {
            event.id += 1;
        }
        self.last_event = event.id;
        self.events += 1;
        Row::Outbox(event)
    }

    /// WAL of other tables and databases.
    pub(crate) fn write_elsewhere(&mut self, random: &mut Random) {
        self.wal_end += 8 * (1 + random.below(200));
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = Event> {
        self.transactions.iter().flat_map(Transaction::events)
    }

    pub(crate) fn event_count(&self) -> u64 {
        self.events - self.lost.len() as u64
    }

    pub(crate) fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    pub(crate) fn wal_end(&self) -> Lsn {
        Lsn::new(self.wal_end)
    }

    /// START_REPLICATION: the later of the asked and the confirmed position.
    pub(crate) fn start(&mut self, asked: Lsn) -> Rc<RefCell<Link>> {
        self.disconnect();
        let from = asked.max(self.confirmed);
        let transaction = self.transactions.partition_point(|t| t.commit_lsn < from);
        let link = Rc::<RefCell<Link>>::default();
        self.walsender = Some(Walsender {
            transaction,
            step: 0,
            to_describe: relations().to_vec(),
            link: Rc::clone(&link),
        });
        link
    }

    /// What connections that are open now have in common, and none after the next restart.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// The walsender is gone. What it had sent may still arrive, or not.
    pub(crate) fn disconnect(&mut self) {
        if let Some(Walsender { link, .. }) = self.walsender.take() {
            let mut link = link.borrow_mut();
            link.is_cut = true;
            if self.wal_end.is_multiple_of(16) {
                link.frames.clear();
            }
        }
    }

    /// From now on nothing arrives, in either direction.
    pub(crate) fn fall_silent(&mut self) -> bool {
        let sender = self.walsender.take();
        let is_new = sender.is_some();
        if let Some(Walsender { link, .. }) = sender {
            link.borrow_mut().is_silent = true;
            self.silent = Some(link);
        }
        is_new
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.is_some()
    }

    /// The process has ended this connection.
    pub(crate) fn hang_up(&mut self, link: &Rc<RefCell<Link>>) {
        self.silent.take_if(|silent| Rc::ptr_eq(silent, link));
        let is_ours = |sender: &mut Walsender| Rc::ptr_eq(&sender.link, link);
        self.walsender.take_if(is_ours);
    }

    /// The walsender sends as much as it likes, and keepalives when it likes.
    pub(crate) fn send(&mut self, random: &mut Random) {
        for _ in 0..random.below(12) {
            let is_full = |sender: &Walsender| sender.link.borrow().frames.len() >= LINK_FRAMES_MAX;
            if self.walsender.as_ref().is_none_or(is_full) {
                return;
            }
            if random.chance(self.keepalives_per_mille) {
                self.send_keepalive(random);
            } else {
                match self.next_frame() {
                    Some(frame) => self.put(frame),
                    None => return,
                }
            }
        }
    }

    /// A keepalive, asked for or not.
    pub(crate) fn send_keepalive(&mut self, random: &mut Random) {
        if let Some(frame) = self.keepalive(random) {
            self.put(frame);
        }
    }

    fn put(&mut self, frame: Vec<u8>) {
        if let Some(sender) = &self.walsender {
            sender.link.borrow_mut().frames.push_back(frame);
        }
    }

    /// A transaction of the process's own, in a table that is not published.
    pub(crate) fn write_own(&mut self) -> Lsn {
        self.wal_end += 128;
        self.wal_end()
    }

    /// The event of a row.
    pub(crate) fn event_at(&self, row: RowId) -> Option<Event> {
        let at = self
            .transactions
            .binary_search_by_key(&row.commit_lsn, |transaction| transaction.commit_lsn);
        let transaction = &self.transactions[at.ok()?];
        let mut rows = transaction.identified();
        rows.find_map(|(found, event)| (found == row).then_some(event))
    }

    /// Nothing was ever read from the slot.
    pub(crate) fn is_unread(&self) -> bool {
        !self.has_decoded
    }

    /// Whether somebody reads from the slot.
    pub(crate) fn is_connected(&self) -> bool {
        self.walsender.is_some()
    }

    /// A restart forgets confirmations that were not written out; they are written out now and then.
    pub(crate) fn restart(&mut self) {
        self.disconnect();
        self.session += 1;
        self.confirmed = self.confirmed_on_disk;
    }

    pub(crate) fn checkpoint(&mut self) {
        self.confirmed_on_disk = self.confirmed;
    }

    /// A standby takes over that had not received everything: its timeline begins where its WAL ended, and new transactions
    /// take the positions of those that are lost. Its copy of the slot stands where the last one that was written out stood.
    /// With `has_sent` it has all that a walsender ever sent, as with `synchronized_standby_slots`. Where its log ends.
    pub(crate) fn promote(&mut self, random: &mut Random, has_sent: bool) -> Lsn {
        let switched = self.switches.last().map_or(0, |switch| switch.end);
        let sent = if has_sent { self.sent.max(switched) } else { 0 };
        let count = self.transactions.len() as u64;
        let kept = usize::try_from(count - random.below(4).min(count)).expect("few");
        let must_keep = self
            .transactions
            .partition_point(|t| t.end_lsn.as_u64() <= sent);
        let kept = kept.max(must_keep);
        let lost = self.transactions.split_off(kept);
        self.lost.extend(lost.iter().flat_map(Transaction::events));
        if !lost.is_empty() || random.chance(500) {
            let end = self.transactions.last().map(|last| last.end_lsn.as_u64());
            self.wal_end = end.unwrap_or(WAL_START).max(sent);
        }
        let branch = Lsn::new(self.wal_end);
        // One that is still on an older timeline knows nothing of the newer ones.
        let mut parent = self.timeline();
        while let Some(newer) = self.switches.pop_if(|switch| switch.end > self.wal_end) {
            parent = newer.timeline;
        }
        self.switches.push(TimelineSwitch {
            timeline: parent,
            end: self.wal_end,
        });
        self.promotions += 1;
        self.confirmed_on_disk = self.confirmed_on_disk.min(branch);
        self.restart();
        self.write_elsewhere(random);
        branch
    }

    pub(crate) fn timeline(&self) -> u32 {
        self.promotions + 1
    }

    pub(crate) fn history(&self) -> History {
        History {
            timeline: self.timeline(),
            switches: Some(self.switches.clone()),
        }
    }

    /// A status update arrived.
    pub(crate) fn handle_status(&mut self, flushed: Lsn) {
        assert!(
            flushed.as_u64() <= self.wal_end,
            "confirmed {flushed}, which is not written yet"
        );
        self.confirmed = self.confirmed.max(flushed);
    }

    /// A keepalive at any moment. Inside a transaction it is as misleading as it could be.
    pub(crate) fn keepalive(&mut self, random: &mut Random) -> Option<Vec<u8>> {
        let walsender = self.walsender.as_ref()?;
        let wal_end = match self.transactions.get(walsender.transaction) {
            Some(transaction) if walsender.step == 0 => transaction.commit_lsn.as_u64(),
            _ => self.wal_end,
        };
        self.sent = self.sent.max(wal_end);
        let mut frame = vec![b'k'];
        frame.extend(wal_end.to_be_bytes());
        frame.extend(0_i64.to_be_bytes());
        frame.push(u8::from(random.chance(300)));
        Some(frame)
    }

    /// The next frame of the stream, if there is anything to send.
    pub(crate) fn next_frame(&mut self) -> Option<Vec<u8>> {
        let walsender = self.walsender.as_mut()?;
        let transaction = self.transactions.get(walsender.transaction)?;
        // Relations come once a connection, inside the first transaction.
        if walsender.step == 1
            && let Some(description) = walsender.to_describe.pop()
        {
            return Some(description);
        }
        let last = transaction.rows.len() + 1;
        let message = match walsender.step {
            0 => transaction.begin(),
            step if step == last => transaction.commit(),
            step => transaction.insert(step - 1, self.has_poison),
        };
        let position = transaction.commit_lsn.as_u64();
        self.sent = self.sent.max(transaction.end_lsn.as_u64());
        walsender.step += 1;
        if walsender.step > last {
            walsender.transaction += 1;
            walsender.step = 0;
            self.has_decoded = true;
        }
        Some(frame(position, &message))
    }
}

impl Transaction {
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> {
        self.rows.iter().filter_map(|row| match row {
            Row::Outbox(event) => Some(*event),
            Row::Other => None,
        })
    }

    fn begin(&self) -> Vec<u8> {
        let begin = Plain::Begin {
            final_lsn: self.commit_lsn.as_u64(),
            commit_time: 0,
            xid: self.xid,
        };
        begin.encode()
    }

    fn commit(&self) -> Vec<u8> {
        let commit = Plain::Commit {
            commit_lsn: self.commit_lsn.as_u64(),
            end_lsn: self.end_lsn.as_u64(),
            commit_time: 0,
        };
        commit.encode()
    }

    /// The events with their identities.
    pub(crate) fn identified(&self) -> impl Iterator<Item = (RowId, Event)> {
        self.rows
            .iter()
            .zip(0_u64..)
            .filter_map(|(row, insert_index)| match row {
                Row::Outbox(event) => Some((
                    RowId {
                        commit_lsn: self.commit_lsn,
                        insert_index,
                    },
                    *event,
                )),
                Row::Other => None,
            })
    }

    fn insert(&self, index: usize, has_poison: bool) -> Vec<u8> {
        let text = |number: u64| Cell::Text(number.to_string().into_bytes());
        let insert = match self.rows[index] {
            Row::Outbox(event) => Plain::Insert {
                relation_id: OUTBOX,
                new: vec![
                    text(event.id),
                    Cell::Text(b"order".to_vec()),
                    text(event.key),
                    text(event.version),
                    Cell::Text(if has_poison && event.is_unroutable() {
                        b"never".to_vec()
                    } else {
                        b"0".to_vec()
                    }),
                ],
            },
            // The same columns: only the relation id tells that it is another table.
            Row::Other => Plain::Insert {
                relation_id: OTHER,
                new: vec![
                    text(0),
                    Cell::Text(b"order".to_vec()),
                    text(0),
                    text(0),
                    text(0),
                ],
            },
        };
        insert.encode()
    }
}

/// The descriptions of the two tables, as frames.
fn relations() -> [Vec<u8>; 2] {
    [(OUTBOX, "outbox"), (OTHER, "other")].map(|(id, name)| {
        let columns = ["id", "aggregatetype", "aggregateid", "payload", "at"].map(|name| Column {
            key: name == "id",
            name: name.to_owned(),
            type_oid: 25,
            type_modifier: -1,
        });
        let relation = Relation {
            id,
            namespace: "public".to_owned(),
            name: name.to_owned(),
            replica_identity: b'd',
            columns: columns.to_vec(),
        };
        frame(0, &Plain::Relation(relation).encode())
    })
}

fn frame(position: u64, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![b'w'];
    frame.extend(position.to_be_bytes());
    frame.extend(position.to_be_bytes());
    frame.extend(0_i64.to_be_bytes());
    frame.extend(message);
    frame
}

/// A socket holds no more.
const LINK_FRAMES_MAX: usize = 40;
const WAL_START: u64 = 0x0100_0000;
const OUTBOX: u32 = 16_400;
const OTHER: u32 = 16_500;
