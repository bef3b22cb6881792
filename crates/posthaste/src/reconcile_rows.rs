//! Rows of an outbox table as the stream would have brought them: read through a cursor, in the server's own text form.
//!
//! All passes over the table see one snapshot, and memory holds one stretch of rows at a time.

use pgoutput::{Column, Lsn, Message, PgTimestamp, Relation, Row, TransactionId, decode};
use replication::quote_ident;
use router::TableName;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::codes::{Code, Problem};
use crate::preconditions::CheckError;

/// Which rows, as the user said it. Texts are PostgreSQL's affair, and are quoted.
#[derive(Debug, Clone, Default)]
pub struct Range {
    /// Written at this time or later.
    pub since: Option<String>,
    /// Written before this time.
    pub until: Option<String>,
    /// The event id, and those after it.
    pub from_id: Option<String>,
    /// Up to this event id, inclusive.
    pub to_id: Option<String>,
}

/// One outbox table, ready to be read.
#[derive(Debug)]
pub(crate) struct OutboxRows<'a> {
    sql: &'a Client,
    relation: Relation,
    id_column: Option<usize>,
    select: String,
    frame: Vec<u8>,
}

/// One row with what is known of its time.
pub(crate) struct OutboxRow<'a> {
    /// As from the stream; its transaction is made up of the row's own time.
    pub(crate) row: Row<'a>,
    pub(crate) written_at: Option<PgTimestamp>,
    /// The text of the event id's column.
    pub(crate) event_id: Option<&'a str>,
}

/// What is read from one table.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) table: &'a TableName,
    pub(crate) oid: u32,
    /// Rows of a partitioned table lie in its partitions; other heirs send theirs under their own names.
    pub(crate) partitioned: bool,
    pub(crate) range: &'a Range,
    /// The column of the event id.
    pub(crate) id: &'a str,
    /// The column that says when a row was written.
    pub(crate) time: Option<&'a str>,
}

impl<'a> OutboxRows<'a> {
    /// Reads the table's layout.
    ///
    /// # Errors
    ///
    /// The range asks for a time that no column tells, or the connection was lost.
    pub(crate) async fn open(sql: &'a Client, plan: &Plan<'_>) -> Result<Self, CheckError> {
        let relation = layout(sql, plan).await?;
        let select = select(plan, &relation)?;
        Ok(Self {
            sql,
            id_column: relation.column(plan.id),
            relation,
            select,
            frame: Vec::new(),
        })
    }

    pub(crate) fn relation(&self) -> &Relation {
        &self.relation
    }

