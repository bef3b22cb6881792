//! Stored offsets, from the forms in which people get hold of them.

use pgoutput::Lsn;
use serde_json::{Map, Value};

use crate::offset::StoredOffset;
use crate::offset_file::{is_java, pairs};

/// A text that holds no offset for this connector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OffsetError {
    /// The text has none of the forms that are read.
    #[error(
        "the stored offset cannot be read: {what}; give Connect's answer to GET /connectors/NAME/offsets, the \
            lines of the offsets topic as KEY<tab>VALUE, or the offset's JSON object alone"
    )]
    Form {
        /// What is wrong.
        what: String,
    },
    /// It is in order, and about others.
    #[error(
        "there is no offset of this connector (name `{name}`, topic.prefix `{prefix}`); found were those of {found}"
    )]
    NotFound {
        /// The connector's name.
        name: String,
        /// `topic.prefix`.
        prefix: String,
        /// What there is.
        found: String,
    },
    /// It was there and has been deleted.
    #[error(
        "the offset of this connector has been deleted, so that its position is not known; start with what the \
            slot has, or find out what was published from the topics"
    )]
    Deleted,
}

/// The offset of the connector `name` with the prefix `prefix`. Of several the last one counts, as in a topic.
///
/// Read are: Connect's answer to `GET /connectors/NAME/offsets`; lines `KEY<tab>VALUE` of the offsets topic, as
/// `kafka-console-consumer` prints them; an object or list of such keys and values; and an offset's own object.
///
/// # Errors
/// See [`OffsetError`].
pub fn read(text: &str, name: &str, prefix: &str) -> Result<StoredOffset, OffsetError> {
    let stored = match serde_json::from_str::<Value>(text) {
        Ok(value) => from_value(value)?,
        Err(_) => from_lines(text)?,
    };
    newest(stored, name, prefix)
}

fn newest(stored: Vec<Entry>, name: &str, prefix: &str) -> Result<StoredOffset, OffsetError> {
    let mut log = OffsetLog::new(name, prefix);
    for entry in stored {
        log.take(entry);
    }
    log.finish()
}

/// The offsets topic as it is read: of each connector's offsets the last one counts. Remembers one.
#[derive(Debug, Clone)]
pub struct OffsetLog {
    name: String,
    prefix: String,
    last: Option<Value>,
    matches: u64,
    /// Whose offsets were found instead.
    others: Vec<String>,
}

impl OffsetLog {
    /// Nothing read yet; the offset of the connector `name` with the prefix `prefix` is looked for.
    #[must_use]
    pub fn new(name: &str, prefix: &str) -> Self {
        Self {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
            last: None,
            matches: 0,
            others: Vec::new(),
        }
    }

    /// The next record of the topic.
    ///
    /// # Errors
    /// The key is not one that Connect writes, or the value of this connector's is no offset.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), OffsetError> {
        let key = serde_json::from_slice(key).map_err(|_| form("a key is no JSON"))?;
        let mut entry = keyed(key, Value::Null)?;
        if let Some(value) = value.filter(|_| entry.is_of(&self.name, &self.prefix)) {
            entry.offset = serde_json::from_slice(value)
                .map_err(|_| form("the value of this connector's key is no JSON"))?;
        }
        self.take(entry);
        Ok(())
    }

    /// How many records were this connector's.
    #[must_use]
    pub fn matches(&self) -> u64 {
        self.matches
    }

    /// The last offset of this connector.
    ///
    /// # Errors
    /// There is none, or it has been deleted.
    pub fn finish(self) -> Result<StoredOffset, OffsetError> {
        match self.last {
            Some(Value::Object(offset)) => offset_of(&offset),
            Some(_) => Err(OffsetError::Deleted),
            None => Err(OffsetError::NotFound {
                name: self.name,
                prefix: self.prefix,
                found: if self.others.is_empty() {
                    "no connector".to_owned()
                } else {
                    self.others.join(", ")
                },
            }),
        }
    }

    fn take(&mut self, entry: Entry) {
        if entry.is_of(&self.name, &self.prefix) {
            self.last = Some(entry.offset);
            self.matches += 1;
            return;
        }
        let other = entry.shown();
        if self.others.len() < OTHERS_MAX && !self.others.contains(&other) {
            self.others.push(other);
        }
    }
}

