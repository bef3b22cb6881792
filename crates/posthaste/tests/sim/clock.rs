//! The clocks of a world, which stand still until the world moves them.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use pgoutput::PgTimestamp;
use posthaste::clock::{Clock, Now};

#[derive(Debug, Clone)]
pub(crate) struct SimClock(Rc<Cell<Now>>);

impl SimClock {
    pub(crate) fn new() -> Self {
        Self(Rc::new(Cell::new(Now {
            instant: Instant::now(),
            wall: PgTimestamp::from_unix_micros(WALL_START),
        })))
    }

    /// Time passes; the wall clock is set by somebody else and may jump.
    pub(crate) fn pass(&self, millis: u64, wall_jump_millis: i64) {
        let Now { instant, wall } = self.0.get();
        let millis_signed = i64::try_from(millis).expect("a short time");
        let micros = wall.unix_micros() + (millis_signed + wall_jump_millis) * 1_000;
        self.0.set(Now {
            instant: instant + Duration::from_millis(millis),
            wall: PgTimestamp::from_unix_micros(micros),
        });
    }
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        self.0.get()
    }

    async fn sleep_until(&self, at: Instant) {
        // Everybody is looked after at each turn of the world, so nobody needs to be woken.
        poll_fn(|_| {
            if self.instant() >= at {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

const WALL_START: i64 = 1_800_000_000_000_000;
