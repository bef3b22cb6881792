//! The outbox tables: there, of a kind whose inserts are in the WAL, and with the columns the router maps.

use std::collections::HashMap;

use router::TableName;
use tokio_postgres::Client;

use crate::codes::{Code, Problem};
use crate::preconditions::CheckError;

/// One outbox table as the catalogs describe it.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) oid: u32,
    pub(crate) name: TableName,
    pub(crate) kind: String,
    pub(crate) persistence: String,
    pub(crate) owner: String,
    /// Whether our role owns it, or is a member of the role that does.
    pub(crate) owned: bool,
    /// The table this one is a partition of, at any height.
    pub(crate) root: Option<TableName>,
    /// A partition whose inserts are not in the WAL.
    pub(crate) unlogged_leaf: Option<TableName>,
    /// Tables that inherit from this one without being its partitions.
    pub(crate) heirs: Vec<TableName>,
    pub(crate) columns: Vec<TableColumn>,
}

/// A column of an outbox table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    pub(crate) type_oid: u32,
    pub(crate) generated: bool,
}

impl Table {
    /// Reads the table, or says that there is none and what its name may have been meant to be.
    pub(crate) async fn read(
        sql: &Client,
        name: &TableName,
        database: &str,
    ) -> Result<Self, CheckError> {
        let found = sql.query_opt(RELATION, &[&name.schema, &name.name]).await?;
        let Some(row) = found else {
            let namesakes = relations(sql, NAMESAKES, &name.name).await?;
            return Err(missing(name, database, &namesakes).into());
        };
        let oid: u32 = row.try_get(0)?;
        let kind: String = row.try_get(1)?;
        let (mut root, mut unlogged_leaf, mut heirs) = (None, None, Vec::new());
        if row.try_get(5)? {
            root = relations(sql, ROOT, &oid).await?.pop();
        }
        if kind == PARTITIONED {
            unlogged_leaf = relations(sql, UNLOGGED_LEAF, &oid).await?.pop();
        } else {
            heirs = relations(sql, HEIRS, &oid).await?;
        }
        Ok(Self {
            oid,
            name: name.clone(),
            kind,
            persistence: row.try_get(2)?,
            owner: row.try_get(3)?,
            owned: row.try_get(4)?,
            root,
            unlogged_leaf,
            heirs,
            columns: read_columns(sql, oid).await?,
        })
    }

    /// Kind, then persistence, then columns.
    pub(crate) fn judge(&self, wanted: &[(String, bool)]) -> Result<(), Problem> {
        self.judge_kind()?;
        self.judge_persistence()?;
        for (column, required) in wanted {
            if *required && self.column(column).is_none() {
                return Err(self.column_missing(column));
            }
        }
        Ok(())
    }

    pub(crate) fn is_partitioned(&self) -> bool {
        self.kind == PARTITIONED
    }

    pub(crate) fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The types of the mapped columns.
    pub(crate) fn mapped_types<'a>(
        &'a self,
        wanted: &'a [(String, bool)],
    ) -> impl Iterator<Item = u32> + 'a {
        wanted
            .iter()
            .filter_map(|(column, _)| self.column(column))
            .map(|column| column.type_oid)
    }

    fn judge_kind(&self) -> Result<(), Problem> {
        let found = match self.kind.as_str() {
            ORDINARY | PARTITIONED => return Ok(()),
            "v" => "a view",
            "m" => "a materialized view",
            "f" => "a foreign table",
            "S" => "a sequence",
            "i" | "I" => "an index",
            "c" => "a composite type",
            _ => "another kind of relation",
        };
        Err(Problem::new(Code::TableKind, self.describe())
            .found(found)
            .needed("an ordinary or partitioned table: only their inserts are in the WAL")
            .fix("name the table itself in source.tables"))
    }

    fn judge_persistence(&self) -> Result<(), Problem> {
        let (table, found) = match (self.persistence.as_str(), &self.unlogged_leaf) {
            ("p", None) => return Ok(()),
            ("p", Some(leaf)) => (leaf, "a partition whose rows are not in the WAL"),
            ("t", _) => (&self.name, "TEMPORARY"),
            _ => (&self.name, "UNLOGGED"),
        };
        Err(Problem::new(Code::TableUnlogged, format!("table {table}"))
            .found(found)
            .needed("a logged table: inserts into others never reach the stream")
            .fix(format!("ALTER TABLE {} SET LOGGED", quoted(table))))
    }

    fn column_missing(&self, column: &str) -> Problem {
        let names = || self.columns.iter().map(|column| column.name.as_str());
        let hint = closest(column, names())
            .map(|near| format!("; did you mean {}?", replication::quote_ident(near)))
            .unwrap_or_default();
        let listed: Vec<&str> = names().take(COLUMNS_LISTED_MAX).collect();
        Problem::new(
            Code::ColumnMissing,
            format!(
                "column {} of table {}",
                replication::quote_ident(column),
                self.name
            ),
        )
        .found(format!("no such column, only {}{hint}", listed.join(", ")))
        .needed("every column that [router] maps")
        .fix(format!(
            "correct the name under [router], or ALTER TABLE {} ADD COLUMN {} …",
            quoted(&self.name),
            replication::quote_ident(column)
        ))
    }

    /// Rows that land in an inheriting table carry its name and are no events, although `SELECT` on the parent shows them.
    pub(crate) fn warning(&self, wanted: &[TableName]) -> Option<Problem> {
        let heir = self.heirs.iter().find(|heir| !wanted.contains(heir))?;
        Some(
            Problem::new(Code::TableInherited, self.describe())
                .found(format!(
                    "table {heir} inherits from it; rows stored there are not published as events"
                ))
                .needed("rows in the named tables only")
                .fix("if such rows are events, name that table in source.tables as well"),
        )
    }

    pub(crate) fn describe(&self) -> String {
        format!("table {}", self.name)
    }
}

