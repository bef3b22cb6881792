//! Stage 5 of 9, the topic: a template filled from the row, and the check that Kafka takes the name.

use std::fmt;

use crate::error::{RouterConfigError, TopicProblem};
use crate::table::TableName;

/// A topic's name with the row's own parts left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicTemplate {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    AggregateType,
    Schema,
    Table,
}

impl TopicTemplate {
    /// Reads `text`. There is no escape for a brace, since no topic's name may hold one.
    ///
    /// # Errors
    ///
    /// For an unknown placeholder, a brace without its partner, and text that no topic's name may hold.
    pub(crate) fn parse(text: &str) -> Result<Self, RouterConfigError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            push_literal(&mut parts, text, literal)?;
            let Some((placeholder, after)) = after.split_once('}') else {
                return Err(unbalanced(text));
            };
            parts.push(Part::named(placeholder, text)?);
            rest = after;
        }
        push_literal(&mut parts, text, rest)?;
        if parts.is_empty() {
            return Err(RouterConfigError::IllegalTopic {
                template: text.to_owned(),
                why: TopicProblem::Empty,
            });
        }
        Ok(Self { parts })
    }

    /// Whether the name depends on the aggregate type at all.
    pub(crate) fn needs_aggregate_type(&self) -> bool {
        self.parts.contains(&Part::AggregateType)
    }

    /// The parts of the name for one row, in order.
    pub(crate) fn fill<'a>(
        &'a self,
        table: &'a TableName,
        aggregate_type: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        self.parts.iter().map(move |part| match part {
            Part::Literal(text) => text.as_str(),
            Part::AggregateType => aggregate_type,
            Part::Schema => &table.schema,
            Part::Table => &table.name,
        })
    }
}

impl Part {
    fn named(placeholder: &str, template: &str) -> Result<Self, RouterConfigError> {
        match placeholder {
            "aggregatetype" => Ok(Self::AggregateType),
            "schema" => Ok(Self::Schema),
            "table" => Ok(Self::Table),
            _ if placeholder.contains('{') => Err(unbalanced(template)),
            _ => Err(RouterConfigError::UnknownPlaceholder {
                placeholder: placeholder.to_owned(),
                suggestion: suggestion(placeholder),
            }),
        }
    }
}

/// Kafka's rule for the name of a topic (`Topic.validate` in its clients): 1 to 249 of `a-z A-Z 0-9 . _ -`, and
/// neither `.` nor `..`. Names that differ only in `.` and `_` are two topics: they collide in metrics alone.
pub(crate) fn check_topic(name: &str) -> Result<(), TopicProblem> {
    match name {
        "" => return Err(TopicProblem::Empty),
        "." | ".." => return Err(TopicProblem::Dots),
        _ => {}
    }
    check_characters(name)?;
    if name.len() > TOPIC_BYTES_MAX {
        return Err(TopicProblem::TooLong {
            size_bytes: name.len(),
        });
    }
    Ok(())
}

const TOPIC_BYTES_MAX: usize = 249;

fn check_characters(name: &str) -> Result<(), TopicProblem> {
    // Bytes first, all of them without a branch: nearly every name is legal, and this runs for each record.
    if name
        .bytes()
        .fold(true, |legal, byte| legal & is_legal(byte))
    {
        return Ok(());
    }
    let illegal = name
        .char_indices()
        .find(|(_, c)| !u8::try_from(*c).is_ok_and(is_legal));
    illegal.map_or(Ok(()), |(offset, character)| {
        Err(TopicProblem::Character { character, offset })
    })
}

fn is_legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() | matches!(byte, b'.' | b'_' | b'-')
}

fn push_literal(
    parts: &mut Vec<Part>,
    template: &str,
    literal: &str,
) -> Result<(), RouterConfigError> {
    if literal.is_empty() {
        return Ok(());
    }
    if literal.contains('}') {
        return Err(unbalanced(template));
    }
    let checked = match literal.len() {
        0..=TOPIC_BYTES_MAX => check_characters(literal),
        size_bytes => Err(TopicProblem::TooLong { size_bytes }),
    };
    checked.map_err(|why| RouterConfigError::IllegalTopic {
        template: template.to_owned(),
        why: hint_at_java(literal, why),
    })?;
    parts.push(Part::Literal(literal.to_owned()));
    Ok(())
}

/// `${name}` is what a Debezium configuration has, so that the dollar deserves more than "illegal character".
fn hint_at_java(literal: &str, why: TopicProblem) -> TopicProblem {
    match why {
        TopicProblem::Character { character: '$', .. } if literal.ends_with('$') => {
            TopicProblem::DollarBrace
        }
        other => other,
    }
}

fn unbalanced(template: &str) -> RouterConfigError {
    RouterConfigError::UnbalancedBrace {
        template: template.to_owned(),
    }
}

/// The known placeholder nearest to what was written.
fn suggestion(placeholder: &str) -> Option<&'static str> {
    if placeholder == "routedByValue" {
        return Some("aggregatetype");
    }
    let plain: String = placeholder
        .chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    PLACEHOLDERS
        .into_iter()
        .map(|known| (known, strsim::normalized_damerau_levenshtein(known, &plain)))
        .filter(|(_, likeness)| *likeness >= 0.6)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(known, _)| known)
}