    /// Reads all rows of the range in order, within the transaction that is open.
    ///
    /// # Errors
    ///
    /// The role may not read the table, a text of the range means nothing to the server, the connection was lost, or what
    /// `on_row` says.
    pub(crate) async fn each(
        &mut self,
        on_row: &mut dyn FnMut(&OutboxRow<'_>) -> Result<(), Problem>,
    ) -> Result<(), CheckError> {
        let declare = format!("DECLARE {CURSOR} NO SCROLL CURSOR FOR {}", self.select);
        self.sql
            .batch_execute(&declare)
            .await
            .map_err(|error| self.explain(error))?;
        let fetch = format!("FETCH FORWARD {STRETCH_ROWS} FROM {CURSOR}");
        loop {
            let answers = self.sql.simple_query(&fetch).await;
            let answers = answers.map_err(|error| self.explain(error))?;
            let mut count = 0;
            for answer in &answers {
                if let SimpleQueryMessage::Row(row) = answer {
                    count += 1;
                    let values = (0..row.len()).map(|index| row.get(index));
                    // The time stands before the columns.
                    let event_id = self.id_column.and_then(|index| row.get(index + 1));
                    self.hand_on(values, event_id, on_row)?;
                }
            }
            if count < STRETCH_ROWS {
                break;
            }
        }
        self.sql.batch_execute(&format!("CLOSE {CURSOR}")).await?;
        Ok(())
    }

    /// Writes the row as the stream would have, so that the router is given what it always gets.
    fn hand_on<'v>(
        &mut self,
        mut values: impl Iterator<Item = Option<&'v str>>,
        event_id: Option<&str>,
        on_row: &mut dyn FnMut(&OutboxRow<'_>) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let micros = values.next().flatten().and_then(|text| text.parse().ok());
        let written_at = micros.map(PgTimestamp::from_unix_micros);
        encode_insert(&mut self.frame, &self.relation, values);
        let message = decode(&self.frame).map_err(|error| {
            Problem::new(Code::Unexpected, "row of the outbox")
                .found("it cannot be written as the stream would")
                .caused_by(error)
        })?;
        let Message::Insert { new: tuple, .. } = message else {
            return Ok(());
        };
        let row = Row {
            transaction: TransactionId {
                final_lsn: Lsn::ZERO,
                commit_time: written_at.unwrap_or_else(|| crate::clock::Now::read().wall),
                xid: 0,
            },
            insert_index: 0,
            lsn: Lsn::ZERO,
            relation: &self.relation,
            tuple,
        };
        on_row(&OutboxRow {
            row,
            written_at,
            event_id,
        })
    }

    fn explain(&self, error: tokio_postgres::Error) -> CheckError {
        let Some(server) = error.as_db_error() else {
            return CheckError::Interrupted(error);
        };
        let table = format!("table {}.{}", self.relation.namespace, self.relation.name);
        let sqlstate = server.code().code();
        let problem = match sqlstate {
            "42501" => Problem::new(Code::OutboxUnreadable, table)
                .found(server.message())
                .needed("the right SELECT, which streaming does without and a comparison does not")
                .fix(format!(
                    "GRANT SELECT ON {}.{} TO the role of this connection",
                    quote_ident(&self.relation.namespace),
                    quote_ident(&self.relation.name)
                )),
            _ if sqlstate.starts_with("22") || sqlstate.starts_with("42") => Problem::new(
                Code::ConfigValue,
                format!("range of {table}"),
            )
            .found(server.message())
            .needed("a time or an event id in a form that PostgreSQL reads as the column's type")
            .fix("give --since and --until as 2026-11-30T10:00:00Z, ids as the table has them"),
            _ => return error.into(),
        };
        CheckError::Problem(problem.caused_by(error))
    }
}

/// The columns as a Relation message describes them.
async fn layout(sql: &Client, plan: &Plan<'_>) -> Result<Relation, CheckError> {
    let mut columns = Vec::new();
    for row in sql.query(LAYOUT, &[&plan.oid]).await? {
        columns.push(Column {
            key: false,
            name: row.try_get(0)?,
            type_oid: row.try_get(1)?,
            type_modifier: row.try_get(2)?,
        });
    }
    Ok(Relation {
        id: plan.oid,
        namespace: plan.table.schema.clone(),
        name: plan.table.name.clone(),
        replica_identity: b'd',
        columns,
    })
}

fn select(plan: &Plan<'_>, relation: &Relation) -> Result<String, Problem> {
    let time = plan.time.map(quote_ident);
    let micros = time.as_ref().map_or_else(
        || "NULL".to_owned(),
        |time| format!("(pg_catalog.date_part('epoch', {time}) * 1000000)::pg_catalog.int8"),
    );
    let mut columns = vec![micros];
    columns.extend(
        relation
            .columns
            .iter()
            .map(|column| quote_ident(&column.name)),
    );
    let id = quote_ident(plan.id);
    let Range {
        since,
        until,
        from_id,
        to_id,
    } = plan.range;
    if time.is_none() && (since.is_some() || until.is_some()) {
        return Err(Problem::new(Code::ConfigValue, "--since and --until")
            .found(format!(
                "no column of {} that says when a row was written",
                plan.table
            ))
            .needed("a column of type timestamp or timestamptz")
            .fix("name it with --time-column, or give a range of ids"));
    }
    let mut conditions = Vec::new();
    let mut put = |column: &str, operator: &str, value: &Option<String>| {
        conditions.extend(
            value
                .as_ref()
                .map(|value| format!("{column} {operator} {}", quote_literal(value))),
        );
    };
    let column = time.clone().unwrap_or_default();
    put(&column, ">=", since);
    put(&column, "<", until);
    put(&id, ">=", from_id);
    put(&id, "<=", to_id);
    let condition = match conditions.as_slice() {
        [] => String::new(),
        conditions => format!(" WHERE {}", conditions.join(" AND ")),
    };
    let order = time.map_or_else(|| id.clone(), |time| format!("{time}, {id}"));
    Ok(format!(
        "SELECT {} FROM {}{}.{}{condition} ORDER BY {order}",
        columns.join(", "),
        if plan.partitioned { "" } else { "ONLY " },
        quote_ident(&plan.table.schema),
        quote_ident(&plan.table.name)
    ))
}

/// A text as SQL writes it, whatever `standard_conforming_strings` says.
fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

fn encode_insert<'v>(
    out: &mut Vec<u8>,
    relation: &Relation,
    values: impl Iterator<Item = Option<&'v str>>,
) {
    out.clear();
    out.push(b'I');
    out.extend(relation.id.to_be_bytes());
    out.push(b'N');
    // A table has at most 1 600 columns, a value at most 1 GB.
    let count = u16::try_from(relation.columns.len()).unwrap_or(u16::MAX);
    out.extend(count.to_be_bytes());
    for value in values {
        match value {
            None => out.push(b'n'),
            Some(text) => {
                out.push(b't');
                out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
                out.extend(text.as_bytes());
            }
        }
    }
}

