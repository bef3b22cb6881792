//! Stage 9 of 9: Progress. What to tell the server about our position, and when.
//!
//! Pure: frames, confirmations and time come in, a [`StatusUpdate`] comes out. This is the only
//! place that builds one, and it takes a position only as [`Confirmed`], which only the tracker makes.

use std::time::{Duration, Instant};

use pgoutput::{Lsn, StatusUpdate};
use sink::Confirmed;

use crate::clock::Now;

/// The conversation with the walsender about positions and liveness.
///
/// Invariants: the flushed position sent never goes back; a status update goes out at least every
/// `status_interval` whatever Kafka does; never more than one per [`STATUS_GAP_MIN`], so that a server which asks
/// in a loop (it does while it shuts down, field problem B28) is not answered in a loop.
#[derive(Debug)]
pub struct Progress {
    timing: Timing,
    confirmed: Lsn,
    received: Lsn,
    sent_flushed: Lsn,
    sent_at: Option<Instant>,
    heard_at: Instant,
    /// All that ever came over this connection.
    received_bytes: u64,
    reply_owed: bool,
    question: bool,
}

/// The intervals of the conversation.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Longest time between two status updates.
    pub status_interval: Duration,
    /// Silence of the server after which the connection counts as dead.
    pub silence_max: Duration,
}

impl Timing {
    /// Derives the intervals from the server's `wal_sender_timeout` (zero: the server never times out).
    ///
    /// The server drops us after its timeout without a word from us, so we speak three times as
    /// often. In the other direction we wait twice its timeout, two minutes at most (field problem B26).
    #[must_use]
    pub fn for_server(wal_sender_timeout: Duration, status_interval_max: Duration) -> Self {
        if wal_sender_timeout.is_zero() {
            return Self {
                status_interval: status_interval_max,
                silence_max: SILENCE_MAX,
            };
        }
        Self {
            status_interval: status_interval_max
                .min(wal_sender_timeout / 3)
                .max(STATUS_GAP_MIN),
            silence_max: (wal_sender_timeout * 2).clamp(SILENCE_MIN, SILENCE_MAX),
        }
    }

    fn question_after(self) -> Duration {
        self.status_interval.min(self.silence_max / 3)
    }
}

impl Progress {
    /// A new conversation, starting where the stream was asked to start.
    #[must_use]
    pub fn new(start: Confirmed, now: Now, timing: Timing) -> Self {
        Self {
            timing,
            confirmed: start.as_lsn(),
            received: start.as_lsn(),
            sent_flushed: start.as_lsn(),
            sent_at: None,
            heard_at: now.instant,
            received_bytes: 0,
            reply_owed: false,
            question: false,
        }
    }

    /// The server sent anything at all up to `position`.
    pub fn handle_received(&mut self, position: Lsn, now: Now) {
        debug_assert!(now.instant >= self.heard_at, "time went back");
        self.received = self.received.max(position);
        self.heard_at = now.instant;
        debug_assert!(self.received >= position);
    }

    /// The server sent a keepalive, perhaps asking for an answer.
    pub fn handle_keepalive(&mut self, wal_end: Lsn, reply_requested: bool, now: Now) {
        self.handle_received(wal_end, now);
        self.reply_owed |= reply_requested;
    }

    /// We did not listen (reading is paused), so the server's silence means nothing.
    pub fn handle_paused(&mut self, now: Now) {
        debug_assert!(now.instant >= self.heard_at, "time went back");
        self.heard_at = now.instant;
    }

    /// So many bytes came over this connection until now. True if there are more than before: the server is not silent, if only
    /// a part of a large frame came.
    pub fn handle_bytes(&mut self, received_bytes: u64, now: Now) -> bool {
        let is_heard = received_bytes > self.received_bytes;
        if is_heard {
            self.received_bytes = received_bytes;
            self.heard_at = now.instant;
        }
        is_heard
    }

    /// Makes the next status update ask for a keepalive, and sends it soon: the server's answer says where it stands.
    pub fn ask_for_reply(&mut self) {
        self.question = true;
    }

    /// The brokers acknowledged everything up to `confirmed`.
    pub fn confirm(&mut self, confirmed: Confirmed) {
        debug_assert!(
            confirmed.as_lsn() >= self.confirmed,
            "the tracker went back"
        );
        self.confirmed = self.confirmed.max(confirmed.as_lsn());
        debug_assert!(self.confirmed >= self.sent_flushed);
    }

    /// The status update that is due now, if any; the caller must send what it gets.
    pub fn poll_status(&mut self, now: Now) -> Option<StatusUpdate> {
        if now.instant < self.next_status_at(now) {
            return None;
        }
        Some(self.status(now))
    }

