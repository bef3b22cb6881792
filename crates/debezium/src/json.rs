//! Connect's JSON: `{"name": …, "config": {…}}` as the REST interface has it, or the map of `config` alone.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::entry::{Document, Entry, line_of};
use crate::error::ReadError;
use crate::finding::Verdict;

/// Reads either form.
pub(crate) fn parse(text: &str) -> Result<Document, ReadError> {
    let members = object(text)?;
    let config = members.iter().find(|(key, _)| key == "config");
    match config {
        Some((_, config)) if config.get().starts_with('{') => request(text, &members),
        _ => bare(text, text),
    }
}

/// The members of an object in their order, twice if given twice.
pub(crate) fn object(text: &str) -> Result<Vec<(String, &RawValue)>, ReadError> {
    if !text.trim_start().starts_with('{') {
        return Err(ReadError::not_a_connector(
            "no JSON object",
            "give an object of keys and values, `{\"name\": …, \"config\": {…}}` or the map of `config` alone",
        ));
    }
    let members = serde_json::from_str::<Members<'_>>(text);
    members.map(|members| members.0).map_err(|error| {
        let what = if error.is_eof() {
            format!("the JSON ends too early, at column {}", error.column())
        } else {
            format!("the JSON is broken at column {}", error.column())
        };
        let fix = "look there for a missing comma, quote or bracket, a comma too many or a comment";
        ReadError::syntax(error.line(), what, fix)
    })
}

fn request(text: &str, members: &[(String, &RawValue)]) -> Result<Document, ReadError> {
    let mut document = Document::default();
    for (key, value) in members {
        let line = line_in(text, value);
        match key.as_str() {
            "name" => document.name = scalar(value.get()).flatten(),
            "config" => {
                let mut config = bare(text, value.get())?;
                document.entries = config.entries;
                document.remarks.append(&mut config.remarks);
            }
            // What the REST interface answers beside the configuration.
            "tasks" | "type" => {}
            "initial_state" => document.remark(
                key,
                line,
                Verdict::Ignored,
                "the process starts when it is started; there is no paused state",
            ),
            _ => document.remark(
                key,
                line,
                Verdict::Refused,
                "stands beside `config`, where Connect refuses it; move it into `config` or remove it",
            ),
        }
    }
    Ok(document)
}

/// The map of keys and scalars `map`, a part of `text`.
fn bare(text: &str, map: &str) -> Result<Document, ReadError> {
    let mut document = Document::default();
    for (key, value) in object(map)? {
        let line = line_in(text, value);
        match scalar(value.get()) {
            Some(value) => document.entries.push(Entry { key, value, line }),
            None => document.remark(
                &key,
                line,
                Verdict::Refused,
                "is a list or an object; write its value as one text, lists with commas",
            ),
        }
    }
    Ok(document)
}

/// The text of a scalar, `Some(None)` for null, `None` for anything else.
pub(crate) fn scalar(raw: &str) -> Option<Option<String>> {
    match raw.as_bytes().first() {
        Some(b'{' | b'[') | None => None,
        Some(b'"') => serde_json::from_str(raw).ok().map(Some),
        Some(_) if raw == "null" => Some(None),
        Some(_) => Some(Some(raw.to_owned())),
    }
}

/// The line where `part` stands: raw values are slices of the text they were read from.
fn line_in(text: &str, part: &RawValue) -> usize {
    let offset = (part.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    line_of(text, offset)
}

struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Written by hand to keep the order, the duplicates and the places of the values.
struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<(String, Option<String>, usize)> {
        let entries = parse(text).unwrap().entries;
        entries
            .into_iter()
            .map(|entry| (entry.key, entry.value, entry.line))
            .collect()
    }

    #[test]
    fn both_forms_give_the_same_keys_with_lines_and_order() {
        let expected = [
            ("b".to_owned(), Some("x\n".to_owned()), 2),
            ("a".to_owned(), Some("1.50".to_owned()), 3),
            ("c".to_owned(), None, 4),
        ];
        let map = "{\n\"b\": \"x\\n\",\n\"a\": 1.50,\n\"c\": null}";
        assert_eq!(entries(map), expected);
        let request = format!("{{\"name\": \"n\", \"tasks\": [], \"config\": {map}}}");
        assert_eq!(entries(&request), expected);
        assert_eq!(parse(&request).unwrap().name.as_deref(), Some("n"));
    }

    #[test]
    fn broken_json_is_named_with_its_line() {
        let error = parse("{\"a\": \"secret\",\n\"b\" \"c\"}")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 2: the JSON is broken at column"),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
        let error = parse("{\"a\": 1").unwrap_err().to_string();
        assert!(error.contains("ends too early"), "{error}");
        assert!(
            parse("[]")
                .unwrap_err()
                .to_string()
                .contains("no JSON object")
        );
    }

    #[test]
    fn nested_values_are_refused_by_their_key() {
        let document = parse("{\"a\": {\"b\": 1}, \"c\": [1]}").unwrap();
        let keys: Vec<_> = document
            .remarks
            .iter()
            .map(|remark| remark.key.as_str())
            .collect();
        assert_eq!(keys, ["a", "c"]);
    }
}
