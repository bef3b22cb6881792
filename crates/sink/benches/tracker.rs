//! The tracker's speed: acknowledgements per second with 100 000 records outstanding, in three orders.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use pgoutput::{Lsn, PgTimestamp, TransactionId};
use sink::{Ticket, Tracker};

fn main() {
    divan::main();
}

#[divan::bench]
fn ack_in_order(bencher: Bencher<'_, '_>) {
    ack_all(bencher, |_| ());
}

#[divan::bench]
fn ack_reversed(bencher: Bencher<'_, '_>) {
    ack_all(bencher, <[Ticket]>::reverse);
}

#[divan::bench]
fn ack_in_random_order(bencher: Bencher<'_, '_>) {
    ack_all(bencher, shuffle);
}

/// What enqueueing costs: transactions of ten records, nothing acknowledged.
#[divan::bench]
fn issue(bencher: Bencher<'_, '_>) {
    bencher
        .counter(ItemsCount::new(OUTSTANDING))
        .bench_local(|| black_box(outstanding()));
}

fn ack_all(bencher: Bencher<'_, '_>, order: fn(&mut [Ticket])) {
    bencher
        .counter(ItemsCount::new(OUTSTANDING))
        .with_inputs(|| {
            let (tracker, mut tickets) = outstanding();
            order(&mut tickets);
            (tracker, tickets)
        })
        .bench_local_values(|(mut tracker, tickets)| {
            for ticket in tickets {
                tracker.ack(black_box(ticket));
            }
            assert_eq!(tracker.outstanding(), 0);
            tracker
        });
}

fn outstanding() -> (Tracker, Vec<Ticket>) {
    let mut tracker = Tracker::new(Lsn::ZERO);
    let mut tickets = Vec::with_capacity(OUTSTANDING);
    for transaction in 1..=(OUTSTANDING / 10) as u64 {
        tracker.begin(TransactionId {
            final_lsn: Lsn::new(transaction * 1_000),
            commit_time: PgTimestamp::new(0),
            xid: 1,
        });
        tickets.extend((0..10).map(|_| tracker.issue(200)));
        tracker.commit(Lsn::new(transaction * 1_000 + 48));
    }
    (tracker, tickets)
}

/// Fisher and Yates, with xorshift: the same order each time.
fn shuffle(tickets: &mut [Ticket]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for index in (1..tickets.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        tickets.swap(index, (state % (index as u64 + 1)) as usize);
    }
}

const OUTSTANDING: usize = 100_000;
