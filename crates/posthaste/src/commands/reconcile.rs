//! `posthaste reconcile`: rows of the outbox that are not in their topics, listed and, on request, published.

use std::io::Write;

use crate::cli_reconcile::ReconcileArgs;
use crate::codes::Problem;
use crate::commands::printing::{as_problem, unwritten};
use crate::config;
use crate::connector_words;
use crate::logging;
use crate::reconcile::{self, Outcome, Wish};

/// Compares, lists on `out`, publishes what is asked for, and returns the exit status: 5 if rows are left that are missing
/// or may be.
///
/// # Errors
///
/// What kept the comparison from being made, or a record from being published.
pub async fn run(arguments: &ReconcileArgs, out: &mut dyn Write) -> Result<u8, Problem> {
    let config = config::load(&arguments.config.request(&arguments.log))?;
    logging::init(&config.log)?;
    let wish = arguments.wish();
    let mut status = 0;
    for pipeline in &config.pipelines {
        let outcome = reconcile::run(pipeline, &wish, out).await;
        let told = |error| connector_words::told_to(pipeline, as_problem(error));
        let outcome = outcome.map_err(told)?;
        summarize(&outcome, &wish, out).map_err(unwritten)?;
        if !outcome.is_clean() {
            status = EXIT_ROWS_LEFT;
        }
    }
    Ok(status)
}

fn summarize(outcome: &Outcome, wish: &Wish, out: &mut dyn Write) -> std::io::Result<()> {
    let Outcome {
        published,
        missing,
        unknown,
        set_aside,
        without_record,
        sent,
    } = outcome;
    writeln!(
        out,
        "{published} in their topics, {missing} missing, {unknown} unknown, {set_aside} set aside, {without_record} without a record; {sent} published now"
    )?;
    if *set_aside > 0 {
        writeln!(
            out,
            "set aside: parked or skipped, see posthaste parked list"
        )?;
    }
    if *missing > 0 && !wish.publish {
        writeln!(out, "--publish sends the missing ones")?;
    }
    if *unknown > 0 && !wish.include_unknown {
        writeln!(
            out,
            "unknown: the topic no longer holds records of that time; --publish --include-unknown sends them, perhaps for the second time"
        )?;
    }
    Ok(())
}

/// The exit status when rows are left that are not known to be published.
pub const EXIT_ROWS_LEFT: u8 = 5;
