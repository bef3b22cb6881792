//! From `database.*`, `slot.*` and `publication.*` to `[source]`.

use router::TableName;

use crate::classify::takes_no_snapshot_by_an_old_name;
use crate::finding::Verdict;
use crate::keys_connector::INITIAL;
use crate::native::{Autocreate, FirstStart, Secret, Source};
use crate::providers::list;
use crate::reader::{File, Reader};

/// Reads what a source needs; what is wrong or missing is refused, and stands in as something harmless.
pub(crate) fn source(reader: &mut Reader) -> Source {
    connector_class(reader);
    plugin(reader);
    skipped_operations(reader);
    let host = required(reader, "database.hostname", "the server's name");
    Source {
        host: list(&host),
        port: port(reader),
        user: required(reader, "database.user", "the role's name"),
        password: secret(reader, File::Connector, "database.password"),
        dbname: required(reader, "database.dbname", "the database's name"),
        sslmode: sslmode(reader),
        sslrootcert: reader.filled("database.sslrootcert").map(str::to_owned),
        sslcert: reader.filled("database.sslcert").map(str::to_owned),
        sslkey: sslkey(reader),
        slot: slot(reader),
        failover: reader.flag("slot.failover", false),
        publication: publication(reader),
        autocreate: autocreate(reader),
        publish_via_partition_root: reader.flag("publish.via.partition.root", false),
        tables: literal_tables(reader),
        first_start: first_start(reader),
        status_interval_ms: status_interval(reader),
        slot_may_lead: reader
            .filled("lsn.flush.mode")
            .is_some_and(|mode| mode.eq_ignore_ascii_case("connector_and_driver")),
    }
}

/// The value of a key that has to be there.
pub(crate) fn required(reader: &mut Reader, key: &str, what: &str) -> String {
    let value = reader.filled(key).map(str::to_owned);
    value.unwrap_or_else(|| {
        reader.say(
            key,
            Verdict::Refused,
            format!("is missing or empty; write {key} with {what}"),
        );
        String::new()
    })
}

pub(crate) fn secret(reader: &Reader, file: File, key: &str) -> Option<Secret> {
    reader.value(file, key).map(|value| value.secret())
}

fn connector_class(reader: &mut Reader) {
    const CLASS: &str = "io.debezium.connector.postgresql.PostgresConnector";
    let Some(class) = reader.filled("connector.class").map(str::to_owned) else {
        return reader.say(
            "connector.class",
            Verdict::Refused,
            format!("is missing; write {CLASS}. If this is a worker's file, give it with --worker"),
        );
    };
    if ![CLASS, "PostgresConnector", "Postgres"].contains(&class.as_str()) {
        reader.refuse(
            "connector.class",
            format!("is another connector; write {CLASS}, the only one that is read here"),
        );
    }
}

fn plugin(reader: &mut Reader) {
    if reader.get("plugin.name").is_none() {
        reader.say(
            "plugin.name",
            Verdict::Refused,
            "is not given, and Debezium's default is decoderbufs, whose slots cannot be read here; write \
                pgoutput if that is what the slot has (`select plugin from pg_replication_slots`), else move \
                over to a new slot as docs/migrate-from-debezium.md says",
        );
    }
}

fn skipped_operations(reader: &mut Reader) {
    const KEY: &str = "skipped.operations";
    let words = list(&reader.get(KEY).unwrap_or_default().to_ascii_lowercase());
    if words.iter().any(|word| word == "c") {
        reader.refuse(
            KEY,
            "skips inserts, so that Debezium publishes nothing; remove `c` from it",
        );
    } else if words
        .iter()
        .any(|word| !["u", "d", "t", "none"].contains(&word.as_str()))
    {
        reader.refuse(
            KEY,
            "has a word that is none of its own; write u, d and t with commas, or none",
        );
    }
}

fn port(reader: &mut Reader) -> u16 {
    let Some(text) = reader.get("database.port").map(str::to_owned) else {
        return 5432;
    };
    match text.parse() {
        Ok(port) if port > 0 => port,
        _ => {
            reader.refuse(
                "database.port",
                "is no port; write a number from 1 to 65535",
            );
            5432
        }
    }
}

fn sslmode(reader: &mut Reader) -> String {
    let mode = reader
        .filled("database.sslmode")
        .unwrap_or("prefer")
        .to_ascii_lowercase();
    match mode.as_str() {
        "disable" | "prefer" | "verify-ca" | "verify-full" => {}
        "require" if reader.filled("database.sslrootcert").is_some() => reader.warn(
            "database.sslmode",
            "with database.sslrootcert, require checks the certificate's authority, as libpq does; Debezium's \
                driver does not",
        ),
        "require" => {}
        "allow" => reader.refuse("database.sslmode", "is not known here; write prefer, which tries TLS first"),
        _ => reader.refuse("database.sslmode", "is none of its words; write disable, prefer, require, verify-ca \
            or verify-full"),
    }
    mode
}

