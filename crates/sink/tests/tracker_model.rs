//! The tracker against a model so naive that it is plainly right: a list of everything the stream said in this
//! attempt, read from its beginning after every step.

use pgoutput::{Lsn, PgTimestamp, TransactionId};
use proptest::prelude::*;
use sink::{Ack, Ticket, Tracker};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Any stream, any order of acknowledgements, keepalives and restarts anywhere: after every step the tracker
    /// agrees with the model, the position has not gone back, and at the end everything can be confirmed.
    #[test]
    fn the_tracker_agrees_with_the_model(steps in prop::collection::vec(step(), 0..200), order in any::<u64>()) {
        let mut run = Run::new();
        for step in steps {
            let before = run.tracker.confirmed();
            run.take(step);
            run.check();
            prop_assert!(run.tracker.confirmed() >= before, "the position went back");
        }
        run.finish(order);
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The same with few restarts and long transactions, so that the ring grows and wraps.
    #[test]
    fn a_large_window_changes_nothing(steps in prop::collection::vec(busy_step(), 500..1_500), order in any::<u64>()) {
        let mut run = Run::new();
        for step in steps {
            run.take(step);
        }
        run.check();
        run.finish(order);
    }
}

/// What can happen. Numbers pick among what is there at that moment.
#[derive(Debug, Clone)]
enum Step {
    Begin,
    Issue {
        bytes: u32,
    },
    Commit,
    /// How far the server is ahead of the stream, or behind it.
    Idle {
        ahead: i64,
    },
    Ack {
        pick: usize,
    },
    AckTwice {
        pick: usize,
    },
    AckOfEarlierAttempt {
        pick: usize,
    },
    AckNeverIssued {
        beyond: u64,
    },
    Restart {
        ahead: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Begin),
        8 => (0..1_000_u32).prop_map(|bytes| Step::Issue { bytes }),
        4 => Just(Step::Commit),
        2 => (-50..50_i64).prop_map(|ahead| Step::Idle { ahead }),
        8 => any::<usize>().prop_map(|pick| Step::Ack { pick }),
        1 => any::<usize>().prop_map(|pick| Step::AckTwice { pick }),
        1 => any::<usize>().prop_map(|pick| Step::AckOfEarlierAttempt { pick }),
        1 => (0..u64::MAX / 2).prop_map(|beyond| Step::AckNeverIssued { beyond }),
        1 => (-50..50_i64).prop_map(|ahead| Step::Restart { ahead }),
    ]
}

fn busy_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        200 => step(),
        600 => (0..1_000_u32).prop_map(|bytes| Step::Issue { bytes }),
        200 => any::<usize>().prop_map(|pick| Step::Ack { pick }),
    ]
}

/// Everything the stream said since the last restart, in order.
#[derive(Debug)]
enum Said {
    Ticket {
        number: u64,
        bytes: u32,
        acked: bool,
    },
    Mark {
        position: Lsn,
    },
}

struct Run {
    tracker: Tracker,
    /// Issues the same numbers, to have a ticket twice although tickets cannot be copied.
    copier: Tracker,
    tickets: Vec<Ticket>,
    copies: Vec<Ticket>,
    earlier: Vec<Ticket>,
    said: Vec<Said>,
    /// The highest position of which the naive reading ever said that all before it is acknowledged.
    confirmed: Lsn,
    open: bool,
    position: u64,
    issued: u64,
}

impl Run {
    fn new() -> Self {
        Self {
            tracker: Tracker::new(Lsn::new(1_000)),
            copier: Tracker::new(Lsn::ZERO),
            tickets: Vec::new(),
            copies: Vec::new(),
            earlier: Vec::new(),
            said: Vec::new(),
            confirmed: Lsn::new(1_000),
            open: false,
            position: 1_000,
            issued: 0,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Begin if !self.open => self.begin(),
            Step::Commit if self.open => self.commit(),
            Step::Begin | Step::Commit => {}
            Step::Issue { bytes } => self.issue(bytes),
            Step::Idle { ahead } => self.idle(ahead),
            Step::Ack { pick } => self.ack(pick),
            Step::AckTwice { pick } => {
                if !self.copies.is_empty() {
                    let copy = self.copies.swap_remove(pick % self.copies.len());
                    let expected = match self.find(&copy) {
                        Some(false) => return self.copies.push(copy),
                        Some(true) | None => Ack::Settled,
                    };
                    assert_eq!(self.tracker.ack(copy), expected);
                }
            }
            Step::AckOfEarlierAttempt { pick } => {
                if !self.earlier.is_empty() {
                    let ticket = self.earlier.swap_remove(pick % self.earlier.len());
                    assert_eq!(self.tracker.ack(ticket), Ack::Settled);
                }
            }
            Step::AckNeverIssued { beyond } => self.ack_never_issued(beyond),
            Step::Restart { ahead } => self.restart(ahead),
        }
    }

