//! Stage 5 of 9, composed literals: the text forms of arrays and of hstore.

/// An element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Element {
    Null,
    Text(String),
    /// An array; what is in it is not kept.
    Array,
}

/// The elements of an array: `{a,"b \"c\"",NULL}`, with or without bounds before it.
pub(crate) fn parse_array(text: &str) -> Option<Vec<Element>> {
    let text = match text.strip_prefix('[') {
        Some(bounds) => bounds.split_once('=')?.1,
        None => text,
    };
    let mut rest = text.strip_prefix('{')?;
    let mut items = Vec::new();
    if rest == "}" {
        return Some(items);
    }
    loop {
        let (item, behind) = take_element(rest)?;
        items.push(item);
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (behind == "}").then_some(items),
        }
    }
}

fn take_element(text: &str) -> Option<(Element, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (item, behind) = take_quoted(quoted)?;
        return Some((Element::Text(item), behind));
    }
    if text.starts_with('{') {
        return Some((Element::Array, pass_array(text)?));
    }
    let (bare, behind) = text.split_at(text.find([',', '}'])?);
    let item = match bare {
        "" => return None,
        bare if bare.eq_ignore_ascii_case("NULL") => Element::Null,
        bare => Element::Text(bare.to_owned()),
    };
    Some((item, behind))
}

/// What stands behind the array that `text` begins with.
fn pass_array(text: &str) -> Option<&str> {
    let (mut depth, mut is_quoted) = (0_usize, false);
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()?),
            '"' => is_quoted = !is_quoted,
            '{' if !is_quoted => depth += 1,
            '}' if !is_quoted => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return text.get(at + 1..);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether an array has more than one dimension.
pub(crate) fn is_array_of_arrays(text: &[u8]) -> bool {
    let bounds = match text.first() {
        Some(b'[') => text.iter().position(|byte| *byte == b'=').map(|at| at + 1),
        _ => Some(0),
    };
    bounds
        .and_then(|at| text.get(at..))
        .is_some_and(|array| array.starts_with(b"{{"))
}

/// The entries of `"a"=>"1", "b"=>NULL`.
pub(crate) fn parse_hstore(text: &str) -> Option<Vec<(String, Option<String>)>> {
    let mut rest = text.trim();
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (key, behind) = take_quoted(rest.strip_prefix('"')?)?;
        let behind = behind.trim_start().strip_prefix("=>")?.trim_start();
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => {
                let (value, behind) = take_quoted(quoted)?;
                (Some(value), behind)
            }
            None => (None, behind.strip_prefix("NULL")?),
        };
        entries.push((key, value));
        rest = match behind.trim_start().strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if behind.trim().is_empty() => "",
            None => return None,
        };
    }
    Some(entries)
}

/// `text` stands behind the opening quote; a backslash takes the next character as it is.
fn take_quoted(text: &str) -> Option<(String, &str)> {
    let mut taken = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((taken, text.get(at + 1..)?)),
            '\\' => taken.push(characters.next()?.1),
            other => taken.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arrays_are_read() {
        let read = |text: &str| {
            parse_array(text).map(|items| {
                let shown = |item: Element| match item {
                    Element::Null => "<null>".to_owned(),
                    Element::Text(text) => text,
                    Element::Array => "<array>".to_owned(),
                };
                items.into_iter().map(shown).collect::<Vec<_>>()
            })
        };
        assert_eq!(read("{}").unwrap(), Vec::<String>::new());
        assert_eq!(read("{1,2}").unwrap(), ["1", "2"]);
        assert_eq!(
            read(r#"{"a\"b","c,}\\",NULL,"NULL",""}"#).unwrap(),
            ["a\"b", "c,}\\", "<null>", "NULL", ""]
        );
        assert_eq!(read("[0:1]={1,2}").unwrap(), ["1", "2"]);
        assert_eq!(read(r#"{{1,{2}},{"}","\\"},{}}"#).unwrap(), ["<array>"; 3]);
        for text in [
            "",
            "{",
            "{1",
            "1}",
            "{1,}",
            "{{1}",
            "{{1}2}",
            "{{1},{2}}}",
            "{1}x",
            "{\"a}",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn an_array_of_arrays_is_known_by_its_beginning() {
        for text in ["{{1}}", "[1:1][0:0]={{1}}"] {
            assert!(is_array_of_arrays(text.as_bytes()), "{text}");
        }
        for text in ["", "{}", "{1}", "{\"{{\"}", "[0:0]={1}", "[", "{NULL}"] {
            assert!(!is_array_of_arrays(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn hstore_is_read() {
        let entry = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
        assert_eq!(parse_hstore("").unwrap(), []);
        assert_eq!(
            parse_hstore(r#""a"=>"1", "b \"\\"=>NULL, ""=>"""#).unwrap(),
            [
                entry("a", Some("1")),
                entry("b \"\\", None),
                entry("", Some(""))
            ]
        );
        for text in ["a", "\"a\"", "\"a\"=>1", "\"a\"=>\"1\" x"] {
            assert_eq!(parse_hstore(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[{},\"\\\\a=>NUL \\[\\]:]{0,20}") {
            let items = parse_array(&text);
            if is_array_of_arrays(text.as_bytes()) && let Some(items) = items {
                assert_eq!(items.first(), Some(&Element::Array));
            }
            let _ = parse_hstore(&text);
        }
    }
}
