//! `posthaste parked …`: looks at parked events and decides about them. The running connector does the rest.

use std::io::Write;

use crate::cli_parked::{EditArgs, ParkedCommand, Place, SelectArgs, column_and, column_and_file};
use crate::codes::{Code, Problem};
use crate::commands::printing::{as_problem, line, write};
use crate::config::{self, Pipeline};
use crate::logging;
use crate::parking::{Access, Parking};
use crate::parking_commands::{Listed, Selection, Shown};
use crate::policy::OnPoison;
use crate::settings;

/// Carries out one of the commands and reports on `out`.
///
/// # Errors
///
/// The configuration is wrong, the database cannot be reached, or there is no such event.
pub async fn run(command: &ParkedCommand, out: &mut dyn Write) -> Result<(), Problem> {
    let text = match command {
        ParkedCommand::List(arguments) => {
            let (parking, _) = open(&arguments.place).await?;
            let id = arguments.aggregate_id.as_deref();
            let listed = parking.list(id, arguments.all, arguments.limit).await;
            list(&listed.map_err(as_problem)?)
        }
        ParkedCommand::Show(arguments) => {
            let (parking, _) = open(&arguments.place).await?;
            let shown = parking.show(arguments.number).await.map_err(as_problem)?;
            show(&shown.ok_or_else(|| unknown(arguments.number))?)
        }
        ParkedCommand::Edit(arguments) => edit(arguments).await?,
        ParkedCommand::Retry(arguments) => retry(arguments).await?,
        ParkedCommand::Discard(arguments) => discard(arguments).await?,
    };
    write(&text, out)
}

async fn edit(arguments: &EditArgs) -> Result<String, Problem> {
    let (parking, _) = open(&arguments.place).await?;
    let mut changes = Vec::new();
    for text in &arguments.column {
        let (column, value) = column_and(text).ok_or_else(|| malformed("--column"))?;
        changes.push((column, Some(value.as_bytes().to_vec())));
    }
    for text in &arguments.column_file {
        let (column, file) = column_and_file(text).ok_or_else(|| malformed("--column-file"))?;
        let value = std::fs::read(&file).map_err(|error| {
            Problem::new(Code::ParkedUnknown, format!("file {}", file.display()))
                .found(error.to_string())
                .needed("a file with the column's text")
                .caused_by(error)
        })?;
        changes.push((column, Some(value)));
    }
    changes.extend(arguments.null.iter().map(|column| (column.as_str(), None)));
    let mut text = String::new();
    for (column, value) in changes {
        let changed = parking
            .edit(arguments.number, column, value.as_deref())
            .await;
        if !changed.map_err(as_problem)? {
            return Err(Problem::new(
                Code::ParkedUnknown,
                format!("parked event {}", arguments.number),
            )
            .found(format!(
                "no held event of this number with a column {column:?}"
            ))
            .needed("a held event, and one of its columns")
            .fix("posthaste parked show prints them"));
        }
        line(
            &mut text,
            &format!("event {}: {column} changed", arguments.number),
        );
    }
    Ok(text)
}

async fn retry(arguments: &SelectArgs) -> Result<String, Problem> {
    let (parking, pipeline) = open(&arguments.place).await?;
    let queued = parking
        .queue(selection(arguments))
        .await
        .map_err(as_problem)?;
    let mut text = String::new();
    line(&mut text, &format!("{queued} held events queued"));
    if settings::poison_rules(&pipeline).action != OnPoison::Park {
        line(
            &mut text,
            "poison.on_poison is not park in this configuration: a connector started with it does not publish them",
        );
    }
    Ok(text)
}

async fn discard(arguments: &SelectArgs) -> Result<String, Problem> {
    let (parking, _) = open(&arguments.place).await?;
    let discarded = parking
        .discard(selection(arguments))
        .await
        .map_err(as_problem)?;
    let mut text = String::new();
    line(&mut text, &format!("{discarded} events discarded"));
    Ok(text)
}

fn selection(arguments: &SelectArgs) -> Selection<'_> {
    match &arguments.aggregate_id {
        Some(id) => Selection::Aggregate {
            id,
            of_type: arguments.aggregate_type.as_deref(),
        },
        None if arguments.all => Selection::All,
        None => Selection::Numbers(&arguments.numbers),
    }
}

/// The tables of the configuration's slot, with the connector's own role.
pub(crate) async fn open(place: &Place) -> Result<(Parking, Pipeline), Problem> {
    let config = config::load(&place.config.request(&place.log))?;
    logging::init(&config.log)?;
    let Some(pipeline) = config.pipelines.into_iter().next() else {
        return Err(Problem::new(Code::ConfigPipelineCount, "pipeline").found("none"));
    };
    let options = settings::connect_options(&pipeline).await;
    let options = options.map_err(as_problem)?;
    let sql = replication::connect_sql(&options)
        .await
        .map_err(crate::explain::connect)?;
    let parking = Parking::new(sql, &pipeline.poison.schema, &pipeline.source.slot)
        .await
        .map_err(as_problem)?;
    let tables = parking.tables().await.map_err(as_problem)?;
    for (table, access) in [("parked", tables.parked), ("skipped", tables.skipped)] {
        if access != Access::Granted
            && let Some(problem) = parking.complain(table, access)
        {
            return Err(problem);
        }
    }
    Ok((parking, pipeline))
}

fn list(rows: &[Listed]) -> String {
    let mut text = String::new();
    if rows.is_empty() {
        line(&mut text, "no parked events");
        return text;
    }
    line(
        &mut text,
        "number  state  row  aggregate  event  code  attempts  parked at  reason",
    );
    for row in rows {
        line(
            &mut text,
            &format!(
                "{}  {}  {}  {}  {}  {}  {}  {}  {}",
                row.number,
                row.state,
                row.row,
                row.aggregate,
                row.event_id,
                row.code,
                row.attempts,
                row.parked_at,
                row.reason
            ),
        );
    }
    text
}

fn show(shown: &Shown) -> String {
    let row = &shown.listed;
    let mut text = String::new();
    let fields = [
        ("number", row.number.to_string()),
        ("state", row.state.clone()),
        ("row", row.row.clone()),
        ("table", shown.table.clone()),
        ("aggregate", row.aggregate.clone()),
        ("event", row.event_id.clone()),
        ("stage", shown.stage.clone()),
        ("code", row.code.clone()),
        ("attempts", row.attempts.to_string()),
        ("parked at", row.parked_at.clone()),
        ("reason", row.reason.clone()),
    ];
    for (name, value) in fields {
        line(&mut text, &format!("{name:<10} {value}"));
    }
    line(&mut text, "columns");
    for (name, value, known) in &shown.columns {
        let value = match (value, known) {
            (_, false) => "(not known: the row was too large)".to_owned(),
            (None, true) => "NULL".to_owned(),
            (Some(value), true) => String::from_utf8_lossy(value).into_owned(),
        };
        line(&mut text, &format!("  {name} = {value}"));
    }
    text
}

fn unknown(number: i64) -> Problem {
    Problem::new(Code::ParkedUnknown, format!("parked event {number}"))
        .found("none of this number in this slot")
        .needed("a number of posthaste parked list")
}

fn malformed(option: &str) -> Problem {
    Problem::new(Code::ParkedUnknown, option)
        .found("no column in front of =")
        .needed("COLUMN=VALUE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_says_so() {
        assert_eq!(list(&[]), "no parked events\n");
    }
}
