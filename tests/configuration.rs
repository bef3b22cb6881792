//! The configuration as others script against it, and the log as others read it.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::config::Config;
use e2e::connector::{Connector, binary};
use e2e::fixture::{Fixture, PASSWORD, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_pipeline_carries_its_name_everywhere() -> Result<()> {
    let fixture = Fixture::new("named").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture
        .start_with(&fixture.config().in_pipeline("orders-eu"))
        .await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    let page = connector.get("/metrics").await?;
    ensure!(
        page.samples("posthaste_events_delivered_total")
            .all(|(labels, _)| labels.contains("pipeline=\"orders-eu\"")),
        "{}",
        page.body
    );
    ensure!(!page.body.contains("pipeline=\"default\""));
    let row = client
        .query_one(
            "SELECT application_name FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid
             WHERE slot_name = $1",
            &[&fixture.slot],
        )
        .await?;
    ensure!(row.try_get::<_, &str>(0)? == "posthaste-orders-eu");
    connector.stop().await?;
    // From the first line to the last one.
    for line in connector.log().lines() {
        ensure!(line.contains("\"pipeline\":\"orders-eu\""), "{line}");
    }
    let names: Vec<String> = std::fs::read_dir(fixture.state_directory())?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    ensure!(
        names.iter().all(|name| name.contains("orders-eu")) && !names.is_empty(),
        "state files: {names:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_effective_configuration_is_printed_without_secrets() -> Result<()> {
    let fixture = Fixture::bare("print").await?;
    let config = fixture
        .config()
        .with_kafka("security.protocol", "SASL_PLAINTEXT")
        .with_kafka("sasl.password", PASSWORD)
        .with_kafka("ssl.key.password", PASSWORD);
    let printed = print(&config)?;
    ensure!(!printed.contains(PASSWORD), "{printed}");
    ensure!(printed.contains(&fixture.slot) && printed.contains("********"));
    // What is printed is itself a configuration, of the same meaning.
    let again = print_file(&printed)?;
    let meaning = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.split("  #").next().unwrap_or(line).trim().to_owned())
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect()
    };
    ensure!(
        meaning(&printed) == meaning(&again),
        "printed:\n{printed}\nand again:\n{again}"
    );
    Ok(())
}

fn print(config: &Config) -> Result<String> {
    print_file(&config.render())
}

fn print_file(text: &str) -> Result<String> {
    let folder = xtask::scratch::Scratch::new("print")?;
    let file = folder.path().join("posthaste.toml");
    std::fs::write(&file, text)?;
    xtask::process::output(Command::new(binary()?).args(["config", "-c"]).arg(&file))
        .context("posthaste config")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn help_names_every_command_and_the_exit_codes() -> Result<()> {
    let help = |arguments: &[&str]| xtask::process::output(Command::new(binary()?).args(arguments));
    let page = help(&["--help"])?;
    for word in ["run", "config", "Exit"] {
        ensure!(page.contains(word), "no {word} in:\n{page}");
    }
    let page = help(&["run", "--help"])?;
    for word in ["-c", "--set", "--fail-fast", "--format", "drain limit"] {
        ensure!(page.contains(word), "no {word} in:\n{page}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_json_away_from_a_terminal_and_text_by_flag() -> Result<()> {
    let fixture = Fixture::new("log").await?;
    let automatic = fixture
        .start_with(&fixture.config().without("log.format"))
        .await?;
    automatic.stop().await?;
    for line in automatic.log().lines() {
        let object: serde_json::Value =
            serde_json::from_str(line).with_context(|| line.to_owned())?;
        for field in ["level", "message", "timestamp"] {
            ensure!(object.get(field).is_some(), "no {field} in {line}");
        }
    }
    let config = fixture.config().with_text("log.format", "text");
    let text = fixture.start_with(&config).await?;
    text.stop().await?;
    ensure!(text.log().lines().count() >= 2);
    ensure!(
        !text.log().contains('{') && !text.log().contains('\u{1b}'),
        "{}",
        text.log()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_line_is_written_for_an_event() -> Result<()> {
    let fixture = Fixture::new("silent").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let before = connector.log().lines().count();
    fixture
        .sql(
            "INSERT INTO outbox (aggregatetype, aggregateid)
             SELECT 'order', n FROM generate_series(1, 1000) n",
        )
        .await?;
    consumer.wait_for_records(1000, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    ensure!(
        connector.log().lines().count() == before,
        "{}",
        connector.log()
    );
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn properties_that_would_break_the_guarantee_are_refused_with_the_reason() -> Result<()> {
    let fixture = Fixture::bare("refused").await?;
    for (property, value) in [
        ("acks", "1"),
        ("enable.idempotence", "false"),
        ("message.timeout.ms", "5000"),
        ("delivery.timeout.ms", "5000"),
        ("max.in.flight.requests.per.connection", "6"),
        ("partitioner", "random"),
        ("bootstrap.servers", "elsewhere:9092"),
        ("transactional.id", "mine"),
    ] {
        let connector = Connector::start(&fixture.config().with_kafka(property, value))?;
        let code = connector.exit_code(SOON).await?;
        ensure!(code == 2, "{property}: exit code {code}");
        let told = connector.messages_with(&["PH0117: ", property]);
        ensure!(told.len() == 1, "{property}: {}", connector.log());
    }
    let connector = Connector::start(&fixture.config().with_kafka("linger.mss", "5"))?;
    ensure!(connector.exit_code(SOON).await? == 2);
    ensure!(
        connector.messages_with(&["PH0118: ", "linger.ms"]).len() == 1,
        "{}",
        connector.log()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_overridden_by_environment_and_by_set() -> Result<()> {
    let fixture = Fixture::new("override").await?;
    let config = fixture
        .config()
        .with_text("source.slot", "from_file")
        .with_text("source.publication", "from_file");
    let set = format!("source.slot={}", fixture.slot);
    let connector = Connector::start_with(
        &config,
        &["--set", &set],
        &[
            ("POSTHASTE__SOURCE__PUBLICATION", &fixture.publication),
            ("POSTHASTE__SOURCE__SLOT", "from_environment"),
        ],
    )?;
    connector.ready().await?;
    fixture.watch_slot().await?.walsender().await?;
    connector.stop().await
}
