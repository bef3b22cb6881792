//! The publication: what it must publish, and how it is made. One that exists is never altered.

use router::TableName;
use tokio_postgres::Client;

use crate::codes::{Code, Problem};
use crate::preconditions::{CheckError, Wanted};
use crate::preconditions_server::Server;
use crate::preconditions_table::{Table, quoted};
use crate::slot::Slot;

/// A publication, and what it publishes of the outbox tables.
#[derive(Debug, Clone)]
pub(crate) struct Publication {
    name: String,
    inserts: bool,
    /// Whether it publishes updates, deletes and truncates.
    others: [bool; 3],
    via_root: bool,
    /// In the order of the tables asked for.
    shares: Vec<Share>,
}

/// What the publication does with one table.
#[derive(Debug, Clone, Default)]
struct Share {
    /// The table belongs to it, by itself, through its root, its schema or FOR ALL TABLES.
    member: bool,
    /// Its rows are published under its own name.
    published: bool,
    /// The columns that are sent; `None` on servers without column lists.
    columns: Option<Vec<String>>,
    row_filter: Option<String>,
}

impl Publication {
    /// Reads the publication; `None` when there is none of this name.
    pub(crate) async fn read(
        sql: &Client,
        version: u32,
        name: &str,
        tables: &[Table],
    ) -> Result<Option<Self>, CheckError> {
        let Some(row) = sql.query_opt(PUBLICATION, &[&name]).await? else {
            return Ok(None);
        };
        let oid: u32 = row.try_get(0)?;
        let mut shares = Vec::with_capacity(tables.len());
        for table in tables {
            shares.push(Share::read(sql, version, oid, name, table).await?);
        }
        Ok(Some(Self {
            name: name.to_owned(),
            inserts: row.try_get(1)?,
            others: [row.try_get(2)?, row.try_get(3)?, row.try_get(4)?],
            via_root: row.try_get(5)?,
            shares,
        }))
    }

    /// Refuses a publication that leaves events out; remarks on one that sends more than is needed.
    pub(crate) fn judge(
        &self,
        server: &Server,
        tables: &[Table],
        wanted: &[(String, bool)],
    ) -> Result<Vec<Problem>, Problem> {
        // Without tables it is there for logical messages alone.
        if !self.inserts && !tables.is_empty() {
            return Err(Problem::new(Code::PublicationInserts, self.describe())
                .found("it does not publish inserts")
                .needed("publish = 'insert'")
                .fix(format!(
                    "ALTER PUBLICATION {} SET (publish = 'insert')",
                    self.quoted()
                )));
        }
        for (table, share) in tables.iter().zip(&self.shares) {
            self.judge_membership(table, share)?;
        }
        let mut warnings = Vec::new();
        for (table, share) in tables.iter().zip(&self.shares) {
            self.judge_row_filter(table, share)?;
            warnings.extend(self.judge_columns(server, table, share, wanted)?);
        }
        warnings.extend(self.operations_warning());
        Ok(warnings)
    }

    fn judge_membership(&self, table: &Table, share: &Share) -> Result<(), Problem> {
        if share.published {
            return Ok(());
        }
        if table.is_partitioned() && share.member && !self.via_root {
            return Err(self.partitions_apart(table));
        }
        let publication = self.quoted();
        let problem = Problem::new(Code::PublicationTable, self.describe());
        if let (Some(root), true, true) = (&table.root, share.member, self.via_root) {
            return Err(problem
                .found(format!(
                    "rows of {} are published under the name of the partitioned table {root}",
                    table.name
                ))
                .needed("the name under which rows are published")
                .fix(format!("name {root} in source.tables")));
        }
        let root_option = if table.is_partitioned() && !self.via_root {
            format!("ALTER PUBLICATION {publication} SET (publish_via_partition_root = true); ")
        } else {
            String::new()
        };
        Err(problem
            .found(format!("it does not contain {}", table.describe()))
            .needed("this table in it")
            .fix(format!(
                "{root_option}ALTER PUBLICATION {publication} ADD TABLE {}; rows inserted before that are not published",
                quoted(&table.name)
            )))
    }

