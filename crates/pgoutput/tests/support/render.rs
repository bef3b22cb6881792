//! Writes a scenario as text that a reviewer can read: each message, and under it what it means.

use std::fmt::Write;

use pgoutput::{
    DecodeError, Lsn, Message, Relation, Step, TransactionId, Transactions, Tuple, Value, decode,
};

use crate::corpus::{Captured, Scenario};

/// Values are cut here, so that a TOAST scenario stays readable; their length is always shown.
const VALUE_CHARS_MAX: usize = 60;

pub(crate) fn scenario(scenario: &Scenario) -> String {
    let mut text = format!("{}\n", scenario.version);
    let mut transactions = Transactions::new();
    for captured in &scenario.messages {
        let Captured { lsn, xid, bytes } = captured;
        match decode(bytes) {
            Ok(decoded) => {
                writeln!(text, "{lsn} {xid} {}", message(&decoded)).unwrap();
                let step = transactions
                    .handle(*lsn, decoded)
                    .map(|step| self::step(&step));
                writeln!(text, "    {}", step.unwrap_or_else(|error| refused(&error))).unwrap();
            }
            Err(error) => writeln!(text, "{lsn} {xid} {}", refused(&error)).unwrap(),
        }
    }
    text
}

fn refused(error: &DecodeError) -> String {
    format!("ERROR {error}")
}

fn message(message: &Message<'_>) -> String {
    match message {
        Message::Begin {
            final_lsn,
            commit_time,
            xid,
        } => {
            format!(
                "Begin final_lsn {final_lsn} commit_time {} xid {xid}",
                commit_time.as_i64()
            )
        }
        Message::Commit {
            commit_lsn,
            end_lsn,
            commit_time,
        } => {
            format!(
                "Commit commit_lsn {commit_lsn} end_lsn {end_lsn} commit_time {}",
                commit_time.as_i64()
            )
        }
        Message::Origin { commit_lsn, name } => {
            format!("Origin commit_lsn {commit_lsn} name {name:?}")
        }
        Message::Relation(relation) => self::relation(relation),
        Message::Type {
            oid,
            namespace,
            name,
        } => format!("Type {oid} {namespace:?}.{name:?}"),
        Message::Insert { relation_id, new } => format!("Insert {relation_id} {}", tuple(new)),
        Message::Update {
            relation_id,
            old: Some(old),
            new,
        } => {
            format!("Update {relation_id} {} {}", tuple(old), tuple(new))
        }
        Message::Update {
            relation_id,
            old: None,
            new,
        } => format!("Update {relation_id} {}", tuple(new)),
        Message::Delete { relation_id, old } => format!("Delete {relation_id} {}", tuple(old)),
        Message::Truncate {
            options,
            relation_ids,
        } => {
            format!("Truncate options {options} {relation_ids:?}")
        }
        Message::Logical {
            transactional,
            lsn,
            prefix,
            content,
        } => format!(
            "Message transactional {transactional} lsn {lsn} prefix {prefix:?} content {}",
            bytes(content)
        ),
    }
}

fn relation(relation: &Relation) -> String {
    let Relation {
        id,
        namespace,
        name,
        replica_identity,
        columns,
    } = relation;
    let mut text = format!(
        "Relation {id} {namespace:?}.{name:?} replica_identity {}",
        char::from(*replica_identity)
    );
    for column in columns {
        let key = if column.key { " key" } else { "" };
        let (name, oid, modifier) = (&column.name, column.type_oid, column.type_modifier);
        write!(text, "\n      {name:?} type {oid} modifier {modifier}{key}").unwrap();
    }
    text
}

fn tuple(tuple: &Tuple<'_>) -> String {
    let mut text = format!("{:?} (", tuple.kind());
    for (index, value) in tuple.columns().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        text.push_str(separator);
        match value {
            Value::Null => text.push_str("NULL"),
            Value::UnchangedToast => text.push_str("UNCHANGED TOAST"),
            Value::Text(value) => text.push_str(&bytes(value)),
            Value::Binary(value) => write!(text, "binary {}", bytes(value)).unwrap(),
        }
    }
    text.push(')');
    text
}

fn bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().count() > VALUE_CHARS_MAX => {
            let start: String = text.chars().take(VALUE_CHARS_MAX).collect();
            format!("{start:?}… {} bytes", bytes.len())
        }
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("\"{}\"", bytes.escape_ascii()),
    }
}

fn step(step: &Step<'_>) -> String {
    match step {
        Step::Begin(transaction) => format!("-> Begin {}", transaction_id(transaction)),
        Step::Relation(relation) => format!(
            "-> Relation {} with {} columns",
            relation.id,
            relation.columns.len()
        ),
        Step::Insert(row) => format!(
            "-> Row {} of {} at {} in {:?}.{:?}, {} columns",
            row.insert_index,
            transaction_id(&row.transaction),
            row.lsn,
            row.relation.namespace,
            row.relation.name,
            row.tuple.column_count()
        ),
        Step::Ignored(operation) => format!("-> Ignored {operation:?}"),
        Step::Logical {
            transaction, lsn, ..
        } => {
            format!(
                "-> Logical at {lsn} of {}",
                transaction
                    .as_ref()
                    .map_or("no transaction".to_owned(), transaction_id)
            )
        }
        Step::Commit {
            transaction,
            end_lsn,
        } => {
            format!(
                "-> Commit of {} up to {end_lsn}",
                transaction_id(transaction)
            )
        }
    }
}

fn transaction_id(transaction: &TransactionId) -> String {
    let final_lsn: Lsn = transaction.final_lsn;
    format!("transaction {} ({final_lsn})", transaction.xid)
}
