//! What can go wrong in stage 5 of 9: in the settings, and with a single row. Names and positions, never contents.

use std::fmt::{self, Write as _};

use pgoutput::{Lsn, TransactionId};

use crate::connect::{PatternProblem, ReplacementProblem};
use crate::table::TableName;

/// Why a [`RouterConfig`](crate::RouterConfig) is refused: the operator has to change it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouterConfigError {
    /// There is nothing to route.
    #[error("no outbox table is named")]
    NoTable,
    /// A column's or header's name is empty, or holds a character that no such name can hold.
    #[error("{key}: {name:?} cannot be the name of a column or header")]
    BadName {
        /// The key of the configuration.
        key: &'static str,
        /// What stands there.
        name: String,
    },
    /// The topic has a placeholder that nothing stands for.
    #[error("topic: unknown placeholder {{{placeholder}}}{}; known are {{aggregatetype}}, {{schema}} and {{table}}", did_you_mean(*.suggestion))]
    UnknownPlaceholder {
        /// What was written between the braces.
        placeholder: String,
        /// The known placeholder nearest to it.
        suggestion: Option<&'static str>,
    },
    /// The topic has a brace without its partner.
    #[error("topic: a brace without its partner in {template:?}")]
    UnbalancedBrace {
        /// The whole template.
        template: String,
    },
    /// The topic's fixed text alone makes every name illegal.
    #[error("topic: {template:?} can never be a topic's name: {why}")]
    IllegalTopic {
        /// The whole template.
        template: String,
        /// What Kafka would object to.
        why: TopicProblem,
    },
}

/// Why a [`ConnectConfig`](crate::connect::ConnectConfig) is refused: the operator has to change it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectConfigError {
    /// A pattern is no Java regular expression, or has something that is not supported.
    #[error("{key}: the pattern {pattern:?} is refused")]
    Pattern {
        /// The option.
        key: String,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        #[source]
        why: PatternProblem,
    },
    /// A replacement does not go with its pattern.
    #[error("{key}: the replacement {replacement:?} is refused")]
    Replacement {
        /// The option.
        key: String,
        /// The replacement.
        replacement: String,
        /// What is wrong with it.
        #[source]
        why: ReplacementProblem,
    },
    /// An option that names a column, a header or a field is empty, or holds what no name can hold.
    #[error("{key}: {name:?} cannot be the name of a column, header or field")]
    Name {
        /// The option.
        key: String,
        /// What stands there.
        name: String,
    },
    /// The envelope would have two fields of one name.
    #[error("table_fields_additional_placement: the envelope has two fields named {name:?}")]
    EnvelopeField {
        /// The name.
        name: String,
    },
    /// `SimpleHeaderConverter` for something else than headers.
    #[error("{key}: the simple converter is for headers only")]
    HeadersOnly {
        /// The option.
        key: &'static str,
    },
    /// A transform names a predicate that there is not.
    #[error("transforms: there is no predicate {alias:?}")]
    UnknownPredicate {
        /// Its alias.
        alias: String,
    },
    /// The order of transforms, or the lack of one.
    #[error("transforms: {why}")]
    Transforms {
        /// What is wrong.
        why: &'static str,
    },
    /// `value.literal` is of a kind that is not supported.
    #[error(
        "transforms: the value {literal:?} of InsertHeader would be parsed to something else than text or a whole \
         number, which is not supported"
    )]
    Literal {
        /// The literal.
        literal: String,
    },
}

/// Why a text is not read as a [`TableName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableNameError {
    /// Nothing stands where a schema or a table's name should.
    #[error("a part of the table's name is empty")]
    EmptyPart,
    /// A double quote is never closed.
    #[error("a double quote in the table's name is not closed")]
    UnclosedQuote,
    /// Something follows a closing quote.
    #[error("the table's name goes on after a closing quote")]
    Trailing,
    /// Three parts or more.
    #[error("a table's name has at most two parts: the database is not one of them")]
    TooManyParts,
    /// Unquoted, the name is not what SQL would make of it.
    #[error(
        "{part:?}: a name with {character:?} stands in double quotes, and is then taken letter for letter"
    )]
    NeedsQuotes {
        /// The schema or table's name as written.
        part: String,
        /// The first character that needs the quotes.
        character: char,
    },
}

