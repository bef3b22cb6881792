//! The pages over a real socket: status, content type, and what a scraper and a probe rely on.

#![expect(clippy::unwrap_used, reason = "helpers of tests stop the test")]

use std::net::SocketAddr;
use std::time::Duration;

use posthaste::codes::{Code, Problem};
use posthaste::health::Health;
use posthaste::http::{HttpServer, Instance};
use posthaste::metrics::PipelineMetrics;
use posthaste::policy::Pace;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running listener with one pipeline.
struct Pages {
    instance: Instance,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Pages {
    async fn serve() -> Self {
        let instance = Instance {
            name: "default".to_owned(),
            metrics: PipelineMetrics::new("default"),
            health: Health::new(),
        };
        let server = HttpServer::bind("127.0.0.1:0", vec![instance.clone()])
            .await
            .unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(async move { drop(stopped.await) }));
        Self {
            instance,
            address,
            stop,
            serving,
        }
    }

    async fn ask(&self, request_line: &str, headers: &str) -> Answer {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        let request =
            format!("{request_line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer {
            status,
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), "").await
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> serde_json::Value {
        assert!(
            self.head.contains("content-type: application/json"),
            "{}",
            self.head
        );
        serde_json::from_str(&self.body).unwrap()
    }
}

#[tokio::test]
async fn readyz_says_phase_and_reason() {
    let pages = Pages::serve().await;
    let starting = pages.get("/readyz").await;
    assert_eq!(starting.status, 503);
    assert_eq!(starting.json()["pipelines"][0]["phase"], "starting");

    let problem = Problem::new(Code::ServerUnreachable, "db:5432/app").found("connection refused");
    pages.instance.health.waiting(Pace::Backoff, &problem);
    let waiting = pages.get("/readyz").await;
    assert_eq!(waiting.status, 503);
    let body = waiting.json();
    assert_eq!(body["ready"], false);
    assert_eq!(body["pipelines"][0]["name"], "default");
    assert_eq!(body["pipelines"][0]["phase"], "waiting");
    assert_eq!(
        body["pipelines"][0]["reason"],
        "PH0201: db:5432/app: found connection refused"
    );

    assert_eq!(body["pipelines"][0]["role"], "none");

    pages.instance.health.streaming();
    let streaming = pages.get("/readyz").await.json();
    assert_eq!(streaming["pipelines"][0]["phase"], "streaming");
    assert_eq!(
        streaming["pipelines"][0]["reason"],
        "no Kafka broker reached"
    );
}

#[tokio::test]
async fn activez_tells_the_one_that_reads_the_slot() {
    let pages = Pages::serve().await;
    assert_eq!(pages.get("/activez").await.status, 503);

    pages.instance.health.streaming();
    let active = pages.get("/activez").await;
    assert_eq!(active.status, 200);
    let body = active.json();
    assert_eq!(body["active"], true);
    assert_eq!(body["pipelines"][0]["role"], "active");
    let metrics = pages.get("/metrics").await.body;
    assert!(metrics.contains("posthaste_standby{pipeline=\"default\"} 0\n"));

    let held = Problem::new(Code::SlotActive, "replication slot outbox").found("held by PID 7");
    pages.instance.health.waiting(Pace::Steady, &held);
    let standby = pages.get("/activez").await;
    assert_eq!(standby.status, 503);
    let body = standby.json();
    assert_eq!(body["active"], false);
    assert_eq!(body["pipelines"][0]["role"], "standby");
    let metrics = pages.get("/metrics").await.body;
    assert!(metrics.contains("posthaste_standby{pipeline=\"default\"} 1\n"));
    assert!(metrics.contains("posthaste_streaming{pipeline=\"default\"} 0\n"));
}

#[tokio::test]
async fn healthz_is_no_readiness() {
    let pages = Pages::serve().await;
    pages
        .instance
        .health
        .failed(&Problem::new(Code::WalLevel, "setting wal_level"));
    let answer = pages.get("/healthz").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"));
}

#[tokio::test]
async fn metrics_come_in_the_format_asked_for() {
    let pages = Pages::serve().await;
    pages.instance.metrics.delivered(3);
    pages.instance.health.streaming();
    let plain = pages.get("/metrics").await;
    assert_eq!(plain.status, 200);
    assert!(
        plain
            .head
            .contains("content-type: text/plain; version=0.0.4"),
        "{}",
        plain.head
    );
    assert!(
        plain
            .body
            .contains("\nposthaste_events_delivered_total{pipeline=\"default\"} 3\n"),
        "{}",
        plain.body
    );
    assert!(
        plain
            .body
            .contains("\nposthaste_ready{pipeline=\"default\"} 0\n"),
        "{}",
        plain.body
    );
    assert!(
        plain
            .body
            .contains("\nposthaste_streaming{pipeline=\"default\"} 1\n"),
        "{}",
        plain.body
    );
    let version = concat!(
        "\nposthaste_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"} 1\n"
    );
    assert!(plain.body.contains(version), "{}", plain.body);

    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3\r\n";
    let open = pages.ask("GET /metrics", accept).await;
    assert!(
        open.head
            .contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{}",
        open.head
    );
    assert!(open.body.ends_with("# EOF\n"), "{}", open.body);
    assert!(
        open.body
            .contains("\nposthaste_events_delivered_total{pipeline=\"default\"} 3\n"),
        "{}",
        open.body
    );
}

#[tokio::test]
async fn nothing_else_is_there_and_nothing_can_be_changed() {
    let pages = Pages::serve().await;
    for path in ["/", "/metrics/", "/activate", "/healthz/x"] {
        assert_eq!(pages.get(path).await.status, 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let answer = pages
            .ask(&format!("{method} /readyz"), "Content-Length: 0\r\n")
            .await;
        assert_eq!(answer.status, 405, "{method}");
    }
    assert_eq!(pages.ask("HEAD /healthz", "").await.status, 200);
}

#[tokio::test]
async fn an_address_in_use_is_told_at_the_start() {
    let pages = Pages::serve().await;
    let problem = HttpServer::bind(&pages.address.to_string(), Vec::new())
        .await
        .unwrap_err();
    assert_eq!(problem.code, Code::HttpListen);
    assert!(
        problem.to_string().contains(&pages.address.to_string()),
        "{problem}"
    );
    let problem = HttpServer::bind("no address", Vec::new())
        .await
        .unwrap_err();
    assert_eq!(problem.code, Code::HttpListen);
}

#[tokio::test]
async fn a_peer_that_stays_connected_does_not_hold_up_the_end() {
    let pages = Pages::serve().await;
    let mut silent = TcpStream::connect(pages.address).await.unwrap();
    silent
        .write_all(b"GET /metrics HTTP/1.1\r\nHost")
        .await
        .unwrap();
    // Answered, so the silent one before it has been accepted.
    pages.get("/healthz").await;
    pages.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(2), pages.serving)
        .await
        .expect("ends in time")
        .unwrap();
    assert!(
        TcpStream::connect(pages.address).await.is_err(),
        "the listener is closed"
    );
}
