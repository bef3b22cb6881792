//! The end of a test under load: all that was committed is in the topics, and the server has been told.

use std::time::Duration;

use anyhow::Result;

use crate::checker::{Repeats, Summary, check};
use crate::consumer::Consumer;
use crate::fixture::{Fixture, SOON};
use crate::ledger::Ledger;

/// For the last events of the largest ledger, on a busy machine.
const ARRIVAL: Duration = Duration::from_secs(60);

/// Waits until each event of the ledger was read and the slot has caught up, and checks all that stands in the topics then.
///
/// # Errors
/// Events are missing at the deadline, the position does not follow, or what was read is not what was committed.
pub async fn all_arrive(
    fixture: &Fixture,
    consumer: &mut Consumer,
    ledger: &Ledger,
    repeats: Repeats,
) -> Result<Summary> {
    consumer.wait_for_events(ledger.len(), ARRIVAL).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    check(ledger, consumer.read_to_end().await?, repeats)
}
