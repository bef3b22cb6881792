//! Stage 5 of 9, logical messages: which are taken, and how their JSON becomes an event's columns.

use pgoutput::{Lsn, PgTimestamp, TransactionId};

use super::connect_value::Value;
use super::event_columns::{ConnectFault, MessageColumns};
use super::expand_json::{Expanded, Expander};
use super::java_regex::JavaRegex;
use super::table_filter::{compiled_list, passes};
use super::{BinaryMode, ConnectConfig, EmptyArrayBehavior, NullBehavior, Transform};
use crate::error::{ConnectConfigError, RowPosition, cut};
use crate::route::EVENT_ID_BYTES_MAX;
use crate::table::TableName;

/// A logical message, as the stream has it.
#[derive(Debug, Clone, Copy)]
pub struct LogicalMessage<'a> {
    /// The transaction it belongs to; `None` when it stands for itself.
    pub transaction: Option<TransactionId>,
    /// Its number among the inserts and messages of the transaction; 0 when it stands for itself.
    pub insert_index: u64,
    /// Where it is in the log.
    pub lsn: Lsn,
    /// Names its purpose.
    pub prefix: &'a str,
    /// Its bytes.
    pub content: &'a [u8],
}

/// Which messages are taken, and how they are decoded.
#[derive(Debug)]
pub(crate) struct Messages {
    include: Vec<JavaRegex>,
    exclude: Vec<JavaRegex>,
    expander: Expander,
}

impl Messages {
    pub(crate) fn new(config: &ConnectConfig) -> Result<Option<Self>, ConnectConfigError> {
        let Some(messages) = &config.messages else {
            return Ok(None);
        };
        let includes_null = config
            .transforms
            .iter()
            .find_map(|transform| match transform.apply {
                Transform::DecodeLogicalMessage {
                    fields_null_include,
                } => Some(fields_null_include),
                _ => None,
            });
        if includes_null.is_some() && config.types.binary_handling_mode != BinaryMode::Bytes {
            return Err(ConnectConfigError::Transforms {
                why: "decoding logical messages needs binary_handling_mode bytes",
            });
        }
        Ok(Some(Self {
            include: compiled_list(
                "messages.prefix_include",
                &messages.prefix_include,
                JavaRegex::new,
            )?,
            exclude: compiled_list(
                "messages.prefix_exclude",
                &messages.prefix_exclude,
                JavaRegex::new,
            )?,
            expander: Expander {
                nulls: match includes_null {
                    Some(true) => NullBehavior::OptionalBytes,
                    _ => NullBehavior::Ignore,
                },
                empty_arrays: EmptyArrayBehavior::Ignore,
                names: config.types.field_name_adjustment_mode,
            },
        }))
    }

    pub(crate) fn takes(&self, prefix: &str) -> bool {
        passes(&self.include, &self.exclude, prefix)
    }
}

/// `DecodeLogicalDecodingMessageContent`: the content's JSON as the columns of an insert.
pub(crate) fn decoded<'a>(
    messages: Option<&Messages>,
    names: &'a [String],
    content: &'a [u8],
) -> Result<MessageColumns<'a>, ConnectFault> {
    let text = std::str::from_utf8(content).map_err(|_| ConnectFault::Message("is no UTF-8"))?;
    let expander = messages.map(|messages| messages.expander);
    let expander = expander.ok_or(ConnectFault::Message("is of no prefix that is taken"))?;
    match expander.expand("", text) {
        Expanded::Struct(mut schema, Value::Struct(values)) => {
            schema.name = None;
            Ok(MessageColumns {
                names,
                schema,
                values,
            })
        }
        Expanded::Unchanged => Err(ConnectFault::Message("is no JSON object")),
        _ => Err(ConnectFault::Message(
            "is JSON whose values have no common type, so that no columns can be made of it",
        )),
    }
}

/// A message is of no table: its prefix stands in the table's place.
pub(crate) fn message_position(message: LogicalMessage<'_>) -> RowPosition {
    RowPosition {
        table: TableName {
            schema: "pg_logical_emit_message".to_owned(),
            name: cut(message.prefix, EVENT_ID_BYTES_MAX).to_owned(),
        },
        lsn: message.lsn,
        transaction: message.transaction.unwrap_or(TransactionId {
            final_lsn: message.lsn,
            commit_time: PgTimestamp::new(0),
            xid: 0,
        }),
        insert_index: message.insert_index,
        event_id: None,
    }
}
