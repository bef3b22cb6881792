//! Stages 6 and 8 of 9: the tracker. A record takes a Ticket, an acknowledgement gives it back, and Confirmed is
//! the newest position before which nothing is missing.
//!
//! Pure: no clock, no socket, no thread. This is the promise of the whole program in one type, small enough to be
//! read aloud.
//!
//! ```text
//!  tickets   0 1 2 3 4 5 6 7 8 9          a dot is acknowledged: they come back in any order
//!            . . . 3 . 5 . . . 9
//!                  ^base           ^next
//!  marks         3|        7|8|   10|     a commit (or a keepalive between transactions) puts a mark behind the
//!               0/A0     0/B0 0/B8 0/C0   tickets issued so far; it is reached when all before it are acknowledged
//!               ^confirmed
//! ```

use std::collections::VecDeque;

use pgoutput::{Lsn, PgTimestamp, TransactionId};

use crate::ticket::Ticket;

/// Knows which records are not acknowledged yet, and so how far the position may move.
///
/// Invariants:
/// - [`confirmed`](Self::confirmed) never goes back, and never passes a ticket that is not acknowledged.
/// - It is the seed, or the end of a transaction, or where the server stood while no transaction was open; never a
///   place inside a transaction.
/// - A ticket's number is never given twice, whatever [`abandon`](Self::abandon) forgets.
/// - Memory is bounded by [`window`](Self::window): marks behind the same ticket are one mark.
#[derive(Debug)]
pub struct Tracker {
    confirmed: Lsn,
    /// Number of the first slot. Every ticket below it is acknowledged or abandoned.
    base: u64,
    slots: VecDeque<Slot>,
    /// By ascending bound, each above `base`.
    marks: VecDeque<Mark>,
    outstanding: u64,
    outstanding_bytes: u64,
    open: Option<OpenTransaction>,
}

impl Tracker {
    /// A tracker that stands at `seed`: the position the stream starts from.
    #[must_use]
    pub fn new(seed: Lsn) -> Self {
        Self {
            confirmed: seed,
            base: 0,
            slots: VecDeque::new(),
            marks: VecDeque::new(),
            outstanding: 0,
            outstanding_bytes: 0,
            open: None,
        }
    }

    /// A transaction begins in the stream.
    pub fn begin(&mut self, transaction: TransactionId) {
        debug_assert!(self.open.is_none(), "transactions never nest");
        self.open = Some(OpenTransaction {
            commit_time: transaction.commit_time,
            first_ticket: self.next(),
        });
        self.assert_invariants();
    }

    /// A record of `bytes` bytes goes out: from now on no mark is reached before its ticket is acknowledged.
    ///
    /// Also right outside a transaction: only a mark made later passes it.
    pub fn issue(&mut self, bytes: u32) -> Ticket {
        let ticket = Ticket::new(self.next());
        self.slots.push_back(Slot {
            bytes,
            acked: false,
        });
        self.outstanding += 1;
        self.outstanding_bytes += u64::from(bytes);
        debug_assert!(self.next() > ticket.number(), "a number is given once");
        self.assert_invariants();
        ticket
    }

    /// The open transaction ended: `end_lsn` is where the position may stand once all before it is acknowledged.
    ///
    /// Returns its commit time if it had records and all are acknowledged already. A commit without a begin is only
    /// the tail of a transaction whose head was abandoned, so it makes no mark.
    pub fn commit(&mut self, end_lsn: Lsn) -> Option<PgTimestamp> {
        debug_assert!(self.open.is_some(), "a commit closes a transaction");
        let open = self.open.take()?;
        let had_records = open.first_ticket < self.next();
        let reached = self.mark(end_lsn, had_records.then_some(open.commit_time));
        debug_assert!(self.open.is_none());
        self.assert_invariants();
        reached
    }

    /// The server says, between transactions, that it has sent everything before `wal_end`.
    ///
    /// That is a mark like a commit's: without it, the slot of a quiet table in a busy server would pin WAL for
    /// ever. Inside a transaction it says nothing about what we have, and is ignored; returns whether it counted.
    pub fn idle(&mut self, wal_end: Lsn) -> bool {
        if self.open.is_some() {
            return false;
        }
        let reached = self.mark(wal_end, None);
        debug_assert!(reached.is_none(), "an idle mark has no transaction");
        self.assert_invariants();
        true
    }