/// Columns as the stream has them; those that are computed when read are not in it.
const LAYOUT: &str = "\
    SELECT a.attname::pg_catalog.text, a.atttypid, a.atttypmod \
    FROM pg_catalog.pg_attribute a \
    WHERE a.attrelid = $1::pg_catalog.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v' \
    ORDER BY a.attnum";

const CURSOR: &str = "posthaste_reconcile";

/// Rows in memory at a time.
const STRETCH_ROWS: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    fn relation() -> Relation {
        let column = |name: &str| Column {
            key: false,
            name: name.to_owned(),
            type_oid: 25,
            type_modifier: -1,
        };
        Relation {
            id: 7,
            namespace: "public".to_owned(),
            name: "outbox".to_owned(),
            replica_identity: b'd',
            columns: vec![column("id"), column("Pay\"load")],
        }
    }

    fn check(range: &Range, time: Option<&str>, expected: &str) {
        let table = "public.outbox".parse().expect("a name");
        let plan = Plan {
            table: &table,
            oid: 7,
            partitioned: false,
            range,
            id: "id",
            time,
        };
        assert_eq!(select(&plan, &relation()).expect("legal"), expected);
    }

    #[test]
    fn names_and_texts_are_quoted() {
        let range = Range {
            from_id: Some("it's \\ one".to_owned()),
            ..Range::default()
        };
        check(
            &range,
            None,
            "SELECT NULL, \"id\", \"Pay\"\"load\" FROM ONLY \"public\".\"outbox\" WHERE \"id\" >=  E'it''s \\\\ one' ORDER BY \"id\"",
        );
    }

    #[test]
    fn a_range_of_time_goes_by_the_column_named() {
        let range = Range {
            since: Some("2026-01-01".to_owned()),
            until: Some("2026-01-02".to_owned()),
            ..Range::default()
        };
        check(
            &range,
            Some("created_at"),
            "SELECT (pg_catalog.date_part('epoch', \"created_at\") * 1000000)::pg_catalog.int8, \"id\", \"Pay\"\"load\" \
             FROM ONLY \"public\".\"outbox\" WHERE \"created_at\" >= '2026-01-01' AND \"created_at\" < '2026-01-02' \
             ORDER BY \"created_at\", \"id\"",
        );
    }

    #[test]
    fn a_row_is_written_as_the_stream_writes_it() {
        let mut frame = Vec::new();
        encode_insert(&mut frame, &relation(), [Some("a"), None].into_iter());
        let Ok(Message::Insert { relation_id, new }) = decode(&frame) else {
            panic!("no insert")
        };
        assert_eq!(relation_id, 7);
        let values: Vec<_> = new.columns().collect();
        assert_eq!(values, [pgoutput::Value::Text(b"a"), pgoutput::Value::Null]);
    }
}
