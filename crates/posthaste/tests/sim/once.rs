//! Exactly once in the simulation: two instances, one slot, and a model of Kafka's transactions.
//!
//! Intake, publisher, tracker and the position record are the product's own. The model misbehaves as brokers do: it aborts, it
//! commits and loses the answer, and it fences. Instances are killed, cut off, and frozen until another has taken over. In every
//! other seed there are events that cannot be routed; they are parked, put right, and published from their table.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use pgoutput::{Lsn, PgTimestamp, RowId};
use posthaste::intake::{Intake, Tolerance};
use posthaste::poison::{Aside, Poison, Rules};
use posthaste::policy::OnPoison;
use posthaste::rerouting::Rerouting;
use posthaste::watchlist::Watchlist;
use router::{Record, Router, RouterConfig, TimestampSource};
use sink::{
    Accepted, Batch, Delivery, EnqueueError, Entry, Limits, PositionRecord, Producer, PublishError,
    Publisher, Resume, Ticket,
};

use crate::broker;
use crate::random::Random;
use crate::server::{Event, Server};
use crate::table::Table;

/// What read-committed consumers see, and who may add to it.
#[derive(Debug, Default)]
struct Cluster {
    epoch: u64,
    committed: Vec<Event>,
    record: Option<PositionRecord>,
}

/// How often each thing happened.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) aborts: u64,
    pub(crate) lost_answers: u64,
    pub(crate) fenced: u64,
    pub(crate) kills: u64,
    pub(crate) takeovers: u64,
    /// Starts in the middle of a transaction.
    pub(crate) midway: u64,
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
        self.takeovers += other.takeovers;
        self.midway += other.midway;
        self.parked += other.parked;
        self.published += other.published;
        self.unnoted += other.unnoted;
        self.stale += other.stale;
    }
}

/// A transactional producer without a network: what is enqueued stands in a list until the commit.
#[derive(Debug)]
struct OnceProducer {
    cluster: Rc<RefCell<Cluster>>,
    epoch: Option<u64>,
    record: PositionRecord,
    open: Vec<(Ticket, Event)>,
    outcomes: Vec<Delivery>,
    failed: bool,
}

impl OnceProducer {
    fn forget(&mut self) {
        self.epoch = None;
        self.open.clear();
        self.outcomes.clear();
        self.failed = false;
    }

    /// Ends the open transaction in one of the ways in which transactions end.
    fn end(&mut self, random: &mut Random, counts: &mut Counts) {
        if self.open.is_empty() || self.failed {
            return;
        }
        let mut cluster = self.cluster.borrow_mut();
        self.failed = true;
        if self.epoch != Some(cluster.epoch) {
            counts.fenced += 1;
        } else if random.chance(30) {
            counts.aborts += 1;
        } else {
            let events = self.open.iter().map(|(_, event)| *event);
            cluster.committed.extend(events);
            cluster.record = Some(self.record.clone());
            if random.chance(30) {
                counts.lost_answers += 1;
                return;
            }
            self.failed = false;
            let delivered = self.open.drain(..).map(|(ticket, _)| Delivery {
                ticket,
                result: Ok(()),
            });
            self.outcomes.extend(delivered);
        }
    }
}

impl Producer for OnceProducer {
    fn try_enqueue(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), EnqueueError> {
        if self.failed || self.open.len() >= TRANSACTION_RECORDS_MAX {
            return Err(EnqueueError::Full(ticket));
        }
        self.open.push((ticket, broker::event(record)));
        Ok(())
    }

    fn poll(&mut self, _: Duration, on_delivery: &mut dyn FnMut(Delivery)) {
        self.outcomes.drain(..).for_each(on_delivery);
    }

    fn in_flight(&self) -> usize {
        self.open.len() + self.outcomes.len()
    }

    fn purge(&mut self) {
        self.forget();
    }

    fn fatal_error(&self) -> Option<PublishError> {
        self.failed
            .then(|| PublishError::from_code("_TIMED_OUT").expect("listed"))
    }

    fn brokers_up(&self) -> bool {
        true
    }

    fn begin_attempt(&mut self) {
        self.forget();
    }

    fn claim(&mut self, _: Duration) -> Result<bool, PublishError> {
        let mut cluster = self.cluster.borrow_mut();
        cluster.epoch += 1;
        self.epoch = Some(cluster.epoch);
        Ok(true)
    }

    fn resume(&mut self, resume: Resume) {
        self.record = PositionRecord {
            position: resume.position,
            unnoted: Vec::new(),
        };
    }

    fn passed(&mut self, entry: &Entry) {
        self.record.pass(entry);
    }
}

/// One process.
struct Instance {
    publisher: Publisher<OnceProducer>,
    intake: Option<Intake>,
    batch: Batch,
    frozen: bool,
    table: Rc<RefCell<Table>>,
    session: u64,
    /// Not written down yet.
    aside: Aside,
    pass: Pass,
}

/// How far the publishing of parked rows is.
#[derive(Debug, PartialEq, Eq)]
enum Pass {
    None,
    Draining,
    Sent(Vec<RowId>),
}

