//! The connection ends under us: terminated, restarted, refused, frozen.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::arrival::all_arrive;
use e2e::checker::Repeats;
use e2e::connector::Connector;
use e2e::fixture::{Fixture, PASSWORD, SOON, connect};
use e2e::proxy::{Link, Proxy};
use e2e::scale;
use e2e::servers::Servers;
use e2e::wait;
use e2e::writer::Load;
use xtask::postgres::{PostgresOptions, StopMode};

/// B25: back within 15 s after the server accepts connections.
const BACK_WITHIN: Duration = Duration::from_secs(15);

/// One outage is one line when it begins and one when it ends, however many attempts lie between.
fn one_line_each(connector: &Connector, outages: usize) -> Result<()> {
    for word in ["\"lost: ", "\"resumed: "] {
        let lines = connector.lines_with(&[word]);
        ensure!(
            lines.len() == outages,
            "{outages} outages, but {} lines with {word}: {lines:#?}",
            lines.len()
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_a_a_terminated_walsender_is_replaced() -> Result<()> {
    let fixture = Fixture::new("b25_a").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let slot = fixture.watch_slot().await?;
    let load = Load::steady(50);
    let seed = load.seed;
    let load = load.start(&fixture).await?;
    consumer.wait_for_events(100, SOON).await?;
    for _ in 0..2 {
        let walsender = slot.terminate_walsender().await?;
        slot.has_another_walsender(walsender, BACK_WITHIN).await?;
        load.goes_on_for(50, SOON).await?;
    }
    let ledger = load.stop().await?;
    all_arrive(&fixture, &mut consumer, &ledger, Repeats::Reruns)
        .await
        .with_context(|| format!("seed {seed}"))?;
    ensure!(connector.is_ready().await);
    one_line_each(&connector, 2)?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_lost_connections_in_a_row_wear_nothing_out() -> Result<()> {
    let fixture = Fixture::new("ten_times").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture
        .config()
        .with_text("retry.backoff_initial", "50ms")
        .with_text("retry.backoff_max", "100ms");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    for n in 1..=10 {
        let walsender = slot.terminate_walsender().await?;
        slot.has_another_walsender(walsender, BACK_WITHIN).await?;
        fixture.insert(&client, n).await?;
        consumer
            .wait_for_records(usize::try_from(n)?, SOON)
            .await
            .with_context(|| format!("after {n} lost connections"))?;
        slot.catches_up(SOON).await?;
    }
    ensure!(consumer.read_to_end().await?.len() == 10);
    one_line_each(&connector, 10)?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_after_a_lost_connection_is_clean_and_quick() -> Result<()> {
    let fixture = Fixture::new("stop_after_loss").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    slot.catches_up(SOON).await?;
    slot.terminate_walsender().await?;
    connector.prints(&["\"resumed: "], SOON).await?;
    // Everything was confirmed before, so there is nothing to wait for.
    let told = Instant::now();
    connector.stop().await?;
    ensure!(
        told.elapsed() < Duration::from_secs(6),
        "{:?}",
        told.elapsed()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_b_all_backends_of_the_role_terminated_at_once() -> Result<()> {
    let fixture = Fixture::new("b25_b").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    client
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1",
            &[&fixture.role],
        )
        .await?;
    fixture.insert(&client, 2).await?;
    consumer.wait_for_records(2, BACK_WITHIN).await?;
    connector.ready().await?;
    // Event 1 was confirmed, so it does not come again.
    ensure!(consumer.read_to_end().await?.len() == 2);
    one_line_each(&connector, 1)?;
    connector.stop().await
}

async fn restart_under_load(name: &str, mode: StopMode, down: Duration) -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_postgres().await?, name).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let load = Load::steady(50);
    let seed = load.seed;
    let load = load.start(&fixture).await?;
    consumer.wait_for_events(100, SOON).await?;
    let postgres = &fixture.servers.postgres;
    tokio::task::block_in_place(|| postgres.stop(mode))?;
    wait::until_true(
        "/readyz to tell that it does not stream",
        SOON,
        async || Ok(!connector.is_ready().await),
    )
    .await?;
    wait::throughout("the process lives", down, async || {
        Ok(connector.get("/healthz").await?.status == 200)
    })
    .await?;
    tokio::task::block_in_place(|| postgres.start_again())?;
    let up = Instant::now();
    connector.ready().await?;
    ensure!(up.elapsed() < BACK_WITHIN, "back after {:?}", up.elapsed());
    load.goes_on_for(100, SOON).await?;
    let ledger = load.stop().await?;
    all_arrive(&fixture, &mut consumer, &ledger, Repeats::Reruns)
        .await
        .with_context(|| format!("seed {seed}"))?;
    one_line_each(&connector, 1)?;
    // Seen to be backing off: at most twenty tries in ninety seconds.
    let page = connector.get("/metrics").await?;
    let tries = page.metric("posthaste_retries_total", "target=\"postgres\"");
    ensure!((1.0..=20.0).contains(&tries), "{tries} tries");
    ensure!(page.metric("posthaste_reconnects_total", "target=\"postgres\"") > 0.5);
    ensure!(page.metric("posthaste_replication_lag_bytes", "") < 16.0 * 1024.0 * 1024.0);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_c_a_fast_restart_of_the_server() -> Result<()> {
    restart_under_load("b25_c", StopMode::Fast, Duration::ZERO).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_d_an_immediate_restart_of_the_server() -> Result<()> {
    restart_under_load("b25_d", StopMode::Immediate, Duration::ZERO).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_e_a_server_that_is_down_for_a_while() -> Result<()> {
    let down = Duration::from_secs(scale::pick(10, 90));
    restart_under_load("b25_e", StopMode::Fast, down).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_before_a_server_restart_does_not_come_again() -> Result<()> {
    let fixture = Fixture::on(Servers::with_fragile_postgres().await?, "restart_memory").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    // Only its memory holds the position: there is no state file.
    let connector = fixture
        .start_with(&fixture.config().without("state.directory"))
        .await?;
    let mut expected = 0;
    for mode in [StopMode::Fast, StopMode::Immediate] {
        let client = fixture.client().await?;
        for _ in 0..20 {
            expected += 1;
            fixture.insert(&client, expected).await?;
        }
        consumer
            .wait_for_records(usize::try_from(expected)?, SOON)
            .await?;
        fixture.watch_slot().await?.catches_up(SOON).await?;
        drop(client);
        let postgres = &fixture.servers.postgres;
        tokio::task::block_in_place(|| postgres.restart(mode))?;
        wait::until_true("another walsender", BACK_WITHIN, async || {
            let slot = fixture.watch_slot().await?;
            Ok(slot.state().await?.active_pid.is_some())
        })
        .await?;
        connector.ready().await?;
    }
    let client = fixture.client().await?;
    fixture.insert(&client, 999).await?;
    consumer
        .wait_for_records(usize::try_from(expected + 1)?, SOON)
        .await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let read = consumer.read_to_end().await?.len();
    ensure!(read == 41, "{read} records of 41 events");
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_f_a_server_without_a_free_connection_is_waited_for() -> Result<()> {
    let fixture = Fixture::new("b25_f").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let client = fixture.client().await?;
    client
        .batch_execute(&format!("ALTER ROLE {} CONNECTION LIMIT 0", fixture.role))
        .await?;
    let connector = Connector::start(&fixture.config())?;
    connector.prints(&["PH0208"], SOON).await?;
    ensure!(!connector.is_ready().await);
    client
        .batch_execute(&format!("ALTER ROLE {} CONNECTION LIMIT -1", fixture.role))
        .await?;
    connector.ready().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    // The same to a stream that runs, and is lost while no connection is left.
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    client
        .batch_execute(&format!(
            "ALTER ROLE {} CONNECTION LIMIT 0; SELECT pg_terminate_backend({walsender})",
            fixture.role
        ))
        .await?;
    wait::until_true("not ready", SOON, async || Ok(!connector.is_ready().await)).await?;
    fixture.insert(&client, 2).await?;
    let used_up_for = Duration::from_secs(scale::pick(3, 60));
    wait::throughout("alive and not ready", used_up_for, async || {
        Ok(connector.get("/healthz").await?.status == 200 && !connector.is_ready().await)
    })
    .await?;
    client
        .batch_execute(&format!("ALTER ROLE {} CONNECTION LIMIT -1", fixture.role))
        .await?;
    consumer.wait_for_records(2, BACK_WITHIN).await?;
    slot.catches_up(SOON).await?;
    ensure!(consumer.read_to_end().await?.len() == 2);
    one_line_each(&connector, 2)?;
    connector.stop().await
}

/// B25 f as it is told: other sessions use up `max_connections`, for a while, under a stream that runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b25_f_connections_used_up_by_others_are_waited_for() -> Result<()> {
    let servers = Servers::with_own_postgres(PostgresOptions {
        settings: [
            ("max_connections", "16"),
            ("superuser_reserved_connections", "8"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        ..PostgresOptions::default()
    })?;
    let fixture = Fixture::on(servers, "b25_f_all").await?;
    fixture
        .sql(&format!("CREATE ROLE greedy LOGIN PASSWORD '{PASSWORD}'"))
        .await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    let slot = fixture.watch_slot().await?;
    slot.catches_up(SOON).await?;
    let url = fixture
        .servers
        .postgres
        .url("greedy", Some(PASSWORD), &fixture.database);
    let mut greedy = Vec::new();
    let refusal = loop {
        match connect(&url).await {
            Ok(client) => greedy.push(client),
            Err(error) => break format!("{error:#}"),
        }
        ensure!(greedy.len() < 16, "there is always one more");
    };
    ensure!(refusal.contains("connection"), "{refusal}");
    let walsender = slot.walsender().await?;
    client
        .execute("SELECT pg_terminate_backend($1)", &[&walsender])
        .await?;
    connector.prints(&["lost: "], SOON).await?;
    wait::until_true("the refusal to be counted", SOON, async || {
        let page = connector.get("/metrics").await?;
        Ok(page.metric("posthaste_errors_total", "kind=\"PH0208\"") > 0.5)
    })
    .await?;
    fixture.insert(&client, 2).await?;
    let used_up_for = Duration::from_secs(scale::pick(3, 60));
    wait::throughout("alive and not ready", used_up_for, async || {
        Ok(connector.get("/healthz").await?.status == 200 && !connector.is_ready().await)
    })
    .await?;
    drop(greedy);
    consumer.wait_for_records(2, BACK_WITHIN).await?;
    connector.ready().await?;
    slot.catches_up(SOON).await?;
    ensure!(consumer.read_to_end().await?.len() == 2);
    one_line_each(&connector, 1)?;
    let tries = connector.metric("posthaste_retries_total").await?;
    ensure!((1.0..=20.0).contains(&tries), "{tries} tries");
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b26_a_a_frozen_walsender_is_noticed_and_left() -> Result<()> {
    let fixture = Fixture::new("b26_a").await?;
    fixture.set_sender_timeout(scale::pick("3s", "60s")).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 0).await?;
    consumer.wait_for_records(1, SOON).await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    signal(walsender, "STOP")?;
    for n in 1..=10 {
        fixture.insert(&client, n).await?;
    }
    let frozen = Instant::now();
    // At most twice `wal_sender_timeout`, and a little for a busy machine.
    let limit = Duration::from_secs(scale::pick(6 + 6, 120 + 6));
    let noticed =
        wait::until_true("not ready", limit, async || Ok(!connector.is_ready().await)).await;
    // It tries again; the frozen one still holds the slot, so all it can do is to stand by.
    let rest = Duration::from_secs(scale::pick(3, 300)).saturating_sub(frozen.elapsed());
    let stands_by = wait::throughout("it lives and does not stream", rest, async || {
        Ok(connector.get("/healthz").await?.status == 200 && !connector.is_active().await)
    })
    .await;
    signal(walsender, "CONT")?;
    noticed.with_context(|| format!("frozen for {:?}", frozen.elapsed()))?;
    stands_by?;
    consumer
        .wait_for_events(11, Duration::from_secs(30))
        .await?;
    connector.ready().await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    one_line_each(&connector, 1)?;
    connector.stop().await
}

/// B26 b: a firewall drops everything both ways; nobody hears of it, and the connector notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b26_b_a_link_that_drops_everything_is_noticed_and_left() -> Result<()> {
    let fixture = Fixture::new("b26_b").await?;
    fixture.set_sender_timeout(scale::pick("3s", "60s")).await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let port = xtask::scratch::free_port()?;
    let link = Proxy::start(port, fixture.servers.postgres.port()).await?;
    let config = fixture
        .config()
        .with_text("source.url", &through(&link, &fixture))
        .with_text("source.connect_timeout", "2s")
        .with_text("log.level", "debug");
    let connector = fixture.start_with(&config).await?;
    let client = fixture.client().await?;
    fixture.insert(&client, 0).await?;
    consumer.wait_for_records(1, SOON).await?;
    link.set(Link::Silent);
    for n in 1..=10 {
        fixture.insert(&client, n).await?;
    }
    // At most twice `wal_sender_timeout`, and a little for a busy machine.
    let limit = Duration::from_secs(scale::pick(6 + 6, 120 + 6));
    wait::until_true("not ready", limit, async || Ok(!connector.is_ready().await)).await?;
    // It tries, is not let through, and stays alive and not ready.
    connector.prints(&["still waiting", "PH0201"], SOON).await?;
    wait::throughout(
        "alive and not ready",
        Duration::from_secs(scale::pick(2, 180)),
        async || Ok(connector.get("/healthz").await?.status == 200 && !connector.is_ready().await),
    )
    .await?;
    ensure!(consumer.read_to_end().await?.len() == 1);
    link.set(Link::Open);
    connector.ready().await?;
    consumer
        .wait_for_events(11, Duration::from_secs(30))
        .await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    one_line_each(&connector, 1)?;
    connector.stop().await
}

/// While its bytes come, however slowly, the server is not silent: given up, the row would be sent again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_row_over_a_slow_link_arrives_on_the_same_connection() -> Result<()> {
    let fixture = Fixture::new("slow_row").await?;
    // A silence of five seconds, the least there is, ends a connection.
    fixture.set_sender_timeout("2s").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let port = xtask::scratch::free_port()?;
    let link = Proxy::start(port, fixture.servers.postgres.port()).await?;
    let config = fixture
        .config()
        .with_text("source.url", &through(&link, &fixture));
    let connector = fixture.start_with(&config).await?;
    connector.ready().await?;
    // 16 KiB each time.
    link.set(Link::Slow(Duration::from_millis(200)));
    let client = fixture.client().await?;
    client
        .batch_execute(
            "INSERT INTO public.outbox (aggregatetype, aggregateid, type, payload)
             SELECT 'order', 'k', 'created', jsonb_build_object('text', repeat('x', 800000))",
        )
        .await?;
    let sent = Instant::now();
    consumer.wait_for_records(1, SOON).await?;
    ensure!(sent.elapsed() > Duration::from_secs(8), "not slow enough");
    ensure!(connector.is_ready().await);
    link.set(Link::Open);
    fixture.watch_slot().await?.catches_up(SOON).await?;
    one_line_each(&connector, 0)?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b26_c_hours_of_quiet_in_short_cause_no_reconnect() -> Result<()> {
    for (name, timeout) in [("quiet_short", scale::pick("1s", "60s")), ("quiet_0", "0")] {
        let fixture = Fixture::new(name).await?;
        fixture.set_sender_timeout(timeout).await?;
        let config = fixture
            .config()
            .with_text("source.status_interval", "200ms");
        let connector = fixture.start_with(&config).await?;
        let slot = fixture.watch_slot().await?;
        let walsender = slot.walsender().await?;
        // Six sender timeouts, as six minutes are with the usual one.
        wait::throughout(
            "ready on the same walsender",
            Duration::from_secs(scale::pick(6, 900)),
            async || {
                Ok(slot.state().await?.active_pid == Some(walsender) && connector.is_ready().await)
            },
        )
        .await?;
        one_line_each(&connector, 0)?;
        connector.stop().await?;
    }
    Ok(())
}

/// The database behind this link.
fn through(link: &Proxy, fixture: &Fixture) -> String {
    let (role, port, database) = (&fixture.role, link.port(), &fixture.database);
    format!("postgres://{role}:{PASSWORD}@127.0.0.1:{port}/{database}")
}

/// Signals a server process; the number comes from the server itself.
fn signal(pid: i32, name: &str) -> Result<()> {
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid.to_string()])
        .status()?;
    ensure!(status.success(), "kill -{name} {pid}: {status}");
    Ok(())
}
