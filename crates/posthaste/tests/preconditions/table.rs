//! The outbox tables.

use posthaste::codes::Code;
use posthaste::preconditions::Wanted;

use crate::fixture::{Fixture, columns, table};

#[test]
fn b31_h_table_missing_with_what_may_have_been_meant() {
    let fixture = Fixture::new("b31h");
    fixture.admin("CREATE SCHEMA audit; CREATE TABLE audit.outbox2 (id int); CREATE TABLE public.\"Outbox2\" (id int)");
    let wanted = Wanted {
        tables: vec![table("public.outbox2")],
        ..fixture.wanted_created()
    };
    let words = [
        "table public.outbox2",
        "there is audit.outbox2, public.\"Outbox2\"",
    ];
    fixture.refused(&wanted, Code::TableMissing, &words);
    let nowhere = Wanted {
        tables: vec![table("nowhere.outbox")],
        ..fixture.wanted_created()
    };
    fixture.refused(&nowhere, Code::TableMissing, &["there is public.outbox"]);
}

#[test]
fn b31_k_unlogged_outbox() {
    let fixture = Fixture::new("b31k");
    fixture.owner("ALTER TABLE outbox SET UNLOGGED");
    let words = ["UNLOGGED", "ALTER TABLE \"public\".\"outbox\" SET LOGGED"];
    fixture.refused(&fixture.wanted_created(), Code::TableUnlogged, &words);
}

#[test]
fn a_view_is_no_outbox() {
    let fixture = Fixture::new("view");
    fixture.owner("CREATE VIEW v AS SELECT * FROM outbox");
    let wanted = Wanted {
        tables: vec![table("public.v")],
        ..fixture.wanted_created()
    };
    fixture.refused(
        &wanted,
        Code::TableKind,
        &["a view", "ordinary or partitioned table"],
    );
}

#[test]
fn a_mapped_column_in_another_case_is_missing() {
    let fixture = Fixture::new("wrongcase");
    fixture.owner("ALTER TABLE outbox RENAME aggregateid TO \"aggregateId\"");
    let words = [
        "column \"aggregateid\"",
        "did you mean \"aggregateId\"?",
        "ADD COLUMN \"aggregateid\"",
    ];
    fixture.refused(&fixture.wanted_created(), Code::ColumnMissing, &words);
}

#[test]
fn an_optional_column_may_be_missing() {
    let fixture = Fixture::new("optional");
    let mut wanted = fixture.wanted_created();
    wanted.columns.push(("traceparent".to_owned(), false));
    fixture.passes(&wanted);
}

#[test]
fn b31_i_no_right_on_the_outbox_is_needed() {
    let fixture = Fixture::new("b31i");
    fixture.create_publication();
    fixture.create_slot("pgoutput");
    fixture.admin("ALTER TABLE outbox OWNER TO postgres; REVOKE ALL ON outbox FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC, b31i");
    let allowed = fixture.admin("SELECT has_table_privilege('b31i', 'public.outbox', 'SELECT')");
    assert_eq!(allowed, "f");
    fixture.passes(&fixture.wanted());
}

#[test]
fn domains_are_resolved_to_what_they_are_made_of() {
    let fixture = Fixture::new("domains");
    fixture.owner(
        "CREATE SCHEMA types; CREATE DOMAIN types.raw AS bytea; CREATE DOMAIN types.\"Raw 2\" AS types.raw NOT NULL; \
         CREATE TABLE events (id int, a types.\"Raw 2\", b types.raw, c text, unmapped types.raw)",
    );
    let wanted = Wanted {
        tables: vec![table("public.events")],
        columns: columns(&["id", "a", "b", "c"]),
        ..fixture.wanted_created()
    };
    let checked = fixture.passes(&wanted);
    let oid = |name: &str| {
        fixture
            .admin(&format!("SELECT '{name}'::regtype::oid"))
            .parse::<u32>()
            .unwrap()
    };
    let bytea = oid("bytea");
    let mut found: Vec<_> = checked.base_types.into_iter().collect();
    found.sort_unstable();
    let mut expected = vec![(oid("types.raw"), bytea), (oid("types.\"Raw 2\""), bytea)];
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn an_inheriting_table_is_remarked_on() {
    let fixture = Fixture::new("heirs");
    fixture.owner("CREATE TABLE outbox_2024 () INHERITS (outbox)");
    let checked = fixture.passes(&fixture.wanted_created());
    assert_eq!(checked.warnings.len(), 1);
    assert_eq!(checked.warnings[0].code, Code::TableInherited);
    assert!(
        checked.warnings[0].text.contains("public.outbox_2024"),
        "{}",
        checked.warnings[0].text
    );
}
