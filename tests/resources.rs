//! Resources used up: disk, file descriptors, memory, and a clock that jumps. It goes on, or it stops and starts over; nothing
//! is lost.

use std::os::unix::fs::symlink;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::arrival::all_arrive;
use e2e::checker::{Repeats, check};
use e2e::connector::Connector;
use e2e::fixture::{Fixture, SOON};
use e2e::ledger::Ledger;
use e2e::scale;
use e2e::wait;
use e2e::writer::Load;
use xtask::scratch::Scratch;

/// Every write to it fails with "no space left on device".
const FULL_DISK: &str = "/dev/full";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_for_the_state_is_told_once_and_stops_nothing() -> Result<()> {
    let fixture = Fixture::new("state_full").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    let temporary = fixture.state_directory().join("default.json.new");
    let file = fixture.state_directory().join("default.json");
    // A write may be under way, which would put the link in the place of the state.
    wait::until_true("no state being written", SOON, async || {
        Ok(symlink(FULL_DISK, &temporary).is_ok())
    })
    .await?;
    let mut n = 0;
    wait::until_true("the full disk to be met", SOON, async || {
        n += 1;
        fixture.insert(&client, n).await?;
        Ok(!connector.messages_with(&["PH0704: "]).is_empty())
    })
    .await
    .with_context(|| connector.log())?;
    slot.catches_up(SOON).await?;
    ensure!(connector.is_ready().await, "delivery stopped");
    std::fs::remove_file(&temporary)?;
    wait::until_true("the state to be saved again", SOON, async || {
        n += 1;
        fixture.insert(&client, n).await?;
        Ok(!connector.messages_with(&["can be saved again"]).is_empty())
    })
    .await?;
    ensure!(std::fs::read_to_string(&file)?.contains("confirmed_lsn"));
    ensure!(
        connector.messages_with(&["PH0704: "]).len() == 1,
        "one line an outage"
    );
    slot.catches_up(SOON).await?;
    connector.stop().await?;
    ensure!(consumer.read_to_end().await?.len() == usize::try_from(n)?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_for_the_log_stops_nothing() -> Result<()> {
    let fixture = Fixture::new("log_full").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let config = fixture.config().with_text("log.level", "debug");
    let connector = Connector::start_without_room_for_its_log(&config)?;
    connector.ready().await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    fixture.insert(&client, 1).await?;
    slot.catches_up(SOON).await?;
    // A reconnect has more to say than a stream that runs.
    slot.terminate_walsender().await?;
    fixture.insert(&client, 2).await?;
    consumer.wait_for_records(2, SOON).await?;
    slot.catches_up(SOON).await?;
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_descriptors_used_up_are_waited_for() -> Result<()> {
    let fixture = Fixture::new("descriptors").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    let slot = fixture.watch_slot().await?;
    fixture.insert(&client, 1).await?;
    consumer.wait_for_records(1, SOON).await?;
    slot.catches_up(SOON).await?;
    // What is open stays open, and nothing can be opened: no connection, no state file, no page.
    // Not fewer than the client polls at a time, which would be another fault.
    connector.limit("--nofile=8:")?;
    fixture.insert(&client, 2).await?;
    consumer.wait_for_records(2, SOON).await?;
    slot.catches_up(SOON).await?;
    slot.terminate_walsender().await?;
    fixture.insert(&client, 3).await?;
    connector
        .prints(&["lost: "], SOON)
        .await
        .with_context(|| connector.log())?;
    wait::throughout("it lives", Duration::from_secs(2), async || {
        Ok(connector.try_exit_code()?.is_none())
    })
    .await
    .with_context(|| connector.log())?;
    connector.limit("--nofile=1024:")?;
    connector.ready().await?;
    consumer.wait_for_events(3, SOON).await?;
    slot.catches_up(SOON).await?;
    ensure!(consumer.read_to_end().await?.len() == 3);
    connector.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_runs_out_costs_a_restart_and_nothing_else() -> Result<()> {
    let fixture = Fixture::new("memory").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let connector = fixture.start().await?;
    let client = fixture.client().await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    // A little more than it has by now; the backlog that comes needs more than that.
    let data_kb = connector.memory_kb("VmData")?;
    connector.limit(&format!("--data={}:", (data_kb + 2048) * 1024))?;
    client
        .batch_execute(
            "INSERT INTO outbox (aggregatetype, aggregateid, aggregate_version, payload)
             SELECT 'order', 'k' || n % 20, n, jsonb_build_object('text', repeat('x', 2000))
             FROM generate_series(1, 20000) n",
        )
        .await?;
    let ended = wait::until_true(
        "the backlog to be delivered, or the end",
        3 * SOON,
        async || {
            let ended =
                connector.try_exit_code()?.is_some() || connector.memory_kb("VmHWM").is_err();
            Ok(ended || consumer.read_to_end().await?.len() >= 20_000)
        },
    );
    ended.await?;
    // However it ended, or if it did not: the next one without the limit delivers the rest.
    connector.kill().ok();
    fixture.watch_slot().await?.released().await?;
    let connector = fixture.start().await?;
    consumer.wait_for_events(20_000, 3 * SOON).await?;
    fixture.watch_slot().await?.catches_up(SOON).await?;
    let ledger = Ledger::from_table(&client).await?;
    check(&ledger, consumer.read_to_end().await?, Repeats::Reruns)?;
    connector.stop().await
}

/// The wall clock jumps a day ahead and back again under load. Time spans are measured by another clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_that_jumps_changes_nothing() -> Result<()> {
    let Some(library) = faketime() else {
        ensure!(!scale::is_full(), "the full run needs libfaketime");
        return Ok(());
    };
    let fixture = Fixture::new("clock").await?;
    let mut consumer = fixture.consumer(&["order"])?;
    let folder = Scratch::new("clock")?;
    let file = folder.path().join("time");
    std::fs::write(&file, "+0")?;
    let environment = [
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", &*file.to_string_lossy()),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let connector = Connector::start_with(&fixture.config(), &[], &environment)?;
    connector.ready().await?;
    let slot = fixture.watch_slot().await?;
    let walsender = slot.walsender().await?;
    let load = Load::steady(40).start(&fixture).await?;
    for jump in ["+1d", "-1d", "+10y", "+0"] {
        consumer.wait_for_events(50, SOON).await?;
        std::fs::write(&file, jump)?;
        load.goes_on_for(80, SOON).await?;
        wait::throughout(
            "ready on the same connection",
            Duration::from_secs(2),
            async || {
                Ok(slot.state().await?.active_pid == Some(walsender) && connector.is_ready().await)
            },
        )
        .await
        .with_context(|| format!("after a jump by {jump}: {}", connector.log()))?;
    }
    let ledger = load.stop().await?;
    all_arrive(&fixture, &mut consumer, &ledger, Repeats::Forbidden).await?;
    let log = connector.log();
    ensure!(
        log.contains("\"timestamp\":\"20"),
        "the connector did not log"
    );
    connector.stop().await
}

fn faketime() -> Option<&'static str> {
    [
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    ]
    .into_iter()
    .find(|path| std::path::Path::new(path).is_file())
}
