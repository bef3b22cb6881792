//! Metrics as text: what is said when somebody asks, in the two formats that scrapers read.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::clock::Now;
use crate::metrics::{
    BACKPRESSURE_PAUSED, BUILD_INFO, BYTES_DELIVERED, BYTES_IN_FLIGHT, COMMIT_TO_ACK,
    CONFIRMED_LSN, Counted, ERRORS, EVENTS_DELIVERED, EVENTS_IN_FLIGHT, HAND_OVERS,
    KAFKA_TRANSACTIONS, NOTHING_WAITS, OLDEST_UNACKNOWLEDGED_AGE, OPERATIONS, PARKED_BYTES,
    PARKED_PUBLISHED, PARKED_ROWS, PAYLOADS_VERBATIM, POISON_ACTIONS, POISON_EVENTS,
    PRODUCERS_RECREATED, PipelineMetrics, READY, RECEIVED_LSN, RECONNECTS, REFUSAL_SEARCHES,
    REPLICATION_LAG, RETRIES, ROWS_IGNORED, ROWS_NULLED, SLOT_GAP_END, SLOT_GAP_START, STANDBY,
    STREAMING, TARGETS, TELLINGS, TRANSACTION_ENDS,
};
use crate::policy::Target;

/// All pipelines of the process, in the two formats that scrapers read.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Collects from these pipelines.
    #[must_use]
    pub fn new(pipelines: Vec<PipelineMetrics>) -> Self {
        let mut registry = Registry::default();
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        // The encoder adds the suffix by itself, as it does for counters.
        registry.register(
            BUILD_INFO.trim_end_matches("_info"),
            "Version of Posthaste",
            build,
        );
        registry.register_collector(Box::new(Pipelines(pipelines)));
        Self { registry }
    }

    /// OpenMetrics text.
    ///
    /// # Errors
    /// None that can happen: writing to a string does not fail.
    pub fn open_metrics(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }

    /// Prometheus text format 0.0.4.
    ///
    /// # Errors
    /// As [`Self::open_metrics`].
    pub fn prometheus(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        prometheus_text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

#[derive(Debug)]
struct Pipelines(Vec<PipelineMetrics>);

impl Collector for Pipelines {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now_micros = Now::read().wall.unix_micros();
        let mut writer = Writer {
            encoder,
            pipelines: &self.0,
        };
        writer.counter(EVENTS_DELIVERED, "Records acknowledged by Kafka", |c| {
            load(&c.events_delivered)
        })?;
        writer.counter(
            BYTES_DELIVERED,
            "Bytes of records acknowledged by Kafka",
            |c| load(&c.bytes_delivered),
        )?;
        writer.gauge(EVENTS_IN_FLIGHT, "Records not yet acknowledged", |c| {
            load(&c.events_in_flight)
        })?;
        writer.gauge(
            BYTES_IN_FLIGHT,
            "Bytes of records not yet acknowledged",
            |c| load(&c.bytes_in_flight),
        )?;
        writer.gauge(
            CONFIRMED_LSN,
            "Position below which everything is acknowledged",
            |c| load(&c.confirmed),
        )?;
        writer.gauge(RECEIVED_LSN, "Highest position received", |c| {
            load(&c.received)
        })?;
        writer.gauge(REPLICATION_LAG, "Bytes of WAL not confirmed", |c| {
            load(&c.server_wal_end).saturating_sub(load(&c.confirmed))
        })?;
        let help = "Age of the oldest transaction not wholly acknowledged";
        writer.gauge(OLDEST_UNACKNOWLEDGED_AGE, help, |c| {
            age_seconds(c.oldest_commit.load(Ordering::Relaxed), now_micros)
        })?;
        writer.latencies()?;
        writer.outages()?;
        writer.pace()?;
        writer.labelled(
            ROWS_IGNORED,
            "Changes that make no event",
            "operation",
            OPERATIONS,
            |c| &c.rows_ignored,
        )?;
        writer.out_of_the_ordinary()?;
        writer.health()
    }
}