impl Instance {
    fn new(cluster: &Rc<RefCell<Cluster>>, table: &Rc<RefCell<Table>>) -> Self {
        let producer = OnceProducer {
            cluster: Rc::clone(cluster),
            epoch: None,
            record: PositionRecord::default(),
            open: Vec::new(),
            outcomes: Vec::new(),
            failed: false,
        };
        Self {
            publisher: Publisher::new(producer, Limits::default(), Lsn::ZERO),
            intake: None,
            batch: Batch::new(),
            frozen: false,
            table: Rc::clone(table),
            session: 0,
            aside: Aside::default(),
            pass: Pass::None,
        }
    }

    /// Owns the slot from here on: claims, reads the position, and goes on behind it.
    fn connect(
        &mut self,
        server: &mut Server,
        cluster: &Rc<RefCell<Cluster>>,
        counts: &mut Counts,
    ) {
        let start = server.confirmed();
        server.start(start);
        self.publisher.restart(start);
        self.batch.clear();
        let producer = self.publisher.producer_mut();
        assert_eq!(producer.claim(Duration::ZERO).ok(), Some(true));
        let known = cluster.borrow().record.clone();
        let is_first = known.is_none();
        let PositionRecord { position, unnoted } = known.unwrap_or_default();
        let mut table = self.table.borrow_mut();
        self.session = table.take_over();
        self.aside = Aside::default();
        self.pass = Pass::None;
        counts.unnoted += u64::from(!unnoted.is_empty());
        table.note(&unnoted);
        let mut watchlist = Watchlist::default();
        table.load(start, &mut watchlist);
        let position = position.confirmed_up_to(start);
        counts.midway += u64::from(position.open.is_some_and(|open| open.inserts > 0));
        producer.resume(Resume {
            position,
            origin: String::new(),
            record_now: is_first,
        });
        let rules = Rules {
            action: OnPoison::Park,
            ..Rules::default()
        };
        let intake = Intake::new(router(), Tolerance::default());
        let intake = intake.with_poison(Poison::new(rules, watchlist), "posthaste");
        self.intake = Some(intake.behind(position));
    }

    /// Whether everything read is acknowledged.
    fn is_drained(&self) -> bool {
        self.batch.is_empty() && self.aside.is_empty() && self.publisher.outstanding() == 0
    }

    /// Writes down what was put aside; false if this instance may not write any more.
    fn settle(&mut self, wal_end: Lsn, counts: &mut Counts) -> bool {
        let mut table = self.table.borrow_mut();
        if !table.is_open(self.session) {
            counts.stale += 1;
            return false;
        }
        table.write(&std::mem::take(&mut self.aside), Lsn::ZERO);
        let entry = Entry::ParkedUpTo { lsn: wal_end };
        self.batch.entries.insert(0, entry);
        true
    }

    /// The next step in the publishing of parked rows; false as for [`Self::settle`].
    fn go_on_with_pass(&mut self, wal_end: Lsn, random: &mut Random, counts: &mut Counts) -> bool {
        if !self.is_drained() || !random.chance(300) {
            return true;
        }
        let mut table = self.table.borrow_mut();
        if self.pass != Pass::None && !table.is_open(self.session) {
            counts.stale += 1;
            return false;
        }
        match std::mem::replace(&mut self.pass, Pass::None) {
            Pass::None => {
                let confirmed = self.publisher.confirmed().as_lsn();
                if !table.publishable(confirmed).is_empty() {
                    self.pass = Pass::Draining;
                }
            }
            Pass::Draining => {
                let mut sent = Vec::new();
                let mut rerouting = Rerouting::new(router());
                for row in table.publishable(self.publisher.confirmed().as_lsn()) {
                    match rerouting.route(&row, 0, &mut self.batch) {
                        Ok(()) => sent.push(row.row),
                        Err(_) => {
                            table.refused(row.row, Lsn::ZERO);
                            break;
                        }
                    }
                }
                self.pass = Pass::Sent(sent);
            }
            Pass::Sent(rows) => {
                table.published(&rows, Lsn::ZERO);
                self.batch.entries.push(Entry::ParkedNoted { lsn: wal_end });
                if let Some(intake) = &mut self.intake {
                    table.refresh(intake.poison().watchlist());
                }
            }
        }
        true
    }

    /// Publishes what was read; false when the attempt failed.
    fn publish(&mut self, wal_end: Lsn, random: &mut Random, counts: &mut Counts) -> bool {
        if !self.aside.is_empty() {
            // The database takes its time.
            if random.chance(500) {
                return true;
            }
            if !self.settle(wal_end, counts) {
                return false;
            }
        }
        if !self.go_on_with_pass(wal_end, random, counts) {
            return false;
        }
        let taken = self.publisher.accept(&mut self.batch);
        match taken {
            Ok(Accepted::All) => self.batch.clear(),
            Ok(Accepted::Full) => {}
            Err(_) => return false,
        }
        if random.chance(300) {
            self.publisher.producer_mut().end(random, counts);
        }
        let now = PgTimestamp::new(0);
        self.publisher
            .poll(Duration::ZERO, now, &mut |_| ())
            .is_ok()
    }
}

