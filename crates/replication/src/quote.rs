//! Names and values put into statements, so that no name can end the statement it stands in.

/// Quotes a name for SQL and for replication commands, always with double quotes.
///
/// The result stands for exactly this name: no case folding, no keyword, no injection. A zero byte
/// cannot be part of a name in PostgreSQL; statements holding one are refused before they are sent.
pub fn quote_ident(name: &str) -> String {
    quoted(name, '"')
}

/// Quotes a value for a replication command.
///
/// Replication commands know no escape strings: a backslash is an ordinary character in their
/// literals.
pub(crate) fn quote_command_literal(value: &str) -> String {
    quoted(value, '\'')
}

/// Quotes a value as an SQL string literal, independent of `standard_conforming_strings`.
///
/// As in `PQescapeLiteral`, a value with a backslash becomes ` E'…'` with the backslashes doubled.
/// The leading blank keeps it apart from a name before it.
pub fn quote_literal(value: &str) -> String {
    if value.contains('\\') {
        format!(" E{}", quoted(&value.replace('\\', "\\\\"), '\''))
    } else {
        quoted(value, '\'')
    }
}

fn quoted(text: &str, quote: char) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for character in text.chars() {
        if character == quote {
            out.push(quote);
        }
        out.push(character);
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_keep_every_character() {
        for (name, expected) in [
            ("outbox", r#""outbox""#),
            ("Sales-EU", r#""Sales-EU""#),
            (r#"Out"box"#, r#""Out""box""#),
            (r#"a"; DROP TABLE b; --"#, r#""a""; DROP TABLE b; --""#),
            (r#"""#, r#""""""#),
            ("", r#""""#),
            (r"back\slash", r#""back\slash""#),
            ("it's", r#""it's""#),
            ("größe 数", r#""größe 数""#),
        ] {
            assert_eq!(quote_ident(name), expected);
        }
    }

    #[test]
    fn literals_double_quotes_and_mark_backslashes() {
        for (value, expected) in [
            ("pub", "'pub'"),
            ("it's", "'it''s'"),
            ("'; DROP TABLE b; --", "'''; DROP TABLE b; --'"),
            (r#""Pub-1","a,b""#, r#"'"Pub-1","a,b"'"#),
            (r"\'", r" E'\\'''"),
            ("", "''"),
        ] {
            assert_eq!(quote_literal(value), expected);
        }
    }

    #[test]
    fn command_literals_leave_backslashes_alone() {
        assert_eq!(quote_command_literal(r"a\b'c"), r"'a\b''c'");
    }
}