/// Writes one metric after the other, each for all pipelines.
struct Writer<'a, 'e> {
    encoder: DescriptorEncoder<'e>,
    pipelines: &'a [PipelineMetrics],
}

impl Writer<'_, '_> {
    /// What the pages about health say.
    fn health(&mut self) -> fmt::Result {
        self.gauge(READY, "Whether /readyz answers 200", |c| {
            u64::from(c.ready.load(Ordering::Relaxed))
        })?;
        self.gauge(STREAMING, "Whether this instance reads the slot", |c| {
            u64::from(c.streaming.load(Ordering::Relaxed))
        })?;
        let about = "Whether this instance waits for a slot that another one reads";
        self.gauge(STANDBY, about, |c| {
            u64::from(c.standby.load(Ordering::Relaxed))
        })
    }

    fn outages(&mut self) -> fmt::Result {
        self.labelled(
            RECONNECTS,
            "Streams resumed after an outage",
            "target",
            target_names(),
            |c| &c.reconnects,
        )?;
        self.labelled(
            RETRIES,
            "Failed attempts that were repeated",
            "target",
            target_names(),
            |c| &c.retries,
        )?;
        self.errors()
    }

    /// How the reader and the publishing thread keep step.
    fn pace(&mut self) -> fmt::Result {
        let help = "Time in which nothing was read because too much was in flight";
        self.counter(BACKPRESSURE_PAUSED, help, |c| {
            seconds(load(&c.paused_micros))
        })?;
        self.counter(HAND_OVERS, "Batches handed to the publishing thread", |c| {
            load(&c.hand_overs)
        })?;
        self.counter(TELLINGS, "News of the publishing thread", |c| {
            load(&c.tellings)
        })
    }

    fn counter<V>(&mut self, name: &str, help: &str, value: impl Fn(&Counted) -> V) -> fmt::Result
    where
        V: prometheus_client::encoding::EncodeCounterValue,
    {
        let mut metric = describe(&mut self.encoder, name, help, MetricType::Counter)?;
        for PipelineMetrics(counted) in self.pipelines {
            metric
                .encode_family(&[("pipeline", counted.pipeline.as_str())])?
                .encode_counter::<NoLabels, _, f64>(&value(counted), None)?;
        }
        Ok(())
    }

    fn gauge<V>(&mut self, name: &str, help: &str, value: impl Fn(&Counted) -> V) -> fmt::Result
    where
        V: prometheus_client::encoding::EncodeGaugeValue,
    {
        let mut metric = describe(&mut self.encoder, name, help, MetricType::Gauge)?;
        for PipelineMetrics(counted) in self.pipelines {
            metric
                .encode_family(&[("pipeline", counted.pipeline.as_str())])?
                .encode_gauge(&value(counted))?;
        }
        Ok(())
    }

