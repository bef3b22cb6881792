//! Where Debezium is followed: which tables its filters mean, what the catalog says of them, and the first start.

use posthaste::codes::Code;
use posthaste::first_start::FirstStart;
use posthaste::preconditions::Wanted;
use router::connect::{ConnectConfig, MessageConfig, TableFilter};

use crate::fixture::Fixture;

fn connect(include: &[&str]) -> ConnectConfig {
    ConnectConfig {
        topic_prefix: "p".to_owned(),
        tables: TableFilter {
            include: include
                .iter()
                .map(|pattern| (*pattern).to_owned())
                .collect(),
            ..TableFilter::default()
        },
        ..ConnectConfig::default()
    }
}

/// The usual wish of a connector whose tables are said by patterns.
fn wanted(fixture: &Fixture, include: &[&str]) -> Wanted {
    Wanted {
        tables: Vec::new(),
        connect: Some(Box::new(connect(include))),
        first_start: FirstStart {
            after_debezium: true,
            ..FirstStart::default()
        },
        ..fixture.wanted()
    }
}

#[test]
fn patterns_mean_tables_of_the_publication() {
    let fixture = Fixture::new("connect_patterns");
    fixture.owner(
        "CREATE TABLE public.outbox_a (LIKE public.outbox); CREATE TABLE public.other (n int);
         CREATE PUBLICATION outbox_pub FOR TABLE public.outbox, public.outbox_a, public.other",
    );
    fixture.create_slot("pgoutput");
    let checked = fixture.passes(&wanted(&fixture, &["public\\.outbox.*"]));
    let catalog = format!("{:?}", checked.catalog.expect("a catalog"));
    for table in ["(\"public\", \"outbox\")", "(\"public\", \"outbox_a\")"] {
        assert!(catalog.contains(table), "{table} in {catalog}");
    }
    assert!(!catalog.contains("other"), "{catalog}");
    fixture.refused(
        &wanted(&fixture, &["app\\..*"]),
        Code::TableMissing,
        &["outbox_pub", "table.include.list"],
    );
    // What the filter means has to be an outbox, as a table that is named has.
    fixture.refused(
        &wanted(&fixture, &["public.other"]),
        Code::ColumnMissing,
        &["other"],
    );
    assert!(fixture.passes(&fixture.wanted()).catalog.is_none());
}

#[test]
fn the_catalog_has_defaults_and_what_types_are_made_of() {
    let fixture = Fixture::new("connect_catalog");
    fixture.owner(
        "CREATE TYPE public.mood AS ENUM ('sad', 'o''k'); CREATE DOMAIN public.code AS varchar(7);
         ALTER TABLE public.outbox ADD COLUMN m public.mood[] , ADD COLUMN c public.code DEFAULT 'x',
             ADD COLUMN n int NOT NULL DEFAULT 7, ADD COLUMN gone text,
             ADD COLUMN g int GENERATED ALWAYS AS (1 + 1) STORED;
         ALTER TABLE public.outbox DROP COLUMN gone",
    );
    fixture.create_publication();
    fixture.create_slot("pgoutput");
    let checked = fixture.passes(&wanted(&fixture, &["public.outbox"]));
    let catalog = format!("{:?}", checked.catalog.expect("a catalog"));
    for part in [
        "labels: [\"sad\", \"o'k\"]",
        "name: \"_mood\", kind: Array",
        "name: \"code\", kind: Domain { base_oid: 1043, type_modifier: 11 }",
        "\"n\": CatalogColumn { not_null: true, default_expression: Some(\"7\") }",
        "\"g\": CatalogColumn { not_null: false, default_expression: None }",
        "\"payload\": CatalogColumn { not_null: false, default_expression: None }",
        "Some(\"gen_random_uuid()\")",
        "name: \"uuid\", kind: Base",
    ] {
        assert!(catalog.contains(part), "{part} in {catalog}");
    }
    assert!(
        !catalog.contains("gone") && !catalog.contains("dropped"),
        "{catalog}"
    );
}

#[test]
fn a_publication_without_tables_serves_messages() {
    let fixture = Fixture::new("connect_messages");
    let mut wish = wanted(&fixture, &[]);
    wish.messages = true;
    wish.create = true;
    wish.first_start.without_tables = true;
    wish.connect = Some(Box::new(ConnectConfig {
        messages: Some(MessageConfig::default()),
        ..connect(&[])
    }));
    let checked = fixture.passes(&wish);
    assert!(checked.created.publication && checked.created.slot);
    assert_eq!(
        fixture.admin("SELECT count(*) FROM pg_publication_tables"),
        "0"
    );
    assert!(!fixture.passes(&wish).created.slot);
}

#[test]
fn a_first_start_names_takeover_and_create() {
    let fixture = Fixture::new("connect_first");
    let wish = wanted(&fixture, &["public.outbox"]);
    let ways = ["takeover", "--create", "Debezium"];
    fixture.refused(&wish, Code::PublicationMissing, &ways);
    fixture.create_publication();
    fixture.refused(&wish, Code::SlotMissing, &ways);
    let created = Wanted {
        create: true,
        ..wish.clone()
    };
    assert!(fixture.passes(&created).created.slot);
}

#[test]
fn a_snapshot_and_a_publication_that_has_to_exist_are_not_made_up_for() {
    let fixture = Fixture::new("connect_snapshot");
    let mut wish = wanted(&fixture, &["public.outbox"]);
    wish.create = true;
    wish.first_start.snapshot = true;
    fixture.refused(
        &wish,
        Code::SlotMissing,
        &["snapshot.mode=no_data", "takeover"],
    );
    wish.first_start.snapshot = false;
    wish.first_start.publication_exists = true;
    fixture.refused(&wish, Code::PublicationMissing, &["CREATE PUBLICATION"]);
    fixture.create_publication();
    assert!(fixture.passes(&wish).created.slot);
    // Where the slot exists, there is nothing to be snapshot.
    wish.first_start.snapshot = true;
    fixture.passes(&wish);
}

#[test]
fn a_failover_slot_is_made_where_the_server_has_them() {
    let fixture = Fixture::new("connect_failover");
    let mut wish = wanted(&fixture, &["public.outbox"]);
    wish.create = true;
    wish.first_start.failover = true;
    if *fixture.admin("SHOW server_version_num") < *"170000" {
        fixture.refused(&wish, Code::ServerVersion, &["slot.failover", "17"]);
        return;
    }
    fixture.passes(&wish);
    let failover = fixture.admin(&format!(
        "SELECT failover FROM pg_replication_slots WHERE slot_name = '{}'",
        wish.slot
    ));
    assert_eq!(failover, "t");
}
