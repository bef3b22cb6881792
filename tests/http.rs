//! The pages for people and machines that watch: `/healthz`, `/readyz`, `/metrics`.

use anyhow::{Result, ensure};
use e2e::fixture::{Fixture, SOON};
use e2e::wait;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_tell_what_the_connector_does() -> Result<()> {
    let fixture = Fixture::new("http").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    ensure!(connector.get("/healthz").await?.status == 200);
    ensure!(connector.get("/readyz").await?.status == 200);
    ensure!(connector.get("/nothing").await?.status == 404);
    let client = fixture.client().await?;
    for n in 1..=25 {
        fixture.insert(&client, n).await?;
    }
    consumer.wait_for_records(25, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    wait::until_true("25 events to be counted as delivered", SOON, async || {
        let page = connector.get("/metrics").await?;
        Ok((page.metric(DELIVERED, "") - 25.0).abs() < 0.5)
    })
    .await?;
    let page = connector.get("/metrics").await?;
    ensure!(
        page.content_type
            .starts_with("application/openmetrics-text")
            || page.content_type.starts_with("text/plain"),
        "content type {}",
        page.content_type
    );
    for name in METRICS {
        ensure!(page.body.contains(name), "no {name} in:\n{}", page.body);
    }
    // Everything carries the pipeline's name, though there is only one.
    let samples: Vec<_> = page.samples(DELIVERED).collect();
    ensure!(
        samples
            .iter()
            .all(|(labels, _)| labels.contains("pipeline=\"default\"")),
        "{samples:?}"
    );
    ensure!(
        page.metric(IN_FLIGHT, "").abs() < 0.5,
        "nothing is in flight"
    );
    let observed = page.metric(LATENCY_COUNT, "");
    ensure!(
        (observed - 25.0).abs() < 0.5,
        "{observed} latencies of 25 events"
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_and_reconnects_are_counted() -> Result<()> {
    let fixture = Fixture::new("http_lag").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let slot = fixture.watch_slot().await?;
    let client = fixture.client().await?;
    slot.terminate_walsender().await?;
    wait::until_true("one reconnect to be counted", SOON, async || {
        let page = connector.get("/metrics").await?;
        Ok((page.metric(RECONNECTS, "") - 1.0).abs() < 0.5)
    })
    .await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    slot.catches_up(SOON).await?;
    connector.stop().await
}

/// Nothing that could change state is reachable over HTTP, so there is nothing that a token would have to guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_changes_anything() -> Result<()> {
    let fixture = Fixture::new("http_methods").await?;
    let connector = fixture.start().await?;
    for path in ["/healthz", "/readyz", "/activez", "/metrics"] {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let page = connector.request(method, path).await?;
            ensure!(page.status == 405, "{method} {path}: {}", page.status);
        }
        ensure!(connector.get(path).await?.status == 200, "{path}");
    }
    for path in ["/", "/stop", "/config", "/debug/pprof"] {
        ensure!(connector.request("POST", path).await?.status == 404);
    }
    connector.stop().await
}

/// What an operator needs from this page.
const METRICS: [&str; 8] = [
    DELIVERED,
    IN_FLIGHT,
    "posthaste_bytes_in_flight",
    "posthaste_replication_lag_bytes",
    "posthaste_oldest_unacknowledged_age_seconds",
    "posthaste_commit_to_ack_seconds_bucket",
    RECONNECTS,
    "posthaste_errors",
];

const DELIVERED: &str = "posthaste_events_delivered_total";
const IN_FLIGHT: &str = "posthaste_events_in_flight";
const LATENCY_COUNT: &str = "posthaste_commit_to_ack_seconds_count";
const RECONNECTS: &str = "posthaste_reconnects_total";
