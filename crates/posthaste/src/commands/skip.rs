//! `posthaste skip`: notes the decision to pass over one event. The next run carries it out, and notes when.

use std::io::Write;

use crate::cli_parked::SkipArgs;
use crate::codes::Problem;
use crate::commands::parked::open;
use crate::commands::printing::{as_problem, write};

/// Writes the decision to the audit log and reports on `out`.
///
/// # Errors
///
/// The configuration is wrong, or the database cannot be reached.
pub async fn run(arguments: &SkipArgs, out: &mut dyn Write) -> Result<(), Problem> {
    let (parking, _) = open(&arguments.place).await?;
    let event = arguments.event.as_deref();
    let number = parking
        .request_skip(event, arguments.row, arguments.reason.as_deref())
        .await
        .map_err(as_problem)?;
    let which = match (event, arguments.row) {
        (Some(event), _) => format!("event {event}"),
        (None, Some(row)) => format!("row {row}"),
        (None, None) => String::new(),
    };
    write(
        &format!("request {number}: {which} is passed over by the next run that meets it, once\n"),
        out,
    )
}
