//! Checks a configuration tree against the reference table, and brings each value into its one form.

use crate::codes::{Code, Problem};
use crate::config_entry::flatten;
use crate::config_reference::{KEYS, OPAQUE_TABLE, PIPELINE_TABLES, PROCESS_TABLES, key, keys_of};
use crate::config_suggest::nearest;
use crate::config_tree::{Node, Origin, Table, Value};
use crate::config_value::check_value;

/// Checks every table of `tree`, which may hold the tables named `legal` and no others.
///
/// After it, lists are lists (`"a,b"` became `["a", "b"]`), and free tables are flat with texts as values.
///
/// # Errors
/// The first key that is unknown, has the wrong type or a value that is not allowed.
pub(crate) fn check_tables(tree: &mut Table, legal: &[&str]) -> Result<(), Problem> {
    for (name, node) in tree.iter_mut() {
        if !legal.contains(&name.as_str()) {
            return Err(unknown_table(name, node, legal));
        }
        let origin = node.origin.clone();
        let Value::Table(table) = &mut node.value else {
            return Err(Problem::new(Code::ConfigValueType, place(name, &origin))
                .found(node.kind_name())
                .needed(format!("the table [{name}] with its keys"))
                .fix(format!(
                    "write [{name}] on a line of its own and its keys below"
                )));
        };
        if name != OPAQUE_TABLE {
            check_keys(name, table)?;
        }
    }
    Ok(())
}

/// `source.slot (line 3)`: the name of a key in messages.
pub(crate) fn place(path: &str, origin: &Origin) -> String {
    match origin {
        Origin::Preset => path.to_owned(),
        origin => format!("{path} ({origin})"),
    }
}

/// The message about a key that does not exist, for whoever wrote it: `shown` is how they wrote it.
pub(crate) fn unknown_key(table: &str, name: &str, shown: &str, origin: &Origin) -> Problem {
    let names: Vec<&str> = keys_of(table).map(|key| key.name).collect();
    let elsewhere = || {
        KEYS.iter()
            .find(|key| key.table != table && key.name == name)
    };
    let fix = if let Some(meant) = nearest(name, names.iter().copied()) {
        format!("did you mean {}?", written_like(origin, table, meant))
    } else if let Some(meant) = elsewhere() {
        format!(
            "did you mean {}? This key belongs to the table [{}]",
            written_like(origin, meant.table, meant.name),
            meant.table
        )
    } else {
        "remove it, or take one of these keys".to_owned()
    };
    Problem::new(Code::ConfigKeyUnknown, place(shown, origin))
        .found("no such key")
        .needed(format!(
            "one of the keys of [{table}]: {}",
            names.join(", ")
        ))
        .fix(fix)
}

/// The message about a table that does not exist.
pub(crate) fn unknown_table(name: &str, node: &Node, legal: &[&str]) -> Problem {
    let key_elsewhere = || KEYS.iter().find(|key| key.name == name);
    let fix = if let Some(meant) = nearest(name, legal.iter().copied()) {
        format!("did you mean [{meant}]?")
    } else if let (true, Some(meant)) = (node.as_table().is_none(), key_elsewhere()) {
        format!(
            "did you mean {}? Write it below a line [{}]",
            meant.path(),
            meant.table
        )
    } else if PROCESS_TABLES.contains(&name) {
        format!(
            "move [{name}] to the top of the file: it belongs to the process, not to a pipeline"
        )
    } else {
        "remove it, or take one of these tables".to_owned()
    };
    Problem::new(Code::ConfigKeyUnknown, place(name, &node.origin))
        .found("no such table")
        .needed(format!("one of the tables: {}", legal.join(", ")))
        .fix(fix)
}

/// The tables that may stand at the top of a file without `[[pipeline]]`.
pub(crate) fn all_tables() -> Vec<&'static str> {
    PIPELINE_TABLES.into_iter().chain(PROCESS_TABLES).collect()
}

/// A key as whoever wrote the origin would write it.
fn written_like(origin: &Origin, table: &str, name: &str) -> String {
    match (origin, key(table, name)) {
        (Origin::Environment(_), Some(key)) => key.environment_name(),
        _ => format!("{table}.{name}"),
    }
}

fn check_keys(table_name: &str, table: &mut Table) -> Result<(), Problem> {
    for (name, node) in table.iter_mut() {
        let Some(key) = key(table_name, name) else {
            return Err(unknown_key(
                table_name,
                name,
                &format!("{table_name}.{name}"),
                &node.origin,
            ));
        };
        if key.kind.is_free_table() {
            flatten(key, node)?;
        } else {
            check_value(key, node)?;
        }
    }
    Ok(())
}
