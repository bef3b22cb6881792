//! The program behind `cargo xtask chaos`: rounds of random faults on real servers under load, each checked by event id.
//!
//! A [`stage`] of one PostgreSQL, three Kafka nodes and proxies in between serves all rounds. A [`round`] has its own
//! database, slot and topic; its [`fault`]s are drawn from the seed, so that the same seed does the same things again.

mod evidence;
mod fault;
mod round;
mod stage;
mod summary;
mod world;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use e2e::random::Random;

use crate::round::Round;
use crate::stage::Stage;
use crate::summary::Summary;

/// Rounds of random faults.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many rounds.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Where the random choices start; taken from the clock if it is not given.
    #[arg(long)]
    seed: Option<u64>,
    /// The promise that is tested.
    #[arg(long, value_enum, default_value_t = Delivery::AtLeastOnce)]
    delivery: Delivery,
    /// Folder for what is kept of rounds that failed.
    #[arg(long, default_value = "target/chaos")]
    evidence: PathBuf,
}

/// What the connector promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    /// Repeats are allowed after faults, as re-runs of a whole stretch.
    AtLeastOnce,
    /// A consumer that reads committed records sees none.
    ExactlyOnce,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(Random::run_seed);
    let mut summary = Summary::new(seed, arguments.delivery);
    say(&format!(
        "seed {seed}, {} rounds, {}: starting servers",
        arguments.rounds,
        arguments.delivery.name()
    ));
    let stage = Stage::start().await?;
    for number in 1..=arguments.rounds {
        let round = Round::new(&stage, arguments.delivery, seed, number);
        let outcome = round.play().await;
        say(&outcome.line());
        if !outcome.held() {
            let folder = evidence::keep(&arguments.evidence, &stage, &outcome)?;
            say(&format!("  kept in {}", folder.display()));
        }
        summary.add(&outcome);
    }
    say(&summary.faults_line());
    say(&summary.line());
    ensure!(summary.held(), "not every round held");
    Ok(())
}

impl Delivery {
    fn name(self) -> &'static str {
        match self {
            Self::AtLeastOnce => "at-least-once",
            Self::ExactlyOnce => "exactly-once",
        }
    }
}

fn say(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{text}").ok();
}
