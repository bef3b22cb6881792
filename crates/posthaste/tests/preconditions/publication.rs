//! The publication: what it has to contain, and that an existing one is left as it is.

use posthaste::codes::Code;
use posthaste::preconditions::Wanted;

use crate::fixture::{Fixture, columns, table};

#[test]
fn a_missing_publication_comes_with_the_statement_that_makes_it() {
    let fixture = Fixture::new("nopub");
    let words = [
        "publication \"outbox_pub\"",
        "CREATE PUBLICATION \"outbox_pub\" FOR TABLE \"public\".\"outbox\"",
    ];
    fixture.refused(&fixture.wanted(), Code::PublicationMissing, &words);
    // With a slot that is already there, the statement alone would not help.
    fixture.create_slot("pgoutput");
    fixture.refused(
        &fixture.wanted(),
        Code::PublicationMissing,
        &["recreate it"],
    );
}

#[test]
fn a_publication_without_inserts() {
    let fixture = Fixture::new("noinsert");
    fixture
        .owner("CREATE PUBLICATION outbox_pub FOR TABLE outbox WITH (publish = 'update, delete')");
    fixture.refused(
        &fixture.wanted_created(),
        Code::PublicationInserts,
        &["SET (publish = 'insert')"],
    );
}

#[test]
fn a_publication_of_another_table() {
    let fixture = Fixture::new("othertable");
    fixture.owner("CREATE TABLE other (id int); CREATE PUBLICATION outbox_pub FOR TABLE other");
    let words = [
        "does not contain table public.outbox",
        "ADD TABLE \"public\".\"outbox\"",
    ];
    fixture.refused(&fixture.wanted_created(), Code::PublicationTable, &words);
}

#[test]
fn a_column_list_that_lacks_a_mapped_column() {
    let fixture = Fixture::new("collist");
    if !fixture.has_column_lists() {
        return;
    }
    fixture.owner("CREATE PUBLICATION outbox_pub FOR TABLE outbox (id, aggregatetype, payload) WITH (publish = 'insert')");
    let words = [
        "leaves out \"aggregateid\"",
        "DROP TABLE \"public\".\"outbox\"",
        "ADD TABLE \"public\".\"outbox\"",
    ];
    fixture.refused(&fixture.wanted_created(), Code::PublicationColumns, &words);
}

#[test]
fn the_statement_against_a_column_list_is_right() {
    let fixture = Fixture::new("collistfix");
    if !fixture.has_column_lists() {
        return;
    }
    fixture.owner("CREATE PUBLICATION outbox_pub FOR TABLE outbox (id, aggregatetype) WITH (publish = 'insert')");
    let problem = fixture.refused(&fixture.wanted_created(), Code::PublicationColumns, &[]);
    let statements = problem.fix.split_inclusive("COMMIT").next().unwrap();
    fixture.owner(statements);
    fixture.passes(&fixture.wanted_created());
}

#[test]
fn a_column_list_with_all_that_is_mapped_passes() {
    let fixture = Fixture::new("collistok");
    if !fixture.has_column_lists() {
        return;
    }
    fixture.owner("CREATE PUBLICATION outbox_pub FOR TABLE outbox (id, aggregatetype, aggregateid, payload) WITH (publish = 'insert')");
    let mut wanted = fixture.wanted_created();
    wanted.columns.push(("type".to_owned(), false));
    let checked = fixture.passes(&wanted);
    assert_eq!(
        checked.warnings.len(),
        1,
        "the optional column exists and is not sent"
    );
    assert_eq!(checked.warnings[0].code, Code::PublicationColumns);
}

#[test]
fn a_row_filter_would_lose_events() {
    let fixture = Fixture::new("rowfilter");
    if !fixture.has_column_lists() {
        return;
    }
    fixture.owner("CREATE PUBLICATION outbox_pub FOR TABLE outbox WHERE (aggregatetype <> 'audit') WITH (publish = 'insert')");
    fixture.refused(
        &fixture.wanted_created(),
        Code::PublicationRowFilter,
        &["row filter", "'audit'", "silently"],
    );
}

