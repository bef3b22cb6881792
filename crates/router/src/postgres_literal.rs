//! Stage 5 of 9, composed literals: the text forms of arrays and of hstore.

/// The elements of a one-dimensional array: `{a,"b \"c\"",NULL}`, with or without bounds before it.
pub(crate) fn parse_array(text: &str) -> Option<Vec<Option<String>>> {
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
        let (item, behind) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (item, behind) = take_quoted(quoted)?;
                (Some(item), behind)
            }
            None => {
                let end = rest.find([',', '}'])?;
                let (bare, behind) = rest.split_at(end);
                if bare.is_empty() || bare.starts_with('{') {
                    return None;
                }
                let is_null = bare.eq_ignore_ascii_case("NULL");
                ((!is_null).then(|| bare.to_owned()), behind)
            }
        };
        items.push(item);
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (behind == "}").then_some(items),
        }
    }
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
                let shown = |item: Option<String>| item.unwrap_or_else(|| "<null>".to_owned());
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
        for text in ["", "{", "{1", "1}", "{1,}", "{{1},{2}}", "{1}x", "{\"a}"] {
            assert_eq!(read(text), None, "{text}");
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
            let _ = parse_array(&text);
            let _ = parse_hstore(&text);
        }
    }
}