    /// The broker has the record of `ticket`; see [`ack_with`](Self::ack_with).
    pub fn ack(&mut self, ticket: Ticket) -> Ack {
        self.ack_with(ticket, |_| ())
    }

    /// The broker has the record of `ticket`: `on_reached` is told the commit time of each transaction that is now
    /// completely acknowledged.
    ///
    /// A ticket that is not outstanding changes nothing; the answer says why.
    pub fn ack_with(&mut self, ticket: Ticket, on_reached: impl FnMut(PgTimestamp)) -> Ack {
        let Some(index) = ticket.number().checked_sub(self.base) else {
            return Ack::Settled;
        };
        let slot = usize::try_from(index)
            .ok()
            .and_then(|index| self.slots.get_mut(index));
        let Some(slot) = slot else {
            return Ack::Unknown;
        };
        if slot.acked {
            return Ack::Settled;
        }
        slot.acked = true;
        debug_assert!(self.outstanding > 0, "an unacknowledged slot is counted");
        self.outstanding -= 1;
        self.outstanding_bytes -= u64::from(slot.bytes);
        if index == 0 {
            self.advance(on_reached);
        }
        self.assert_invariants();
        Ack::Counted
    }

    /// Forgets everything outstanding: the stream starts again, from `seed` or from what is confirmed, whichever is
    /// later. Tickets from before are [`Ack::Settled`] from now on.
    pub fn abandon(&mut self, seed: Lsn) {
        let (next, before) = (self.next(), self.confirmed);
        self.base = next;
        self.slots.clear();
        self.marks.clear();
        self.outstanding = 0;
        self.outstanding_bytes = 0;
        self.open = None;
        self.confirmed = self.confirmed.max(seed);
        debug_assert!(self.confirmed >= before, "the position never goes back");
        debug_assert!(self.next() == next, "numbers are not given again");
        self.assert_invariants();
    }

    /// The newest position before which everything is acknowledged.
    #[must_use]
    pub fn confirmed(&self) -> Confirmed {
        Confirmed(self.confirmed)
    }

    /// Whether this ticket's acknowledgement would count.
    #[must_use]
    pub fn is_outstanding(&self, ticket: &Ticket) -> bool {
        let index = ticket.number().checked_sub(self.base);
        let slot = index.and_then(|index| self.slots.get(usize::try_from(index).ok()?));
        slot.is_some_and(|slot| !slot.acked)
    }

    /// Tickets not acknowledged yet.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// The bytes of their records.
    #[must_use]
    pub fn outstanding_bytes(&self) -> u64 {
        self.outstanding_bytes
    }

