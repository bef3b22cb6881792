//! Stage 5 of 9, the names of tables: written as in SQL, compared letter for letter.

use std::fmt;
use std::str::FromStr;

use pgoutput::Relation;
use serde::{Deserialize, Serialize};

use crate::error::TableNameError;

/// A table's schema and name, exactly as the catalog has them.
///
/// As text: `public.outbox`; a bare `outbox` is in the schema `public`; names with other characters than
/// `a-z 0-9 _` stand in double quotes, where `""` is one quote. An unquoted capital is refused rather than guessed
/// at: SQL would read `Outbox` as `outbox`, and most who write it mean the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName {
    /// The schema.
    pub schema: String,
    /// The table's name in its schema.
    pub name: String,
}

impl TableName {
    pub(crate) fn is(&self, relation: &Relation) -> bool {
        self.name == relation.name && self.schema == relation.namespace
    }
}

impl FromStr for TableName {
    type Err = TableNameError;

    fn from_str(text: &str) -> Result<Self, TableNameError> {
        let (first, rest) = take_identifier(text.trim())?;
        let Some(rest) = rest.strip_prefix('.') else {
            return match rest {
                "" => Ok(Self {
                    schema: "public".to_owned(),
                    name: first,
                }),
                _ => Err(TableNameError::Trailing),
            };
        };
        match take_identifier(rest)? {
            (name, "") => Ok(Self {
                schema: first,
                name,
            }),
            (_, rest) if rest.starts_with('.') => Err(TableNameError::TooManyParts),
            _ => Err(TableNameError::Trailing),
        }
    }
}

impl TryFrom<String> for TableName {
    type Error = TableNameError;

    fn try_from(text: String) -> Result<Self, TableNameError> {
        text.parse()
    }
}

impl From<TableName> for String {
    fn from(table: TableName) -> Self {
        table.to_string()
    }
}

/// Writes what [`FromStr`] reads, with quotes only where they are needed.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_identifier(f, &self.schema)?;
        f.write_str(".")?;
        write_identifier(f, &self.name)
    }
}

/// One identifier off the front of `text`, and what follows it.
fn take_identifier(text: &str) -> Result<(String, &str), TableNameError> {
    let (identifier, rest) = match text.strip_prefix('"') {
        Some(quoted) => take_quoted(quoted)?,
        None => take_bare(text)?,
    };
    if identifier.is_empty() {
        return Err(TableNameError::EmptyPart);
    }
    Ok((identifier, rest))
}

/// `text` stands behind the opening quote.
fn take_quoted(text: &str) -> Result<(String, &str), TableNameError> {
    let mut identifier = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"').ok_or(TableNameError::UnclosedQuote)?;
        identifier.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                identifier.push('"');
                rest = more;
            }
            None => return Ok((identifier, after)),
        }
    }
}

fn take_bare(text: &str) -> Result<(String, &str), TableNameError> {
    let end = text.find('.').unwrap_or(text.len());
    let (bare, rest) = text.split_at(end);
    match bare.chars().find(|c| !is_bare(*c)) {
        Some(character) => Err(TableNameError::NeedsQuotes {
            part: bare.to_owned(),
            character,
        }),
        None => Ok((bare.to_owned(), rest)),
    }
}

/// Letters outside ASCII need no quotes in SQL, and folding leaves them alone.
fn is_bare(character: char) -> bool {
    match character {
        'a'..='z' | '0'..='9' | '_' | '$' => true,
        other => !other.is_ascii() && other.is_alphanumeric(),
    }
}

fn write_identifier(f: &mut fmt::Formatter<'_>, identifier: &str) -> fmt::Result {
    if !identifier.is_empty() && identifier.chars().all(is_bare) {
        return f.write_str(identifier);
    }
    write!(f, "\"{}\"", identifier.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, schema: &str, name: &str) {
        let table: TableName = text.parse().unwrap();
        assert_eq!((&*table.schema, &*table.name), (schema, name), "{text}");
        assert_eq!(table.to_string().parse(), Ok(table));
    }

    fn refused(text: &str) -> TableNameError {
        text.parse::<TableName>().unwrap_err()
    }

    #[test]
    fn a_bare_name_is_in_public() {
        check("outbox", "public", "outbox");
        check(r#""Out.box""#, "public", "Out.box");
    }

    #[test]
    fn quotes_are_read_as_sql_reads_them() {
        check("audit.outbox", "audit", "outbox");
        check(r#""Sales-EU"."Out""box""#, "Sales-EU", "Out\"box");
        check(r#"s."a.b""#, "s", "a.b");
        check(r#""a.b".t"#, "a.b", "t");
        check("größe.outbox_1$", "größe", "outbox_1$");
    }

    #[test]
    fn quotes_are_written_only_where_needed() {
        let write = |text: &str| text.parse::<TableName>().unwrap().to_string();
        assert_eq!(write(r#""public"."outbox""#), "public.outbox");
        assert_eq!(
            write(r#""Sales-EU"."Out""box""#),
            r#""Sales-EU"."Out""box""#
        );
    }

    #[test]
    fn what_could_mean_two_tables_is_refused() {
        let capital = TableNameError::NeedsQuotes {
            part: "Outbox".to_owned(),
            character: 'O',
        };
        assert_eq!(refused("public.Outbox"), capital);
        assert!(capital.to_string().contains("double quotes"));
        assert_eq!(refused("db.public.outbox"), TableNameError::TooManyParts);
        assert_eq!(refused(r#""a"b"#), TableNameError::Trailing);
        assert_eq!(refused(r#"a."b"c"#), TableNameError::Trailing);
        assert_eq!(refused(r#""a"#), TableNameError::UnclosedQuote);
        for text in ["", ".", "a.", ".a", r#""""#, r#"a."""#] {
            assert_eq!(refused(text), TableNameError::EmptyPart, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_name_reads_back_as_written(schema in "\\PC{1,8}", name in "[a-zA-Z\". é-]{1,8}") {
            let table = TableName { schema, name };
            prop_assert_eq!(table.to_string().parse(), Ok(table));
        }
    }
}
