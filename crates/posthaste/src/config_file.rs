//! Reading the configuration file: which format, the bytes, and TOML with its line numbers.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::codes::{Code, Problem};
use crate::config_suggest::nearest;
use crate::config_tree::{Node, Origin, Table, Value};

/// A configuration is written by hand; anything larger is the wrong file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What a configuration file can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Our own.
    Toml,
    /// A Debezium connector's, in one of `debezium`'s formats.
    Connect,
}

impl Format {
    /// Chooses by `--format` if given, else by the extension of the file, else by what is in it.
    ///
    /// # Errors
    /// The name is unknown, or nothing tells.
    pub(crate) fn choose(path: &Path, named: Option<&str>) -> Result<Self, Problem> {
        if let Some(name) = named {
            return Self::named(name);
        }
        let extension = path
            .extension()
            .map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("toml") => Ok(Self::Toml),
            Some("json" | "properties" | "yaml" | "yml") => Ok(Self::Connect),
            _ if read_text(path).is_ok_and(|text| looks_like_connector(&text)) => Ok(Self::Connect),
            _ => Err(
                Problem::new(Code::ConfigFormatUnknown, "configuration format")
                    .found(format!("file \"{}\"", path.display()))
                    .needed(
                        "a file named ….toml, or a Debezium connector's .json, .properties or .yaml",
                    )
                    .fix("give --format toml, or rename the file"),
            ),
        }
    }

    fn named(name: &str) -> Result<Self, Problem> {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "toml" => return Ok(Self::Toml),
            name if CONNECT_FORMATS.contains(&name) => return Ok(Self::Connect),
            _ => {}
        }
        let meant = CONNECT_FORMATS
            .into_iter()
            .find(|format| format.split('-').any(|word| word == lower))
            .or_else(|| nearest(&lower, CONNECT_FORMATS.into_iter().chain(["toml"])));
        let hint = meant
            .map(|format| format!("did you mean {format}? "))
            .unwrap_or_default();
        Err(
            Problem::new(Code::ConfigFormatUnknown, "configuration format")
                .found(format!("--format {name}"))
                .needed(format!("one of: toml, {}", CONNECT_FORMATS.join(", ")))
                .fix(format!("{hint}give --format toml, or rename the file")),
        )
    }
}

/// The words of `debezium`'s formats.
const CONNECT_FORMATS: [&str; 4] = [
    "connect-json",
    "connect-properties",
    "strimzi-yaml",
    "debezium-server",
];

/// People call any file `connector.conf`; the class of a connector stands in no file of ours.
fn looks_like_connector(text: &str) -> bool {
    use debezium::Format::{Json, Properties, Server, Yaml};
    match debezium::Format::detect("", text) {
        // TOML may begin with a bracket as well.
        Json => text.trim_start().starts_with('{'),
        Yaml | Server => true,
        Properties => text.contains("connector.class"),
    }
}

/// Reads the file as a tree whose values know their lines.
///
/// # Errors
/// The file cannot be read, or is not TOML. Messages name line and column and never quote the line: it may hold a secret.
pub(crate) fn read_toml(path: &Path) -> Result<Table, Problem> {
    parse_toml(&read_text(path)?, &path.display().to_string())
}

/// Parses TOML; `name` stands for the file in messages.
pub(crate) fn parse_toml(text: &str, name: &str) -> Result<Table, Problem> {
    let lines = LineStarts::new(text);
    match DeTable::parse(text) {
        Ok(table) => table_from(table.into_inner(), &lines, name),
        Err(error) => {
            // Neither the error nor its `Display` goes further: both quote the input.
            let place = error.span().map(|span| lines.place(text, span.start));
            let place = place
                .map(|(line, column)| format!("line {line}, column {column}: "))
                .unwrap_or_default();
            Err(
                Problem::new(Code::ConfigSyntax, format!("configuration file \"{name}\""))
                    .found(format!("{place}{}", error.message()))
                    .needed("TOML, for example: slot = \"outbox\"")
                    .fix("correct this line; text values need quotes, a key may stand once"),
            )
        }
    }
}

/// Why a file could not be read, in the words of people.
pub(crate) fn why_unread(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file".to_owned(),
        ErrorKind::IsADirectory => "a folder".to_owned(),
        other => other.to_string(),
    }
}

fn read_text(path: &Path) -> Result<String, Problem> {
    let problem = |found: String| {
        Problem::new(
            Code::ConfigFileUnreadable,
            format!("configuration file \"{}\"", path.display()),
        )
        .found(found)
        .needed("a readable file of UTF-8 text, at most 1 MiB")
        .fix("correct the path given with -c, or the rights of the file")
    };
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Err(problem(why_unread(&error)).caused_by(error));
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(problem("more than 1 MiB".to_owned()));
    }
    // The decoding error would carry the bytes along, so only its position is kept.
    String::from_utf8(bytes).map_err(|error| {
        problem(format!(
            "bytes that are not UTF-8, after {} bytes",
            error.utf8_error().valid_up_to()
        ))
    })
}

fn table_from(table: DeTable<'_>, lines: &LineStarts, file: &str) -> Result<Table, Problem> {
    let mut result = Table::new();
    for (key, value) in table {
        // A table begins where its header is; the key says where a value stands.
        let line = lines.line(key.span().start);
        result.insert(
            key.into_inner().into_owned(),
            node_from(value, line, lines, file)?,
        );
    }
    Ok(result)
}

