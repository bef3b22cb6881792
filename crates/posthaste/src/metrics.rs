//! Metrics: every name in one place, counted in plain atomics, put into words only when somebody asks.
//!
//! The hot path touches nothing but atomics: no lock, no allocation, no label look-up. Ages and lags are computed at the
//! time of the scrape, so they grow while nothing happens.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pgoutput::{Lsn, PgTimestamp};
use router::connect::Tolerated;

use crate::codes::Code;
use crate::health::Role;
use crate::intake::Ignored;
use crate::poison::Tally;
use crate::policy::Target;
use crate::watchlist::Waiting;

pub use crate::metrics_text::Metrics;

/// Records acknowledged by Kafka.
pub const EVENTS_DELIVERED: &str = "posthaste_events_delivered_total";
/// Payload, key and header bytes acknowledged by Kafka.
pub const BYTES_DELIVERED: &str = "posthaste_bytes_delivered_total";
/// Records handed to the Kafka client and not yet acknowledged.
pub const EVENTS_IN_FLIGHT: &str = "posthaste_events_in_flight";
/// Their bytes.
pub const BYTES_IN_FLIGHT: &str = "posthaste_bytes_in_flight";
/// The position below which everything is acknowledged.
pub const CONFIRMED_LSN: &str = "posthaste_confirmed_lsn";
/// The highest position received from the server.
pub const RECEIVED_LSN: &str = "posthaste_received_lsn";
/// From the confirmed position to the end of the server's WAL as last told.
pub const REPLICATION_LAG: &str = "posthaste_replication_lag_bytes";
/// Since the commit of the oldest transaction not wholly acknowledged.
pub const OLDEST_UNACKNOWLEDGED_AGE: &str = "posthaste_oldest_unacknowledged_age_seconds";
/// From commit to acknowledgement, one observation an event.
pub const COMMIT_TO_ACK: &str = "posthaste_commit_to_ack_seconds";
/// Streams that ran again after an outage, by the side that failed.
pub const RECONNECTS: &str = "posthaste_reconnects_total";
/// Errors by code.
pub const ERRORS: &str = "posthaste_errors_total";
/// Attempts that failed and were repeated, by the side that failed.
pub const RETRIES: &str = "posthaste_retries_total";
/// Time in which nothing was read because too much was in flight.
pub const BACKPRESSURE_PAUSED: &str = "posthaste_backpressure_paused_seconds_total";
/// Batches that went from the reader to the publishing thread.
pub const HAND_OVERS: &str = "posthaste_hand_overs_total";
/// News of the publishing thread that woke the reader.
pub const TELLINGS: &str = "posthaste_tellings_total";
/// Changes that make no event.
pub const ROWS_IGNORED: &str = "posthaste_rows_ignored_total";
/// Payloads sent as the JSON text they are, where Debezium's task would fail to expand them.
pub const PAYLOADS_VERBATIM: &str = "posthaste_payloads_verbatim_total";
/// Rows of which a value could not be converted and was sent as NULL, as Debezium does.
pub const ROWS_NULLED: &str = "posthaste_rows_nulled_total";
/// Events that can never be published as they are, by what was done with them.
pub const POISON_EVENTS: &str = "posthaste_poison_events_total";
/// Rows that wait in the table of parked events.
pub const PARKED_ROWS: &str = "posthaste_parked_rows";
/// Their bytes.
pub const PARKED_BYTES: &str = "posthaste_parked_bytes";
/// Parked rows that were published in the end.
pub const PARKED_PUBLISHED: &str = "posthaste_parked_published_total";
/// Times that records were sent one by one to find the one that is refused.
pub const REFUSAL_SEARCHES: &str = "posthaste_refusal_searches_total";
/// Times that the Kafka producer was thrown away and made anew.
pub const PRODUCERS_RECREATED: &str = "posthaste_producers_recreated_total";
/// The last known position of a slot that was lost and made anew by this process.
pub const SLOT_GAP_START: &str = "posthaste_slot_gap_start_lsn";
/// Where the new slot begins.
pub const SLOT_GAP_END: &str = "posthaste_slot_gap_end_lsn";
/// Kafka transactions that ended, with exactly-once.
pub const KAFKA_TRANSACTIONS: &str = "posthaste_kafka_transactions_total";
/// Whether `/readyz` answers 200.
pub const READY: &str = "posthaste_ready";
/// Whether this instance reads the slot.
pub const STREAMING: &str = "posthaste_streaming";
/// Whether this instance waits for a slot that another one reads.
pub const STANDBY: &str = "posthaste_standby";
/// Always 1, with the version as label.
pub const BUILD_INFO: &str = "posthaste_build_info";

