//! The model of the brokers and of the client in front of them: a queue and a log for each partition.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use router::Record;
use sink::{Delivery, EnqueueError, Entry, Producer, PublishError, Ticket};

use crate::marks::Marks;
use crate::random::Random;
use crate::server::Event;

/// What all producers of a world share, and what survives them.
#[derive(Debug)]
pub(crate) struct Brokers {
    pub(crate) down: bool,
    /// Whether what is refused for good is taken all the same, as after a limit was raised.
    pub(crate) lenient: bool,
    logs: Vec<Vec<Event>>,
    logged: HashSet<u64>,
    dead_letters: HashSet<u64>,
    /// Events that were refused for good at least once.
    refused: HashSet<u64>,
    client: Client,
    pub(crate) marks: Marks,
}

/// The client library of the process that runs now.
#[derive(Debug, Default)]
struct Client {
    queues: Vec<VecDeque<Queued>>,
    /// Appended, but the acknowledgement is still under way; per partition in order.
    under_way: Vec<VecDeque<Ticket>>,
    outcomes: Vec<Delivery>,
    dead: bool,
}

#[derive(Debug)]
struct Queued {
    ticket: Ticket,
    event: Event,
    is_dead_letter: bool,
}

/// The producer that the publisher owns.
#[derive(Debug)]
pub(crate) struct SimProducer(pub(crate) Rc<RefCell<Brokers>>);

impl Brokers {
    pub(crate) fn new(partitions: usize) -> Self {
        Self {
            down: false,
            lenient: true,
            logs: vec![Vec::new(); partitions],
            logged: HashSet::new(),
            dead_letters: HashSet::new(),
            refused: HashSet::new(),
            client: Client::new(partitions),
            marks: Marks::default(),
        }
    }

    /// Some partitions take some records, and some acknowledgements arrive, in any order among partitions.
    pub(crate) fn step(&mut self, random: &mut Random) {
        if self.down || self.client.dead {
            return;
        }
        for _ in 0..1 + random.below(4) {
            let partition = self.any_partition(random);
            for _ in 0..random.below(8) {
                self.append_front(partition);
            }
            let partition = self.any_partition(random);
            for _ in 0..random.below(8) {
                if let Some(ticket) = self.client.under_way[partition].pop_front() {
                    self.client.outcomes.push(Delivery {
                        ticket,
                        result: Ok(()),
                    });
                }
            }
        }
    }

    /// The brokers refuse a record for good. The producer is gapless: nothing queued behind it goes out.
    pub(crate) fn refuse_one(&mut self, random: &mut Random) -> bool {
        let partition = self.any_partition(random);
        let queue = &mut self.client.queues[partition];
        if queue.front().is_none_or(|queued| queued.is_dead_letter) {
            return false;
        }
        let Some(Queued { ticket, event, .. }) = queue.pop_front() else {
            return false;
        };
        self.refused.insert(event.id);
        self.client.outcomes.push(Delivery {
            ticket,
            result: Err(error("MSG_SIZE_TOO_LARGE")),
        });
        self.die("_GAPLESS_GUARANTEE");
        true
    }

    /// The producer's state is lost: everything it had fails.
    pub(crate) fn kill_producer(&mut self) {
        self.die("OUT_OF_ORDER_SEQUENCE_NUMBER");
    }

    /// The process is gone, or has thrown its client away: of each queue a first part may still arrive.
    pub(crate) fn lose_client(&mut self, random: &mut Random) {
        if !self.down && !self.client.dead {
            for partition in 0..self.logs.len() {
                for _ in 0..random.below(6) {
                    self.append_front(partition);
                }
            }
        }
        self.client = Client::new(self.logs.len());
    }

    /// Records whose fate the process does not know yet.
    pub(crate) fn in_flight(&self) -> usize {
        let client = &self.client;
        let queued: usize = client.queues.iter().map(VecDeque::len).sum();
        let under_way: usize = client.under_way.iter().map(VecDeque::len).sum();
        queued + under_way + client.outcomes.len()
    }

    pub(crate) fn has(&self, event: u64) -> bool {
        self.logged.contains(&event)
    }

    pub(crate) fn has_dead_letter(&self, event: u64) -> bool {
        self.dead_letters.contains(&event)
    }

    pub(crate) fn was_refused(&self, event: u64) -> bool {
        self.refused.contains(&event)
    }

    pub(crate) fn dead_letters(&self) -> u64 {
        self.dead_letters.len() as u64
    }

    pub(crate) fn logs(&self) -> &[Vec<Event>] {
        &self.logs
    }

    pub(crate) fn records(&self) -> usize {
        self.logs.iter().map(Vec::len).sum()
    }

