//! The table of every configuration key: checks, defaults, messages and `docs/configuration.md` all come from it.

/// Tables that belong to one pipeline; they may also stand under `[[pipeline]]`.
pub(crate) const PIPELINE_TABLES: [&str; 6] =
    ["source", "router", "connect", "kafka", "poison", "retry"];

/// The table whose keys are the router's own affair: it is written in the file, and not overridden.
pub(crate) const OPAQUE_TABLE: &str = "connect";

/// Tables that belong to the process and stand at the top of the file only.
pub(crate) const PROCESS_TABLES: [&str; 3] = ["http", "state", "log"];

/// One key: where it stands, what it takes, what it is without being written, and what it means.
pub(crate) struct Key {
    pub(crate) table: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) preset: Preset,
    pub(crate) meaning: &'static str,
}

/// What a key takes. Bounds are written as in a file, so that messages and documentation can repeat them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Any text but an empty one.
    Text,
    /// A text that is never shown.
    Secret,
    /// A connection URL or keyword string; its password is never shown.
    Url,
    Path,
    /// A text with commas, or a list of texts.
    TextList,
    /// A port, a text of ports with commas, or a list of ports.
    Ports,
    Table,
    Tables,
    SlotName,
    /// A name as PostgreSQL allows it for objects other than slots.
    ObjectName,
    Flag,
    Duration {
        min: &'static str,
        max: &'static str,
    },
    Size {
        min: &'static str,
        max: &'static str,
    },
    Count {
        min: u64,
        max: u64,
    },
    Choice(&'static [&'static str]),
    Headers,
    Timestamp,
    Listen,
    LogLevel,
    /// A free table of librdkafka properties.
    Properties,
    /// A free table from librdkafka properties to files with their values.
    PropertyFiles,
}

/// What a key is when nobody wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Preset {
    /// It has to be written.
    Required,
    /// Nothing; the words say what that means.
    Absent(&'static str),
    /// This, in TOML.
    Value(&'static str),
    /// Something found out at start; the words say what.
    Computed(&'static str),
}

impl Key {
    /// `source.url`.
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.table, self.name)
    }

    /// `POSTHASTE__SOURCE__URL`.
    pub(crate) fn environment_name(&self) -> String {
        format!(
            "POSTHASTE__{}__{}",
            self.table.to_ascii_uppercase(),
            self.name.to_ascii_uppercase()
        )
    }
}

impl Kind {
    /// True if an override's text is taken as it is, without being read as a number, list or truth value.
    pub(crate) fn takes_text_only(self) -> bool {
        match self {
            Self::TextList
            | Self::Ports
            | Self::Tables
            | Self::Flag
            | Self::Count { .. }
            | Self::Headers
            | Self::Timestamp => false,
            Self::Text
            | Self::Secret
            | Self::Url
            | Self::Path
            | Self::Table
            | Self::SlotName
            | Self::ObjectName => true,
            Self::Duration { .. }
            | Self::Size { .. }
            | Self::Choice(_)
            | Self::Listen
            | Self::LogLevel => true,
            Self::Properties | Self::PropertyFiles => true,
        }
    }

    /// True for the tables whose keys are free.
    pub(crate) fn is_free_table(self) -> bool {
        matches!(self, Self::Properties | Self::PropertyFiles)
    }