    /// Tickets from the oldest that is not acknowledged to the newest, acknowledged or not: what the tracker has to
    /// remember, and what would be sent again after a crash.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.slots.len() as u64
    }

    /// When the transaction of the oldest unacknowledged record committed.
    #[must_use]
    pub fn oldest(&self) -> Option<PgTimestamp> {
        if self.slots.is_empty() {
            return None;
        }
        let open = self.open.as_ref().map(|open| open.commit_time);
        self.marks.iter().find_map(|mark| mark.commit_time).or(open)
    }

    /// Puts a mark behind all tickets issued so far, or moves the position at once if none is outstanding.
    fn mark(&mut self, position: Lsn, commit_time: Option<PgTimestamp>) -> Option<PgTimestamp> {
        let bound = self.next();
        debug_assert!(self.marks.back().is_none_or(|last| last.bound <= bound));
        if bound == self.base {
            debug_assert!(self.marks.is_empty(), "a mark waits for tickets only");
            self.confirmed = self.confirmed.max(position);
            return commit_time;
        }
        match self.marks.back_mut() {
            // Nothing was issued in between, so both are reached by the same acknowledgement. The first of them is
            // the one that may have had records.
            Some(last) if last.bound == bound => last.position = last.position.max(position),
            _ => self.marks.push_back(Mark {
                bound,
                position,
                commit_time,
            }),
        }
        None
    }

    /// Drops the acknowledged front and moves the position to the last mark it reaches.
    fn advance(&mut self, mut on_reached: impl FnMut(PgTimestamp)) {
        let before = (self.confirmed, self.base);
        while self.slots.front().is_some_and(|slot| slot.acked) {
            self.slots.pop_front();
            self.base += 1;
        }
        while let Some(mark) = self.marks.front().copied()
            && mark.bound <= self.base
        {
            self.marks.pop_front();
            self.confirmed = self.confirmed.max(mark.position);
            if let Some(commit_time) = mark.commit_time {
                on_reached(commit_time);
            }
        }
        debug_assert!(self.confirmed >= before.0, "the position never goes back");
        debug_assert!(
            self.base > before.1,
            "called when the front is acknowledged"
        );
    }

    /// The number of the next ticket.
    fn next(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    fn assert_invariants(&self) {
        debug_assert!(self.outstanding <= self.window());
        debug_assert!((self.outstanding == 0) == self.slots.is_empty());
        debug_assert!(self.slots.front().is_none_or(|slot| !slot.acked));
        debug_assert!(self.marks.len() <= self.slots.len());
        debug_assert!(self.marks.front().is_none_or(|mark| mark.bound > self.base));
        debug_assert!(
            self.marks
                .back()
                .is_none_or(|mark| mark.bound <= self.next())
        );
    }
}

/// A position with nothing missing before it. Only a [`Tracker`] makes one, so what asks for a `Confirmed` cannot be
/// given anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confirmed(Lsn);

impl Confirmed {
    /// The position itself.
    #[must_use]
    pub const fn as_lsn(self) -> Lsn {
        self.0
    }
}

/// What an acknowledgement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// It was outstanding and no longer is.
    Counted,
    /// It was acknowledged before, or abandoned.
    Settled,
    /// It was never issued here.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    bytes: u32,
    acked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Reached when every ticket below it is acknowledged.
    bound: u64,
    position: Lsn,
    /// Of the transaction whose records stand directly before it; none for an idle mark.
    commit_time: Option<PgTimestamp>,
}

#[derive(Debug, Clone, Copy)]
struct OpenTransaction {
    commit_time: PgTimestamp,
    first_ticket: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lsn(position: u64) -> Lsn {
        Lsn::new(position)
    }

    fn transaction(commit_time: i64) -> TransactionId {
        TransactionId {
            final_lsn: lsn(1),
            commit_time: PgTimestamp::new(commit_time),
            xid: 7,
        }
    }

    fn tracker() -> Tracker {
        Tracker::new(lsn(10))
    }

    /// A whole transaction of `records` records that ends at `end`.
    fn commit(tracker: &mut Tracker, records: usize, end: u64) -> Vec<Ticket> {
        tracker.begin(transaction(i64::try_from(end).unwrap()));
        let tickets = (0..records).map(|_| tracker.issue(5)).collect();
        tracker.commit(lsn(end));
        tickets
    }

    fn confirmed(tracker: &Tracker) -> u64 {
        tracker.confirmed().as_lsn().as_u64()
    }

    #[test]
    fn it_stands_at_its_seed() {
        assert_eq!(confirmed(&tracker()), 10);
    }

    #[test]
    fn a_transaction_is_confirmed_when_all_its_records_are_acknowledged() {
        let mut tracker = tracker();
        for ticket in commit(&mut tracker, 3, 20) {
            assert_eq!(confirmed(&tracker), 10);
            assert_eq!(tracker.ack(ticket), Ack::Counted);
        }
        assert_eq!(confirmed(&tracker), 20);
    }

    #[test]
    fn the_order_of_acknowledgements_does_not_matter() {
        let mut tracker = tracker();
        let mut tickets = commit(&mut tracker, 1, 20);
        tickets.extend(commit(&mut tracker, 2, 30));
        tickets.extend(commit(&mut tracker, 1, 40));
        let first = tickets.remove(0);
        for ticket in tickets.into_iter().rev() {
            tracker.ack(ticket);
            assert_eq!(confirmed(&tracker), 10);
        }
        tracker.ack(first);
        assert_eq!(confirmed(&tracker), 40);
    }