    fn begin(&mut self) {
        self.position += 10;
        self.open = true;
        self.tracker.begin(TransactionId {
            final_lsn: Lsn::new(self.position),
            commit_time: PgTimestamp::new(0),
            xid: 7,
        });
    }

    fn commit(&mut self) {
        self.position += 10;
        self.open = false;
        let position = Lsn::new(self.position);
        self.tracker.commit(position);
        self.said.push(Said::Mark { position });
    }

    fn issue(&mut self, bytes: u32) {
        let ticket = self.tracker.issue(bytes);
        assert_eq!(
            ticket.number(),
            self.issued,
            "a number is given once, in order"
        );
        self.issued += 1;
        let number = ticket.number();
        self.said.push(Said::Ticket {
            number,
            bytes,
            acked: false,
        });
        self.tickets.push(ticket);
        self.copies.push(self.copier.issue(0));
    }

    fn idle(&mut self, ahead: i64) {
        let position = Lsn::new(self.position.saturating_add_signed(ahead));
        assert_eq!(self.tracker.idle(position), !self.open);
        if !self.open {
            self.position = self.position.max(position.as_u64());
            self.said.push(Said::Mark { position });
        }
    }

    fn ack(&mut self, pick: usize) {
        if self.tickets.is_empty() {
            return;
        }
        let ticket = self.tickets.swap_remove(pick % self.tickets.len());
        for said in &mut self.said {
            if let Said::Ticket { number, acked, .. } = said
                && *number == ticket.number()
            {
                *acked = true;
            }
        }
        assert!(self.tracker.is_outstanding(&ticket));
        assert_eq!(self.tracker.ack(ticket), Ack::Counted);
    }

    fn ack_never_issued(&mut self, beyond: u64) {
        // A tracker of its own that runs ahead of ours.
        let mut other = Tracker::new(Lsn::ZERO);
        let ahead = beyond % 8;
        let mut ticket = other.issue(0);
        if self.issued < 64 {
            for _ in 0..self.issued + ahead {
                ticket = other.issue(0);
            }
            assert_eq!(self.tracker.ack(ticket), Ack::Unknown);
        }
    }

    fn restart(&mut self, ahead: i64) {
        self.check();
        let seed = Lsn::new(self.position.saturating_add_signed(ahead));
        self.tracker.abandon(seed);
        self.confirmed = self.confirmed.max(seed);
        self.earlier.append(&mut self.tickets);
        self.said.clear();
        self.open = false;
        self.position = self.position.max(seed.as_u64());
    }

    /// Whether the ticket of this number was acknowledged; nothing for one of an earlier attempt.
    fn find(&self, ticket: &Ticket) -> Option<bool> {
        self.said.iter().find_map(|said| match said {
            Said::Ticket { number, acked, .. } if *number == ticket.number() => Some(*acked),
            Said::Ticket { .. } | Said::Mark { .. } => None,
        })
    }

    fn check(&mut self) {
        let (mut outstanding, mut bytes_outstanding, mut window) = (0, 0, 0);
        for said in &self.said {
            match said {
                Said::Ticket { bytes, acked, .. } => {
                    if !acked {
                        outstanding += 1;
                        bytes_outstanding += u64::from(*bytes);
                    }
                    window += u64::from(outstanding > 0);
                }
                Said::Mark { position } if outstanding == 0 => {
                    self.confirmed = self.confirmed.max(*position);
                }
                Said::Mark { .. } => {}
            }
        }
        assert_eq!(self.tracker.confirmed().as_lsn(), self.confirmed);
        assert_eq!(self.tracker.outstanding(), outstanding);
        assert_eq!(self.tracker.outstanding_bytes(), bytes_outstanding);
        assert_eq!(
            self.tracker.window(),
            window,
            "more is remembered than is outstanding"
        );
    }

    /// Acknowledges all that is left, in an order made of `order`: the position reaches the end of the stream.
    fn finish(mut self, order: u64) {
        if self.open {
            self.commit();
        }
        let mut state = order | 1;
        while !self.tickets.is_empty() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            self.ack((state >> 33) as usize);
        }
        self.check();
        let last = self.said.iter().filter_map(|said| match said {
            Said::Mark { position } => Some(*position),
            Said::Ticket { .. } => None,
        });
        // Tickets behind the last mark hold nothing.
        let end = last.max().unwrap_or(self.confirmed);
        assert!(self.tracker.confirmed().as_lsn() >= end);
        assert_eq!((self.tracker.outstanding(), self.tracker.window()), (0, 0));
    }
}