#[test]
fn a_generated_column_is_not_sent() {
    let fixture = Fixture::new("generated");
    fixture.owner(
        "ALTER TABLE outbox DROP aggregateid; \
         ALTER TABLE outbox ADD aggregateid text GENERATED ALWAYS AS (payload ->> 'id') STORED",
    );
    let words = ["column \"aggregateid\"", "generated", "DROP EXPRESSION"];
    // The publication would be made by us …
    fixture.refused(
        &fixture.wanted_created(),
        Code::PublicationGeneratedColumn,
        &words,
    );
    // … or is there already.
    fixture.create_publication();
    fixture.refused(
        &fixture.wanted_created(),
        Code::PublicationGeneratedColumn,
        &["column \"aggregateid\"", "generated"],
    );
    fixture.owner("ALTER TABLE outbox ALTER COLUMN aggregateid DROP EXPRESSION");
    fixture.passes(&fixture.wanted_created());
}

#[test]
fn b10_for_all_tables_is_wide_and_accepted() {
    let fixture = Fixture::new("alltables");
    fixture.admin("CREATE SCHEMA audit; CREATE TABLE audit.outbox (LIKE public.outbox); CREATE PUBLICATION outbox_pub FOR ALL TABLES");
    let checked = fixture.passes(&fixture.wanted_created());
    assert_eq!(checked.warnings.len(), 1);
    assert!(
        checked.warnings[0]
            .text
            .contains("update, delete, truncate"),
        "{}",
        checked.warnings[0].text
    );
    let published =
        "SELECT puballtables AND pubupdate FROM pg_publication WHERE pubname = 'outbox_pub'";
    assert_eq!(
        fixture.admin(published),
        "t",
        "an existing publication is never altered"
    );
}

#[test]
fn tables_in_schema_contains_the_table() {
    let fixture = Fixture::new("inschema");
    if !fixture.has_column_lists() {
        return;
    }
    fixture.admin(
        "CREATE PUBLICATION outbox_pub FOR TABLES IN SCHEMA public WITH (publish = 'insert')",
    );
    assert!(
        fixture
            .passes(&fixture.wanted_created())
            .warnings
            .is_empty()
    );
}

/// B09: partition 2 is made apart, with another column order, and attached.
fn partitioned(name: &str) -> Fixture {
    let fixture = Fixture::new(name);
    fixture.owner(
        "CREATE TABLE ob (id int, aggregatetype text, aggregateid text, payload jsonb, day date, PRIMARY KEY (id, day)) \
             PARTITION BY RANGE (day); \
         CREATE TABLE ob_1 PARTITION OF ob FOR VALUES FROM ('2024-01-01') TO ('2025-01-01'); \
         CREATE TABLE ob_2 (payload jsonb, day date NOT NULL, id int NOT NULL, aggregateid text, aggregatetype text); \
         ALTER TABLE ob ATTACH PARTITION ob_2 FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
    );
    fixture
}

fn wanted_partitioned(fixture: &Fixture) -> Wanted {
    Wanted {
        tables: vec![table("public.ob")],
        ..fixture.wanted_created()
    }
}

#[test]
fn b09_a_partitions_published_through_their_root_pass() {
    let fixture = partitioned("b09a");
    fixture.owner("CREATE PUBLICATION outbox_pub FOR TABLE ob WITH (publish = 'insert', publish_via_partition_root = true)");
    fixture.passes(&wanted_partitioned(&fixture));
}

#[test]
fn b09_b_partitions_published_by_themselves_are_refused() {
    let fixture = partitioned("b09b");
    fixture.owner("CREATE PUBLICATION outbox_pub FOR TABLE ob WITH (publish = 'insert')");
    let words = ["\"outbox_pub\"", "publish_via_partition_root"];
    let wanted = wanted_partitioned(&fixture);
    let problem = fixture.refused(&wanted, Code::PublicationPartitions, &words);
    fixture.owner(problem.fix.split(';').next().unwrap());
    fixture.passes(&wanted);
}