    /// A status update now, due or not: the last word of an orderly stop.
    pub fn status(&mut self, now: Now) -> StatusUpdate {
        debug_assert!(
            self.confirmed >= self.sent_flushed,
            "the position we send went back"
        );
        self.sent_flushed = self.confirmed;
        self.sent_at = Some(now.instant);
        self.reply_owed = false;
        let question = std::mem::take(&mut self.question);
        StatusUpdate {
            written: self.received.max(self.confirmed),
            flushed: self.confirmed,
            applied: self.confirmed,
            sent_at: now.wall,
            // An idle server answers this with a keepalive: silence is never mistaken for death, and
            // a quiet outbox learns of the WAL that others write.
            reply_requested: question || self.silence(now) >= self.timing.question_after(),
        }
    }

    /// When to call [`Self::poll_status`] or [`Self::is_stalled`] again at the latest.
    #[must_use]
    pub fn next_deadline(&self, now: Now) -> Instant {
        self.next_status_at(now)
            .min(self.heard_at + self.timing.silence_max)
    }

    /// Whether the server has been silent for so long that the connection must be dead.
    #[must_use]
    pub fn is_stalled(&self, now: Now) -> bool {
        self.silence(now) >= self.timing.silence_max
    }

    /// How long the server may be silent before [`Self::is_stalled`].
    #[must_use]
    pub fn silence_max(&self) -> Duration {
        self.timing.silence_max
    }

    /// The newest position the server has told us of.
    #[must_use]
    pub fn received(&self) -> Lsn {
        self.received
    }

    /// The position of the next status update.
    #[must_use]
    pub fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    /// Whether the server has been told everything that is confirmed.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.sent_at.is_some() && self.sent_flushed == self.confirmed
    }

    fn silence(&self, now: Now) -> Duration {
        now.instant.saturating_duration_since(self.heard_at)
    }

    fn next_status_at(&self, now: Now) -> Instant {
        let Some(sent_at) = self.sent_at else {
            return now.instant;
        };
        let wanted_soon = self.reply_owed || self.question || self.confirmed > self.sent_flushed;
        let gap = if wanted_soon {
            STATUS_GAP_MIN
        } else {
            self.timing.status_interval
        };
        sent_at + gap.min(self.timing.status_interval)
    }
}

/// Shortest time between two status updates: 10 a second at most.
pub const STATUS_GAP_MIN: Duration = Duration::from_millis(100);

/// Shortest silence that counts as a dead connection, however small `wal_sender_timeout` is.
const SILENCE_MIN: Duration = Duration::from_secs(5);

