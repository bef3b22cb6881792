//! Properties files, by the rules of `java.util.Properties.load`.

use std::str::Chars;

use crate::entry::{Document, Entry};
use crate::error::ReadError;
use crate::finding::Verdict;

/// A connector's properties file.
pub(crate) fn document(text: &str) -> Result<Document, ReadError> {
    let mut document = Document {
        entries: parse(text)?,
        ..Document::default()
    };
    // Only what the file itself holds beyond ASCII is in doubt; written as an escape it is not.
    for (line, _) in logical_lines(text).filter(|(_, text)| !text.is_ascii()) {
        let key = document.entries.iter().find(|entry| entry.line == line);
        let key = key.map_or_else(String::new, |entry| entry.key.clone());
        document.remark(
            &key,
            line,
            Verdict::Refused,
            "holds characters beyond ASCII, which Java reads as ISO-8859-1 in this kind of file, whatever it was saved as; \
             write each of them as \\uXXXX",
        );
    }
    Ok(document)
}

/// The keys of a properties file in their order; of a key that is given twice, both.
///
/// # Errors
/// A `\u` that is not followed by four hexadecimal digits.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, ReadError> {
    let entry = |(line, text): (usize, String)| {
        let (key, value) = split(&text);
        Ok(Entry::new(
            unescape(key, line)?,
            unescape(value, line)?,
            line,
        ))
    };
    logical_lines(text).map(entry).collect()
}

/// The lines with something on them, each with its number, its continuations joined and its leading blanks removed.
fn logical_lines(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (index, first) = lines.by_ref().find(|(_, line)| has_content(line))?;
        let mut text = trim_blanks(first).to_owned();
        while ends_in_open_escape(&text) {
            text.pop();
            let Some((_, next)) = lines.next() else { break };
            text.push_str(trim_blanks(next));
        }
        Some((index + 1, text))
    })
}

fn has_content(line: &str) -> bool {
    let line = trim_blanks(line);
    !line.is_empty() && !line.starts_with(['#', '!'])
}

fn trim_blanks(line: &str) -> &str {
    line.trim_start_matches([' ', '\t', '\u{c}'])
}

fn ends_in_open_escape(line: &str) -> bool {
    line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

/// The key ends at the first `=`, `:` or blank that is not escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.char_indices().find(|(_, c)| {
        let ends = !escaped && matches!(c, '=' | ':' | ' ' | '\t' | '\u{c}');
        escaped = !escaped && *c == '\\';
        ends
    });
    let Some((end, _)) = end else {
        return (line, "");
    };
    let (key, rest) = line.split_at(end);
    let rest = trim_blanks(rest);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, trim_blanks(rest))
}

fn unescape(text: &str, line: usize) -> Result<String, ReadError> {
    let mut units = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => units.extend(escape(&mut chars, line)?),
            c => units.extend(c.encode_utf16(&mut [0; 2]).iter()),
        }
    }
    // A lone surrogate cannot be sent to anything; Java would send `?`.
    Ok(String::from_utf16_lossy(&units))
}

fn escape(chars: &mut Chars<'_>, line: usize) -> Result<Vec<u16>, ReadError> {
    let c = match chars.next() {
        None => return Ok(Vec::new()),
        Some('u') => return unicode(chars, line).map(|unit| vec![unit]),
        Some('t') => '\t',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('f') => '\u{c}',
        Some(c) => c,
    };
    Ok(c.encode_utf16(&mut [0; 2]).to_vec())
}

fn unicode(chars: &mut Chars<'_>, line: usize) -> Result<u16, ReadError> {
    let digits: String = chars.take(4).collect();
    let complete = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let unit = complete
        .then(|| u16::from_str_radix(&digits, 16).ok())
        .flatten();
    unit.ok_or_else(|| {
        ReadError::syntax(
            line,
            "`\\u` without four hexadecimal digits after it",
            "write \\uXXXX, or \\\\u for a backslash and the letter",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String, usize)> {
        let entries = parse(text).unwrap();
        entries
            .into_iter()
            .map(|entry| (entry.key, entry.value.unwrap(), entry.line))
            .collect()
    }

    fn check(text: &str, key: &str, value: &str) {
        assert_eq!(
            pairs(text),
            [(key.to_owned(), value.to_owned(), 1)],
            "{text:?}"
        );
    }

    #[test]
    fn all_separators_end_a_key() {
        check("a=b", "a", "b");
        check("a:b", "a", "b");
        check("a b", "a", "b");
        check("  a  =  b c ", "a", "b c ");
        check("a = = b", "a", "= b");
        check("a", "a", "");
        check("a\\=b\\:c\\ d=e", "a=b:c d", "e");
    }

    #[test]
    fn escapes_are_those_of_java() {
        check(r"a=\t\n\r\f\\\q", "a", "\t\n\r\u{c}\\q");
        check("a=\\u00e9\\ud83d\\ude00", "a", "é😀");
        check(r"a=public\\.outbox", "a", r"public\.outbox");
        check(r"a=public\.outbox", "a", "public.outbox");
        check("a=${routedByValue}.events", "a", "${routedByValue}.events");
    }

    #[test]
    fn lines_are_continued_and_counted() {
        assert_eq!(
            pairs("# c\n! d\n\na=b,\\\n   c\\\\\nd=e\\\n# f\n"),
            [
                ("a".to_owned(), "b,c\\".to_owned(), 4),
                ("d".to_owned(), "e# f".to_owned(), 6)
            ]
        );
        check("a=b\\", "a", "b");
    }

    #[test]
    fn characters_beyond_ascii_are_refused_unless_escaped() {
        let refused = |text: &str| document(text).unwrap().remarks.len();
        assert_eq!(refused("# é\na=\\u00e9"), 0);
        assert_eq!(refused("a=é"), 1);
    }

    #[test]
    fn half_an_escape_is_an_error_with_its_line() {
        for text in ["\na=\\u12", "\na=\\u12g4", "\na=\\u+123"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("line 2: `\\u` without four"), "{error}");
        }
    }
}