const PLACEHOLDERS: [&str; 3] = ["aggregatetype", "schema", "table"];

impl fmt::Display for TopicProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::Dots => f.write_str("the names . and .. are reserved"),
            Self::TooLong { size_bytes } => {
                write!(
                    f,
                    "it has {size_bytes} characters and may have {TOPIC_BYTES_MAX}"
                )
            }
            Self::Character { character, offset } => write!(
                f,
                "'{}' at byte {offset} is none of a-z A-Z 0-9 . _ -",
                character.escape_debug()
            ),
            Self::DollarBrace => f.write_str("a placeholder is written {name}, without the dollar"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fill(template: &str, aggregate_type: &str) -> String {
        let table = TableName {
            schema: "sales".to_owned(),
            name: "outbox".to_owned(),
        };
        let template = TopicTemplate::parse(template).unwrap();
        template.fill(&table, aggregate_type).collect()
    }

    fn refused(template: &str) -> String {
        TopicTemplate::parse(template).unwrap_err().to_string()
    }

    #[test]
    fn placeholders_are_filled_from_the_row() {
        assert_eq!(
            fill("outbox.event.{aggregatetype}", "order"),
            "outbox.event.order"
        );
        assert_eq!(
            fill("{schema}.{table}-{aggregatetype}", "x"),
            "sales.outbox-x"
        );
        assert_eq!(fill("{aggregatetype}{aggregatetype}", "ab"), "abab");
        assert_eq!(fill("constant", "x"), "constant");
    }

    #[test]
    fn only_a_template_that_names_the_aggregate_type_needs_it() {
        let needs = |text| TopicTemplate::parse(text).unwrap().needs_aggregate_type();
        assert!(needs("a.{aggregatetype}"));
        assert!(!needs("{schema}.{table}"));
    }

    #[test]
    fn an_unknown_placeholder_is_refused_with_a_suggestion() {
        for near in [
            "{aggregate_type}",
            "{aggregateType}",
            "{agregatetype}",
            "{routedByValue}",
        ] {
            assert!(
                refused(near).contains("did you mean {aggregatetype}"),
                "{near}"
            );
        }
        assert!(refused("{Table}").contains("did you mean {table}"));
        let far = refused("{xyzzy}");
        assert!(
            far.contains("{xyzzy}") && !far.contains("did you mean"),
            "{far}"
        );
        assert!(
            far.contains("{aggregatetype}, {schema} and {table}"),
            "{far}"
        );
    }

    #[test]
    fn a_template_that_can_never_fill_is_refused() {
        for text in ["a.{aggregatetype", "a}.b", "{aggregatetype}}", "{a{table}"] {
            assert!(refused(text).contains("brace"), "{text}");
        }
        assert!(refused("").contains("it is empty"));
        assert!(refused("a b").contains("' ' at byte 1"));
        assert!(refused("e.${aggregatetype}").contains("without the dollar"));
        assert!(refused(&"a".repeat(250)).contains("250 characters"));
    }

    #[test]
    fn names_that_kafka_takes_pass() {
        for name in ["order", "Order", "a.b_c-D.9", "...", &"a".repeat(249)] {
            assert_eq!(check_topic(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_that_kafka_refuses_say_why() {
        let why = |name: &str| check_topic(name).unwrap_err();
        assert_eq!(why(""), TopicProblem::Empty);
        assert_eq!(why("."), TopicProblem::Dots);
        assert_eq!(why(".."), TopicProblem::Dots);
        assert_eq!(
            why(&"a".repeat(250)),
            TopicProblem::TooLong { size_bytes: 250 }
        );
        for (name, character, offset) in [
            ("order created", ' ', 5),
            ("order/created", '/', 5),
            ("foo@bar", '@', 3),
            ("foo$bar", '$', 3),
            ("Größe", 'ö', 2),
            ("order\n", '\n', 5),
            ("a\0", '\0', 1),
        ] {
            assert_eq!(
                why(name),
                TopicProblem::Character { character, offset },
                "{name}"
            );
        }
        assert!(why("order\n").to_string().contains(r"'\n' at byte 5"));
    }

    proptest! {
        #[test]
        fn any_legal_text_is_a_template_of_itself(text in "[a-zA-Z0-9._-]{1,249}") {
            prop_assert_eq!(fill(&text, "x"), text);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[{}a-c$aggregtyp]{0,20}") {
            if let Ok(template) = TopicTemplate::parse(&text) {
                let has_placeholder = text.contains('{');
                prop_assert!(has_placeholder || template.parts == [Part::Literal(text)]);
            }
        }

        #[test]
        fn the_check_agrees_with_kafkas_rule(name in "[a-z._\\-é /]{0,4}") {
            let legal = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            let expected = legal && !["", ".", ".."].contains(&&*name);
            prop_assert_eq!(check_topic(&name).is_ok(), expected);
        }
    }
}