    /// Without the option rows arrive under the partitions' names and match no outbox table: running, and silent.
    fn partitions_apart(&self, table: &Table) -> Problem {
        let publication = self.quoted();
        Problem::new(Code::PublicationPartitions, self.describe())
            .found(format!(
                "publish_via_partition_root = false, so rows of {} arrive under the names of its partitions",
                table.describe()
            ))
            .needed("publish_via_partition_root = true")
            .fix(format!(
                "ALTER PUBLICATION {publication} SET (publish_via_partition_root = true); rows inserted before that \
                 still arrive under the partitions' names"
            ))
    }

    fn judge_row_filter(&self, table: &Table, share: &Share) -> Result<(), Problem> {
        let Some(filter) = &share.row_filter else {
            return Ok(());
        };
        Err(Problem::new(Code::PublicationRowFilter, self.describe())
            .found(format!(
                "row filter WHERE {filter} on {}: rows it leaves out would be lost silently",
                table.describe()
            ))
            .needed("every inserted row")
            .fix(self.readd_sql(table)))
    }

    /// A required column that is not sent is refused, an optional one remarked on.
    fn judge_columns(
        &self,
        server: &Server,
        table: &Table,
        share: &Share,
        wanted: &[(String, bool)],
    ) -> Result<Vec<Problem>, Problem> {
        let mut warnings = Vec::new();
        for (name, required) in wanted {
            let Some(column) = table.column(name) else {
                continue;
            };
            let listed = share
                .columns
                .as_ref()
                .is_none_or(|columns| columns.contains(name));
            // Before 18 the catalog's list names generated columns, and the server still leaves them out.
            let problem = if column.generated && (server.major() < 18 || !listed) {
                generated_unsent(server, table, name, Some(&self.name))
            } else if listed {
                continue;
            } else {
                self.column_unlisted(table, name)
            };
            if *required {
                return Err(problem);
            }
            warnings.push(problem);
        }
        Ok(warnings)
    }

    fn column_unlisted(&self, table: &Table, column: &str) -> Problem {
        Problem::new(Code::PublicationColumns, self.describe())
            .found(format!(
                "its column list for {} leaves out {}",
                table.describe(),
                replication::quote_ident(column)
            ))
            .needed("every column that [router] maps")
            .fix(self.readd_sql(table))
    }

    fn operations_warning(&self) -> Option<Problem> {
        let named: Vec<&str> = ["update", "delete", "truncate"]
            .into_iter()
            .zip(self.others)
            .filter_map(|(operation, published)| published.then_some(operation))
            .collect();
        if named.is_empty() {
            return None;
        }
        Some(
            Problem::new(Code::PublicationOperations, self.describe())
                .found(format!(
                    "it also publishes {}, which make no events",
                    named.join(", ")
                ))
                .needed("publish = 'insert' is enough, and spares the work")
                .fix(format!(
                    "ALTER PUBLICATION {} SET (publish = 'insert')",
                    self.quoted()
                )),
        )
    }

    /// In one transaction, so that no position exists at which the table is missing.
    fn readd_sql(&self, table: &Table) -> String {
        let (publication, table) = (self.quoted(), quoted(&table.name));
        format!(
            "BEGIN; ALTER PUBLICATION {publication} DROP TABLE {table}; ALTER PUBLICATION {publication} ADD TABLE {table}; \
             COMMIT; what was inserted before that is not sent again"
        )
    }

    fn quoted(&self) -> String {
        replication::quote_ident(&self.name)
    }

    fn describe(&self) -> String {
        describe(&self.name)
    }
}

