//! Waiting for a state with a deadline: the only place of these tests where time passes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a state is looked at while it is awaited.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Polls until `poll` yields a value, and fails at the deadline with what was awaited.
///
/// # Errors
/// The deadline passed, or `poll` itself failed.
pub async fn until<T>(
    what: &str,
    deadline: Duration,
    mut poll: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(value) = poll().await? {
            return Ok(value);
        }
        if started.elapsed() > deadline {
            bail!("waited {deadline:?} in vain for: {what}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Like [`until`], for a state that is simply true or not yet true.
///
/// # Errors
/// The deadline passed, or `poll` itself failed.
pub async fn until_true(
    what: &str,
    deadline: Duration,
    mut poll: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    until(what, deadline, async || Ok(poll().await?.then_some(()))).await
}

/// Tries until `attempt` succeeds, and fails at the deadline with its last error.
///
/// # Errors
/// The deadline passed.
pub async fn retry<T, F: Future<Output = Result<T>>>(
    what: &str,
    deadline: Duration,
    mut attempt: impl FnMut() -> F,
) -> Result<T> {
    let started = Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if started.elapsed() > deadline => {
                return Err(error.context(format!("tried for {deadline:?} in vain: {what}")));
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Looks at a state for a whole `span` and fails as soon as it does not hold.
///
/// # Errors
/// The state did not hold once, or `poll` itself failed.
pub async fn throughout(
    what: &str,
    span: Duration,
    mut poll: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < span {
        if !poll().await? {
            bail!("after {:?} it no longer held: {what}", started.elapsed());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Lets time pass: for faults that last and links that are slow, where no state is awaited.
pub async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}
