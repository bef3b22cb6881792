//! HTTP: four pages to read and nothing to change.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 503 only when a restart would help |
//! | `/readyz` | 200 when every pipeline does its job or stands by for it, else 503; the body says what each is doing and why |
//! | `/activez` | 200 when every pipeline reads its slot, else 503; the body is that of `/readyz` |
//! | `/metrics` | Prometheus text, or OpenMetrics for those who ask for it |

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::codes::{Code, Problem};
use crate::health::{Health, Readiness, Role};
use crate::http_listen;
use crate::metrics::{Metrics, PipelineMetrics};

/// A bound listener; it answers as soon as [`HttpServer::serve`] runs.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

/// One pipeline as the pages show it.
#[derive(Debug, Clone)]
pub struct Instance {
    /// The pipeline's name.
    pub name: String,
    /// What it counts.
    pub metrics: PipelineMetrics,
    /// What it is doing.
    pub health: Health,
}

impl HttpServer {
    /// Binds `listen` (`host:port`; port 0 takes a free one) and logs the address that came of it.
    ///
    /// # Errors
    /// [`Code::HttpListen`]: the address is in use, not ours, or no address.
    pub async fn bind(listen: &str, instances: Vec<Instance>) -> Result<Self, Problem> {
        let refused = |error: std::io::Error| {
            Problem::new(Code::HttpListen, format!("http.listen {listen:?}"))
                .found(format!("cannot be opened: {error}"))
                .needed("an address of this machine and a free port")
                .fix("choose another address or port, or stop the process that uses it")
                .caused_by(error)
        };
        let listener = TcpListener::bind(listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        tracing::info!(%address, "serving /healthz, /readyz, /activez and /metrics");
        Ok(Self {
            listener,
            address,
            router: routes(instances),
        })
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves; answers under way then have a moment to finish.
    ///
    /// # Cancel safety
    /// Dropping the future closes the listener and its connections at once.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        http_listen::serve(self.listener, self.router, stop).await;
    }
}

/// What the handlers share.
struct Pages {
    instances: Vec<Instance>,
    metrics: Metrics,
}

fn routes(instances: Vec<Instance>) -> Router {
    let metrics = Metrics::new(
        instances
            .iter()
            .map(|instance| instance.metrics.clone())
            .collect(),
    );
    Router::new()
        .route(
            "/healthz",
            get(async |State(pages): State<Arc<Pages>>| healthz(&pages)),
        )
        .route(
            "/readyz",
            get(async |State(pages): State<Arc<Pages>>| state_page(&pages, |page| page.ready)),
        )
        .route(
            "/activez",
            get(async |State(pages): State<Arc<Pages>>| state_page(&pages, |page| page.active)),
        )
        .route(
            "/metrics",
            get(
                async |State(pages): State<Arc<Pages>>, headers: HeaderMap| {
                    scrape(&pages, &headers)
                },
            ),
        )
        .with_state(Arc::new(Pages { instances, metrics }))
}

fn healthz(pages: &Pages) -> Response {
    let now = Instant::now();
    let sick = pages.instances.iter().find_map(|instance| {
        let reason = instance.health.liveness(now).err()?;
        Some(format!("pipeline {}: {reason}\n", instance.name))
    });
    match sick {
        None => plain(StatusCode::OK, "ok\n".to_owned()),
        Some(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}

/// The page about all pipelines; `good` picks the answer that its status gives.
fn state_page(pages: &Pages, good: impl Fn(&StatePage<'_>) -> bool) -> Response {
    let now = Instant::now();
    let pipelines: Vec<PipelineReadiness<'_>> = pages
        .instances
        .iter()
        .map(|instance| PipelineReadiness {
            name: &instance.name,
            readiness: instance.health.readiness(now),
        })
        .collect();
    let all =
        |what: fn(&Readiness) -> bool| pipelines.iter().all(|pipeline| what(&pipeline.readiness));
    let page = StatePage {
        ready: all(|readiness| readiness.ready),
        active: all(|readiness| readiness.role == Role::Active),
        pipelines,
    };
    let status = if good(&page) {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    match serde_json::to_string(&page) {
        Ok(body) => answer(status, "application/json", body + "\n"),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn scrape(pages: &Pages, headers: &HeaderMap) -> Response {
    let now = Instant::now();
    for instance in &pages.instances {
        let readiness = instance.health.readiness(now);
        instance.metrics.state(readiness.ready, readiness.role);
    }
    let wants_open_metrics = headers.get_all(ACCEPT).iter().any(|value| {
        value
            .to_str()
            .is_ok_and(|value| value.contains("application/openmetrics-text"))
    });
    let (content_type, body) = if wants_open_metrics {
        (OPEN_METRICS, pages.metrics.open_metrics())
    } else {
        (PROMETHEUS, pages.metrics.prometheus())
    };
    match body {
        Ok(body) => answer(StatusCode::OK, content_type, body),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

#[derive(Serialize)]
struct StatePage<'a> {
    ready: bool,
    active: bool,
    pipelines: Vec<PipelineReadiness<'a>>,
}

#[derive(Serialize)]
struct PipelineReadiness<'a> {
    name: &'a str,
    #[serde(flatten)]
    readiness: Readiness,
}

fn plain(status: StatusCode, body: String) -> Response {
    answer(status, "text/plain; charset=utf-8", body)
}

fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response {
    (
        status,
        [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")],
        body,
    )
        .into_response()
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