/// Other connectors that a message names.
const OTHERS_MAX: usize = 20;

/// The same, of a file as it is: text, or the file of offsets of a standalone worker or of Debezium Server.
///
/// # Errors
/// See [`OffsetError`].
pub fn read_bytes(bytes: &[u8], name: &str, prefix: &str) -> Result<StoredOffset, OffsetError> {
    if !is_java(bytes) {
        let text = std::str::from_utf8(bytes);
        return read(text.map_err(|_| form("it is no text"))?, name, prefix);
    }
    let pairs = pairs(bytes)
        .ok_or_else(|| form("Java's file of offsets is cut short, or of another kind"))?;
    let json = |bytes: &[u8]| {
        serde_json::from_slice::<Value>(bytes).map_err(|_| form("a key or value inside is no JSON"))
    };
    let mut entries = Vec::new();
    for (key, value) in pairs {
        let value = value.map_or(Ok(Value::Null), |value| json(&value))?;
        entries.push(keyed(json(&key)?, value)?);
    }
    newest(entries, name, prefix)
}

struct Entry {
    /// `None` where the text does not say, as in an answer about one connector.
    name: Option<String>,
    prefix: Option<String>,
    offset: Value,
}

impl Entry {
    fn is_of(&self, name: &str, prefix: &str) -> bool {
        let same =
            |said: &Option<String>, asked: &str| said.as_deref().is_none_or(|said| said == asked);
        same(&self.prefix, prefix) && (name.is_empty() || same(&self.name, name))
    }
}

impl Entry {
    fn shown(&self) -> String {
        let name = self.name.as_deref().unwrap_or("a connector");
        let prefix = self.prefix.as_deref().unwrap_or_default();
        match prefix {
            "" => format!("{name} (no server's)"),
            _ => format!("{name} (topic.prefix {prefix})"),
        }
    }
}

fn form(what: &str) -> OffsetError {
    OffsetError::Form {
        what: what.to_owned(),
    }
}

fn from_value(value: Value) -> Result<Vec<Entry>, OffsetError> {
    match value {
        Value::Object(object) => from_object(object),
        Value::Array(items) => {
            let pair = |item: Value| match item {
                Value::Object(mut item) => keyed(
                    item.remove("key").unwrap_or_default(),
                    item.remove("value").unwrap_or_default(),
                ),
                _ => Err(form(
                    "the list holds something else than objects with key and value",
                )),
            };
            items.into_iter().map(pair).collect()
        }
        _ => Err(form("it is neither an object nor a list")),
    }
}

fn from_object(mut object: Map<String, Value>) -> Result<Vec<Entry>, OffsetError> {
    if let Some(Value::Array(offsets)) = object.remove("offsets") {
        return offsets.into_iter().map(answered).collect();
    }
    if ["lsn", "lsn_proc", "lsn_commit"]
        .iter()
        .any(|key| object.contains_key(*key))
    {
        return Ok(vec![Entry {
            name: None,
            prefix: None,
            offset: Value::Object(object),
        }]);
    }
    if object.is_empty() {
        return Ok(Vec::new());
    }
    object
        .into_iter()
        .map(|(key, value)| keyed(Value::String(key), value))
        .collect()
}

/// `{"partition":{"server":…},"offset":{…}}`
fn answered(value: Value) -> Result<Entry, OffsetError> {
    let Value::Object(mut item) = value else {
        return Err(form("`offsets` holds something else than objects"));
    };
    let prefix = item
        .get("partition")
        .and_then(|partition| partition.get("server"))
        .and_then(Value::as_str);
    Ok(Entry {
        name: None,
        prefix: prefix.map(str::to_owned),
        offset: item.remove("offset").unwrap_or_default(),
    })
}

