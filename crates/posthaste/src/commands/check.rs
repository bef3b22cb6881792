//! `posthaste check`: every precondition of `run`, without changing anything.

use std::io::Write;
use std::time::Duration;

use sink::{KafkaProducer, Producer};

use crate::brokers::PROBE_TIMEOUT;
use crate::cli::CheckArgs;
use crate::codes::{Code, Problem};
use crate::commands::printing::as_problem;
use crate::config::{self, Pipeline};
use crate::connector_words;
use crate::explain;
use crate::logging;
use crate::parking::Parking;
use crate::parking_lot::Found;
use crate::policy::RunError;
use crate::preconditions::{self, Checked};
use crate::settings;

/// Checks and reports on `out`.
///
/// # Errors
///
/// The first thing that would keep `run` from starting.
pub async fn run(arguments: &CheckArgs, out: &mut dyn Write) -> Result<(), Problem> {
    let config = config::load(&arguments.config.request(&arguments.log))?;
    logging::init(&config.log)?;
    for pipeline in &config.pipelines {
        let told = |problem| connector_words::told_to(pipeline, problem);
        let checked = check_postgres(pipeline).await.map_err(as_problem);
        let checked = checked.map_err(told)?;
        check_kafka(pipeline).await.map_err(told)?;
        report(pipeline, &checked, out).map_err(|error| {
            Problem::new(Code::Unexpected, "standard output")
                .found(error.kind().to_string())
                .caused_by(error)
        })?;
    }
    Ok(())
}

async fn check_postgres(pipeline: &Pipeline) -> Result<Checked, RunError> {
    let mut wanted = settings::wanted(pipeline)?;
    // A check makes nothing; what `run` would make is reported as missing.
    wanted.create = false;
    let options = settings::connect_options(pipeline).await?;
    let (sql, _, checked) = preconditions::open(&options, &wanted).await?;
    let slot = &pipeline.source.slot;
    let parking = Parking::new(sql, &pipeline.poison.schema, slot).await?;
    Found::open(parking, slot, &settings::poison_rules(pipeline)).await?;
    Ok(checked)
}

async fn check_kafka(pipeline: &Pipeline) -> Result<(), Problem> {
    let mut producer =
        KafkaProducer::new(&settings::kafka_config(pipeline)).map_err(explain::kafka_config)?;
    let probe = producer.probe();
    let asked = tokio::task::spawn_blocking(move || probe.reachable(PROBE_TIMEOUT)).await;
    // The task cannot panic; a runtime that ends has no answer to give.
    asked.unwrap_or(Ok(())).map_err(|error| {
        // Why nobody answered is known once the client's events are served.
        producer.poll(Duration::ZERO, &mut |_| ());
        explain::publish(producer.broker_error().unwrap_or(error))
    })
}

fn report(pipeline: &Pipeline, checked: &Checked, out: &mut dyn Write) -> std::io::Result<()> {
    for warning in &checked.warnings {
        let text = connector_words::text_told_to(pipeline, &warning.text);
        writeln!(out, "warning: {text}")?;
    }
    writeln!(
        out,
        "pipeline {}: ready; slot {} stands at {}, the server's WAL at {}, brokers answer",
        pipeline.name, pipeline.source.slot, checked.slot_confirmed, checked.server_wal_position
    )
}
