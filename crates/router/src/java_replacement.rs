//! Stage 5 of 9, Java's replacements: `$1`, `${name}` and backslashes, as `Matcher.appendReplacement` reads them.

use super::java_regex::JavaRegex;

/// A replacement, read once and checked against its pattern's groups: whatever Java would throw for on the first
/// record is refused here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replacement {
    parts: Vec<Part>,
}

/// A piece of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(String),
    Group(usize),
}

/// Why a replacement is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplacementProblem {
    /// `${name}` where the pattern has no such group.
    #[error(
        "${{{name}}} stands for a named group, and the pattern has none of this name: write (?<{name}>...) there, or \
         $1 here"
    )]
    NoGroupName {
        /// The name.
        name: String,
    },
    /// `$n` where the pattern has fewer groups.
    #[error("${number} stands for a group, and the pattern has only {group_count}")]
    NoGroup {
        /// The number.
        number: usize,
        /// How many there are.
        group_count: usize,
    },
    /// A dollar before neither a digit nor a brace.
    #[error("the dollar at byte {offset} stands before no group: a plain one is written \\$")]
    LoneDollar {
        /// Where it stands.
        offset: usize,
    },
    /// `${` without a name and a closing brace.
    #[error("${{ at byte {offset} is not followed by a group's name and a closing brace")]
    BadName {
        /// Where it stands.
        offset: usize,
    },
    /// Nothing stands behind the last backslash.
    #[error("it ends in a backslash: a plain one is written \\\\")]
    TrailingBackslash,
}

impl Replacement {
    pub(crate) fn new(text: &str, regex: &JavaRegex) -> Result<Self, ReplacementProblem> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let offset = text.len() - rest.len();
            let behind = rest.get(character.len_utf8()..).unwrap_or_default();
            rest = match character {
                '\\' => {
                    let escaped = behind
                        .chars()
                        .next()
                        .ok_or(ReplacementProblem::TrailingBackslash)?;
                    literal.push(escaped);
                    behind.get(escaped.len_utf8()..).unwrap_or_default()
                }
                '$' => {
                    let (group, behind) = read_group(behind, offset, regex)?;
                    if !literal.is_empty() {
                        parts.push(Part::Literal(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Group(group));
                    behind
                }
                other => {
                    literal.push(other);
                    behind
                }
            };
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self { parts })
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// Behind a dollar: the group, and what follows it.
fn read_group<'t>(
    text: &'t str,
    offset: usize,
    regex: &JavaRegex,
) -> Result<(usize, &'t str), ReplacementProblem> {
    if let Some(named) = text.strip_prefix('{') {
        let bad_name = ReplacementProblem::BadName { offset };
        let (name, behind) = named.split_once('}').ok_or(bad_name.clone())?;
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_name {
            return Err(bad_name);
        }
        return regex
            .group_by_name(name)
            .map(|group| (group, behind))
            .ok_or_else(|| ReplacementProblem::NoGroupName {
                name: name.to_owned(),
            });
    }
    let digit = |text: &str| {
        text.bytes()
            .next()
            .filter(u8::is_ascii_digit)
            .map(|d| usize::from(d - b'0'))
    };
    let mut number = digit(text).ok_or(ReplacementProblem::LoneDollar { offset })?;
    let group_count = regex.group_count();
    if number > group_count {
        return Err(ReplacementProblem::NoGroup {
            number,
            group_count,
        });
    }
    // As many digits as still name a group.
    let mut behind = text.get(1..).unwrap_or_default();
    while let Some(next) = digit(behind) {
        let longer = number * 10 + next;
        if longer > group_count {
            break;
        }
        number = longer;
        behind = behind.get(1..).unwrap_or_default();
    }
    Ok((number, behind))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(pattern: &str, text: &str) -> Result<Vec<Part>, ReplacementProblem> {
        Replacement::new(text, &JavaRegex::new(pattern).unwrap()).map(|read| read.parts)
    }

    fn literal(text: &str) -> Part {
        Part::Literal(text.to_owned())
    }

    #[test]
    fn groups_are_read_by_number_and_name() {
        assert_eq!(
            parts("(a)", "x.$1").unwrap(),
            [literal("x."), Part::Group(1)]
        );
        assert_eq!(parts("(a)", "$12").unwrap(), [Part::Group(1), literal("2")]);
        assert_eq!(
            parts("(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)(l)", "$12").unwrap(),
            [Part::Group(12)]
        );
        assert_eq!(parts("(a)", "$01").unwrap(), [Part::Group(1)]);
        assert_eq!(
            parts("(?<n>a)", "${n}y").unwrap(),
            [Part::Group(1), literal("y")]
        );
        assert_eq!(parts("a", "$0").unwrap(), [Part::Group(0)]);
    }

    #[test]
    fn a_backslash_takes_the_next_character_as_it_is() {
        assert_eq!(parts("(a)", "\\$1\\\\\\x").unwrap(), [literal("$1\\x")]);
    }

    #[test]
    fn what_java_throws_for_is_refused() {
        assert_eq!(
            parts("(.*)", "outbox.event.${routedByValue}"),
            Err(ReplacementProblem::NoGroupName {
                name: "routedByValue".to_owned()
            })
        );
        assert_eq!(
            parts("(a)", "$2"),
            Err(ReplacementProblem::NoGroup {
                number: 2,
                group_count: 1
            })
        );
        for text in ["a$", "$x", "$ "] {
            assert!(
                matches!(
                    parts("(a)", text),
                    Err(ReplacementProblem::LoneDollar { .. })
                ),
                "{text}"
            );
        }
        for text in ["${", "${}", "${1a}", "${n-1}"] {
            assert!(
                matches!(parts("(a)", text), Err(ReplacementProblem::BadName { .. })),
                "{text}"
            );
        }
        assert_eq!(
            parts("a", "x\\"),
            Err(ReplacementProblem::TrailingBackslash)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[$\\\\{}0-9a-cé]{0,12}") {
            drop(parts("(?<a>a)(b)?", &text));
        }
    }
}
