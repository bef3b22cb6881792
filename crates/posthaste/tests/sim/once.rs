//! Exactly once in the simulation: two instances, one slot, and a model of Kafka's transactions.
//!
//! Intake, publisher, tracker and the position are the product's own. The model misbehaves as brokers do: it aborts, it
//! commits and loses the answer, and it fences. Instances are killed, cut off, and frozen until another has taken over.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use pgoutput::{Lsn, PgTimestamp};
use posthaste::intake::{Intake, Tolerance};
use router::{Record, Router, RouterConfig};
use sink::{
    Accepted, Batch, Delivery, EnqueueError, Entry, Limits, Position, Producer, PublishError,
    Publisher, Resume, Ticket,
};

use crate::broker;
use crate::random::Random;
use crate::server::{Event, Server};

/// What read-committed consumers see, and who may add to it.
#[derive(Debug, Default)]
struct Cluster {
    epoch: u64,
    committed: Vec<Event>,
    position: Option<Position>,
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
    }
}

/// A transactional producer without a network: what is enqueued stands in a list until the commit.
#[derive(Debug)]
struct OnceProducer {
    cluster: Rc<RefCell<Cluster>>,
    epoch: Option<u64>,
    position: Position,
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
            cluster.position = Some(self.position);
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
        self.position = resume.position;
    }

    fn passed(&mut self, entry: &Entry) {
        self.position.pass(entry);
    }
}

/// One process.
struct Instance {
    publisher: Publisher<OnceProducer>,
    intake: Option<Intake>,
    batch: Batch,
    frozen: bool,
}

impl Instance {
    fn new(cluster: &Rc<RefCell<Cluster>>) -> Self {
        let producer = OnceProducer {
            cluster: Rc::clone(cluster),
            epoch: None,
            position: Position::default(),
            open: Vec::new(),
            outcomes: Vec::new(),
            failed: false,
        };
        Self {
            publisher: Publisher::new(producer, Limits::default(), Lsn::ZERO),
            intake: None,
            batch: Batch::new(),
            frozen: false,
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
        let known = cluster.borrow().position;
        let position = known.unwrap_or_default().confirmed_up_to(start);
        counts.midway += u64::from(position.open.is_some_and(|open| open.inserts > 0));
        producer.resume(Resume {
            position,
            origin: String::new(),
            record_now: known.is_none(),
        });
        let config = RouterConfig {
            tables: vec!["public.outbox".parse().expect("a table")],
            ..RouterConfig::default()
        };
        let router = Router::new(config).expect("legal");
        let intake = Intake::new(router, Tolerance::default());
        self.intake = Some(intake.behind(position));
    }

    /// Publishes what was read; false when the attempt failed.
    fn publish(&mut self, random: &mut Random, counts: &mut Counts) -> bool {
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
    let cluster = Rc::new(RefCell::new(Cluster::default()));
    let mut instances = [Instance::new(&cluster), Instance::new(&cluster)];
    // Who holds the slot.
    let mut owner: Option<usize> = None;
    for turn in 0..TURNS_MAX {
        let is_calm = server.event_count() >= EVENTS;
        if !is_calm && random.chance(250) {
            server.commit(random);
        }
        if is_calm && cluster.borrow().committed.len() as u64 == server.event_count() {
            break;
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
        if instance.intake.is_some() && !instance.publish(random, &mut counts) {
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
    let expected: Vec<Event> = server.events().collect();
    assert_eq!(cluster.borrow().committed, expected);
    counts.events = expected.len() as u64;
    counts
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
            instances[index] = Instance::new(cluster);
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
    // A batch that was not taken whole must not grow.
    if !instance.batch.is_empty() {
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
}

const EVENTS: u64 = 300;
const TURNS_MAX: usize = 200_000;
const TRANSACTION_RECORDS_MAX: usize = 16;