/// Runs one seed, and demands that consumers saw each event once, all in commit order.
pub(crate) fn run(seed: u64) -> Counts {
    let random = &mut Random::new(seed);
    let mut counts = Counts::default();
    let mut server = Server::new(20);
    server.has_poison = seed % 2 == 1;
    let cluster = Rc::new(RefCell::new(Cluster::default()));
    let table = Rc::new(RefCell::new(Table::default()));
    let mut instances = [
        Instance::new(&cluster, &table),
        Instance::new(&cluster, &table),
    ];
    // Who holds the slot.
    let mut owner: Option<usize> = None;
    for turn in 0..TURNS_MAX {
        let is_calm = server.event_count() >= EVENTS;
        if !is_calm && random.chance(250) {
            server.commit(random);
        }
        let arrived = cluster.borrow().committed.len();
        if is_calm && arrived as u64 >= server.event_count() && table.borrow().is_empty() {
            break;
        }
        if random.chance(30) || is_calm {
            let repair = is_calm || random.chance(500);
            table.borrow_mut().retry(is_calm, repair, Lsn::ZERO);
        }
        assert!(turn + 1 < TURNS_MAX, "not settled");
        if !is_calm && random.chance(20) {
            misfortune(
                random,
                &cluster,
                &mut instances,
                &mut server,
                &mut owner,
                &mut counts,
            );
        }
        let index = usize::from(random.chance(500));
        let instance = &mut instances[index];
        // A frozen one wakes sooner or later, and believes that nothing has happened.
        if instance.frozen {
            instance.frozen = !is_calm && !random.chance(60);
            continue;
        }
        if owner.is_none() && instance.intake.is_none() {
            counts.takeovers += u64::from(counts.takeovers == 0 || index == 1);
            instance.connect(&mut server, &cluster, &mut counts);
            owner = Some(index);
        }
        if owner == Some(index) {
            read(instance, &mut server, random);
        }
        let wal_end = server.wal_end();
        if instance.intake.is_some() && !instance.publish(wal_end, random, &mut counts) {
            instance.intake = None;
            if owner == Some(index) {
                owner = None;
                server.disconnect();
            }
        } else if owner == Some(index) {
            server.handle_status(instance.publisher.confirmed().as_lsn());
        } else if random.chance(200) {
            // It sees at last that its connection is gone.
            instance.intake = None;
        }
    }
    check(&cluster.borrow().committed, &server);
    counts.events = server.events().count() as u64;
    counts.parked += table.borrow().parked + table.borrow().behind;
    counts.published += table.borrow().published;
    counts
}

/// Each event once, in commit order for each key; in commit order altogether where none was parked.
fn check(committed: &[Event], server: &Server) {
    let mut expected: Vec<Event> = server.events().collect();
    let mut committed = committed.to_vec();
    if server.has_poison {
        // Stable: the order within a key stays as it is.
        committed.sort_by_key(|event| event.key);
        expected.sort_by_key(|event| event.key);
    }
    assert_eq!(committed, expected);
}

fn misfortune(
    random: &mut Random,
    cluster: &Rc<RefCell<Cluster>>,
    instances: &mut [Instance; 2],
    server: &mut Server,
    owner: &mut Option<usize>,
    counts: &mut Counts,
) {
    let index = usize::from(random.chance(500));
    match random.below(4) {
        0 => {
            let table = Rc::clone(&instances[index].table);
            instances[index] = Instance::new(cluster, &table);
            counts.kills += 1;
            if *owner == Some(index) {
                *owner = None;
                server.disconnect();
            }
        }
        1 => {
            // The server lets go of the slot of a frozen one, which does not know.
            instances[index].frozen = true;
            if *owner == Some(index) {
                *owner = None;
                server.disconnect();
            }
        }
        2 => server.restart(),
        _ => server.checkpoint(),
    }
    if !server.is_connected()
        && let Some(index) = owner.take()
    {
        instances[index].intake = None;
    }
}

fn read(instance: &mut Instance, server: &mut Server, random: &mut Random) {
    let Some(intake) = &mut instance.intake else {
        return;
    };
    // A batch that was not taken whole must not grow, and nothing is read while parked rows are on their way.
    if !instance.batch.is_empty() || !instance.aside.is_empty() || instance.pass != Pass::None {
        return;
    }
    for _ in 0..random.below(12) {
        let frame = if random.chance(100) {
            server.keepalive(random)
        } else {
            server.next_frame()
        };
        if let Some(frame) = frame {
            intake
                .handle_frame(&frame, 0, &mut instance.batch)
                .expect("a stream that fits the position");
        }
    }
    instance.aside = intake.poison().take_aside();
}

const EVENTS: u64 = 300;
const TURNS_MAX: usize = 200_000;
const TRANSACTION_RECORDS_MAX: usize = 16;

fn router() -> Router {
    let config = RouterConfig {
        tables: vec!["public.outbox".parse().expect("a table")],
        timestamp: TimestampSource::Column("at".to_owned()),
        ..RouterConfig::default()
    };
    Router::new(config).expect("legal")
}