#[test]
fn b09_b_for_all_tables_as_well() {
    let fixture = partitioned("b09all");
    fixture.admin("CREATE PUBLICATION outbox_pub FOR ALL TABLES WITH (publish = 'insert')");
    let words = ["\"outbox_pub\"", "publish_via_partition_root"];
    fixture.refused(
        &wanted_partitioned(&fixture),
        Code::PublicationPartitions,
        &words,
    );
}

#[test]
fn b09_a_publication_made_by_us_publishes_through_the_root() {
    let fixture = partitioned("b09make");
    fixture.passes(&wanted_partitioned(&fixture));
    let via_root = "SELECT pubviaroot AND pubinsert AND NOT pubupdate FROM pg_publication WHERE pubname = 'outbox_pub'";
    assert_eq!(fixture.admin(via_root), "t");
}

#[test]
fn a_partition_named_instead_of_its_root() {
    let fixture = partitioned("leaf");
    fixture.owner("CREATE PUBLICATION outbox_pub FOR TABLE ob WITH (publish = 'insert', publish_via_partition_root = true)");
    let wanted = Wanted {
        tables: vec![table("public.ob_1")],
        ..fixture.wanted_created()
    };
    fixture.refused(
        &wanted,
        Code::PublicationTable,
        &["public.ob", "name public.ob in source.tables"],
    );
}

#[test]
fn an_unlogged_partition_would_lose_events() {
    let fixture = partitioned("unloggedleaf");
    fixture.owner("CREATE UNLOGGED TABLE ob_3 PARTITION OF ob FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')");
    fixture.refused(
        &wanted_partitioned(&fixture),
        Code::TableUnlogged,
        &["public.ob_3", "SET LOGGED"],
    );
}

#[test]
fn b11_names_that_need_quoting() {
    let fixture = Fixture::new("My-Db.1");
    fixture.owner(
        "CREATE SCHEMA \"Sales-EU\"; \
         CREATE TABLE \"Sales-EU\".\"Out\"\"box\" (id int PRIMARY KEY, \"AggregateType\" text, \"aggregateId\" bigint, payload jsonb)",
    );
    let wanted = Wanted {
        slot: "b11".to_owned(),
        publication: "Pub-1".to_owned(),
        tables: vec![table("\"Sales-EU\".\"Out\"\"box\"")],
        columns: columns(&["id", "AggregateType", "aggregateId", "payload"]),
        create: true,
        ..Wanted::default()
    };
    // The illegal slot name is refused before the publication is made.
    let bad_slot = Wanted {
        slot: "Outbox-Slot".to_owned(),
        ..wanted.clone()
    };
    fixture.refused(
        &bad_slot,
        Code::ConfigSlotName,
        &["Outbox-Slot", "lower-case letters"],
    );
    assert_eq!(fixture.admin("SELECT count(*) FROM pg_publication"), "0");

    assert!(fixture.passes(&wanted).created.publication);
    let published =
        "SELECT pubname || '|' || schemaname || '|' || tablename FROM pg_publication_tables";
    assert_eq!(fixture.admin(published), "Pub-1|Sales-EU|Out\"box");

    fixture.owner("CREATE PUBLICATION \"a,b\" FOR TABLE \"Sales-EU\".\"Out\"\"box\" WITH (publish = 'insert')");
    fixture.passes(&Wanted {
        publication: "a,b".to_owned(),
        create: false,
        ..wanted.clone()
    });

    for publication in [
        "x\" FOR ALL TABLES; DROP TABLE \"Sales-EU\".\"Out\"\"box\"; --",
        "it's",
    ] {
        let hostile = Wanted {
            publication: publication.to_owned(),
            slot: "b11h".to_owned(),
            ..wanted.clone()
        };
        assert!(fixture.passes(&hostile).created.publication);
        fixture.admin("SELECT pg_drop_replication_slot('b11h')");
    }
    assert_eq!(
        fixture.admin("SELECT count(*) FROM pg_publication_tables"),
        "4"
    );
}

#[test]
fn a_name_the_server_would_cut_off_is_refused() {
    let fixture = Fixture::new("longname");
    let wanted = Wanted {
        publication: "p".repeat(64),
        ..fixture.wanted_created()
    };
    fixture.refused(
        &wanted,
        Code::ConfigName,
        &["source.publication", "63 bytes"],
    );
}