/// Why a row of an outbox table makes no record.
///
/// Nothing of it is in the record buffer, and the router can go on with the next row; whether it should is decided
/// where all errors are judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The row has no such column: the mapping has to change. Every further row of this shape will fail too.
    #[error(
        "{row}: there is no column {column:?}, only {columns}. The write-ahead log keeps the names a row was written \
         with, so that renaming the column now does not help: the mapping has to name a column this row has"
    )]
    MissingColumn {
        /// The row.
        row: Box<RowPosition>,
        /// The column that is mapped.
        column: String,
        /// The columns there are.
        columns: String,
    },
    /// No topic can be made: the row has to be passed over.
    #[error("{row}: {column:?} is NULL, and the topic is made from it")]
    NullAggregateType {
        /// The row.
        row: Box<RowPosition>,
        /// The column of the aggregate type.
        column: String,
    },
    /// Kafka would refuse the topic: the row has to be passed over, or the topic's template changed.
    #[error("{row}: Kafka refuses the topic \"{name}\"{}: {why}", made_from(.column.as_deref()))]
    IllegalTopic {
        /// The row.
        row: Box<RowPosition>,
        /// The column of the aggregate type; `None` where the topic is made of the table's name alone.
        column: Option<String>,
        /// The topic's name, escaped, and cut where it is very long.
        name: String,
        /// What Kafka would object to.
        why: TopicProblem,
    },
    /// A value is not what its place needs: the row has to be passed over, or the mapping changed.
    #[error("{row}: {column:?} {why}")]
    BadValue {
        /// The row.
        row: Box<RowPosition>,
        /// The column.
        column: String,
        /// What is wrong with the value.
        why: ValueProblem,
    },
    /// The server sent a mapped column in a way that no INSERT of a text stream has.
    #[error("{row}: {column:?} came {why}")]
    UnsupportedTuple {
        /// The row.
        row: Box<RowPosition>,
        /// The column.
        column: String,
        /// How it came.
        why: &'static str,
    },
    /// A converter takes no such value: the converter or the mapping has to change. Every further row of this shape
    /// will fail too.
    #[error("{row}: the {part} cannot be converted: {why}")]
    Unconvertible {
        /// The row.
        row: Box<RowPosition>,
        /// Key, value or header.
        part: &'static str,
        /// What the converter objects to.
        why: String,
    },
    /// A pattern was given up on, as it would have tried too many ways to match the topic.
    #[error("{row}: the pattern of the topic backtracks too much on this value")]
    PatternTooComplex {
        /// The row.
        row: Box<RowPosition>,
    },
    /// A logical message is not what the decoding transform needs: it has to be passed over.
    #[error("{row}: the message {why}")]
    BadMessage {
        /// The message.
        row: Box<RowPosition>,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl RouteError {
    /// The row that makes no record.
    #[must_use]
    pub fn row(&self) -> &RowPosition {
        match self {
            Self::MissingColumn { row, .. }
            | Self::NullAggregateType { row, .. }
            | Self::IllegalTopic { row, .. }
            | Self::BadValue { row, .. }
            | Self::UnsupportedTuple { row, .. }
            | Self::Unconvertible { row, .. }
            | Self::PatternTooComplex { row }
            | Self::BadMessage { row, .. } => row,
        }
    }
}

/// Which row an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPosition {
    /// The table, under the name its rows come with.
    pub table: TableName,
    /// Where the insert is in the log. Rows inserted together may share it.
    pub lsn: Lsn,
    /// Its transaction; with `insert_index` the row's one identity in the log.
    pub transaction: TransactionId,
    /// Its number among the inserts and logical messages of the transaction.
    pub insert_index: u64,
    /// The id column's text, at most 128 bytes of it; `None` where the row has none.
    pub event_id: Option<String>,
}

impl fmt::Display for RowPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.event_id {
            Some(id) => write!(f, "event {}", Printable(id))?,
            None => f.write_str("event without an id")?,
        }
        write!(f, " of {} at {}", self.table, self.lsn)
    }
}

/// A text without the characters that would end a line or move a terminal's cursor.
struct Printable<'a>(&'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '\'' | '"' | '\\' => f.write_char(character),
            other => write!(f, "{}", other.escape_debug()),
        })
    }
}

/// What Kafka objects to in a topic's name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicProblem {
    /// There is no name.
    Empty,
    /// It is `.` or `..`.
    Dots,
    /// It is longer than 249 characters.
    TooLong {
        /// Its length.
        size_bytes: usize,
    },
    /// It has a character other than `a-z A-Z 0-9 . _ -`.
    Character {
        /// The first such character.
        character: char,
        /// Where it begins, in bytes.
        offset: usize,
    },
    /// A template has `${name}` where `{name}` is meant.
    DollarBrace,
}