impl Share {
    async fn read(
        sql: &Client,
        version: u32,
        oid: u32,
        name: &str,
        table: &Table,
    ) -> Result<Self, CheckError> {
        let with_lists = version >= 150_000;
        let member = if with_lists { MEMBER_15 } else { MEMBER_14 };
        let row = sql.query_one(member, &[&oid, &table.oid]).await?;
        let mut share = Self {
            member: row.try_get(0)?,
            ..Self::default()
        };
        let published = if with_lists {
            PUBLISHED_15
        } else {
            PUBLISHED_14
        };
        let TableName {
            schema,
            name: table_name,
        } = &table.name;
        if let Some(row) = sql
            .query_opt(published, &[&name, schema, table_name])
            .await?
        {
            share.published = true;
            share.columns = row.try_get(0)?;
            share.row_filter = row.try_get(1)?;
        }
        Ok(share)
    }
}

/// The publication is missing and may not be made.
pub(crate) fn missing(wanted: &Wanted, slot: Option<&Slot>) -> Problem {
    let aftermath = slot.map_or_else(
        || "; or set source.create = true".to_owned(),
        |slot| {
            format!(
                "; slot {} already stands at {} and cannot read what was written without the publication: recreate it \
                 then, and look in the table for rows committed since",
                slot.name,
                slot.confirmed.unwrap_or_default()
            )
        },
    );
    Problem::new(Code::PublicationMissing, describe(&wanted.publication))
        .found("no publication of this name in this database")
        .needed("a publication of the outbox table's inserts")
        .fix(format!("{}{aftermath}", create_sql(wanted, false)))
}

/// Asks for the rights before the statement is tried, for the server's refusal is in the server's language.
pub(crate) fn judge_rights(
    server: &Server,
    tables: &[Table],
    wanted: &Wanted,
) -> Result<(), Problem> {
    let role = replication::quote_ident(&server.role);
    let by_hand = create_sql(wanted, tables.iter().any(Table::is_partitioned));
    let refused = |found: String, needed: &str, grant: String| {
        Problem::new(Code::CreateRefused, describe(&wanted.publication))
            .found(found)
            .needed(needed)
            .fix(format!("{grant}; or let the owner run: {by_hand}"))
    };
    if !server.may_create {
        let database = replication::quote_ident(&server.database);
        return Err(refused(
            format!("role {role} may not create publications in database {database}"),
            "the right CREATE on the database",
            format!("GRANT CREATE ON DATABASE {database} TO {role}"),
        ));
    }
    if let Some(table) = tables.iter().find(|table| !table.owned) {
        let owner = replication::quote_ident(&table.owner);
        return Err(refused(
            format!("{} belongs to {owner}, not to {role}", table.describe()),
            "ownership of every table of a new publication",
            format!("GRANT {owner} TO {role}"),
        ));
    }
    Ok(())
}

/// Whether a publication made by us would send what is mapped: it has no list, so only generated columns are at stake.
pub(crate) fn judge_generated(
    server: &Server,
    tables: &[Table],
    wanted: &[(String, bool)],
) -> Result<(), Problem> {
    for table in tables {
        for (name, required) in wanted {
            if *required && table.column(name).is_some_and(|column| column.generated) {
                return Err(generated_unsent(server, table, name, None));
            }
        }
    }
    Ok(())
}

/// Makes the publication, and has it committed before anything else happens.
pub(crate) async fn create(
    sql: &Client,
    wanted: &Wanted,
    tables: &[Table],
) -> Result<(), CheckError> {
    let statement = create_sql(wanted, tables.iter().any(Table::is_partitioned));
    let Err(error) = sql.batch_execute(&statement).await else {
        return Ok(());
    };
    let problem = match error.as_db_error() {
        // Made by another instance between our look and our statement: the next check finds it.
        Some(server) if MADE_MEANWHILE.contains(&server.code().code()) => {
            return Err(CheckError::Interrupted(error));
        }
        Some(server) => Problem::new(Code::CreateRefused, describe(&wanted.publication))
            .found(format!(
                "the server refuses to make it: {}",
                server.message()
            ))
            .needed("a publication of the outbox table's inserts")
            .fix(format!("let the owner of the table run: {statement}")),
        None => return Err(error.into()),
    };
    match CheckError::from(error) {
        CheckError::Problem(refusal) => Err(problem.caused_by(refusal).into()),
        passing => Err(passing),
    }
}

