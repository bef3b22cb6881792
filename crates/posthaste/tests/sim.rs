//! Seeded simulation: the product's own supervisor and all that it drives, between a model of the server and one of the brokers.
//!
//! What runs is what the binary runs: supervisor, claim, pipeline, intake, publisher and its worker, tracker, progress, policy,
//! search, parking, memory. Server, brokers, tables, disk, clock and the operator are models that misbehave: cut connections, kills,
//! server restarts that forget confirmations, promotions of standbys that lack transactions, broker outages, lost
//! acknowledgements, lost answers of the database, refused records, dead producers, graceful stops, jumps of the wall clock, a lost state file,
//! attempts that meet each kind of error; events that cannot be routed or are refused for good, parked, dead-lettered, passed over
//! or stopped at, and a person who edits, retries, skips and accepts. After every seed the check demands the promises of
//! docs/delivery-guarantee.md. A failing seed is printed and runs again with `SIM_SEED=n`; `SIM_SEEDS=n` sets how many run.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test: what it cannot go on with is a failure of the test"
)]

#[path = "sim/broker.rs"]
mod broker;
#[path = "sim/check.rs"]
mod check;
#[path = "sim/clock.rs"]
mod clock;
#[path = "sim/cluster.rs"]
mod cluster;
#[path = "../../pgoutput/tests/support/encode.rs"]
#[allow(
    dead_code,
    reason = "shared with the decoder's own tests, which use more of it"
)]
mod encode;
#[path = "sim/marks.rs"]
mod marks;
#[path = "sim/once.rs"]
mod once;
#[path = "sim/outcome.rs"]
mod outcome;
#[path = "sim/pace.rs"]
mod pace;
#[path = "sim/process.rs"]
mod process;
#[path = "sim/random.rs"]
mod random;
#[path = "sim/server.rs"]
mod server;
#[path = "sim/stage.rs"]
mod stage;
#[path = "sim/surroundings.rs"]
mod surroundings;
#[path = "sim/table.rs"]
mod table;
#[path = "sim/transactions.rs"]
mod transactions;
#[path = "sim/trouble.rs"]
mod trouble;
#[path = "sim/world.rs"]
mod world;

use broker::Brokers;
use outcome::{Fault, Outcome};
use posthaste::policy::OnPoison;
use process::Process;
use server::Server;
use stage::Stage;
use world::{FAULTS_MIN, World};

#[test]
fn the_promises_hold_for_every_seed() {
    let single = std::env::var("SIM_SEED")
        .ok()
        .map(|seed| seed.parse().expect("a number"));
    let seeds = match single {
        Some(seed) => seed..seed + 1,
        None => {
            0..std::env::var("SIM_SEEDS").map_or(SEEDS, |count| count.parse().expect("a number"))
        }
    };
    let count = seeds.end - seeds.start;
    let total = run_all(&seeds);
    if count < SEEDS {
        return;
    }
    // A simulation that injects nothing proves nothing: each kind of fault must really have happened.
    for fault in Fault::ALL {
        let injected = total.faults(fault);
        assert!(
            injected >= count / 20,
            "{fault:?} happened only {injected} times in {count} seeds"
        );
    }
    let troubles = total
        .troubles()
        .map(|(trouble, met)| (format!("{trouble:?}"), met));
    let decisions = total
        .decisions()
        .map(|(branch, taken)| (branch.to_owned(), taken));
    for (what, times) in troubles.chain(decisions) {
        assert!(
            times >= count / 50,
            "{what}: only {times} times in {count} seeds"
        );
    }
    for (branch, taken) in total.branches() {
        assert!(
            taken >= count / 20,
            "{branch}: only {taken} times in {count} seeds"
        );
    }
    assert!(
        total.repeats > 0,
        "crashes without a single repeat are no crashes"
    );
}

/// Connections, questions about the tables, taking them over and reading them: nobody answers the one that is waited for.
#[test]
fn a_stop_is_heard_whatever_is_waited_for_on_the_way_to_the_stream() {
    for answers in 0..7 {
        let stage = Stage::new(
            random::Random::new(answers),
            Server::new(1),
            Brokers::new(1),
            OnPoison::Park,
            true,
        );
        stage.answers_left.set(Some(answers));
        let mut process = Process::start(&stage, false, false);
        for _ in 0..TURNS_MAX {
            stage.clock.pass(10, 0);
            assert!(process.turn().is_none(), "it ended by itself");
        }
        assert!(stage.is_waiting.get(), "{answers} answers are enough");
        process.stop();
        assert!(
            process.turn().is_some(),
            "not heard after {answers} answers"
        );
    }
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    assert_eq!(run(7), run(7));
}

#[test]
fn read_committed_consumers_see_each_event_once_for_every_seed() {
    let seeds = match std::env::var("SIM_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("a number");
            seed..seed + 1
        }
        Err(_) => 0..ONCE_SEEDS,
    };
    let count = seeds.end - seeds.start;
    let mut total = cluster::Counts::default();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| once::run(seed));
        match run {
            Ok(counts) => total.add(&counts),
            Err(panic) => {
                eprintln!("seed {seed} (run it alone with SIM_SEED={seed})");
                std::panic::resume_unwind(panic);
            }
        }
    }
    if count < ONCE_SEEDS {
        return;
    }
    for (what, happened) in [
        ("aborts", total.aborts),
        ("lost answers", total.lost_answers),
        ("fenced", total.fenced),
        ("kills", total.kills),
        ("orderly stops", total.stops),
        ("takeovers", total.takeovers),
        ("looks at a slot in use", total.held),
        ("first starts that began anew", total.begun_again),
        ("starts in the middle of a transaction", total.midway),
        ("rows parked", total.parked),
        ("rows published from the table", total.published),
        ("starts with rows that are not noted", total.unnoted),
        ("writes of a replaced instance", total.stale),
    ] {
        assert!(happened >= count / 20, "{what}: only {happened}");
    }
    assert!(total.events >= count * EVENTS_MIN);
}

/// It looks at the server before it owns the slot, and the owner goes on meanwhile.
#[test]
fn what_the_owner_published_after_a_standby_looked_at_the_server_is_not_ahead_of_it() {
    (0..10).for_each(once::take_over_late);
}

/// Two threads: worlds share nothing.
fn run_all(seeds: &std::ops::Range<u64>) -> Outcome {
    let part = |parity: u64| {
        let mut total = Outcome::default();
        let mine = seeds.clone().filter(|seed| seed % 2 == parity);
        mine.for_each(|seed| {
            let outcome = run(seed);
            assert!(
                outcome.events >= EVENTS_MIN && outcome.all_faults() >= FAULTS_MIN,
                "seed {seed}: {outcome:?}"
            );
            total.add(&outcome);
        });
        total
    };
    std::thread::scope(|scope| {
        let odd = scope.spawn(|| part(1));
        let mut total = part(0);
        match odd.join() {
            Ok(outcome) => total.add(&outcome),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        total
    })
}

fn run(seed: u64) -> Outcome {
    match std::panic::catch_unwind(|| World::new(seed).run()) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let reason = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default();
            panic!("seed {seed} (run it alone with SIM_SEED={seed}): {reason}");
        }
    }
}

const SEEDS: u64 = 10_000;
const ONCE_SEEDS: u64 = 1_000;
const EVENTS_MIN: u64 = 300;

/// Longer than the way to the stream, and shorter than anybody waits for an answer.
const TURNS_MAX: u64 = 200;