/// Longest silence before a connection counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use pgoutput::PgTimestamp;
    use sink::Tracker;

    use super::*;

    fn start(lsn: u64) -> (Progress, Now) {
        let now = Now {
            instant: Instant::now(),
            wall: PgTimestamp::new(0),
        };
        let timing = Timing::for_server(Duration::from_secs(60), Duration::from_secs(10));
        (Progress::new(confirmed(lsn), now, timing), now)
    }

    fn confirmed(lsn: u64) -> Confirmed {
        Tracker::new(Lsn::new(lsn)).confirmed()
    }

    fn after(now: Now, millis: u64) -> Now {
        Now {
            instant: now.instant + Duration::from_millis(millis),
            wall: now.wall,
        }
    }

    #[test]
    fn the_first_status_comes_at_once_and_carries_the_start_position() {
        let (mut progress, now) = start(700);
        let status = progress.poll_status(now).expect("due");
        assert_eq!(status.flushed, Lsn::new(700));
        assert_eq!(status.applied, Lsn::new(700));
        assert!(progress.poll_status(now).is_none());
    }

    #[test]
    fn status_goes_out_on_the_timer_while_nothing_happens() {
        let (mut progress, now) = start(1);
        progress.poll_status(now);
        assert!(progress.poll_status(after(now, 9_999)).is_none());
        assert!(progress.poll_status(after(now, 10_000)).is_some());
    }

    #[test]
    fn b28_requests_are_answered_but_never_in_a_tight_loop() {
        let (mut progress, now) = start(1);
        progress.poll_status(now);
        progress.handle_keepalive(Lsn::new(5), true, after(now, 10));
        assert!(progress.poll_status(after(now, 50)).is_none());
        assert!(progress.poll_status(after(now, 100)).is_some());
        assert!(progress.poll_status(after(now, 300)).is_none());
    }

    #[test]
    fn a_keepalive_alone_confirms_nothing() {
        let (mut progress, now) = start(10);
        progress.handle_keepalive(Lsn::new(99), true, now);
        let status = progress.poll_status(now).expect("due");
        assert_eq!(status.flushed, Lsn::new(10));
        assert_eq!(status.written, Lsn::new(99));
    }

    #[test]
    fn a_confirmation_is_told_soon() {
        let (mut progress, now) = start(10);
        progress.poll_status(now);
        progress.confirm(confirmed(20));
        assert!(!progress.is_told());
        let status = progress.poll_status(after(now, 100)).expect("due");
        assert_eq!(status.flushed, Lsn::new(20));
        assert!(progress.is_told());
    }

    #[test]
    fn bytes_of_a_frame_under_way_are_no_silence() {
        let (mut progress, now) = start(1);
        assert!(progress.handle_bytes(10, after(now, 119_000)));
        assert!(!progress.is_stalled(after(now, 238_999)));
        assert!(!progress.handle_bytes(10, after(now, 130_000)), "no more");
        assert!(progress.is_stalled(after(now, 239_000)));
    }

    #[test]
    fn silence_is_questioned_before_it_counts_as_death() {
        let (mut progress, now) = start(1);
        progress.poll_status(now);
        progress.handle_received(Lsn::new(2), after(now, 5_000));
        assert!(
            !progress
                .poll_status(after(now, 10_000))
                .expect("due")
                .reply_requested
        );
        assert!(
            progress
                .poll_status(after(now, 20_000))
                .expect("due")
                .reply_requested
        );
        assert!(!progress.is_stalled(after(now, 124_999)));
        assert!(progress.is_stalled(after(now, 125_000)));
    }

    #[test]
    fn a_server_that_is_given_up_early_is_questioned_a_third_of_the_way() {
        let now = start(1).1;
        let timing = Timing {
            status_interval: Duration::from_secs(10),
            silence_max: Duration::from_secs(6),
        };
        let mut progress = Progress::new(confirmed(1), now, timing);
        assert!(!progress.status(after(now, 1_999)).reply_requested);
        assert!(progress.status(after(now, 2_000)).reply_requested);
    }

    #[test]
    fn the_next_deadline_is_the_status_or_the_death_whichever_comes_first() {
        let (mut progress, now) = start(1);
        assert_eq!(progress.next_deadline(now), now.instant);
        progress.poll_status(now);
        let status_due = after(now, 10_000).instant;
        assert_eq!(progress.next_deadline(now), status_due);
        progress.poll_status(after(now, 119_000));
        let dead = after(now, 120_000);
        assert_eq!(progress.next_deadline(after(now, 119_000)), dead.instant);
        assert!(progress.is_stalled(dead));
        assert_eq!(progress.silence_max(), Duration::from_secs(120));
    }

    #[test]
    fn it_tells_what_was_received_and_what_is_confirmed() {
        let (mut progress, now) = start(10);
        progress.handle_received(Lsn::new(99), now);
        progress.handle_received(Lsn::new(98), now);
        progress.confirm(confirmed(20));
        assert_eq!(progress.received(), Lsn::new(99));
        assert_eq!(progress.confirmed(), Lsn::new(20));
    }

    #[test]
    fn a_question_is_asked_once_and_soon() {
        let (mut progress, now) = start(1);
        progress.poll_status(now);
        progress.ask_for_reply();
        assert!(progress.poll_status(after(now, 50)).is_none());
        let status = progress.poll_status(after(now, 100)).expect("due");
        assert!(status.reply_requested);
        assert!(progress.poll_status(after(now, 300)).is_none());
        progress.handle_received(Lsn::new(2), after(now, 400));
        let status = progress.poll_status(after(now, 10_100)).expect("due");
        assert!(!status.reply_requested);
    }

    #[test]
    fn a_pause_of_our_own_is_not_the_servers_silence() {
        let (mut progress, now) = start(1);
        progress.handle_paused(after(now, 119_000));
        assert!(!progress.is_stalled(after(now, 200_000)));
    }

    #[test]
    fn a_small_wal_sender_timeout_shortens_both_directions() {
        let timing = Timing::for_server(Duration::from_secs(3), Duration::from_secs(10));
        assert_eq!(timing.status_interval, Duration::from_secs(1));
        assert_eq!(timing.silence_max, Duration::from_secs(6));
        let never = Timing::for_server(Duration::ZERO, Duration::from_secs(10));
        assert_eq!(never.status_interval, Duration::from_secs(10));
        assert_eq!(never.silence_max, SILENCE_MAX);
    }
}
