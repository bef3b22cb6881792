//! The clocks of a world, which stand still until the world moves them.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use pgoutput::PgTimestamp;
use posthaste::clock::{Clock, Now};

#[derive(Debug, Clone)]
pub(crate) struct SimClock(Rc<Face>);

#[derive(Debug)]
struct Face {
    now: Cell<Now>,
    /// How often it was looked at since it moved.
    looks: Cell<u64>,
}

impl SimClock {
    pub(crate) fn new() -> Self {
        let now = Now {
            instant: Instant::now(),
            wall: PgTimestamp::from_unix_micros(WALL_START),
        };
        Self(Rc::new(Face {
            now: Cell::new(now),
            looks: Cell::new(0),
        }))
    }

    /// Time passes; the wall clock is set by somebody else and may jump.
    pub(crate) fn pass(&self, millis: u64, wall_jump_millis: i64) {
        self.0.looks.set(0);
        let Now { instant, wall } = self.0.now.get();
        let millis_signed = i64::try_from(millis).expect("a short time");
        let micros = wall.unix_micros() + (millis_signed + wall_jump_millis) * 1_000;
        self.0.now.set(Now {
            instant: instant + Duration::from_millis(millis),
            wall: PgTimestamp::from_unix_micros(micros),
        });
    }
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        let looks = self.0.looks.get() + 1;
        self.0.looks.set(looks);
        assert!(looks < LOOKS_MAX, "a loop that waits for nothing");
        self.0.now.get()
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

/// More than any turn of a process needs.
const LOOKS_MAX: u64 = 1_000_000;

const WALL_START: i64 = 1_800_000_000_000_000;
