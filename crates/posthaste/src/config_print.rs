//! The effective configuration as TOML: every key with its value and where the value came from, secrets redacted.

use std::fmt;

use sink::is_secret_property;

use crate::config_layout::Document;
use crate::config_reference::{Key, Kind, OPAQUE_TABLE, PIPELINE_TABLES, PROCESS_TABLES, keys_of};
use crate::config_secret::{REDACTED, redact_connection};
use crate::config_tree::{Node, Table, table_to_toml};

/// Writes a completed document. Reading the result again gives the same configuration, except for the redacted secrets.
pub(crate) fn print(document: &Document) -> String {
    let mut out = String::new();
    let prefix = if document.is_named {
        line(&mut out, format_args!("[[pipeline]]"));
        line(
            &mut out,
            format_args!("name = {}", toml_text(&document.name)),
        );
        line(&mut out, format_args!(""));
        "pipeline."
    } else {
        ""
    };
    for table in PIPELINE_TABLES {
        if table == OPAQUE_TABLE {
            print_opaque(&mut out, document);
        } else {
            print_table(&mut out, prefix, table, &document.pipeline);
        }
    }
    for table in PROCESS_TABLES {
        print_table(&mut out, "", table, &document.process);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn print_table(out: &mut String, prefix: &str, name: &str, tree: &Table) {
    let Some(table) = tree.get(name).and_then(Node::as_table) else {
        return;
    };
    line(out, format_args!("[{prefix}{name}]"));
    // Tables in a table have to follow its values.
    for key in keys_of(name).filter(|key| !key.kind.is_free_table()) {
        if let Some(node) = table.get(key.name) {
            line(
                out,
                format_args!("{} = {}  # {}", key.name, shown(key, node), node.origin),
            );
        }
    }
    line(out, format_args!(""));
    for key in keys_of(name).filter(|key| key.kind.is_free_table()) {
        if let Some(properties) = table
            .get(key.name)
            .and_then(Node::as_table)
            .filter(|table| !table.is_empty())
        {
            line(out, format_args!("[{prefix}{name}.{}]", key.name));
            for (property, node) in properties {
                line(
                    out,
                    format_args!(
                        "{} = {}  # {}",
                        toml_text(property),
                        shown_property(key, property, node),
                        node.origin
                    ),
                );
            }
            line(out, format_args!(""));
        }
    }
}

/// `[connect]` as it stands: it has no defaults of ours and no secrets.
fn print_opaque(out: &mut String, document: &Document) {
    let Some(table) = document.pipeline.get(OPAQUE_TABLE).and_then(Node::as_table) else {
        return;
    };
    let named =
        |name: &str, table: toml::Table| toml::Table::from_iter([(name.to_owned(), table.into())]);
    let mut tree = named(OPAQUE_TABLE, table_to_toml(table));
    if document.is_named {
        tree = named("pipeline", tree);
    }
    // Whatever was read as TOML can be written as TOML.
    out.push_str(&toml::to_string(&tree).unwrap_or_default());
    line(out, format_args!(""));
}

fn shown(key: &Key, node: &Node) -> String {
    match key.kind {
        Kind::Secret => toml_text(REDACTED),
        Kind::Url => toml_text(&redact_connection(node.as_text().unwrap_or_default())),
        _ => node.to_toml().to_string(),
    }
}

fn shown_property(key: &Key, property: &str, node: &Node) -> String {
    if key.kind == Kind::Properties && is_secret_property(property) {
        toml_text(REDACTED)
    } else {
        node.to_toml().to_string()
    }
}

fn toml_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn line(out: &mut String, text: fmt::Arguments<'_>) {
    out.push_str(&text.to_string());
    out.push('\n');
}
