//! Exactly once in the simulation: two instances, one slot, and a model of Kafka's transactions.
//!
//! Each instance is the product's own supervisor with all that it drives, on a stage of its own in one play: server, tables and
//! cluster are shared. Instances are killed, stopped, cut off, and frozen until another has taken over; the server restarts and
//! forgets confirmations; the cluster aborts, commits and loses the answer, and fences. In every other seed there are events that
//! cannot be routed; they are parked, put right, and published from their table.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use pgoutput::Lsn;
use posthaste::clock::Clock;
use posthaste::policy::OnPoison;

use crate::broker::Brokers;
use crate::clock::SimClock;
use crate::cluster::{Cluster, Counts};
use crate::pace::{IDLE_TURN_MAX, TURN_MAX};
use crate::process::Process;
use crate::random::Random;
use crate::server::Server;
use crate::stage::{Once, Shared, Stage};

/// Runs one seed, and demands that consumers saw each event once, all in commit order.
pub(crate) fn run(seed: u64) -> Counts {
    let mut world = World::new(seed);
    while world.shared.server.borrow().event_count() < EVENTS {
        world.turn(false);
        if world.chance(100) {
            world.commit();
        }
        if world.chance(20) {
            world.misfortune();
        }
    }
    world.settle();
    world.instances.iter_mut().for_each(Instance::end);
    world.count()
}

/// The standby has looked at the server and stands still, while the owner goes on publishing; then the owner is killed.
pub(crate) fn take_over_late(seed: u64) {
    let mut world = World::new(seed);
    let reads = |instance: &Instance| instance.once().is_reading.get();
    let looks = |instance: &Instance| instance.once().is_looking.get();
    let mut owner = None;
    for _ in 0..TURNS_MAX {
        world.turn(true);
        let [first, second] = &world.instances;
        owner = match (reads(first) && looks(second), reads(second) && looks(first)) {
            (true, _) => Some(0),
            (_, true) => Some(1),
            _ => continue,
        };
        break;
    }
    let owner = owner.expect("a standby looks at the server");
    for turn in 0..LATE_TURNS {
        if turn % 10 == 0 && turn < LATE_TURNS / 2 {
            world.commit();
        }
        let passed = world.happen_elsewhere(true);
        world.instances[owner].turn(passed, true);
    }
    world.instances[owner].end();
    world.commit();
    world.settle();
    world.count();
}

struct World {
    shared: Shared,
    cluster: Rc<RefCell<Cluster>>,
    instances: [Instance; INSTANCES],
}

