//! Secrets in no output: passwords set wherever there is a place for one, everything printed at the most verbose level.

use std::path::Path;

use anyhow::{Result, ensure};
use e2e::connector::{Connector, binary};
use e2e::fixture::{Fixture, PASSWORD, SOON};
use xtask::scratch::Scratch;

/// One for each place; none is part of another or of a name.
const KAFKA_PASSWORD: &str = "kafka-pw-7421";
const KAFKA_FILE_PASSWORD: &str = "kafka-file-pw-9913";
const KEY_PASSWORD: &str = "key-pw-5530";
const ENVIRONMENT_PASSWORD: &str = "environment-pw-6152";
const TOKEN: &str = "token-pw-8847";

fn is_clean(place: &str, text: &str) -> Result<()> {
    let secrets = [
        PASSWORD,
        KAFKA_PASSWORD,
        KAFKA_FILE_PASSWORD,
        KEY_PASSWORD,
        ENVIRONMENT_PASSWORD,
        TOKEN,
    ];
    for secret in secrets {
        // librdkafka and the log may escape or encode: the plain form and the usual base64 one.
        let found = text.lines().find(|line| line.contains(secret));
        ensure!(found.is_none(), "{secret} in {place}: {found:?}");
    }
    Ok(())
}

async fn command(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = tokio::process::Command::new(binary()?)
        .args(arguments)
        .current_dir(folder)
        .env("PGPASSWORD", ENVIRONMENT_PASSWORD)
        .env("RUST_BACKTRACE", "full")
        .output()
        .await?;
    Ok(format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_anything_that_is_printed_at_the_most_verbose_level() -> Result<()> {
    let fixture = Fixture::new("secrets").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let folder = Scratch::new("secrets")?;
    let file = folder.path().join("kafka-password");
    std::fs::write(&file, KAFKA_FILE_PASSWORD)?;
    let files = format!(
        "{{ \"ssl.keystore.password\" = {} }}",
        e2e::config::quoted(&file.to_string_lossy())
    );
    let config = fixture
        .config()
        // Given and not used, since the broker asks for nothing; the client knows and logs them all the same.
        .with_kafka("sasl.username", "relay")
        .with_kafka("sasl.password", KAFKA_PASSWORD)
        .with_kafka("ssl.key.password", KEY_PASSWORD)
        .with("kafka.properties_files", files)
        .with_kafka("debug", "all")
        .with_text("log.level", "trace");
    let environment = [
        ("PGPASSWORD", ENVIRONMENT_PASSWORD),
        ("RUST_BACKTRACE", "full"),
    ];
    let connector = Connector::start_with(&config, &[], &environment)?;
    connector.ready().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    // A reconnect, and a stop, have their own words.
    let slot = fixture.watch_slot().await?;
    let walsender = slot.terminate_walsender().await?;
    slot.has_another_walsender(walsender, SOON).await?;
    for page in ["/metrics", "/readyz", "/healthz"] {
        is_clean(page, &connector.get(page).await?.body)?;
    }
    slot.catches_up(SOON).await?;
    connector.stop().await?;
    let log = connector.log();
    ensure!(
        log.lines().any(|line| line.contains("TRACE")),
        "no trace in it"
    );
    ensure!(
        log.contains("rdkafka") || log.contains("\"kafka\""),
        "no client in it"
    );
    is_clean("the log", &log)?;
    refusals_are_clean(&fixture, folder.path(), &config.render()).await
}

/// What ends a process, and the commands that print a configuration.
async fn refusals_are_clean(fixture: &Fixture, folder: &Path, text: &str) -> Result<()> {
    std::fs::write(folder.join("whole.toml"), text)?;
    // Each error where a secret stands, or right after it.
    for (name, from, to) in [
        (
            "syntax.toml",
            "kafka.properties.\"sasl.password\" = ",
            "kafka.properties.\"sasl.password\" = = ",
        ),
        ("property.toml", "\"sasl.password\"", "\"sasl.pasword\""),
        ("type.toml", "source.url = ", "source.urll = "),
        ("keyword.toml", "postgres://", "postgres:/"),
        ("refused.toml", &fixture.database, "nowhere"),
    ] {
        ensure!(text.contains(from), "{name}: no {from}");
        std::fs::write(folder.join(name), text.replace(from, to))?;
        let said = command(folder, &["check", "-c", name]).await?;
        ensure!(said.contains("PH0"), "{name}: {said}");
        is_clean(name, &said)?;
        is_clean(name, &command(folder, &["run", "-c", name]).await?)?;
    }
    is_clean(
        "config",
        &command(folder, &["config", "-c", "whole.toml"]).await?,
    )?;
    // Commands that sign in to both sides; most have nothing to do here, and all have something to say.
    for arguments in [
        &["check"][..],
        &["parked", "list"],
        &["parked", "discard", "--all"],
        &["skip", "--event", "none"],
        &["reconcile", "--all"],
        &["diff", "--all"],
        &["debezium", "takeover"],
        &["debezium", "check"],
    ] {
        let mut all = arguments.to_vec();
        all.extend(["-c", "whole.toml"]);
        let said = command(folder, &all).await?;
        ensure!(!said.is_empty(), "{arguments:?} says nothing");
        is_clean(&arguments.join(" "), &said)?;
    }
    let token = text.replace(PASSWORD, "").replace(":@127", "@127")
        + &format!(
            "source.token_command = [\"/bin/sh\", \"-c\", \"echo {TOKEN}; echo {TOKEN} >&2; exit 1\"]\n"
        );
    std::fs::write(folder.join("token.toml"), token)?;
    let said = command(folder, &["run", "--fail-fast", "-c", "token.toml"]).await?;
    ensure!(said.contains("PH0216"), "{said}");
    is_clean("a token command that fails", &said)
}
