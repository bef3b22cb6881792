//! Shutdown: the first signal asks for an orderly stop, the second one ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Tells everybody whether an orderly stop was asked for.
///
/// Cloning is cheap; all clones see the same request. The request is never taken back.
#[derive(Debug, Clone)]
pub struct Shutdown {
    requested: watch::Receiver<bool>,
}

/// The side that asks.
#[derive(Debug)]
pub struct ShutdownTrigger {
    requested: watch::Sender<bool>,
}

impl Shutdown {
    /// A request that has not been made, and the means to make it.
    #[must_use]
    pub fn channel() -> (ShutdownTrigger, Self) {
        let (sender, receiver) = watch::channel(false);
        (
            ShutdownTrigger { requested: sender },
            Self {
                requested: receiver,
            },
        )
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Waits for the request. A trigger that is gone counts as a request, so nobody waits for ever.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped: the request is a state, not a message.
    pub async fn requested(&mut self) {
        // An error means that the trigger was dropped, which is the request as well.
        drop(self.requested.wait_for(|requested| *requested).await);
    }

    /// Runs a future unless a stop is asked for first; `None` means stop.
    pub async fn unless_requested<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.requested() => None,
            value = work => Some(value),
        }
    }
}

impl ShutdownTrigger {
    /// Asks for an orderly stop.
    pub fn request(&self) {
        self.requested.send_replace(true);
    }
}

/// SIGTERM and SIGINT, as one stream of wishes to stop.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers; from here on the signals no longer kill the process by themselves.
    ///
    /// # Errors
    ///
    /// The operating system refused a handler.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The name of the next signal that arrives.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_reaches_every_clone_and_stays() {
        let (trigger, shutdown) = Shutdown::channel();
        let mut early = shutdown.clone();
        assert!(!shutdown.is_requested());
        trigger.request();
        early.requested().await;
        let mut late = shutdown.clone();
        late.requested().await;
        assert!(late.is_requested());
    }

    #[tokio::test]
    async fn work_is_abandoned_once_a_stop_is_asked_for() {
        let (trigger, mut shutdown) = Shutdown::channel();
        assert_eq!(shutdown.unless_requested(async { 7 }).await, Some(7));
        trigger.request();
        let never = std::future::pending::<()>();
        assert_eq!(shutdown.unless_requested(never).await, None);
    }

    #[tokio::test]
    async fn a_trigger_that_is_gone_counts_as_a_request() {
        let (trigger, mut shutdown) = Shutdown::channel();
        drop(trigger);
        shutdown.requested().await;
    }
}