/// A process on a host, or a host without one.
struct Instance {
    stage: Rc<Stage>,
    process: Option<Process>,
    is_frozen: bool,
    is_stopping: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut server = Server::new(KEYS);
        server.has_poison = seed % 2 == 1;
        server.keepalives_per_mille = if random.chance(500) { 100 } else { 3 };
        let action = match seed % 4 {
            0 => OnPoison::Halt,
            _ => OnPoison::Park,
        };
        let has_state_file = random.chance(500);
        let shared = Shared {
            random: Rc::new(RefCell::new(random)),
            clock: SimClock::new(),
            server: Rc::new(RefCell::new(server)),
            table: Rc::default(),
        };
        let cluster = Rc::<RefCell<Cluster>>::default();
        let instance = |instance| {
            let once = Once {
                cluster: Rc::clone(&cluster),
                instance,
                is_streaming: Cell::new(false),
                is_reading: Cell::new(false),
                is_looking: Cell::new(false),
                falls_asleep: Cell::new(false),
            };
            let brokers = Brokers::new(1);
            Instance {
                stage: Stage::amid(shared.clone(), brokers, action, has_state_file, Some(once)),
                process: None,
                is_frozen: false,
                is_stopping: false,
            }
        };
        Self {
            instances: [0, 1].map(instance),
            cluster,
            shared,
        }
    }

    /// Everything that can act does what it can do now.
    fn turn(&mut self, is_calm: bool) {
        let passed = self.happen_elsewhere(is_calm);
        let first = usize::from(self.chance(500));
        for index in 0..INSTANCES {
            let instance = &mut self.instances[(first + index) % INSTANCES];
            instance.turn(passed, is_calm);
        }
    }

    /// Time passes, others write, the walsender works, and people decide about parked events.
    fn happen_elsewhere(&self, is_calm: bool) -> Duration {
        let random = &mut *self.shared.random.borrow_mut();
        let is_idle = self.instances.iter().all(Instance::is_idle);
        let limit = if is_idle { IDLE_TURN_MAX } else { TURN_MAX };
        let millis = random.below(u64::try_from(limit.as_millis()).expect("a short time"));
        self.shared.clock.pass(millis, 0);
        let mut server = self.shared.server.borrow_mut();
        if random.chance(50) {
            server.write_elsewhere(random);
        }
        if random.chance(30) {
            server.checkpoint();
        }
        server.send(random);
        if is_calm || random.chance(30) {
            let repair = is_calm || random.chance(500);
            let at = server.write_own();
            self.shared.table.borrow_mut().retry(is_calm, repair, at);
        }
        Duration::from_millis(millis)
    }

    fn commit(&self) {
        let random = &mut *self.shared.random.borrow_mut();
        self.shared.server.borrow_mut().commit(random);
    }

    fn misfortune(&mut self) {
        let (kind, index) = {
            let random = &mut *self.shared.random.borrow_mut();
            let index = usize::from(random.chance(500));
            (random.below(8), index)
        };
        let instance = &mut self.instances[index];
        match kind {
            0 => {
                instance.end();
                self.cluster.borrow_mut().counts.kills += 1;
            }
            1 | 7 => instance.freeze(),
            2 => self.shared.server.borrow_mut().restart(),
            3 => self.shared.server.borrow_mut().disconnect(),
            4 => {
                // The server has given up a connection that the other end takes for good.
                self.shared.server.borrow_mut().fall_silent();
            }
            5 => instance.stop(),
            _ => self.shared.server.borrow_mut().checkpoint(),
        }
    }

    fn chance(&self, per_mille: u64) -> bool {
        self.shared.random.borrow_mut().chance(per_mille)
    }

    /// No more misfortune: everything has to arrive and to be confirmed within a bounded number of turns.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if self.is_settled() {
                return;
            }
            self.turn(true);
        }
        let server = self.shared.server.borrow();
        panic!(
            "not settled: {} of {} events, confirmed {} of {}",
            self.cluster.borrow().arrived(),
            server.event_count(),
            server.confirmed(),
            server.wal_end()
        );
    }

    fn is_settled(&self) -> bool {
        let server = self.shared.server.borrow();
        let end = server.transactions.last().map(|last| last.end_lsn);
        self.cluster.borrow().arrived() >= server.event_count()
            && server.confirmed() >= end.unwrap_or(Lsn::ZERO)
            && self.shared.table.borrow().is_empty()
    }

    /// Checks what consumers have seen, and tells what happened.
    fn count(&self) -> Counts {
        let (server, table) = (self.shared.server.borrow(), self.shared.table.borrow());
        let cluster = self.cluster.borrow();
        cluster.check(&server);
        Counts {
            events: server.event_count(),
            parked: table.parked + table.behind,
            published: table.published,
            stale: table.stale,
            ..cluster.counts
        }
    }
}

impl Instance {
    fn turn(&mut self, passed: Duration, is_calm: bool) {
        let stage = &self.stage;
        // A frozen one wakes sooner or later, and believes that nothing has happened.
        if self.is_frozen {
            self.is_frozen = !is_calm && !stage.chance(WAKES_PER_MILLE);
            stage.pace.borrow_mut().stand_still(stage.clock.instant());
            return;
        }
        let now = stage.clock.instant();
        let Some(process) = &mut self.process else {
            if is_calm || stage.chance(50) {
                self.process = Some(Process::start(stage, false, false));
            }
            return;
        };
        stage.pace.borrow_mut().pass(now, passed);
        if stage.chance(20) {
            stage.disk.write();
        }
        let ended = process.turn();
        let falls_asleep = self.once().falls_asleep.take();
        match ended {
            None if falls_asleep && !is_calm => self.freeze(),
            None => {}
            Some(Ok(_)) => {
                assert!(self.is_stopping, "it stopped by itself");
                self.once().cluster.borrow_mut().counts.stops += 1;
                self.end();
            }
            Some(Err(problem)) => panic!("it ended: {problem}"),
        }
    }

    /// Nobody is there, or it waits for an answer that may never come.
    fn is_idle(&self) -> bool {
        self.is_frozen || self.process.is_none() || self.stage.is_waiting.get()
    }

    /// The process is gone.
    fn end(&mut self) {
        self.process = None;
        self.is_frozen = false;
        self.is_stopping = false;
        self.stage.disk.crash();
        self.stage.lose_client();
    }

    fn once(&self) -> &Once {
        self.stage.once.as_ref().expect("exactly once")
    }

    /// All its threads stand still. Most often the server lets go of its slot, which it does not know.
    fn freeze(&mut self) {
        self.is_frozen = self.process.is_some();
        if self.once().is_streaming.get() && self.stage.chance(800) {
            self.stage.server.borrow_mut().disconnect();
        }
    }

    fn stop(&mut self) {
        if let Some(process) = &self.process {
            process.stop();
            self.is_stopping = true;
        }
    }
}

const INSTANCES: usize = 2;
const KEYS: usize = 20;
const EVENTS: u64 = 300;
const TURNS_MAX: usize = 100_000;

/// Of the turns of a frozen one. Until then another takes over as often as not.
const WAKES_PER_MILLE: u64 = 12;

/// Half of them are enough to publish what the first half brings.
const LATE_TURNS: usize = 400;