    /// What a message says is needed.
    pub(crate) fn needed(self) -> String {
        match self {
            Self::Text | Self::Secret => "a text that is not empty".to_owned(),
            Self::Url => {
                "a URL postgres://user@host/database, or keywords host=… dbname=…".to_owned()
            }
            Self::Path => "a path as text".to_owned(),
            Self::TextList => {
                "a text with commas, or a list of texts, none of them empty".to_owned()
            }
            Self::Ports => "a port from 1 to 65535, or a list with one for each host".to_owned(),
            Self::Table => "a table name as SQL writes it, with or without its schema".to_owned(),
            Self::Tables => {
                "a list of table names as SQL writes them, with or without their schema".to_owned()
            }
            Self::SlotName => {
                "lower-case letters, digits and underscores, 1 to 63 of them".to_owned()
            }
            Self::ObjectName => "a name of 1 to 63 bytes, written without quotes".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Duration { min, max } => {
                format!("a duration from {min} to {max}, as text with a unit (h, m, s, ms)")
            }
            Self::Size { min, max } => {
                format!("a size from {min} to {max}, as text with a unit (B, KiB, MiB, GiB)")
            }
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Choice(words) => format!("one of: {}", words.join(", ")),
            Self::Headers => {
                "a list; each entry a column name, or { column = …, name = …, optional = … }"
                    .to_owned()
            }
            Self::Timestamp => "\"commit\", \"now\", or { column = … }".to_owned(),
            Self::Listen => "an IP address with a port, or off".to_owned(),
            Self::LogLevel => {
                "error, warn, info, debug, trace or off, or a list target=level,…".to_owned()
            }
            Self::Properties => "a table of librdkafka properties".to_owned(),
            Self::PropertyFiles => "a table from librdkafka properties to file paths".to_owned(),
        }
    }

    /// A value that is right, for the fix of a message.
    pub(crate) fn example(self) -> String {
        let example = match self {
            Self::Text => "\"text\"",
            Self::Secret => "\"…\"",
            Self::Url => "\"postgres://posthaste@db.example.com/orders\"",
            Self::Path => "\"/etc/posthaste/file\"",
            Self::TextList => "\"a.example.com,b.example.com\"",
            Self::Ports => "5432",
            Self::Table => "\"public.outbox\"",
            Self::Tables => "[\"public.outbox\"]",
            Self::SlotName | Self::ObjectName => "\"outbox\"",
            Self::Flag => "true",
            Self::Duration { .. } => "\"10s\"",
            Self::Size { .. } => "\"64MiB\"",
            Self::Count { .. } => "1000",
            Self::Choice(words) => {
                return format!("\"{}\"", words.last().copied().unwrap_or_default());
            }
            Self::Headers => "[\"type\", { column = \"trace_id\", optional = true }]",
            Self::Timestamp => "{ column = \"created_at\" }",
            Self::Listen => "\"127.0.0.1:9187\"",
            Self::LogLevel => "\"info\"",
            Self::Properties => "{ \"security.protocol\" = \"SSL\" }",
            Self::PropertyFiles => "{ \"sasl.password\" = \"/run/secrets/kafka\" }",
        };
        example.to_owned()
    }
}

/// The key called `name` in `table`.
pub(crate) fn key(table: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter()
        .find(|key| key.table == table && key.name == name)
}

/// All keys of one table, in the order of the documentation.
pub(crate) fn keys_of(table: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.table == table)
}

const fn entry(
    table: &'static str,
    name: &'static str,
    kind: Kind,
    preset: Preset,
    meaning: &'static str,
) -> Key {
    Key {
        table,
        name,
        kind,
        preset,
        meaning,
    }
}

