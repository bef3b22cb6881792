//! `kill -9` of the connector at random moments, while writers go on.

use anyhow::{Context, Result};

use crate::config::Config;
use crate::consumer::Consumer;
use crate::fixture::{Fixture, SOON};
use crate::ledger::Ledger;
use crate::random::Random;
use crate::writer::Load;

/// Starts and kills the connector three times under load, and gives what was committed and the seed of the load.
///
/// # Errors
/// The connector does not start or delivers nothing, or a writer fails.
pub async fn three_times_under_load(
    fixture: &Fixture,
    config: &Config,
    consumer: &mut Consumer,
) -> Result<(Ledger, u64)> {
    let mut random = Random::new(Random::run_seed());
    let load = Load::steady(150);
    let seed = load.seed;
    let load = load.start(fixture).await?;
    for round in 0..3 {
        let connector = fixture.start_with(config).await?;
        // Somewhere between the first records of this process and the middle of its stride.
        consumer
            .wait_for_events(consumer.distinct() + 1 + random.below(400), SOON)
            .await
            .with_context(|| format!("round {round}, seed {seed}"))?;
        connector.kill()?;
        load.goes_on_for(random.below(300), SOON).await?;
    }
    Ok((load.stop().await?, seed))
}