/// What one pipeline counts. Clones count into the same place.
#[derive(Debug, Clone)]
pub struct PipelineMetrics(pub(crate) Arc<Counted>);

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) pipeline: String,
    pub(crate) events_delivered: AtomicU64,
    pub(crate) bytes_delivered: AtomicU64,
    pub(crate) events_in_flight: AtomicU64,
    pub(crate) bytes_in_flight: AtomicU64,
    pub(crate) confirmed: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) server_wal_end: AtomicU64,
    /// Microseconds since 1970, or [`NOTHING_WAITS`].
    pub(crate) oldest_commit: AtomicI64,
    pub(crate) commit_to_ack: Latencies,
    pub(crate) reconnects: [AtomicU64; TARGETS.len()],
    pub(crate) retries: [AtomicU64; TARGETS.len()],
    pub(crate) errors: Mutex<BTreeMap<Code, u64>>,
    pub(crate) paused_micros: AtomicU64,
    pub(crate) hand_overs: AtomicU64,
    pub(crate) tellings: AtomicU64,
    pub(crate) rows_ignored: [AtomicU64; OPERATIONS.len()],
    pub(crate) payloads_verbatim: AtomicU64,
    pub(crate) rows_nulled: AtomicU64,
    pub(crate) poison_events: [AtomicU64; POISON_ACTIONS.len()],
    pub(crate) parked_rows: AtomicU64,
    pub(crate) parked_bytes: AtomicU64,
    pub(crate) parked_published: AtomicU64,
    pub(crate) refusal_searches: AtomicU64,
    pub(crate) producers_recreated: AtomicU64,
    pub(crate) slot_gap_start: AtomicU64,
    pub(crate) slot_gap_end: AtomicU64,
    pub(crate) transactions: [AtomicU64; TRANSACTION_ENDS.len()],
    pub(crate) ready: AtomicBool,
    pub(crate) streaming: AtomicBool,
    pub(crate) standby: AtomicBool,
}

impl PipelineMetrics {
    /// Everything at zero.
    #[must_use]
    pub fn new(pipeline: &str) -> Self {
        Self(Arc::new(Counted {
            pipeline: pipeline.to_owned(),
            events_delivered: AtomicU64::new(0),
            bytes_delivered: AtomicU64::new(0),
            events_in_flight: AtomicU64::new(0),
            bytes_in_flight: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            received: AtomicU64::new(0),
            server_wal_end: AtomicU64::new(0),
            oldest_commit: AtomicI64::new(NOTHING_WAITS),
            commit_to_ack: Latencies::default(),
            reconnects: Default::default(),
            retries: Default::default(),
            errors: Mutex::default(),
            paused_micros: AtomicU64::new(0),
            hand_overs: AtomicU64::new(0),
            tellings: AtomicU64::new(0),
            rows_ignored: Default::default(),
            payloads_verbatim: AtomicU64::new(0),
            rows_nulled: AtomicU64::new(0),
            poison_events: Default::default(),
            parked_rows: AtomicU64::new(0),
            parked_bytes: AtomicU64::new(0),
            parked_published: AtomicU64::new(0),
            refusal_searches: AtomicU64::new(0),
            producers_recreated: AtomicU64::new(0),
            slot_gap_start: AtomicU64::new(0),
            slot_gap_end: AtomicU64::new(0),
            transactions: Default::default(),
            ready: AtomicBool::new(false),
            streaming: AtomicBool::new(false),
            standby: AtomicBool::new(false),
        }))
    }

    /// So many more records were acknowledged.
    pub fn delivered(&self, events: u64) {
        self.0.events_delivered.fetch_add(events, Ordering::Relaxed);
    }