    #[test]
    fn a_transaction_without_records_moves_the_position_at_once() {
        let mut tracker = tracker();
        commit(&mut tracker, 0, 20);
        assert_eq!(confirmed(&tracker), 20);
    }

    #[test]
    fn an_open_transaction_is_never_confirmed_in_part() {
        let mut tracker = tracker();
        tracker.begin(transaction(0));
        let ticket = tracker.issue(1);
        tracker.ack(ticket);
        assert!(!tracker.idle(lsn(99)), "a keepalive inside it says nothing");
        assert_eq!(confirmed(&tracker), 10);
        tracker.commit(lsn(20));
        assert_eq!(confirmed(&tracker), 20);
    }

    #[test]
    fn a_quiet_stream_follows_the_servers_keepalives() {
        let mut tracker = tracker();
        assert!(tracker.idle(lsn(50)));
        assert_eq!(confirmed(&tracker), 50);
    }

    #[test]
    fn a_keepalive_waits_for_what_is_outstanding() {
        let mut tracker = tracker();
        let ticket = commit(&mut tracker, 1, 20).remove(0);
        tracker.idle(lsn(50));
        assert_eq!(confirmed(&tracker), 10);
        tracker.ack(ticket);
        assert_eq!(confirmed(&tracker), 50);
    }

    #[test]
    fn a_keepalive_behind_the_position_moves_nothing_back() {
        let mut tracker = tracker();
        tracker.idle(lsn(50));
        tracker.idle(lsn(40));
        commit(&mut tracker, 0, 30);
        assert_eq!(confirmed(&tracker), 50);
    }

    #[test]
    fn only_a_later_mark_passes_a_ticket_outside_a_transaction() {
        let mut tracker = tracker();
        let ticket = tracker.issue(1);
        tracker.ack(ticket);
        assert_eq!(confirmed(&tracker), 10);
        let ticket = tracker.issue(1);
        tracker.idle(lsn(20));
        assert_eq!(confirmed(&tracker), 10);
        tracker.ack(ticket);
        assert_eq!(confirmed(&tracker), 20);
    }

    #[test]
    fn a_second_acknowledgement_changes_nothing() {
        let mut tracker = tracker();
        let tickets = commit(&mut tracker, 3, 20);
        let again = |index: usize| Ticket::new(tickets[index].number());
        assert_eq!(tracker.ack(again(1)), Ack::Counted);
        assert_eq!(tracker.ack(again(1)), Ack::Settled);
        assert_eq!(tracker.ack(again(0)), Ack::Counted);
        assert_eq!(tracker.ack(again(0)), Ack::Settled);
        assert_eq!((tracker.outstanding(), confirmed(&tracker)), (1, 10));
    }

    #[test]
    fn a_ticket_is_outstanding_from_its_issue_to_its_acknowledgement() {
        let mut tracker = tracker();
        let tickets = commit(&mut tracker, 2, 20);
        let again = |index: usize| Ticket::new(tickets[index].number());
        assert!(!tracker.is_outstanding(&Ticket::new(2)), "not issued yet");
        tracker.ack(again(1));
        assert!(tracker.is_outstanding(&again(0)));
        assert!(!tracker.is_outstanding(&again(1)));
        tracker.ack(again(0));
        assert!(!tracker.is_outstanding(&again(0)), "behind the window");
    }

    #[test]
    fn a_ticket_never_issued_changes_nothing() {
        let mut tracker = tracker();
        let tickets = commit(&mut tracker, 1, 20);
        assert_eq!(
            tracker.ack(Ticket::new(tickets[0].number() + 1)),
            Ack::Unknown
        );
        assert_eq!(tracker.ack(Ticket::new(u64::MAX)), Ack::Unknown);
        assert_eq!(confirmed(&tracker), 10);
    }