    /// A counter with one value for each of a few label values, all of them shown from the start.
    fn labelled<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
        counters: impl Fn(&Counted) -> &[AtomicU64; N],
    ) -> fmt::Result {
        let mut metric = describe(&mut self.encoder, name, help, MetricType::Counter)?;
        for PipelineMetrics(counted) in self.pipelines {
            for (value, counter) in values.iter().zip(counters(counted)) {
                metric
                    .encode_family(&[("pipeline", counted.pipeline.as_str()), (label, value)])?
                    .encode_counter::<NoLabels, _, f64>(&load(counter), None)?;
            }
        }
        Ok(())
    }

    fn tolerated(&mut self) -> fmt::Result {
        let help = "Payloads sent as the JSON text they are, where Debezium would fail";
        self.counter(PAYLOADS_VERBATIM, help, |c| load(&c.payloads_verbatim))?;
        let help = "Rows of which a value could not be converted and was sent as NULL";
        self.counter(ROWS_NULLED, help, |c| load(&c.rows_nulled))
    }

    fn errors(&mut self) -> fmt::Result {
        let mut metric = describe(
            &mut self.encoder,
            ERRORS,
            "Errors by code",
            MetricType::Counter,
        )?;
        for PipelineMetrics(counted) in self.pipelines {
            let errors = counted
                .errors
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for (code, count) in errors.iter() {
                metric
                    .encode_family(&[
                        ("pipeline", counted.pipeline.as_str()),
                        ("kind", code.to_string().as_str()),
                    ])?
                    .encode_counter::<NoLabels, _, f64>(count, None)?;
            }
        }
        Ok(())
    }

    /// Payloads and events that are not published as most are.
    fn out_of_the_ordinary(&mut self) -> fmt::Result {
        self.tolerated()?;
        let help = "Kafka transactions that ended, with exactly-once";
        self.labelled(KAFKA_TRANSACTIONS, help, "end", TRANSACTION_ENDS, |c| {
            &c.transactions
        })?;
        let help = "Events that can never be published as they are";
        self.labelled(POISON_EVENTS, help, "action", POISON_ACTIONS, |c| {
            &c.poison_events
        })?;
        self.gauge(PARKED_ROWS, "Rows that are parked", |c| {
            load(&c.parked_rows)
        })?;
        self.gauge(PARKED_BYTES, "Bytes of rows that are parked", |c| {
            load(&c.parked_bytes)
        })?;
        self.counter(PARKED_PUBLISHED, "Parked rows published in the end", |c| {
            load(&c.parked_published)
        })?;
        let help = "Times that records were sent singly to find a refused one";
        self.counter(REFUSAL_SEARCHES, help, |c| load(&c.refusal_searches))?;
        let help = "Times that the Kafka producer was made anew";
        self.counter(PRODUCERS_RECREATED, help, |c| load(&c.producers_recreated))?;
        let help = "Last known position of the slot that was lost and made anew";
        self.gauge(SLOT_GAP_START, help, |c| load(&c.slot_gap_start))?;
        let help = "Position from which on the slot made anew has everything";
        self.gauge(SLOT_GAP_END, help, |c| load(&c.slot_gap_end))
    }

    fn latencies(&mut self) -> fmt::Result {
        let help = "Time from commit to acknowledgement";
        let mut metric = describe(
            &mut self.encoder,
            COMMIT_TO_ACK,
            help,
            MetricType::Histogram,
        )?;
        for PipelineMetrics(counted) in self.pipelines {
            let (buckets, sum_micros) = counted.commit_to_ack.snapshot();
            // Summed up from the buckets, so that the count never contradicts them.
            let count = buckets.iter().map(|(_, count)| count).sum();
            metric
                .encode_family(&[("pipeline", counted.pipeline.as_str())])?
                .encode_histogram::<NoLabels>(seconds(sum_micros), count, &buckets, None)?;
        }
        Ok(())
    }
}

fn describe<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
    metric_type: MetricType,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name.trim_end_matches("_total"), help, None, metric_type)
}

fn target_names() -> [&'static str; TARGETS.len()] {
    TARGETS.map(Target::name)
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

/// Zero when nothing waits, and when the server's clock is ahead of ours.
fn age_seconds(commit_micros: i64, now_micros: i64) -> f64 {
    if commit_micros == NOTHING_WAITS {
        return 0.0;
    }
    seconds(u64::try_from(now_micros.saturating_sub(commit_micros)).unwrap_or(0))
}

type NoLabels = [(&'static str, &'static str); 0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_age_grows_until_nothing_waits() {
        let second = 1_000_000;
        assert!((age_seconds(10 * second, 12 * second) - 2.0).abs() < 1e-9);
        assert!(age_seconds(NOTHING_WAITS, 12 * second).abs() < f64::EPSILON);
        assert!(
            age_seconds(15 * second, 12 * second).abs() < f64::EPSILON,
            "the server's clock is ahead"
        );
    }
}
