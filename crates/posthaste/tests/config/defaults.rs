//! What the smallest file means, and that the printed configuration is a configuration.

use std::path::Path;
use std::time::Duration;

use posthaste::config::{Config, LogFormat};
use router::RouterConfig;

use super::{Case, SMALLEST};

#[test]
fn the_smallest_file_is_complete() {
    let config = Case::new(SMALLEST).config();
    assert_eq!(config.pipelines.len(), 1);
    let pipeline = &config.pipelines[0];
    assert_eq!(pipeline.name, "default");
    assert_eq!(pipeline.kafka.client_id, "posthaste-default");
    assert!(!pipeline.source.create);
    assert_eq!(pipeline.source.status_interval, Duration::from_secs(10));
    assert_eq!(pipeline.source.frame_bytes_max, 64 << 20);
    assert_eq!(pipeline.kafka.drain_timeout, Duration::from_secs(10));
    assert_eq!(config.http.listen, Some(([127, 0, 0, 1], 9187).into()));
    assert_eq!(config.state.directory, None);
    assert_eq!(
        (config.log.format, config.log.level.as_str()),
        (LogFormat::Auto, "info")
    );
}

#[test]
fn the_routers_defaults_are_the_routers_own() {
    let pipeline = Case::new(SMALLEST).config().pipelines.remove(0);
    let expected = RouterConfig {
        tables: pipeline.source.tables.clone(),
        ..RouterConfig::default()
    };
    assert_eq!(pipeline.router, expected);
}

#[test]
fn the_state_directory_comes_from_systemd() {
    let directory = |case: Case| case.config().state.directory;
    let case =
        || Case::new(SMALLEST).variable("STATE_DIRECTORY", "/var/lib/posthaste:/var/lib/other");
    assert_eq!(
        directory(case()).as_deref(),
        Some(Path::new("/var/lib/posthaste"))
    );
    assert_eq!(
        directory(case().set("state.directory=/srv")).as_deref(),
        Some(Path::new("/srv"))
    );
    assert_eq!(
        directory(Case::new(SMALLEST).variable("STATE_DIRECTORY", "")),
        None
    );
}

/// After an outage the stream has to be back within 15 s of the server accepting connections, with at most 20 attempts in an
/// outage of 90 s. Chance takes off up to half of each wait.
#[test]
fn the_waits_between_attempts_are_neither_too_long_nor_too_many() {
    let retry = Case::new(SMALLEST).config().pipelines.remove(0).retry;
    assert!(retry.backoff_max + Duration::from_secs(3) <= Duration::from_secs(15));
    let (mut attempts, mut passed, mut wait) = (1, Duration::ZERO, retry.backoff_initial);
    while passed <= Duration::from_secs(90) {
        attempts += 1;
        passed += wait / 2;
        wait = (wait * 2).min(retry.backoff_max);
    }
    assert!(attempts <= 20, "{attempts} attempts");
}

/// Prints, reads what was printed, and compares.
fn check_round_trip(case: &Case) -> Config {
    let printed = case.effective();
    let again = Case::new(&printed);
    let (first, second) = (
        case.config(),
        again
            .load()
            .unwrap_or_else(|problem| panic!("{problem}\n{printed}")),
    );
    assert_eq!(first, second, "{printed}");
    second
}

#[test]
fn the_printed_configuration_is_a_configuration() {
    check_round_trip(&Case::new(SMALLEST));
    let everything = r##"
[[pipeline]]
name = "orders-eu"
[pipeline.source]
host = ["a", "/run/postgresql"]
port = [1, 2]
user = "u\"#ser"
dbname = "d\nb"
sslmode = "verify-ca"
sslrootcert = "/ca"
sslcert = "/c"
sslkey = "/k"
passfile = "/p"
application_name = "x # y"
connect_timeout = "2s"
slot = "outbox"
publication = "a,b \"c\""
tables = ['"Sales-EU"."Out""box"', "other"]
create = true
status_interval = "1s500ms"
frame_bytes_max = "1MiB"
[pipeline.router]
id = "Id"
topic = "{schema}.{table}"
headers = ["type", { column = "a", name = "b", optional = true }]
timestamp = { column = "created_at" }
partition = "p"
[pipeline.kafka]
brokers = ["a:1", "b:2"]
client_id = "c"
in_flight_records_max = 5
in_flight_bytes_max = "1GiB"
drain_timeout = "0s"
[pipeline.kafka.properties]
security.protocol = "SSL"
"linger.ms" = 5
[pipeline.retry]
backoff_initial = "1s"
backoff_max = "1s"
[http]
listen = "[::1]:0"
[state]
directory = "/var/lib/post haste"
[log]
format = "json"
level = "info,replication=debug"
"##;
    let config = check_round_trip(&Case::new(everything));
    assert_eq!(config.pipelines[0].name, "orders-eu");
    check_round_trip(
        &Case::new(everything)
            .set("http.listen=off")
            .set("router.timestamp=commit"),
    );
}

#[test]
fn the_printed_configuration_says_where_values_come_from() {
    let case = Case::new(SMALLEST)
        .variable("POSTHASTE__SOURCE__CREATE", "true")
        .set("log.level=warn");
    let printed = case.effective();
    for line in [
        "slot = \"outbox\"  # line 4",
        "create = true  # environment variable POSTHASTE__SOURCE__CREATE",
        "level = \"warn\"  # --set log.level",
        "status_interval = \"10s\"  # default",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{printed}\nlacks {line}"
        );
    }
}