/// What the server says of a name that another session took a moment ago: `duplicate_object` when its look at the catalog
/// finds the other one, `unique_violation` when only the index does, because the other had not committed at the look.
const MADE_MEANWHILE: [&str; 2] = ["42710", "23505"];

/// Takes a publication back that was made a moment ago.
pub(crate) async fn drop(sql: &Client, name: &str) -> Result<(), tokio_postgres::Error> {
    let statement = format!(
        "DROP PUBLICATION IF EXISTS {}",
        replication::quote_ident(name)
    );
    sql.batch_execute(&statement).await
}

fn create_sql(wanted: &Wanted, via_root: bool) -> String {
    let tables: Vec<String> = wanted.tables.iter().map(quoted).collect();
    let tables = match tables.as_slice() {
        [] => String::new(),
        tables => format!(" FOR TABLE {}", tables.join(", ")),
    };
    let option = if via_root || wanted.first_start.via_partition_root {
        ", publish_via_partition_root = true"
    } else {
        ""
    };
    format!(
        "CREATE PUBLICATION {}{tables} WITH (publish = 'insert'{option})",
        replication::quote_ident(&wanted.publication)
    )
}

fn generated_unsent(
    server: &Server,
    table: &Table,
    column: &str,
    publication: Option<&str>,
) -> Problem {
    let column = replication::quote_ident(column);
    let fix = match publication {
        Some(name) if server.major() >= 18 => format!(
            "ALTER PUBLICATION {} SET (publish_generated_columns = stored) for a stored column; or map another one",
            replication::quote_ident(name)
        ),
        _ => format!(
            "map an ordinary column; or ALTER TABLE {} ALTER COLUMN {column} DROP EXPRESSION for a stored one",
            quoted(&table.name)
        ),
    };
    let sender = publication.map_or_else(
        || "a publication".to_owned(),
        |name| format!("publication {}", replication::quote_ident(name)),
    );
    Problem::new(
        Code::PublicationGeneratedColumn,
        format!("column {column} of {}", table.describe()),
    )
    .found(format!(
        "a generated column, which {sender} on PostgreSQL {} does not send",
        server.major()
    ))
    .needed("columns that are sent")
    .fix(fix)
}

fn describe(name: &str) -> String {
    format!("publication {}", replication::quote_ident(name))
}

const PUBLICATION: &str = "\
    SELECT p.oid, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot \
    FROM pg_catalog.pg_publication p WHERE p.pubname = $1::pg_catalog.text";

/// Membership of the table itself or, for a partition, of a table above it.
const MEMBER_14: &str = "\
    SELECT (SELECT p.puballtables FROM pg_catalog.pg_publication p WHERE p.oid = $1::pg_catalog.oid) \
        OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = $1::pg_catalog.oid \
            AND (r.prrelid = $2::pg_catalog.oid OR r.prrelid IN \
                (SELECT a.relid FROM pg_catalog.pg_partition_ancestors($2::pg_catalog.oid::pg_catalog.regclass) a)))";

const MEMBER_15: &str = "\
    SELECT (SELECT p.puballtables FROM pg_catalog.pg_publication p WHERE p.oid = $1::pg_catalog.oid) \
        OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = $1::pg_catalog.oid \
            AND (r.prrelid = $2::pg_catalog.oid OR r.prrelid IN \
                (SELECT a.relid FROM pg_catalog.pg_partition_ancestors($2::pg_catalog.oid::pg_catalog.regclass) a))) \
        OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace s \
            JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid WHERE s.pnpubid = $1::pg_catalog.oid \
            AND (c.oid = $2::pg_catalog.oid OR c.oid IN \
                (SELECT a.relid FROM pg_catalog.pg_partition_ancestors($2::pg_catalog.oid::pg_catalog.regclass) a)))";

