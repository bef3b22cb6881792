//! `posthaste run`: streams until told to stop.

use tracing::{Instrument, error, info, warn};

use crate::cli::RunArgs;
use crate::codes::{Code, Problem};
use crate::config::{self, Config, Pipeline};
use crate::health::Health;
use crate::http::{HttpServer, Instance};
use crate::logging;
use crate::metrics::PipelineMetrics;
use crate::pipeline::Drained;
use crate::shutdown::{Shutdown, ShutdownTrigger, StopSignals};
use crate::supervisor::{Conduct, Supervisor, Watched};

/// Runs until a signal comes or something cannot heal, logs how it ended, and returns the exit status.
///
/// # Errors
///
/// What is wrong before logging has begun, so that it is not logged: the configuration.
pub async fn run(arguments: &RunArgs) -> Result<u8, Problem> {
    let config = config::load(&arguments.request())?;
    logging::init(&config.log)?;
    let Some(pipeline) = config.pipelines.first() else {
        return Err(Problem::new(Code::ConfigPipelineCount, "pipeline").found("none"));
    };
    // Of one pipeline, so all that is logged from here on is of that one.
    let conduct = Conduct {
        fail_fast: arguments.fail_fast,
        accept_slot_position: arguments.accept_slot_position,
        recreate_lost_slot: arguments.recreate_lost_slot,
    };
    let ended = run_pipeline(&config, pipeline, &conduct);
    Ok(ended
        .instrument(logging::pipeline_span(&pipeline.name))
        .await)
}

/// Runs to the end and logs how it was; returns the exit status.
async fn run_pipeline(config: &Config, pipeline: &Pipeline, conduct: &Conduct) -> u8 {
    for remark in &config.remarks {
        warn!("{remark}");
    }
    match start(config, pipeline, conduct).await {
        Ok(Drained::Whole) => {
            info!("stopped: everything read is confirmed");
            EXIT_CLEAN
        }
        Ok(Drained::Unacknowledged(records)) => {
            let problem = Problem::new(Code::DrainLimitReached, "stop")
                .found(match records {
                    0 => "everything is acknowledged, but the server could not be told; what it was not told comes again at the next start".to_owned(),
                    _ => format!("{records} records not acknowledged in time; what is not confirmed comes again at the next start"),
                })
                .needed("acknowledgements from the brokers within kafka.drain_timeout");
            warn!(code = %problem.code, records, "{problem}");
            problem.exit_code()
        }
        Err(problem) => {
            error!(code = %problem.code, "{problem}");
            problem.exit_code()
        }
    }
}

async fn start(
    config: &Config,
    pipeline: &Pipeline,
    conduct: &Conduct,
) -> Result<Drained, Problem> {
    let (trigger, shutdown) = Shutdown::channel();
    // First of all, so that a signal during a slow start is an orderly stop as well.
    watch_signals(trigger)?;
    info!(version = env!("CARGO_PKG_VERSION"), "posthaste starting");
    let watched = Watched {
        metrics: PipelineMetrics::new(&pipeline.name),
        health: Health::new(),
    };
    serve_pages(config, &pipeline.name, &watched).await?;
    let supervisor = Supervisor::new(config, pipeline, watched, shutdown, conduct)?;
    supervisor.run().await
}

/// The pages live as long as the process: they tell of the drain as well.
async fn serve_pages(config: &Config, pipeline: &str, watched: &Watched) -> Result<(), Problem> {
    let Some(listen) = config.http.listen else {
        return Ok(());
    };
    let instance = Instance {
        name: pipeline.to_owned(),
        metrics: watched.metrics.clone(),
        health: watched.health.clone(),
    };
    let server = HttpServer::bind(&listen.to_string(), vec![instance]).await?;
    tokio::spawn(server.serve(std::future::pending()));
    Ok(())
}

/// The first signal asks for an orderly stop, the second one ends the process on the spot.
fn watch_signals(trigger: ShutdownTrigger) -> Result<(), Problem> {
    let mut signals = StopSignals::install().map_err(|error| {
        Problem::new(Code::Unexpected, "signal handlers")
            .found(error.to_string())
            .caused_by(error)
    })?;
    let watching = async move {
        let name = signals.next().await;
        info!("{name}: stopping; a second signal ends at once");
        trigger.request();
        let name = signals.next().await;
        let problem = Problem::new(Code::SecondSignal, "stop").found(format!(
            "a second signal, {name}; what was not confirmed comes again"
        ));
        warn!(code = %problem.code, "{problem}");
        std::process::exit(i32::from(problem.exit_code()));
    };
    tokio::spawn(watching.in_current_span());
    Ok(())
}

/// Exit status of an orderly end.
const EXIT_CLEAN: u8 = 0;