/// Lines of the topic. The key ends where the text that is JSON does.
fn from_lines(text: &str) -> Result<Vec<Entry>, OffsetError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut entries = Vec::new();
    for line in lines {
        let mut values = serde_json::Deserializer::from_str(line).into_iter::<Value>();
        let Some(Ok(key)) = values.next() else {
            return Err(form("a line does not begin with a key in JSON"));
        };
        let rest = line
            .get(values.byte_offset()..)
            .unwrap_or_default()
            .trim_start_matches(['\t', ' ', '|', ':', ',', '=']);
        let value = match rest {
            "" | "null" => Value::Null,
            rest => serde_json::from_str(rest).map_err(|_| form("a line's value is no JSON"))?,
        };
        entries.push(keyed(key, value)?);
    }
    match entries.is_empty() {
        true => Err(form("it is empty")),
        false => Ok(entries),
    }
}

/// A key `["name",{"server":"prefix"}]`, which may itself be a text, and so may the value.
fn keyed(key: Value, value: Value) -> Result<Entry, OffsetError> {
    let unpack = |value: Value| match value {
        Value::String(text) => {
            serde_json::from_str(&text).map_err(|_| form("a text inside is no JSON"))
        }
        other => Ok(other),
    };
    let key = unpack(key)?;
    let name = key.get(0).and_then(Value::as_str).map(str::to_owned);
    let prefix = key
        .get(1)
        .and_then(|partition| partition.get("server"))
        .and_then(Value::as_str)
        .map(str::to_owned);
    if name.is_none() {
        return Err(form(
            "a key is not written [\"NAME\",{\"server\":\"PREFIX\"}]",
        ));
    }
    Ok(Entry {
        name,
        // Keys of other kinds of connector have no server and are nobody's here.
        prefix: prefix.or_else(|| Some(String::new())),
        offset: unpack(value)?,
    })
}

fn offset_of(offset: &Map<String, Value>) -> Result<StoredOffset, OffsetError> {
    let open = |key: &str| {
        offset.get(key).is_some_and(|value| match value {
            Value::Bool(set) => *set,
            Value::String(text) => !text.eq_ignore_ascii_case("false") && !text.is_empty(),
            _ => false,
        })
    };
    let ended = open("snapshot_completed") || open("last_snapshot_record");
    Ok(StoredOffset {
        lsn: position(offset, "lsn")?,
        lsn_proc: position(offset, "lsn_proc")?,
        lsn_commit: position(offset, "lsn_commit")?,
        message_type: offset
            .get("messageType")
            .and_then(Value::as_str)
            .map(str::to_ascii_uppercase),
        // Transaction numbers of the server's 64-bit kind carry an epoch above the 32 bits that the stream has.
        transaction: number(offset, "txId")?.and_then(|id| u32::try_from(id & 0xffff_ffff).ok()),
        events_processed: number(offset, "lsn_events_processed")?
            .and_then(|count| u64::try_from(count).ok()),
        snapshot_open: open("snapshot") && !ended,
        incremental_snapshot_open: offset
            .keys()
            .any(|key| key == "incremental_snapshot_primary_key")
            && !offset
                .get("incremental_snapshot_primary_key")
                .is_none_or(Value::is_null),
    })
}

fn position(offset: &Map<String, Value>, key: &str) -> Result<Option<Lsn>, OffsetError> {
    // Positions are unsigned on the server and signed in Java; the bits are the same.
    let text = offset
        .get(key)
        .and_then(Value::as_str)
        .filter(|text| text.contains('/'));
    if let Some(text) = text {
        return text
            .parse()
            .map(Some)
            .map_err(|_| form(&format!("`{key}` is no position")));
    }
    Ok(number(offset, key)?.map(|number| Lsn::new(number.cast_unsigned())))
}

fn number(offset: &Map<String, Value>, key: &str) -> Result<Option<i64>, OffsetError> {
    match offset.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) if number.is_i64() => Ok(number.as_i64()),
        Some(Value::String(text)) => text
            .parse()
            .map(Some)
            .map_err(|_| form(&format!("`{key}` is no whole number"))),
        Some(_) => Err(form(&format!("`{key}` is no whole number"))),
    }
}