/// For each domain among these types the type beneath, through any number of domains.
pub(crate) async fn base_types(
    sql: &Client,
    types: Vec<u32>,
) -> Result<HashMap<u32, u32>, CheckError> {
    let rows = sql.query(BASE_TYPES, &[&types]).await?;
    let mut bases = HashMap::with_capacity(rows.len());
    for row in rows {
        bases.insert(row.try_get(0)?, row.try_get(1)?);
    }
    Ok(bases)
}

/// A name as SQL has to spell it.
pub(crate) fn quoted(table: &TableName) -> String {
    format!(
        "{}.{}",
        replication::quote_ident(&table.schema),
        replication::quote_ident(&table.name)
    )
}

fn missing(name: &TableName, database: &str, namesakes: &[TableName]) -> Problem {
    let others: Vec<String> = namesakes.iter().map(ToString::to_string).collect();
    let hint = match others.as_slice() {
        [] => String::new(),
        _ => format!("; there is {}", others.join(", ")),
    };
    Problem::new(Code::TableMissing, format!("table {name}"))
        .found(format!("no such table in database {}{hint}", replication::quote_ident(database)))
        .needed("the outbox table")
        .fix("correct source.tables (upper-case names need double quotes inside), or create the table; sql/ has the statements")
}

async fn read_columns(sql: &Client, oid: u32) -> Result<Vec<TableColumn>, CheckError> {
    let rows = sql.query(COLUMNS, &[&oid]).await?;
    let mut columns = Vec::with_capacity(rows.len());
    for row in rows {
        columns.push(TableColumn {
            name: row.try_get(0)?,
            type_oid: row.try_get(1)?,
            generated: row.try_get(2)?,
        });
    }
    Ok(columns)
}

/// The tables a query returns as pairs of schema and name.
async fn relations(
    sql: &Client,
    statement: &str,
    parameter: &(dyn tokio_postgres::types::ToSql + Sync),
) -> Result<Vec<TableName>, CheckError> {
    let rows = sql.query(statement, &[parameter]).await?;
    let mut tables = Vec::with_capacity(rows.len());
    for row in rows {
        tables.push(TableName {
            schema: row.try_get(0)?,
            name: row.try_get(1)?,
        });
    }
    Ok(tables)
}

/// The candidate that was probably meant: the same but for case, or else a few letters away.
fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    candidates
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()),
                candidate,
            )
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= TYPING_ERRORS_MAX.min(name.chars().count() / 2))
        .map(|(_, candidate)| candidate)
}

const ORDINARY: &str = "r";
const PARTITIONED: &str = "p";

/// More differences than this are another word.
const TYPING_ERRORS_MAX: usize = 3;

/// A wide table must not make the message unreadable.
const COLUMNS_LISTED_MAX: usize = 20;

const RELATION: &str = "\
    SELECT c.oid, c.relkind::pg_catalog.text, c.relpersistence::pg_catalog.text, \
           pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text, \
           pg_catalog.pg_has_role(c.relowner, 'USAGE'), c.relispartition \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE n.nspname = $1::pg_catalog.text AND c.relname = $2::pg_catalog.text";

/// Tables of the same name in another schema, or of the same name but for case.
const NAMESAKES: &str = "\
    SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE pg_catalog.lower(c.relname::pg_catalog.text) = pg_catalog.lower($1::pg_catalog.text) \
      AND c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' \
    ORDER BY 1, 2 LIMIT 3";