/// The view knows all rules of partitions, schemas and FOR ALL TABLES; column lists and row filters came with 15.
const PUBLISHED_14: &str = "\
    SELECT NULL::pg_catalog.text[], NULL::pg_catalog.text FROM pg_catalog.pg_publication_tables t \
    WHERE t.pubname = $1::pg_catalog.text AND t.schemaname = $2::pg_catalog.text AND t.tablename = $3::pg_catalog.text";

const PUBLISHED_15: &str = "\
    SELECT t.attnames::pg_catalog.text[], t.rowfilter FROM pg_catalog.pg_publication_tables t \
    WHERE t.pubname = $1::pg_catalog.text AND t.schemaname = $2::pg_catalog.text AND t.tablename = $3::pg_catalog.text";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preconditions_server::tests::server;
    use crate::preconditions_table::TableColumn;
    use crate::preconditions_table::tests::table;

    fn publication(share: Share) -> Publication {
        Publication {
            name: "pub".to_owned(),
            inserts: true,
            others: [false; 3],
            via_root: false,
            shares: vec![share],
        }
    }

    fn shared() -> Share {
        Share {
            member: true,
            published: true,
            columns: None,
            row_filter: None,
        }
    }

    fn wanted() -> Vec<(String, bool)> {
        vec![("id".to_owned(), true), ("type".to_owned(), false)]
    }

    fn generated_id() -> Table {
        let column = TableColumn {
            name: "id".to_owned(),
            type_oid: 25,
            generated: true,
        };
        Table {
            columns: vec![column],
            ..table(&[])
        }
    }

    #[track_caller]
    fn check_refused(
        publication: &Publication,
        version: u32,
        table: &Table,
        code: Code,
        words: &[&str],
    ) {
        let tables = std::slice::from_ref(table);
        let problem = publication
            .judge(&server(version), tables, &wanted())
            .unwrap_err();
        assert_eq!(problem.code, code, "{problem}");
        for word in words {
            assert!(problem.to_string().contains(word), "{word:?} in {problem}");
        }
    }

    #[test]
    fn a_narrow_publication_passes_without_a_word() {
        let warnings =
            publication(shared()).judge(&server(150_000), &[table(&["id", "type"])], &wanted());
        assert!(warnings.unwrap().is_empty());
    }

    #[test]
    fn other_operations_are_a_remark_only() {
        let wide = Publication {
            others: [true, false, true],
            ..publication(shared())
        };
        let warnings = wide
            .judge(&server(150_000), &[table(&["id"])], &wanted())
            .unwrap();
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].to_string().contains("update, truncate"),
            "{}",
            warnings[0]
        );
    }

    #[test]
    fn what_leaves_events_out_is_refused() {
        let ordinary = table(&["id", "type"]);
        let no_inserts = Publication {
            inserts: false,
            ..publication(shared())
        };
        check_refused(
            &no_inserts,
            150_000,
            &ordinary,
            Code::PublicationInserts,
            &["publish = 'insert'"],
        );
        let absent = publication(Share::default());
        let words = ["ALTER PUBLICATION \"pub\" ADD TABLE \"public\".\"outbox\""];
        check_refused(&absent, 150_000, &ordinary, Code::PublicationTable, &words);
        let filtered = publication(Share {
            row_filter: Some("(id > 5)".to_owned()),
            ..shared()
        });
        check_refused(
            &filtered,
            150_000,
            &ordinary,
            Code::PublicationRowFilter,
            &["(id > 5)", "silently"],
        );
    }

    #[test]
    fn a_column_list_must_have_the_required_columns() {
        let ordinary = table(&["id", "type"]);
        let without_id = publication(Share {
            columns: Some(vec!["type".to_owned()]),
            ..shared()
        });
        check_refused(
            &without_id,
            150_000,
            &ordinary,
            Code::PublicationColumns,
            &["leaves out \"id\""],
        );
        let without_type = publication(Share {
            columns: Some(vec!["id".to_owned()]),
            ..shared()
        });
        let warnings = without_type
            .judge(&server(150_000), &[ordinary], &wanted())
            .unwrap();
        assert_eq!(
            warnings.len(),
            1,
            "an optional column that is not sent is remarked on"
        );
    }

    #[test]
    fn a_partitioned_table_needs_the_root_option() {
        let partitioned = Table {
            kind: "p".to_owned(),
            ..table(&["id"])
        };
        let apart = publication(Share {
            member: true,
            ..Share::default()
        });
        let words = ["\"pub\"", "publish_via_partition_root = true"];
        check_refused(
            &apart,
            140_000,
            &partitioned,
            Code::PublicationPartitions,
            &words,
        );
    }

    #[test]
    fn a_partition_published_through_its_root_is_pointed_there() {
        let root = Some(TableName {
            schema: "public".to_owned(),
            name: "events".to_owned(),
        });
        let leaf = Table {
            root,
            ..table(&["id"])
        };
        let member = Share {
            member: true,
            ..Share::default()
        };
        let via_root = Publication {
            via_root: true,
            ..publication(member)
        };
        check_refused(
            &via_root,
            150_000,
            &leaf,
            Code::PublicationTable,
            &["name public.events"],
        );
    }

    #[test]
    fn generated_columns_are_not_sent_before_18_whatever_the_list_says() {
        let listed = publication(Share {
            columns: Some(vec!["id".to_owned()]),
            ..shared()
        });
        let code = Code::PublicationGeneratedColumn;
        check_refused(
            &listed,
            170_000,
            &generated_id(),
            code,
            &["PostgreSQL 17", "DROP EXPRESSION"],
        );
        assert!(
            listed
                .judge(&server(180_000), &[generated_id()], &wanted())
                .is_ok()
        );
        let unlisted = publication(Share {
            columns: Some(Vec::new()),
            ..shared()
        });
        check_refused(
            &unlisted,
            180_000,
            &generated_id(),
            code,
            &["publish_generated_columns = stored"],
        );
    }

    #[test]
    fn rights_are_asked_for_before_anything_is_made() {
        let asked = Wanted {
            publication: "pub".to_owned(),
            ..Wanted::default()
        };
        let mut server = server(150_000);
        let problem = judge_rights(&server, &[table(&[])], &asked)
            .unwrap_err()
            .to_string();
        assert!(
            problem.contains("GRANT CREATE ON DATABASE \"app\" TO \"posthaste\""),
            "{problem}"
        );
        server.may_create = true;
        let foreign = Table {
            owned: false,
            ..table(&[])
        };
        let problem = judge_rights(&server, &[foreign], &asked)
            .unwrap_err()
            .to_string();
        assert!(
            problem.contains("GRANT \"app\" TO \"posthaste\""),
            "{problem}"
        );
        assert!(judge_rights(&server, &[table(&[])], &asked).is_ok());
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        let asked = Wanted {
            publication: "p\"; DROP TABLE x; --".to_owned(),
            tables: vec![TableName {
                schema: "a.b".to_owned(),
                name: "Out\"box".to_owned(),
            }],
            ..Wanted::default()
        };
        assert_eq!(
            create_sql(&asked, true),
            "CREATE PUBLICATION \"p\"\"; DROP TABLE x; --\" FOR TABLE \"a.b\".\"Out\"\"box\" \
             WITH (publish = 'insert', publish_via_partition_root = true)"
        );
    }
}
