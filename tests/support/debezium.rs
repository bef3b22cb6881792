//! The real thing: a worker of Kafka Connect with Debezium's connector, driven through its REST interface.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xtask::connect::{Connect, ConnectOptions};

use crate::wait;

/// A running worker and the connectors on it. Dropping it kills it.
pub struct Worker {
    connect: Connect,
}

/// Until a connector and its task run: Debezium connects, checks, and searches the slot.
const RUNNING_TIMEOUT: Duration = Duration::from_secs(90);

/// Lines of the log shown when a test fails.
const LOG_LINES_SHOWN: usize = 60;

impl Worker {
    /// Starts a distributed worker, alone in its group.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(bootstrap: &str, group: &str) -> Result<Self> {
        Self::start_with(
            bootstrap,
            &ConnectOptions {
                group: group.to_owned(),
                ..ConnectOptions::default()
            },
        )
    }

    /// Starts a worker of any kind.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_with(bootstrap: &str, options: &ConnectOptions) -> Result<Self> {
        let connect = tokio::task::block_in_place(|| Connect::start(bootstrap, options))?;
        Ok(Self { connect })
    }

    /// The process itself: to kill, to stop and to start again, and its files.
    pub fn process(&self) -> &Connect {
        &self.connect
    }

    /// Makes a connector, or changes it, and waits until its task runs. `config` is the bare map of keys.
    ///
    /// # Errors
    /// Connect refuses the configuration, or the task fails.
    pub async fn put(&self, name: &str, config: &Value) -> Result<()> {
        let path = format!("/connectors/{name}/config");
        // A worker that has just started may answer 409 while it still joins its group.
        wait::retry("a connector to be made", RUNNING_TIMEOUT, || async {
            self.call("PUT", &path, &config.to_string())
        })
        .await?;
        self.running(name).await
    }

    /// Waits until connector and task run.
    ///
    /// # Errors
    /// The task fails, or does not run in time; the text then has what Connect says.
    pub async fn running(&self, name: &str) -> Result<()> {
        self.reaches(name, "RUNNING").await
    }

    /// Stops a connector through REST and waits until its task is gone; offsets may be read and changed then.
    ///
    /// # Errors
    /// Connect refuses.
    pub async fn stop(&self, name: &str) -> Result<()> {
        self.call("PUT", &format!("/connectors/{name}/stop"), "")?;
        self.reaches(name, "STOPPED").await
    }

    /// Lets a stopped connector go on and waits until its task runs.
    ///
    /// # Errors
    /// Connect refuses, or the task fails.
    pub async fn resume(&self, name: &str) -> Result<()> {
        self.call("PUT", &format!("/connectors/{name}/resume"), "")?;
        self.running(name).await
    }

    /// What `GET /connectors/NAME/offsets` answers, as `takeover --offset` takes it.
    ///
    /// # Errors
    /// Connect does not answer.
    pub fn offsets(&self, name: &str) -> Result<Value> {
        self.call("GET", &format!("/connectors/{name}/offsets"), "")
    }

    /// The stored offset alone; none before the first was stored.
    ///
    /// # Errors
    /// Connect does not answer.
    pub fn offset(&self, name: &str) -> Result<Option<Value>> {
        let offsets = self.offsets(name)?;
        Ok(offsets.pointer("/offsets/0/offset").cloned())
    }

    /// Changes the offset of a stopped connector with this `topic.prefix`.
    ///
    /// # Errors
    /// Connect refuses.
    pub fn set_offset(&self, name: &str, topic_prefix: &str, offset: &Value) -> Result<()> {
        let body =
            json!({ "offsets": [{ "partition": { "server": topic_prefix }, "offset": offset }] });
        let path = format!("/connectors/{name}/offsets");
        self.call("PATCH", &path, &body.to_string()).map(|_| ())
    }

    /// Status of connector and tasks, with the stack trace of a failure.
    ///
    /// # Errors
    /// Connect does not answer, or knows no such connector.
    pub fn status(&self, name: &str) -> Result<Value> {
        self.call("GET", &format!("/connectors/{name}/status"), "")
    }

    /// A REST call; an empty answer is null.
    ///
    /// # Errors
    /// Connect does not answer, or refuses: the text then has its message.
    pub fn call(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let answer = tokio::task::block_in_place(|| self.connect.rest(method, path, body))?;
        ensure!(
            (200..300).contains(&answer.status),
            "{method} {path}: {} {}",
            answer.status,
            answer.body
        );
        if answer.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&answer.body).with_context(|| format!("{method} {path}"))
    }

    async fn reaches(&self, name: &str, state: &str) -> Result<()> {
        wait::until_true(
            &format!("{name} to be {state}"),
            RUNNING_TIMEOUT,
            async || {
                // For a moment after a start or a change there is no status.
                let Ok(status) = self.status(name) else {
                    return Ok(false);
                };
                let text = status.to_string();
                ensure!(!text.contains("\"FAILED\""), "{name} failed: {text}");
                let connector = status.pointer("/connector/state").and_then(Value::as_str);
                let tasks = status.get("tasks").and_then(Value::as_array);
                let tasks = tasks.map(Vec::as_slice).unwrap_or_default();
                let right = |task: &Value| task.get("state").and_then(Value::as_str) == Some(state);
                // A stopped connector has no task; any other has one.
                let there = tasks.is_empty() == (state == "STOPPED");
                Ok(connector == Some(state) && there && tasks.iter().all(right))
            },
        )
        .await
        .with_context(|| self.log_tail())
    }

    fn log_tail(&self) -> String {
        let log = self.connect.log();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(LOG_LINES_SHOWN);
        let tail = lines.get(from..).unwrap_or_default().join("\n");
        format!("log of Kafka Connect:\n{tail}")
    }
}
