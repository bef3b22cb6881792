//! `posthaste debezium diff` on real topics: what differs is found, what rules name is left out.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::connector::binary;
use e2e::produce::{Producer, Sent};
use e2e::servers::Servers;

/// Runs `diff` and gives its exit status and what it said.
async fn diff(servers: &Servers, arguments: &[&str]) -> Result<(i32, String)> {
    let folder = xtask::scratch::Scratch::new("diff")?;
    let file = folder.path().join("posthaste.toml");
    let brokers = servers.kafka.bootstrap();
    let config = format!(
        "[source]\nurl = \"postgres://nobody@127.0.0.1/none\"\nslot = \"s\"\npublication = \"p\"\ntables = [\"public.o\"]\n\
         [kafka]\nbrokers = [\"{brokers}\"]\n"
    );
    std::fs::write(&file, config)?;
    let mut command = Command::new(binary()?);
    command
        .args(["debezium", "diff", "-c"])
        .arg(&file)
        .args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    Ok((output.status.code().context("an exit code")?, text))
}

fn sent(n: i32) -> Sent {
    Sent {
        partition: n % 2,
        key: Some(format!("k{n}").into_bytes()),
        payload: Some(format!("payload {n}").into_bytes()),
        headers: vec![
            ("runId".to_owned(), Some(b"left".to_vec())),
            ("id".to_owned(), Some(n.to_string().into_bytes())),
        ],
        timestamp_ms: 1_000_000 + i64::from(n),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differences_of_two_prefixes_are_found_and_rules_leave_them_out() -> Result<()> {
    let servers = Servers::shared()?;
    let producer = Producer::new(&servers.kafka.bootstrap())?;
    for topic in ["diff.a", "diff.b", "shadow.diff.a", "shadow.diff.b"] {
        tokio::task::block_in_place(|| servers.kafka.create_topic(topic, 2, &[]))?;
        for n in 0..100 {
            let mut record = sent(n);
            if topic.starts_with("shadow") {
                record.headers[0].1 = Some(b"right".to_vec());
            }
            match (topic, n) {
                // A byte, a lost record, and one in another partition.
                ("shadow.diff.b", 17) => record.payload = Some(b"payload x7".to_vec()),
                ("shadow.diff.b", 40) => continue,
                ("shadow.diff.b", 51) => record.partition = 0,
                _ => {}
            }
            producer.send_record(topic, &record).await?;
        }
    }
    let (code, text) = diff(&servers, &["diff.a", "shadow.diff.a"]).await?;
    ensure!(
        code == 5 && text.contains("100 differ (header 100)"),
        "{text}"
    );
    let run_id = ["--ignore", "header-value:runId"];
    let (code, text) = diff(
        &servers,
        &[&["diff.a", "shadow.diff.a"], &run_id[..]].concat(),
    )
    .await?;
    ensure!(
        code == 0 && text.contains("100 records equal") && text.contains("needed 100 times"),
        "{text}"
    );
    let unneeded = [
        &["diff.a", "shadow.diff.a", "--ignore", "timestamp"],
        &run_id[..],
    ]
    .concat();
    let (code, text) = diff(&servers, &unneeded).await?;
    ensure!(
        code == 5 && text.contains("nothing needed the rule timestamp"),
        "{text}"
    );
    let prefixes = [&["--prefix", "diff.", "shadow.diff."], &run_id[..]].concat();
    let (code, text) = diff(&servers, &prefixes).await?;
    ensure!(code == 5, "{text}");
    for words in [
        "compared 2 topics, 4 partitions: 197 records equal, 1 differ (value 1), 1 in another partition, 1 only on the left, 0 only on the right",
        "diff.b/1: offset 8 and 8: value differs from byte 8",
        "diff.b: partition differs: 1/25 on the left, 0/",
        "diff.b/0: only on the left: offset 20",
    ] {
        ensure!(text.contains(words), "{words} in {text}");
    }
    // From one record to another, by their times: the planted ones lie outside.
    let bounds = ["--from", "1000060", "--until", "1000090"];
    let (code, text) = diff(&servers, &[&prefixes[..], &bounds].concat()).await?;
    ensure!(code == 0 && text.contains("60 records equal"), "{text}");
    let (code, text) = diff(&servers, &["diff.a", "diff.c"]).await?;
    ensure!(
        code == 3 && text.contains("PH0808") && text.contains("diff.c"),
        "{text}"
    );
    Ok(())
}
