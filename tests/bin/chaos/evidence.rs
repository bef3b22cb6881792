//! What is kept of a round that failed: the logs, what was read of the keys in question, and what the brokers wrote.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::round::Outcome;
use crate::stage::{NODES, Stage};

/// Writes everything into a folder of the round's own and gives its path.
pub(crate) fn keep(folder: &Path, stage: &Stage, outcome: &Outcome) -> Result<PathBuf> {
    let folder = folder.join(format!("round-{}-seed-{}", outcome.number, outcome.seed));
    fs::create_dir_all(&folder).context("make a folder for what is kept")?;
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text).with_context(|| format!("write {name}"))
    };
    write("outcome.txt", &outcome.line())?;
    write("faults.txt", &faults(outcome))?;
    write("records.txt", &records(outcome))?;
    for (number, log) in (1..).zip(&outcome.logs) {
        write(&format!("connector-{number}.log"), log)?;
    }
    write("postgres.log", &stage.postgres.log())?;
    for node in 0..NODES {
        write(&format!("kafka-{node}.log"), &stage.kafka.log(node))?;
        write(
            &format!("segments-{node}.txt"),
            &segments(stage, node, outcome),
        )?;
    }
    Ok(folder)
}

fn faults(outcome: &Outcome) -> String {
    let lines = outcome.verdict.faults.iter();
    lines.map(|fault| format!("{}\n", fault.text)).collect()
}

/// Everything that was read, as it stands in the partitions.
fn records(outcome: &Outcome) -> String {
    let mut records: Vec<_> = outcome.records.iter().collect();
    records.sort_by_key(|record| (record.partition, record.offset));
    let line = |record: &&e2e::consumer::Record| {
        let version = outcome
            .ledger
            .get(record.id())
            .map_or(-1, |event| event.version);
        format!(
            "{} {} key {} version {version} id {} at {:?}\n",
            record.partition,
            record.offset,
            record.key_text(),
            record.id(),
            record.timestamp_ms
        )
    };
    records.iter().map(line).collect()
}

/// Kafka's own view of the batches: who sent them, with which sequence numbers.
fn segments(stage: &Stage, node: usize, outcome: &Outcome) -> String {
    let Some(record) = outcome.records.first() else {
        return String::new();
    };
    let data = stage
        .kafka
        .folder()
        .join(format!("node-{node}"))
        .join("data");
    let mut text = String::new();
    for partition in 0..3 {
        let file = data
            .join(format!("{}-{partition}", record.topic))
            .join("00000000000000000000.log");
        let dump = stage.kafka.tool(
            "kafka.tools.DumpLogSegments",
            &["--files", &file.to_string_lossy()],
        );
        text.push_str(&dump.unwrap_or_else(|error| format!("{error:#}\n")));
    }
    text
}