    /// So many more bytes of records were acknowledged.
    pub fn delivered_bytes(&self, bytes: u64) {
        self.0.bytes_delivered.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What is handed to the Kafka client and not yet acknowledged.
    pub fn in_flight(&self, events: u64, bytes: u64) {
        self.0.events_in_flight.store(events, Ordering::Relaxed);
        self.0.bytes_in_flight.store(bytes, Ordering::Relaxed);
    }

    /// The commit time of the oldest transaction that is not wholly acknowledged.
    pub fn oldest_unacknowledged(&self, commit_time: Option<PgTimestamp>) {
        let micros = commit_time.map_or(NOTHING_WAITS, PgTimestamp::unix_micros);
        self.0.oldest_commit.store(micros, Ordering::Relaxed);
    }

    /// One event was acknowledged so long after its commit. A negative time is a clock that differs, and counts as none.
    pub fn observe_commit_to_ack(&self, seconds: f64) {
        self.0.commit_to_ack.observe(seconds);
    }

    /// The position below which everything is acknowledged.
    pub fn confirmed(&self, position: Lsn) {
        self.0.confirmed.store(position.as_u64(), Ordering::Relaxed);
    }

    /// The highest position received, which is also a lower bound of where the server's WAL ends.
    pub fn received(&self, position: Lsn) {
        self.0.received.store(position.as_u64(), Ordering::Relaxed);
        self.server_wal_end(position);
    }

    /// What [`Self::received`] was last told.
    #[cfg(test)]
    pub(crate) fn received_position(&self) -> Lsn {
        Lsn::new(self.0.received.load(Ordering::Relaxed))
    }

    /// Where the server said that its WAL ends.
    pub fn server_wal_end(&self, position: Lsn) {
        self.0
            .server_wal_end
            .fetch_max(position.as_u64(), Ordering::Relaxed);
    }

    /// The stream runs again after an outage of this side.
    pub fn reconnected(&self, target: Target) {
        add(&self.0.reconnects, TARGETS, target, 1);
    }

    /// An attempt failed and will be repeated.
    pub fn retry(&self, target: Target, code: Code) {
        add(&self.0.retries, TARGETS, target, 1);
        self.error(code);
    }

    /// An error that is not repeated.
    pub fn error(&self, code: Code) {
        let mut errors = self.0.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry(code).or_default() += 1;
    }

    /// Reading stood still for so long because too much was in flight.
    pub fn paused(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.paused_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// A batch went to the publishing thread.
    pub fn handed_over(&self) {
        self.0.hand_overs.fetch_add(1, Ordering::Relaxed);
    }

    /// The publishing thread woke the loop.
    pub fn told(&self) {
        self.0.tellings.fetch_add(1, Ordering::Relaxed);
    }

    /// How many records [`Self::delivered`] was told of.
    #[cfg(test)]
    pub(crate) fn delivered_events(&self) -> u64 {
        self.0.events_delivered.load(Ordering::Relaxed)
    }

    /// How often [`Self::producers_recreated`] was told.
    #[cfg(test)]
    pub(crate) fn producers_recreated_so_far(&self) -> u64 {
        self.0.producers_recreated.load(Ordering::Relaxed)
    }

    /// How often [`Self::handed_over`] was called.
    #[cfg(test)]
    pub(crate) fn hand_overs(&self) -> u64 {
        self.0.hand_overs.load(Ordering::Relaxed)
    }

    /// How often [`Self::told`] was called.
    #[cfg(test)]
    pub(crate) fn tellings(&self) -> u64 {
        self.0.tellings.load(Ordering::Relaxed)
    }

    /// Changes that were read and made no event.
    pub fn ignored(&self, ignored: Ignored) {
        let counts = [
            ignored.inserts,
            ignored.updates,
            ignored.deletes,
            ignored.truncates,
            ignored.messages,
            ignored.filtered,
            ignored.skipped,
            ignored.taken_over,
            ignored.done,
        ];
        for (counter, count) in self.0.rows_ignored.iter().zip(counts) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// So much more was sent although not all of it could be made what it was asked to be.
    pub fn tolerated(&self, more: Tolerated) {
        let counts = [
            (&self.0.payloads_verbatim, more.payloads_verbatim),
            (&self.0.rows_nulled, more.rows_nulled),
        ];
        for (counter, count) in counts {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// What was done with poison events. Those passed over make no event, and count as such too.
    pub fn poison(&self, tally: Tally) {
        let counts = [
            tally.parked,
            tally.behind,
            tally.dead_lettered,
            tally.skipped,
            tally.skipped_by_request,
        ];
        for (counter, count) in self.0.poison_events.iter().zip(counts) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
        self.ignored(Ignored {
            skipped: tally.skipped + tally.skipped_by_request,
            ..Ignored::default()
        });
    }

    /// What waits in the table of parked events.
    pub fn parked(&self, waiting: Waiting) {
        self.0.parked_rows.store(waiting.rows, Ordering::Relaxed);
        self.0.parked_bytes.store(waiting.bytes, Ordering::Relaxed);
    }

    /// So many parked rows were published in the end.
    pub fn parked_published(&self, rows: u64) {
        self.0.parked_published.fetch_add(rows, Ordering::Relaxed);
    }

    /// Records are sent one by one, to find the one that is refused.
    pub fn searching(&self) {
        self.0.refusal_searches.fetch_add(1, Ordering::Relaxed);
    }

    /// The Kafka producer was made anew so many more times.
    pub fn producers_recreated(&self, times: u64) {
        self.0
            .producers_recreated
            .fetch_add(times, Ordering::Relaxed);
    }

    /// A lost slot was made anew; what was committed between the two positions may be missing.
    pub fn slot_gap(&self, start: Lsn, end: Lsn) {
        let Counted {
            slot_gap_start,
            slot_gap_end,
            ..
        } = &*self.0;
        slot_gap_start.store(start.as_u64(), Ordering::Relaxed);
        slot_gap_end.store(end.as_u64(), Ordering::Relaxed);
    }

    /// So many more Kafka transactions were committed and given up.
    pub fn transactions(&self, committed: u64, aborted: u64) {
        for (counter, count) in self.0.transactions.iter().zip([committed, aborted]) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// What the health page says; set before each scrape.
    pub(crate) fn state(&self, ready: bool, role: Role) {
        let (streaming, standby) = (role == Role::Active, role == Role::Standby);
        self.0.ready.store(ready, Ordering::Relaxed);
        self.0.streaming.store(streaming, Ordering::Relaxed);
        self.0.standby.store(standby, Ordering::Relaxed);
    }
}

/// A histogram without locks: one addition a bucket and one to the sum.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    buckets: [AtomicU64; BUCKETS.len()],
    beyond: AtomicU64,
    sum_micros: AtomicU64,
}

impl Latencies {
    fn observe(&self, seconds: f64) {
        let seconds = seconds.max(0.0);
        let bucket = BUCKETS
            .iter()
            .zip(&self.buckets)
            .find(|(bound, _)| seconds <= **bound);
        bucket
            .map_or(&self.beyond, |(_, counter)| counter)
            .fetch_add(1, Ordering::Relaxed);
        let micros = Duration::try_from_secs_f64(seconds)
            .unwrap_or_default()
            .as_micros();
        self.sum_micros
            .fetch_add(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Each bucket's upper bound and own count, and the sum of all in microseconds.
    pub(crate) fn snapshot(&self) -> (Vec<(f64, u64)>, u64) {
        let counters = self.buckets.iter().chain([&self.beyond]);
        let bounds = BUCKETS.into_iter().chain([f64::INFINITY]);
        let buckets = bounds
            .zip(counters)
            .map(|(bound, counter)| (bound, counter.load(Ordering::Relaxed)));
        (buckets.collect(), self.sum_micros.load(Ordering::Relaxed))
    }
}

fn add<const N: usize>(
    counters: &[AtomicU64; N],
    targets: [Target; N],
    target: Target,
    count: u64,
) {
    for (counter, candidate) in counters.iter().zip(targets) {
        if candidate == target {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}

pub(crate) const TARGETS: [Target; 2] = [Target::Postgres, Target::Kafka];

/// In the order of the fields of [`Ignored`]; an insert is one into a table that is no outbox.
pub(crate) const OPERATIONS: [&str; 9] = [
    "insert",
    "update",
    "delete",
    "truncate",
    "message",
    "filtered",
    "skipped",
    "taken_over",
    "done",
];

/// In the order of the fields of [`Tally`].
pub(crate) const POISON_ACTIONS: [&str; 5] = [
    "parked",
    "parked_behind",
    "dead_lettered",
    "skipped",
    "skipped_by_request",
];
/// How a Kafka transaction ends.
pub(crate) const TRANSACTION_ENDS: [&str; 2] = ["committed", "aborted"];

/// From 1 ms to a minute.
const BUCKETS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

pub(crate) const NOTHING_WAITS: i64 = i64::MIN;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn scrape(pipelines: &[&PipelineMetrics]) -> String {
        let pipelines = pipelines
            .iter()
            .map(|pipeline| (*pipeline).clone())
            .collect();
        Metrics::new(pipelines).prometheus().unwrap()
    }

    #[track_caller]
    fn check(text: &str, line: &str) {
        assert!(
            text.lines().any(|found| found == line),
            "{line:?} not in\n{text}"
        );
    }

    fn names(text: &str) -> BTreeSet<String> {
        let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        typed
            .filter_map(|rest| rest.split(' ').next())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn counts_appear_under_the_pipelines_name() {
        let metrics = PipelineMetrics::new("orders");
        metrics.delivered(3);
        metrics.clone().delivered(4);
        metrics.in_flight(5, 600);
        metrics.retry(Target::Kafka, Code::KafkaUnreachable);
        metrics.reconnected(Target::Postgres);
        metrics.paused(Duration::from_millis(1500));
        metrics.handed_over();
        metrics.told();
        metrics.told();
        metrics.ignored(Ignored {
            updates: 2,
            ..Ignored::default()
        });
        metrics.state(true, Role::Standby);
        let text = scrape(&[&metrics]);
        check(
            &text,
            "posthaste_events_delivered_total{pipeline=\"orders\"} 7",
        );
        check(&text, "posthaste_events_in_flight{pipeline=\"orders\"} 5");
        check(&text, "posthaste_bytes_in_flight{pipeline=\"orders\"} 600");
        check(
            &text,
            "posthaste_errors_total{pipeline=\"orders\",kind=\"PH0601\"} 1",
        );
        check(
            &text,
            "posthaste_retries_total{pipeline=\"orders\",target=\"kafka\"} 1",
        );
        check(
            &text,
            "posthaste_reconnects_total{pipeline=\"orders\",target=\"postgres\"} 1",
        );
        check(
            &text,
            "posthaste_reconnects_total{pipeline=\"orders\",target=\"kafka\"} 0",
        );
        check(
            &text,
            "posthaste_backpressure_paused_seconds_total{pipeline=\"orders\"} 1.5",
        );
        check(
            &text,
            "posthaste_rows_ignored_total{pipeline=\"orders\",operation=\"update\"} 2",
        );
        check(&text, "posthaste_hand_overs_total{pipeline=\"orders\"} 1");
        check(&text, "posthaste_tellings_total{pipeline=\"orders\"} 2");
        check(&text, "posthaste_ready{pipeline=\"orders\"} 1");
        check(&text, "posthaste_streaming{pipeline=\"orders\"} 0");
        check(&text, "posthaste_standby{pipeline=\"orders\"} 1");
    }

    #[test]
    fn several_pipelines_share_one_description() {
        let text = scrape(&[&PipelineMetrics::new("a"), &PipelineMetrics::new("b")]);
        assert_eq!(text.matches("# TYPE posthaste_ready gauge").count(), 1);
        check(&text, "posthaste_ready{pipeline=\"a\"} 0");
        check(&text, "posthaste_ready{pipeline=\"b\"} 0");
    }

    #[test]
    fn lag_is_what_the_server_has_beyond_the_confirmed_position() {
        let metrics = PipelineMetrics::new("p");
        metrics.received(Lsn::new(1000));
        metrics.confirmed(Lsn::new(400));
        check(
            &scrape(&[&metrics]),
            "posthaste_replication_lag_bytes{pipeline=\"p\"} 600",
        );
        metrics.server_wal_end(Lsn::new(1500));
        check(
            &scrape(&[&metrics]),
            "posthaste_replication_lag_bytes{pipeline=\"p\"} 1100",
        );
        metrics.confirmed(Lsn::new(1600));
        check(
            &scrape(&[&metrics]),
            "posthaste_replication_lag_bytes{pipeline=\"p\"} 0",
        );
    }

    #[test]
    fn latencies_fall_into_their_buckets() {
        let metrics = PipelineMetrics::new("p");
        for seconds in [-5.0, 0.0005, 0.001, 0.0011, 90.0] {
            metrics.observe_commit_to_ack(seconds);
        }
        let text = scrape(&[&metrics]);
        check(
            &text,
            "posthaste_commit_to_ack_seconds_bucket{pipeline=\"p\",le=\"0.001\"} 3",
        );
        check(
            &text,
            "posthaste_commit_to_ack_seconds_bucket{pipeline=\"p\",le=\"0.0025\"} 4",
        );
        check(
            &text,
            "posthaste_commit_to_ack_seconds_bucket{pipeline=\"p\",le=\"60\"} 4",
        );
        check(
            &text,
            "posthaste_commit_to_ack_seconds_bucket{pipeline=\"p\",le=\"+Inf\"} 5",
        );
        check(
            &text,
            "posthaste_commit_to_ack_seconds_count{pipeline=\"p\"} 5",
        );
    }

    #[test]
    fn a_hostile_name_stays_within_its_quotes() {
        let text = scrape(&[&PipelineMetrics::new("a\"} 1\nevil{x=\"")]);
        assert!(!text.lines().any(|line| line.starts_with("evil")), "{text}");
    }

    #[test]
    fn the_document_lists_exactly_the_exported_names() {
        let document = include_str!("../../../docs/metrics.md");
        let listed: BTreeSet<String> = document
            .lines()
            .filter_map(|line| line.strip_prefix("| `posthaste_"))
            .filter_map(|rest| rest.split('`').next())
            .map(|name| format!("posthaste_{name}"))
            .collect();
        let metrics = PipelineMetrics::new("p");
        metrics.error(Code::WalLevel);
        assert_eq!(listed, names(&scrape(&[&metrics])));
    }
}