    #[test]
    fn a_dropped_ticket_holds_the_position() {
        let mut tracker = tracker();
        drop(commit(&mut tracker, 1, 20));
        let ticket = commit(&mut tracker, 1, 30).remove(0);
        tracker.ack(ticket);
        assert_eq!(confirmed(&tracker), 10);
    }

    #[test]
    fn tickets_from_before_a_restart_confirm_nothing_after_it() {
        let mut tracker = tracker();
        let old = commit(&mut tracker, 2, 20);
        tracker.begin(transaction(0));
        tracker.abandon(lsn(10));
        assert_eq!((tracker.outstanding(), tracker.outstanding_bytes()), (0, 0));
        let new = commit(&mut tracker, 2, 20);
        assert!(new[0] > old[1], "numbers are not given again");
        for ticket in old {
            assert_eq!(tracker.ack(ticket), Ack::Settled);
        }
        assert_eq!((tracker.outstanding(), confirmed(&tracker)), (2, 10));
        for ticket in new {
            tracker.ack(ticket);
        }
        assert_eq!(confirmed(&tracker), 20);
    }

    #[test]
    fn a_restart_never_moves_the_position_back() {
        let mut tracker = tracker();
        tracker.abandon(lsn(5));
        assert_eq!(confirmed(&tracker), 10);
        tracker.abandon(lsn(15));
        assert_eq!(confirmed(&tracker), 15);
    }

    #[test]
    fn marks_without_records_between_them_are_one() {
        let mut tracker = tracker();
        let ticket = commit(&mut tracker, 1, 20).remove(0);
        for end in 21..1_000 {
            commit(&mut tracker, 0, end);
            tracker.idle(lsn(end));
        }
        assert_eq!(tracker.marks.len(), 1);
        tracker.ack(ticket);
        assert_eq!(confirmed(&tracker), 999);
    }

    #[test]
    fn bytes_are_those_of_what_is_outstanding() {
        let mut tracker = tracker();
        let (small, large) = (tracker.issue(10), tracker.issue(1_000));
        assert_eq!(tracker.outstanding_bytes(), 1_010);
        tracker.ack(large);
        assert_eq!((tracker.outstanding_bytes(), tracker.window()), (10, 2));
        tracker.ack(small);
        assert_eq!((tracker.outstanding_bytes(), tracker.window()), (0, 0));
    }

    #[test]
    fn each_transaction_with_records_is_told_once_when_it_is_acknowledged() {
        let mut tracker = tracker();
        let first = commit(&mut tracker, 1, 20).remove(0);
        commit(&mut tracker, 0, 25);
        let second = commit(&mut tracker, 1, 30).remove(0);
        let mut told = Vec::new();
        tracker.ack_with(second, |time| told.push(time.as_i64()));
        assert!(told.is_empty());
        tracker.ack_with(first, |time| told.push(time.as_i64()));
        assert_eq!(told, [20, 30]);
    }

    #[test]
    fn a_transaction_acknowledged_before_its_commit_is_told_by_the_commit() {
        let mut tracker = tracker();
        tracker.begin(transaction(77));
        let ticket = tracker.issue(1);
        tracker.ack(ticket);
        assert_eq!(tracker.commit(lsn(20)), Some(PgTimestamp::new(77)));
        tracker.begin(transaction(78));
        assert_eq!(tracker.commit(lsn(30)), None, "it had no records");
    }

    #[test]
    fn the_oldest_is_the_transaction_of_the_first_missing_record() {
        let mut tracker = tracker();
        assert_eq!(tracker.oldest(), None);
        let first = commit(&mut tracker, 1, 20).remove(0);
        let second = commit(&mut tracker, 1, 30).remove(0);
        assert_eq!(tracker.oldest(), Some(PgTimestamp::new(20)));
        tracker.ack(first);
        assert_eq!(tracker.oldest(), Some(PgTimestamp::new(30)));
        tracker.ack(second);
        assert_eq!(tracker.oldest(), None);
        tracker.begin(transaction(40));
        assert_eq!(tracker.oldest(), None);
        let _open = tracker.issue(1);
        assert_eq!(tracker.oldest(), Some(PgTimestamp::new(40)));
    }
}