fn node_from(
    value: Spanned<DeValue<'_>>,
    line: usize,
    lines: &LineStarts,
    file: &str,
) -> Result<Node, Problem> {
    let number_problem = |number: &str| {
        Problem::new(Code::ConfigSyntax, format!("configuration file \"{file}\""))
            .found(format!("line {line}: number {number}"))
            .needed("a number of 64 bits")
            .fix("correct this line")
    };
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(integer) => {
            let digits: String = integer.as_str().chars().filter(|c| *c != '_').collect();
            Value::Integer(
                i64::from_str_radix(&digits, integer.radix())
                    .map_err(|_| number_problem(&digits))?,
            )
        }
        DeValue::Float(float) => {
            let digits: String = float.as_str().chars().filter(|c| *c != '_').collect();
            Value::Float(digits.parse().map_err(|_| number_problem(&digits))?)
        }
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(time) => Value::Time(time.to_string()),
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| {
                let line = lines.line(item.span().start);
                node_from(item, line, lines, file)
            });
            Value::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => Value::Table(table_from(table, lines, file)?),
    };
    Ok(Node {
        value,
        origin: Origin::File { line },
    })
}

/// Byte positions at which lines begin.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn new(text: &str) -> Self {
        let after_breaks = text
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(after_breaks).collect())
    }

    /// The line of a byte, counted from 1.
    fn line(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at).max(1)
    }

    /// Line and column, counted from 1, the column in characters.
    fn place(&self, text: &str, at: usize) -> (usize, usize) {
        let line = self.line(at);
        let start = self.0.get(line - 1).copied().unwrap_or(0);
        let column = text
            .get(start..at)
            .map_or(0, |before| before.chars().count())
            + 1;
        (line, column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_tree::find;

    fn parse(text: &str) -> Table {
        parse_toml(text, "f").unwrap_or_else(|problem| panic!("{problem}"))
    }

    #[test]
    fn values_know_their_lines() {
        let table = parse("# c\n[a]\nb = 1\n\nc = [\n  'x',\n  'y',\n]\n[[d]]\ne = { f = true }\n");
        let line = |path: &[&str]| find(&table, path).map(|node| node.origin.clone());
        assert_eq!(line(&["a", "b"]), Some(Origin::File { line: 3 }));
        assert_eq!(line(&["a", "c"]), Some(Origin::File { line: 5 }));
        let items = find(&table, &["a", "c"])
            .and_then(Node::as_list)
            .expect("a list");
        assert_eq!(items[1].origin, Origin::File { line: 7 });
        let entry = find(&table, &["d"])
            .and_then(Node::as_list)
            .and_then(|list| list[0].as_table())
            .expect("a table");
        assert_eq!(
            find(entry, &["e", "f"]).map(|node| node.origin.clone()),
            Some(Origin::File { line: 10 })
        );
    }

    #[test]
    fn numbers_of_every_notation_are_read() {
        let table = parse(
            "a = 1_000\nb = 0xff\nc = -0b11\nd = 1_0.5\ne = 1e3\nf = -inf"
                .replace("-0b11", "0b11")
                .as_str(),
        );
        let number = |key: &str| find(&table, &[key]).map(Node::describe);
        assert_eq!(number("a").as_deref(), Some("number 1000"));
        assert_eq!(number("b").as_deref(), Some("number 255"));
        assert_eq!(number("c").as_deref(), Some("number 3"));
        assert_eq!(number("d").as_deref(), Some("number 10.5"));
        assert_eq!(number("e").as_deref(), Some("number 1000.0"));
        assert_eq!(number("f").as_deref(), Some("number -inf"));
    }

    #[test]
    fn a_broken_file_names_place_and_hides_the_line() {
        for text in [
            "[source]\npassword = \"hunter2",
            "[source]\npassword = hunter2",
            "[source]\npassword = 'hunter2' hunter2",
            "[source]\npassword = \"\\hunter2\"",
            "\n'hunter2",
            "a=hunter2.9.9",
            "password = 0hunter2",
            "hunter2",
        ] {
            let problem = parse_toml(text, "f.toml")
                .err()
                .unwrap_or_else(|| panic!("{text} was accepted"));
            let shown = format!("{problem} {problem:?}");
            assert!(
                shown.starts_with("PH0104: configuration file \"f.toml\": found line "),
                "{shown}"
            );
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn a_connectors_file_is_known_by_what_is_in_it() {
        for (text, expected) in [
            ("\n{ \"name\": \"a\" }", true),
            ("a=1\nconnector.class=x\n", true),
            ("apiVersion: v1\nkind: KafkaConnector\n", true),
            ("debezium.source.slot.name=a", true),
            ("[source]\nslot = \"a\"\n", false),
            ("\n[kafka]\n", false),
            ("", false),
        ] {
            assert_eq!(looks_like_connector(text), expected, "{text}");
        }
    }

    #[test]
    fn the_format_comes_from_flag_or_extension() {
        assert_eq!(
            Format::choose(Path::new("a.toml"), None).ok(),
            Some(Format::Toml)
        );
        assert_eq!(
            Format::choose(Path::new("a.TOML"), None).ok(),
            Some(Format::Toml)
        );
        assert_eq!(
            Format::choose(Path::new("a.conf"), Some("toml")).ok(),
            Some(Format::Toml)
        );
        let message = |path: &str, named| {
            Format::choose(Path::new(path), named)
                .err()
                .map(|problem| problem.to_string())
                .unwrap_or_default()
        };
        for (path, named) in [
            ("a.json", None),
            ("a.YML", None),
            ("a.toml", Some("debezium-server")),
        ] {
            let format = Format::choose(Path::new(path), named);
            assert_eq!(format.ok(), Some(Format::Connect), "{path}");
        }
        assert!(message("a.toml", Some("yaml")).contains("did you mean strimzi-yaml?"));
        assert!(message("a.conf", None).contains("PH0102"));
        assert!(message("a", None).contains(".toml"));
        assert!(message("a.toml", Some("tmol")).contains("did you mean toml?"));
    }
}