const COLUMNS: &str = "\
    SELECT a.attname::pg_catalog.text, a.atttypid, a.attgenerated <> '' \
    FROM pg_catalog.pg_attribute a \
    WHERE a.attrelid = $1::pg_catalog.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

const ROOT: &str = "\
    SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.oid = pg_catalog.pg_partition_root($1::pg_catalog.oid::pg_catalog.regclass)";

const UNLOGGED_LEAF: &str = "\
    SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
    FROM pg_catalog.pg_partition_tree($1::pg_catalog.oid::pg_catalog.regclass) t \
    JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE t.isleaf AND c.relkind <> 'p' AND (c.relpersistence <> 'p' OR c.relkind <> 'r') ORDER BY 1, 2 LIMIT 1";

const HEIRS: &str = "\
    SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text \
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE i.inhparent = $1::pg_catalog.oid AND NOT c.relispartition ORDER BY 1, 2 LIMIT 20";

const BASE_TYPES: &str = "\
    WITH RECURSIVE chain AS ( \
        SELECT t.oid AS domain, t.typbasetype AS base FROM pg_catalog.pg_type t \
        WHERE t.oid = ANY ($1::pg_catalog.oid[]) AND t.typtype = 'd' \
        UNION ALL \
        SELECT c.domain, t.typbasetype FROM chain c JOIN pg_catalog.pg_type t ON t.oid = c.base WHERE t.typtype = 'd') \
    SELECT c.domain, c.base FROM chain c JOIN pg_catalog.pg_type t ON t.oid = c.base WHERE t.typtype <> 'd'";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn table(columns: &[&str]) -> Table {
        let column = |name: &&str| TableColumn {
            name: (*name).to_owned(),
            type_oid: 25,
            generated: false,
        };
        Table {
            oid: 1,
            name: TableName {
                schema: "public".to_owned(),
                name: "outbox".to_owned(),
            },
            kind: ORDINARY.to_owned(),
            persistence: "p".to_owned(),
            owner: "app".to_owned(),
            owned: true,
            root: None,
            unlogged_leaf: None,
            heirs: Vec::new(),
            columns: columns.iter().map(column).collect(),
        }
    }

    fn name(schema: &str, name: &str) -> TableName {
        TableName {
            schema: schema.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn optional_columns_may_be_missing() {
        let wanted = [("id".to_owned(), true), ("type".to_owned(), false)];
        assert!(table(&["id"]).judge(&wanted).is_ok());
    }

    #[test]
    fn a_missing_column_comes_with_what_was_meant() {
        let wanted = [("aggregateid".to_owned(), true)];
        let problem = table(&["id", "aggregateId"]).judge(&wanted).unwrap_err();
        assert_eq!(problem.code, Code::ColumnMissing);
        assert!(
            problem
                .to_string()
                .contains("did you mean \"aggregateId\"?"),
            "{problem}"
        );
        let far = table(&["id", "x"]).judge(&wanted).unwrap_err().to_string();
        assert!(!far.contains("did you mean"), "{far}");
    }

    #[test]
    fn relations_without_wal_are_refused() {
        for (kind, word) in [
            ("v", "view"),
            ("m", "materialized"),
            ("f", "foreign"),
            ("S", "sequence"),
        ] {
            let problem = Table {
                kind: kind.to_owned(),
                ..table(&[])
            }
            .judge(&[])
            .unwrap_err();
            assert_eq!(problem.code, Code::TableKind);
            assert!(problem.to_string().contains(word), "{problem}");
        }
        for persistence in ["u", "t"] {
            let unlogged = Table {
                persistence: persistence.to_owned(),
                ..table(&[])
            };
            assert_eq!(unlogged.judge(&[]).unwrap_err().code, Code::TableUnlogged);
        }
    }

    #[test]
    fn an_unlogged_partition_is_named() {
        let leaf = Some(name("public", "outbox_2"));
        let problem = Table {
            unlogged_leaf: leaf,
            ..table(&[])
        }
        .judge(&[])
        .unwrap_err();
        assert!(
            problem.to_string().contains("\"outbox_2\" SET LOGGED"),
            "{problem}"
        );
    }

    #[test]
    fn an_inheriting_table_is_mentioned_unless_it_is_named_too() {
        let parent = Table {
            heirs: vec![name("public", "child")],
            ..table(&[])
        };
        assert!(parent.warning(&[]).is_some());
        assert!(parent.warning(&[name("public", "child")]).is_none());
    }

    #[test]
    fn a_missing_table_lists_its_namesakes() {
        let namesakes = [name("audit", "outbox"), name("public", "Outbox")];
        let text = missing(&name("public", "outbox"), "app", &namesakes).to_string();
        assert!(
            text.contains("there is audit.outbox, public.\"Outbox\""),
            "{text}"
        );
    }
}