    fn die(&mut self, consequence: &str) {
        self.client.dead = true;
        let client = &mut self.client;
        let lost = client
            .queues
            .iter_mut()
            .flat_map(|queue| queue.drain(..).map(|queued| queued.ticket));
        let unanswered = client
            .under_way
            .iter_mut()
            .flat_map(|tickets| tickets.drain(..));
        let failed = lost.chain(unanswered);
        let outcomes = failed.map(|ticket| Delivery {
            ticket,
            result: Err(error(consequence)),
        });
        client.outcomes.extend(outcomes);
    }

    fn append_front(&mut self, partition: usize) {
        if let Some(queued) = self.client.queues[partition].pop_front() {
            let Queued { ticket, event, .. } = queued;
            if queued.is_dead_letter {
                self.dead_letters.insert(event.id);
            } else if event.is_refused() && !self.lenient {
                self.refused.insert(event.id);
                self.refuse_batch(partition, ticket);
                return;
            } else {
                self.logs[partition].push(event);
                self.logged.insert(event.id);
            }
            self.client.under_way[partition].push_back(ticket);
        }
    }

    /// A batch is refused as a whole, and nobody says because of which record.
    fn refuse_batch(&mut self, partition: usize, first: Ticket) {
        let queue = &mut self.client.queues[partition];
        let neighbours = queue
            .drain(..queue.len().min(2))
            .map(|queued| queued.ticket);
        let failed: Vec<_> = [first].into_iter().chain(neighbours).collect();
        self.client
            .outcomes
            .extend(failed.into_iter().map(|ticket| Delivery {
                ticket,
                result: Err(error("MSG_SIZE_TOO_LARGE")),
            }));
        self.die("_GAPLESS_GUARANTEE");
    }

    fn any_partition(&self, random: &mut Random) -> usize {
        usize::try_from(random.below(self.logs.len() as u64)).expect("few partitions")
    }
}

impl Client {
    fn new(partitions: usize) -> Self {
        Self {
            queues: (0..partitions).map(|_| VecDeque::new()).collect(),
            under_way: (0..partitions).map(|_| VecDeque::new()).collect(),
            outcomes: Vec::new(),
            dead: false,
        }
    }
}

impl Producer for SimProducer {
    fn try_enqueue(&mut self, record: &Record<'_>, ticket: Ticket) -> Result<(), EnqueueError> {
        let client = &mut self.0.borrow_mut().client;
        if client.dead {
            return Err(EnqueueError::Refused {
                ticket,
                error: error("_FATAL"),
            });
        }
        let event = event(record);
        let partitions = client.queues.len() as u64;
        let queue = &mut client.queues[usize::try_from(event.key % partitions).expect("few")];
        if queue.len() >= QUEUE_RECORDS_MAX {
            return Err(EnqueueError::Full(ticket));
        }
        queue.push_back(Queued {
            ticket,
            event,
            is_dead_letter: record.topic == DEAD_LETTERS,
        });
        Ok(())
    }

    fn poll(&mut self, _timeout: Duration, on_delivery: &mut dyn FnMut(Delivery)) {
        let outcomes = std::mem::take(&mut self.0.borrow_mut().client.outcomes);
        outcomes.into_iter().for_each(on_delivery);
    }

    fn in_flight(&self) -> usize {
        self.0.borrow().in_flight()
    }

    fn purge(&mut self) {
        let mut brokers = self.0.borrow_mut();
        brokers.client = Client::new(brokers.logs.len());
    }

    fn begin_attempt(&mut self) {
        self.0.borrow_mut().marks.begin_attempt();
    }

    fn passed(&mut self, entry: &Entry) {
        self.0.borrow_mut().marks.pass(entry);
    }

    fn fatal_error(&self) -> Option<PublishError> {
        self.0.borrow().client.dead.then(|| error("_FATAL"))
    }

    fn brokers_up(&self) -> bool {
        !self.0.borrow().down
    }
}

/// What the record says of the row it was made from; that it says it right is the router's own tests' affair.
pub(crate) fn event(record: &Record<'_>) -> Event {
    let number = |bytes: Option<&[u8]>| {
        let text = std::str::from_utf8(bytes.expect("a value")).expect("text");
        text.parse().expect("a number")
    };
    let (name, id) = record.headers().next().expect("the id header");
    assert_eq!(name, "id");
    assert!(["outbox.event.order", DEAD_LETTERS].contains(&record.topic));
    Event {
        id: number(id),
        key: number(record.key),
        version: number(record.payload),
    }
}

fn error(code: &str) -> PublishError {
    PublishError::from_code(code).expect("a code of librdkafka")
}

/// The topic of dead letters; nothing in it is refused.
pub(crate) const DEAD_LETTERS: &str = "dead";

const QUEUE_RECORDS_MAX: usize = 40;
