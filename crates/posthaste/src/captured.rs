//! The captured tables: which tables of the database Debezium's filters mean, where a configuration does not name them.

use pgoutput::Relation;
use router::TableName;
use router::connect::{ConnectConfig, ConnectRouter};
use tokio_postgres::Client;

use crate::codes::{Code, Problem};
use crate::explain;
use crate::preconditions::{CheckError, Wanted};

/// What is wanted, with the tables in it that its filters mean.
///
/// Those of the publication are asked, under the names by which it publishes them; without a publication, all tables of
/// the database, since one is to be made for them.
pub(crate) async fn with_tables(sql: &Client, wanted: &Wanted) -> Result<Wanted, CheckError> {
    let mut resolved = wanted.clone();
    let Some(connect) = wanted
        .connect
        .as_deref()
        .filter(|_| wanted.tables.is_empty())
    else {
        return Ok(resolved);
    };
    let exists = sql
        .query_opt(PUBLICATION, &[&wanted.publication])
        .await?
        .is_some();
    let candidates = if exists {
        sql.query(PUBLISHED, &[&wanted.publication]).await?
    } else if wanted.first_start.without_tables {
        Vec::new()
    } else {
        sql.query(ALL, &[]).await?
    };
    let mut tables = Vec::with_capacity(candidates.len());
    for row in candidates {
        tables.push(TableName {
            schema: row.try_get(0)?,
            name: row.try_get(1)?,
        });
    }
    resolved.tables = outboxes(connect, tables)?;
    if resolved.tables.is_empty() && !wanted.messages {
        return Err(none(wanted, exists).into());
    }
    Ok(resolved)
}

/// Those of the tables whose rows reach the Event Router.
fn outboxes(connect: &ConnectConfig, tables: Vec<TableName>) -> Result<Vec<TableName>, Problem> {
    let mut router = ConnectRouter::new(connect.clone(), "").map_err(explain::connect_config)?;
    Ok(tables
        .into_iter()
        .filter(|table| {
            router.handle_relation(&Relation {
                id: 0,
                namespace: table.schema.clone(),
                name: table.name.clone(),
                replica_identity: b'd',
                columns: Vec::new(),
            });
            router.is_outbox(0)
        })
        .collect())
}

fn none(wanted: &Wanted, publication_exists: bool) -> Problem {
    let place = if publication_exists {
        format!(
            "publication {}",
            replication::quote_ident(&wanted.publication)
        )
    } else {
        "the database".to_owned()
    };
    Problem::new(Code::TableMissing, "outbox table")
        .found(format!("no table of {place} that the filters let pass and the Event Router takes"))
        .needed("an outbox table")
        .fix("correct table.include.list and its neighbours, or the predicate of the Event Router, or add the table to the publication")
}

const PUBLICATION: &str =
    "SELECT FROM pg_catalog.pg_publication p WHERE p.pubname = $1::pg_catalog.text";

const PUBLISHED: &str = "\
    SELECT t.schemaname::pg_catalog.text, t.tablename::pg_catalog.text FROM pg_catalog.pg_publication_tables t \
    WHERE t.pubname = $1::pg_catalog.text ORDER BY 1, 2";

/// Partitions stand under their table's name in a publication that we make.
const ALL: &str = "\
    SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition \
      AND n.nspname <> 'pg_catalog' AND n.nspname <> 'information_schema' ORDER BY 1, 2";

#[cfg(test)]
mod tests {
    use router::connect::{
        ConnectConfig, PredicateConfig, TableFilter, Transform, TransformConfig,
    };

    use super::*;

    fn table(text: &str) -> TableName {
        text.parse().expect("a table")
    }

    #[test]
    fn filters_and_the_routers_predicate_decide() {
        let mut connect = ConnectConfig {
            topic_prefix: "p".to_owned(),
            tables: TableFilter {
                include: vec!["app\\..*".to_owned()],
                ..TableFilter::default()
            },
            ..ConnectConfig::default()
        };
        let tables = || {
            vec![
                table("app.outbox"),
                table("app.heartbeat"),
                table("public.other"),
            ]
        };
        let captured = outboxes(&connect, tables()).expect("legal");
        assert_eq!(captured, [table("app.outbox"), table("app.heartbeat")]);
        let pattern = "p\\.app\\.outbox".to_owned();
        connect.predicates.insert(
            "isOutbox".to_owned(),
            PredicateConfig::TopicNameMatches { pattern },
        );
        connect.transforms = vec![TransformConfig {
            predicate: Some("isOutbox".to_owned()),
            ..TransformConfig::of(Transform::EventRouter {})
        }];
        let captured = outboxes(&connect, tables()).expect("legal");
        assert_eq!(captured, [table("app.outbox")]);
    }
}
