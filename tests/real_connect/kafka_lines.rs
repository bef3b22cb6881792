//! Records as Kafka's own consumer prints them: `kafka-console-consumer`, with everything that a record has.

use anyhow::{Context, Result, ensure};
use xtask::kafka::Kafka;

/// One record, its bytes in the escaped form of Kafka's `Bytes`: printable ASCII as it is, all else as `\xHH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) topic: String,
    pub(crate) partition: String,
    pub(crate) timestamp: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Stands for a null key, value or header; no escaped text has it, since a backslash is followed by an `x` there.
const NULL: &str = r"\null";
/// Parts the fields of a line and the headers: escaped in all bytes of records.
const FIELD: char = '\t';
const HEADER: &str = "\u{2}";

impl Line {
    /// The value of the first header of this name, empty without one.
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map_or("", |(_, value)| value)
    }

    fn parse(topic: &str, line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.split(FIELD).collect();
        let [timestamp, partition, headers, key, value] = fields.as_slice() else {
            anyhow::bail!("{} fields instead of 5: {line}", fields.len());
        };
        let headers = match *headers {
            "NO_HEADERS" => Vec::new(),
            headers => headers.split(HEADER).map(header).collect::<Result<_>>()?,
        };
        Ok(Self {
            topic: topic.to_owned(),
            partition: (*partition).to_owned(),
            timestamp: (*timestamp).to_owned(),
            headers,
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        })
    }
}

fn header(text: &str) -> Result<(String, String)> {
    let (name, value) = text.split_once(':').context("a header without a colon")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Reads this many records from the beginning of a topic.
///
/// # Errors
/// The consumer fails, or there are fewer records.
pub(crate) fn read(kafka: &Kafka, topic: &str, count: usize) -> Result<Vec<Line>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let (bootstrap, count_text) = (kafka.bootstrap(), count.to_string());
    let bytes = "org.apache.kafka.common.serialization.BytesDeserializer";
    let properties = [
        "print.timestamp=true".to_owned(),
        "print.partition=true".to_owned(),
        "print.headers=true".to_owned(),
        "print.key=true".to_owned(),
        format!("key.separator={FIELD}"),
        format!("headers.separator={HEADER}"),
        format!("null.literal={NULL}"),
        format!("key.deserializer={bytes}"),
        format!("value.deserializer={bytes}"),
        format!("headers.deserializer={bytes}"),
    ];
    let mut arguments = vec!["--bootstrap-server", &bootstrap, "--topic", topic];
    arguments.extend(["--from-beginning", "--timeout-ms", "90000"]);
    arguments.extend(["--max-messages", &count_text]);
    for property in &properties {
        arguments.extend(["--formatter-property", property]);
    }
    let class = "org.apache.kafka.tools.consumer.ConsoleConsumer";
    let text = tokio::task::block_in_place(|| kafka.tool(class, &arguments))?;
    let lines = text.lines().map(|line| Line::parse(topic, line));
    let lines: Vec<Line> = lines.collect::<Result<_>>().context(topic.to_owned())?;
    ensure!(lines.len() == count, "{topic}: {} of {count}", lines.len());
    Ok(lines)
}

/// A text in the form that its bytes are printed in.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'\\' => out.push_str(r"\x5C"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02X}")),
        }
    }
    out
}

#[test]
fn a_line_of_the_consumer_is_taken_apart() -> Result<()> {
    let text = "CreateTime:5\tPartition:1\tid:a:b\u{2}n:\\null\t\\null\t{\"a\"\\x5Cx}";
    let line = Line::parse("t", text)?;
    ensure!(line.header("id") == "a:b" && line.header("n") == NULL);
    ensure!(line.key == NULL && line.value == "{\"a\"\\x5Cx}");
    ensure!(escaped("\\é~") == r"\x5C\xC3\xA9~");
    ensure!(line.timestamp == "CreateTime:5" && line.partition == "Partition:1");
    ensure!(
        Line::parse("t", "CreateTime:5\tPartition:1\tNO_HEADERS\tk\tv")?
            .headers
            .is_empty()
    );
    Ok(())
}