/// Every key there is.
#[rustfmt::skip] // One key per entry reads as the table it is.
pub(crate) const KEYS: &[Key] = &[
    entry("source", "url", Kind::Url, Preset::Absent("none; then `source.host` or libpq's `PGHOST`"),
        "PostgreSQL, as a URL or keyword string of libpq. Excludes `host` and `port`; the other connection keys may stand beside it where the URL does not say the same."),
    entry("source", "host", Kind::TextList, Preset::Absent("`PGHOST`"),
        "Host names, IP addresses or, beginning with `/`, folders of unix sockets; several are tried in their order."),
    entry("source", "port", Kind::Ports, Preset::Absent("`PGPORT`, else 5432"),
        "Port of all hosts, or one for each."),
    entry("source", "user", Kind::Text, Preset::Absent("`PGUSER`, else the name of the operating system's user"),
        "Role with the REPLICATION attribute."),
    entry("source", "password", Kind::Secret, Preset::Absent("`PGPASSWORD`, else the password file of libpq"),
        "Password. Better kept in `password_file` or the environment than in the configuration file."),
    entry("source", "password_file", Kind::Path, Preset::Absent("none"),
        "File with the password alone, read at every connect; one line break at its end is left out."),
    entry("source", "token_command", Kind::TextList, Preset::Absent("none"),
        "Program and arguments of a command that prints the password, such as `[\"aws\", \"rds\", \"generate-db-auth-token\", …]`; run at every connect, without a shell, for 20 s and 64 KiB at most."),
    entry("source", "passfile", Kind::Path, Preset::Absent("`PGPASSFILE`, else `~/.pgpass`"),
        "Password file in libpq's format `host:port:database:user:password`."),
    entry("source", "dbname", Kind::Text, Preset::Absent("`PGDATABASE`, else the user's name"),
        "Database with the outbox."),
    entry("source", "sslmode", Kind::Choice(&["disable", "prefer", "require", "verify-ca", "verify-full"]), Preset::Absent("`PGSSLMODE`, else `prefer`"),
        "Whether TLS is used and what is checked, as in libpq. Only `verify-full` checks the certificate and the host name."),
    entry("source", "sslrootcert", Kind::Path, Preset::Absent("`PGSSLROOTCERT`"),
        "PEM file of the certificate authorities to trust; `system` for those of the operating system."),
    entry("source", "sslcert", Kind::Path, Preset::Absent("`PGSSLCERT`"),
        "PEM file with the client certificate."),
    entry("source", "sslkey", Kind::Path, Preset::Absent("`PGSSLKEY`"),
        "PEM file with the key of the client certificate."),
    entry("source", "application_name", Kind::Text, Preset::Absent("`PGAPPNAME`, else `posthaste-` and the pipeline's name"),
        "Name shown in `pg_stat_activity` and `pg_stat_replication`."),
    entry("source", "connect_timeout", Kind::Duration { min: "1s", max: "10m" }, Preset::Absent("`PGCONNECT_TIMEOUT`, else `10s`"),
        "Longest time for one attempt to connect to one host."),
    entry("source", "slot", Kind::SlotName, Preset::Required,
        "Logical replication slot with the plugin pgoutput."),
    entry("source", "publication", Kind::ObjectName, Preset::Required,
        "Publication that contains the outbox table, exactly as it is called: no folding to lower case, no quotes."),
    entry("source", "tables", Kind::Tables, Preset::Required,
        "Outbox tables; beside `[connect]` not required, as its filters may say which. They are written as in SQL: `outbox` is `public.outbox`; names with other characters than `a-z 0-9 _` in double quotes."),
    entry("source", "table", Kind::Table, Preset::Absent("none"),
        "Short form of `tables` for one table."),
    entry("source", "create", Kind::Flag, Preset::Value("false"),
        "Create publication (`publish = 'insert'`, these tables only) and slot at start, where they are missing."),
    entry("source", "failover", Kind::Flag, Preset::Value("false"),
        "Create the slot as a failover slot, which standbys with `sync_replication_slots` keep in step; PostgreSQL 17 or later."),
    entry("source", "status_interval", Kind::Duration { min: "100ms", max: "10m" }, Preset::Value("\"10s\""),
        "Longest time between two status updates to the server. Keep it well below the server's `wal_sender_timeout`."),
    entry("source", "frame_bytes_max", Kind::Size { min: "8KiB", max: "1GiB" }, Preset::Value("\"64MiB\""),
        "Largest row read from the stream. A larger one is not kept in memory: it is a poison event, PH0402."),

    entry("router", "id", Kind::ObjectName, Preset::Value("\"id\""),
        "Column with the event's id; becomes the header `id`."),
    entry("router", "aggregate_type", Kind::ObjectName, Preset::Value("\"aggregatetype\""),
        "Column that the topic is made from."),
    entry("router", "aggregate_id", Kind::ObjectName, Preset::Value("\"aggregateid\""),
        "Column that becomes the record's key."),
    entry("router", "payload", Kind::ObjectName, Preset::Value("\"payload\""),
        "Column that becomes the record's value: text as it is, bytea as its bytes, NULL as a null value."),
    entry("router", "topic", Kind::Text, Preset::Value("\"outbox.event.{aggregatetype}\""),
        "Topic name; `{aggregatetype}` stands for the value of the `aggregate_type` column, `{schema}` and `{table}` for the table's name."),
    entry("router", "headers", Kind::Headers, Preset::Value("[]"),
        "Further columns as headers, in this order: `\"type\"`, or `{ column = \"type\", name = \"eventType\", optional = true }`. An optional column may be missing in the table."),
    entry("router", "timestamp", Kind::Timestamp, Preset::Value("\"commit\""),
        "The record's timestamp: `\"commit\"` (commit time of the transaction), `\"now\"` (time of sending) or `{ column = \"created_at\" }`."),
    entry("router", "partition", Kind::ObjectName, Preset::Absent("none; then the key's murmur2 hash decides, as in Java clients"),
        "Column with the number of the partition."),

    entry("kafka", "brokers", Kind::TextList, Preset::Required,
        "Bootstrap brokers `host:port`, with commas or as a list."),
    entry("kafka", "client_id", Kind::Text, Preset::Computed("`posthaste-` and the pipeline's name"),
        "Name in the broker's logs, metrics and quotas."),
    entry("kafka", "in_flight_records_max", Kind::Count { min: 1, max: 10_000_000 }, Preset::Value("20000"),
        "Most records handed to Kafka and not acknowledged. At this limit reading from PostgreSQL pauses; status updates go on."),
    entry("kafka", "in_flight_bytes_max", Kind::Size { min: "64KiB", max: "4GiB" }, Preset::Value("\"16MiB\""),
        "Most bytes handed to Kafka and not acknowledged. A record larger than this is sent alone."),
    entry("kafka", "drain_timeout", Kind::Duration { min: "0s", max: "1h" }, Preset::Value("\"10s\""),
        "Longest wait for acknowledgements after a stop signal; then the process ends with status 4 and the rest stays unconfirmed."),
    entry("kafka", "delivery", Kind::Choice(&["at-least-once", "exactly-once"]), Preset::Value("\"at-least-once\""),
        "`exactly-once` writes events and the position behind them in Kafka transactions: a consumer with `isolation.level=read_committed` sees each event once. See delivery-guarantee.md."),
    entry("kafka", "transactional_id", Kind::Text, Preset::Computed("`posthaste-`, the pipeline's name, `-` and the slot"),
        "With `exactly-once`: the producer's name. Only the newest producer of a name can write, so no two pipelines may share one."),
    entry("kafka", "transaction_timeout", Kind::Duration { min: "5s", max: "15m" }, Preset::Value("\"1m\""),
        "With `exactly-once`: after this time the brokers abort a transaction of a process that is gone, and consumers see what stands behind it. The brokers' `transaction.max.timeout.ms` bounds it."),
    entry("kafka", "transaction_interval", Kind::Duration { min: "1ms", max: "2s" }, Preset::Value("\"50ms\""),
        "With `exactly-once`: a transaction is committed when it is this old; sooner when it is full or nothing follows."),
    entry("kafka", "transaction_records_max", Kind::Count { min: 1, max: 10_000_000 }, Preset::Value("10000"),
        "With `exactly-once`: a transaction is committed when it has this many records."),
    entry("kafka", "transaction_bytes_max", Kind::Size { min: "64KiB", max: "4GiB" }, Preset::Value("\"8MiB\""),
        "With `exactly-once`: a transaction is committed when its records have this many bytes."),
    entry("kafka", "position_topic", Kind::Text, Preset::Computed("`posthaste.positions.` and the pipeline's name"),
        "With `exactly-once`: the topic that positions are kept in. It is made if it is missing: compacted, one partition."),
    entry("kafka", "position_replicas", Kind::Count { min: 1, max: 1_000 }, Preset::Absent("three, or as many as there are brokers, when it is made"),
        "With `exactly-once`: replicas of that topic. If this is set, a topic with fewer is refused."),
    entry("kafka", "properties", Kind::Properties, Preset::Value("{}"),
        "Properties handed to librdkafka, with or without quotes around their names. Those that would break the delivery guarantee are refused."),
    entry("kafka", "properties_files", Kind::PropertyFiles, Preset::Value("{}"),
        "Properties whose values are read from files at start, for secrets: `\"sasl.password\" = \"/run/secrets/kafka\"`."),

    entry("poison", "on_poison", Kind::Choice(&["halt", "park", "dead-letter-topic", "skip"]), Preset::Value("\"halt\""),
        "What is done with an event that can never be delivered as it is: stop in front of it; keep it, and what follows of its aggregate, in a table of the source database; send it to another topic; or pass it over. docs/operations.md says how to go on after each."),
    entry("poison", "dead_letter_topic", Kind::Text, Preset::Absent("none; required with `dead-letter-topic`"),
        "Topic of the dead letters. What it refuses stops the pipeline."),
    entry("poison", "dead_letter_bytes_max", Kind::Size { min: "1KiB", max: "1GiB" }, Preset::Value("\"900KiB\""),
        "Largest dead letter; of a larger event the payload is left out, and a header says how large it was. Keep it below the `max.message.bytes` of the topic and the client's `message.max.bytes`."),
    entry("poison", "schema", Kind::ObjectName, Preset::Value("\"posthaste\""),
        "Schema of the tables `parked` and `skipped`, as `sql/004_poison.sql` makes them. Rows of this schema are never events."),
    entry("poison", "parked_rows_max", Kind::Count { min: 1, max: 100_000_000 }, Preset::Value("100000"),
        "Most rows that wait in `parked`. At this limit it stops as with `halt`, PH0507."),
    entry("poison", "parked_bytes_max", Kind::Size { min: "64KiB", max: "1024GiB" }, Preset::Value("\"1GiB\""),
        "Most bytes that wait there."),

    entry("retry", "backoff_initial", Kind::Duration { min: "10ms", max: "1m" }, Preset::Value("\"500ms\""),
        "Wait before the second attempt; each further one is twice as long. Up to half of each wait is taken off by chance."),
    entry("retry", "backoff_max", Kind::Duration { min: "10ms", max: "1h" }, Preset::Value("\"12s\""),
        "Longest wait between two attempts."),

    entry("http", "listen", Kind::Listen, Preset::Value("\"127.0.0.1:9187\""),
        "Address of `/healthz`, `/readyz` and `/metrics`; `\"off\"` for none."),

    entry("state", "directory", Kind::Path, Preset::Computed("`$STATE_DIRECTORY` (set by systemd), else none"),
        "Folder for the file with the last confirmed position, and for what `posthaste debezium takeover` decided. It saves repeats after a restart of the server; without it nothing is lost."),

    entry("log", "format", Kind::Choice(&["auto", "text", "json"]), Preset::Value("\"auto\""),
        "`auto` is text on a terminal and JSON otherwise."),
    entry("log", "level", Kind::LogLevel, Preset::Value("\"info\""),
        "Least important level that is logged, or a list such as `info,replication=debug`."),
];

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Write;
    use std::path::Path;

    use super::*;
    use crate::config_units::{parse_duration, parse_size};

    /// Compares the part of a document between `<!-- begin NAME -->` and `<!-- end NAME -->` with `expected`;
    /// with `UPDATE_DOCS=1` in the environment it is rewritten instead.
    pub(crate) fn check_document(file: &str, name: &str, expected: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs")
            .join(file);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("docs/{file}: {error}"));
        let (begin, end) = (
            format!("<!-- begin {name} -->\n"),
            format!("<!-- end {name} -->"),
        );
        let (before, rest) = text
            .split_once(&begin)
            .unwrap_or_else(|| panic!("docs/{file} lacks {begin}"));
        let (written, after) = rest
            .split_once(&end)
            .unwrap_or_else(|| panic!("docs/{file} lacks {end}"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, format!("{before}{begin}{expected}{end}{after}"))
                .expect("document is written");
        } else {
            assert!(
                written == expected,
                "docs/{file} differs from the code: run the tests with UPDATE_DOCS=1 and read the diff"
            );
        }
    }

    fn type_and_bounds(kind: Kind) -> String {
        match kind {
            Kind::Text | Kind::Secret => "text".to_owned(),
            Kind::Url => "URL or keywords".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::TextList => "text with commas, or list".to_owned(),
            Kind::Ports => "number or list, 1 to 65535".to_owned(),
            Kind::Table => "table name".to_owned(),
            Kind::Tables => "list of table names".to_owned(),
            Kind::SlotName => "text of `a`–`z`, `0`–`9`, `_`, 1 to 63".to_owned(),
            Kind::ObjectName => "name, 1 to 63 bytes".to_owned(),
            Kind::Flag => "true or false".to_owned(),
            Kind::Duration { min, max } => format!("duration, {min} to {max}"),
            Kind::Size { min, max } => format!("size, {min} to {max}"),
            Kind::Count { min, max } => format!("number, {min} to {max}"),
            Kind::Choice(words) => words
                .iter()
                .map(|word| format!("`{word}`"))
                .collect::<Vec<_>>()
                .join(", "),
            Kind::Headers => "list".to_owned(),
            Kind::Timestamp => "text or table".to_owned(),
            Kind::Listen => "IP address with port, or `off`".to_owned(),
            Kind::LogLevel => "level or list of directives".to_owned(),
            Kind::Properties | Kind::PropertyFiles => "table".to_owned(),
        }
    }

    fn reference() -> String {
        let mut text = String::new();
        let tables = PIPELINE_TABLES.into_iter().chain(PROCESS_TABLES);
        for table in tables.filter(|table| *table != OPAQUE_TABLE) {
            writeln!(text, "\n### `[{table}]`\n\n| key | type and bounds | default | environment | meaning |\n|---|---|---|---|---|").expect("to a string");
            for key in keys_of(table) {
                let preset = match key.preset {
                    Preset::Required => "**required**".to_owned(),
                    Preset::Absent(words) | Preset::Computed(words) => words.to_owned(),
                    Preset::Value(value) => format!("`{value}`"),
                };
                let environment = if key.kind.is_free_table() {
                    format!("{}__…", key.environment_name())
                } else {
                    key.environment_name()
                };
                writeln!(
                    text,
                    "| `{}` | {} | {preset} | `{environment}` | {} |",
                    key.path(),
                    type_and_bounds(key.kind),
                    key.meaning
                )
                .expect("to a string");
            }
        }
        text
    }

    #[test]
    fn the_document_lists_every_key() {
        check_document("configuration.md", "keys", &reference());
    }

    #[test]
    fn every_key_stands_in_a_known_table_once() {
        for (at, entry) in KEYS.iter().enumerate() {
            assert!(
                PIPELINE_TABLES.contains(&entry.table) || PROCESS_TABLES.contains(&entry.table),
                "{}",
                entry.path()
            );
            assert!(
                KEYS[..at]
                    .iter()
                    .all(|earlier| earlier.path() != entry.path()),
                "{} twice",
                entry.path()
            );
            assert!(
                !entry.meaning.contains('|') && entry.meaning.ends_with('.'),
                "{}",
                entry.path()
            );
            assert!(
                !entry.name.contains("__"),
                "{}: two underscores mean nesting in the environment",
                entry.path()
            );
        }
    }

    #[test]
    fn bounds_and_defaults_are_well_formed() {
        for entry in KEYS {
            match entry.kind {
                Kind::Duration { min, max } => assert!(
                    parse_duration(min) < parse_duration(max),
                    "{}",
                    entry.path()
                ),
                Kind::Size { min, max } => {
                    assert!(parse_size(min) < parse_size(max), "{}", entry.path())
                }
                Kind::Count { min, max } => assert!(min < max, "{}", entry.path()),
                _ => {}
            }
            if let Preset::Value(text) = entry.preset {
                assert!(
                    text.parse::<toml::Value>().is_ok(),
                    "{}: {text}",
                    entry.path()
                );
            }
        }
    }
}