/// Debezium's driver takes keys in forms that are not PEM. The name tells them: the contents are not looked at here.
fn sslkey(reader: &mut Reader) -> Option<String> {
    let path = reader.filled("database.sslkey")?.to_owned();
    let quoted = shell_word(&path);
    let lower = path.to_ascii_lowercase();
    if [".pk8", ".der"].iter().any(|end| lower.ends_with(end)) {
        reader.refuse(
            "database.sslkey",
            format!(
                "is a key in DER form by its name; make it PEM with `openssl \
            pkcs8 -inform DER -nocrypt -in {quoted} -out key.pem` and write the new file's name"
            ),
        );
    } else if [".p12", ".pfx"].iter().any(|end| lower.ends_with(end)) {
        reader.refuse("database.sslkey", format!("is a PKCS#12 store by its name; take the key out with `openssl \
            pkcs12 -in {quoted} -nocerts -nodes -out key.pem`, the certificate with `-clcerts -nokeys`, and \
            write the new files' names into database.sslkey and database.sslcert"));
    }
    Some(path)
}

/// A path as a word of a command line.
pub(crate) fn shell_word(path: &str) -> String {
    let plain = path
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    match plain {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

fn slot(reader: &mut Reader) -> String {
    let Some(name) = reader.get("slot.name").map(str::to_owned) else {
        reader.say(
            "slot.name",
            Verdict::Mapped,
            "source.slot = debezium, as the key is not given",
        );
        return "debezium".to_owned();
    };
    let legal = (1..=63).contains(&name.len())
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    if !legal {
        reader.refuse(
            "slot.name",
            "is no name of a slot; write 1 to 63 of a-z, 0-9 and _",
        );
    }
    name
}

fn publication(reader: &mut Reader) -> String {
    let Some(name) = reader.get("publication.name").map(str::to_owned) else {
        reader.say(
            "publication.name",
            Verdict::Mapped,
            "source.publication = dbz_publication, as the key is not given",
        );
        return "dbz_publication".to_owned();
    };
    if !(1..=63).contains(&name.len()) {
        reader.refuse(
            "publication.name",
            "is no name of a publication; write 1 to 63 bytes",
        );
    } else if name.chars().any(char::is_uppercase) {
        reader.warn(
            "publication.name",
            "has capitals, which Debezium loses when it creates a publication; the \
            name is taken exactly here, so look up how it is called in pg_publication",
        );
    }
    name
}

fn autocreate(reader: &mut Reader) -> Autocreate {
    match reader
        .get("publication.autocreate.mode")
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        Some("disabled") => Autocreate::Disabled,
        Some("filtered") => Autocreate::Filtered,
        Some("no_tables") => Autocreate::NoTables,
        Some(_) => Autocreate::AllTables,
        None => {
            reader.say(
                "publication.autocreate.mode",
                Verdict::Warned,
                "is not given, and Debezium's default is all_tables: an existing publication is used as it is. \
                    One for all tables is never created here; with --create it is made for the outbox tables \
                    alone",
            );
            Autocreate::AllTables
        }
    }
}

fn first_start(reader: &mut Reader) -> FirstStart {
    match reader
        .get("snapshot.mode")
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        Some("no_data") => FirstStart::NoData,
        Some(_) if takes_no_snapshot_by_an_old_name(reader) => FirstStart::NoData,
        Some(_) => FirstStart::Snapshot,
        None => {
            reader.say(
                "snapshot.mode",
                Verdict::Warned,
                format!("is not given, and Debezium's default is initial: {INITIAL}"),
            );
            FirstStart::Snapshot
        }
    }
}

/// The bounds are those of `[source] status_interval`.
fn status_interval(reader: &mut Reader) -> u32 {
    const KEY: &str = "status.update.interval.ms";
    let given = reader
        .get(KEY)
        .and_then(|text| text.parse::<i64>().ok())
        .unwrap_or(10_000);
    let within = given.clamp(100, 600_000);
    if within != given {
        reader.say(
            KEY,
            Verdict::Mapped,
            format!("source.status_interval, at the bound of {within} ms"),
        );
    }
    u32::try_from(within).unwrap_or(10_000)
}

/// The names in `table.include.list`, if each of its patterns can only mean one. A dot without a backslash is as good
/// as one with: no other character can stand between the two names.
fn literal_tables(reader: &Reader) -> Vec<TableName> {
    let patterns = list(reader.get("table.include.list").unwrap_or_default());
    let names: Option<Vec<_>> = patterns
        .iter()
        .map(|pattern| literal_table(pattern))
        .collect();
    names.unwrap_or_default()
}

fn literal_table(pattern: &str) -> Option<TableName> {
    let plain = pattern.replace("\\.", ".");
    let (schema, name) = plain.split_once('.')?;
    // Patterns do not tell capitals from small letters, and names do.
    let plain_char = |c: char| c.is_alphanumeric() && !c.is_uppercase() || c == '_' || c == '-';
    let literal = |part: &str| !part.is_empty() && part.chars().all(plain_char);
    (literal(schema) && literal(name)).then(|| TableName {
        schema: schema.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_can_mean_one_table_only_are_names() {
        for (pattern, expected) in [
            ("public.outbox", Some("public.outbox")),
            ("public\\.outbox_events", Some("public.outbox_events")),
            ("public.outbox.*", None),
            ("outbox", None),
            ("public.Outbox", None),
            ("(a|b).c", None),
            ("a.b.c", None),
        ] {
            let name = literal_table(pattern).map(|name| name.to_string());
            assert_eq!(name.as_deref(), expected, "{pattern}");
        }
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(shell_word("/a/b.p12"), "/a/b.p12");
        assert_eq!(shell_word("/a b'c"), r"'/a b'\''c'");
    }
}