/// What is wrong with a column's value. Offsets count the bytes of its text from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueProblem {
    /// Neither of bytea's two text forms.
    #[error("is no bytea text, at byte {offset}")]
    NotBytea {
        /// Where it fails.
        offset: usize,
    },
    /// A partition that is not digits.
    #[error("is no partition: a whole number is needed, at byte {offset}")]
    NotAPartition {
        /// Where it fails.
        offset: usize,
    },
    /// A partition below 0.
    #[error("is no partition: it is negative")]
    NegativePartition,
    /// A partition that Kafka cannot number.
    #[error("is no partition: it is above 2147483647")]
    PartitionTooLarge,
    /// Neither a timestamp, nor a date, nor milliseconds.
    #[error(
        "is no time: neither a date or timestamp in ISO form nor whole milliseconds, at byte {offset}"
    )]
    NotATime {
        /// Where it fails.
        offset: usize,
    },
    /// `infinity` or `-infinity`.
    #[error("is an infinite time, which no record can carry")]
    InfiniteTime,
    /// Kafka counts milliseconds from 1970 and takes no negative ones.
    #[error("is a time before 1970, which no record can carry")]
    BeforeEpoch,
    /// More milliseconds than a record can hold.
    #[error("is a time too far off for a record")]
    TimeTooLarge,
    /// Text in another encoding than UTF-8.
    #[error("is no UTF-8, at byte {offset}")]
    NotUtf8 {
        /// Where it fails.
        offset: usize,
    },
    /// Not the text form of the column's type.
    #[error("is no {type_name}")]
    NotOfType {
        /// The type.
        type_name: &'static str,
    },
    /// `NaN` or an infinity, for which Connect's decimals have no place.
    #[error(
        "is NaN or infinite, which no decimal can hold: decimal_handling_mode string or double can"
    )]
    NotFinite,
    /// An array of arrays of what Connect has as strings, of which Debezium would send Java's addresses.
    #[error(
        "is an array of more than one dimension, for whose texts Connect's arrays have no place"
    )]
    ArrayOfTexts,
    /// The topic can only be made from text.
    #[error("is of the type {type_name}, and the topic is made from text only")]
    NotText {
        /// Connect's name of the type.
        type_name: &'static str,
    },
    /// A timestamp can only be made from a time or a whole number of milliseconds.
    #[error("is of the type {type_name}, from which no timestamp can be made")]
    NotATimestamp {
        /// Connect's name of the type, or the logical one.
        type_name: String,
    },
    /// A schema's version has to be a 32-bit integer.
    #[error("is no version of a schema: a 32-bit integer is needed")]
    NotAVersion,
}

impl ValueProblem {
    /// Whether the text is understood, and has no place in Connect's type: what becomes of such a value is
    /// `event.converting.failure.handling.mode`'s to say. A text that is not understood may be one that Debezium reads.
    pub(crate) fn is_unconvertible(&self) -> bool {
        matches!(self, Self::NotFinite | Self::ArrayOfTexts)
    }
}

/// At most `bytes_max` bytes from the front of `text`, and whole characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max)
        .rev()
        .find(|end| text.is_char_boundary(*end));
    match end {
        Some(end) if text.len() > bytes_max => text.get(..end).unwrap_or_default(),
        _ => text,
    }
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |known| format!(", did you mean {{{known}}}"))
}

fn made_from(column: Option<&str>) -> String {
    column.map_or_else(String::new, |column| format!(", made from {column:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(event_id: Option<&str>) -> RowPosition {
        RowPosition {
            table: "audit.\"Out box\"".parse().unwrap(),
            lsn: Lsn::new(0x16_B374_D848),
            transaction: TransactionId {
                final_lsn: Lsn::ZERO,
                commit_time: pgoutput::PgTimestamp::new(0),
                xid: 1,
            },
            insert_index: 0,
            event_id: event_id.map(str::to_owned),
        }
    }

    #[test]
    fn a_position_names_event_table_and_lsn() {
        assert_eq!(
            position(Some("it's \\x00\n\u{202e}")).to_string(),
            r#"event it's \x00\n\u{202e} of audit."Out box" at 16/B374D848"#
        );
        assert!(
            position(None)
                .to_string()
                .starts_with("event without an id of audit.")
        );
    }

    #[test]
    fn cutting_keeps_whole_characters() {
        assert_eq!(cut("aéb", 2), "a");
        assert_eq!(cut("aéb", 3), "aé");
        assert_eq!(cut("aéb", 9), "aéb");
    }

    #[test]
    fn results_stay_small() {
        assert!(size_of::<Result<bool, RouteError>>() <= 80);
    }
}
