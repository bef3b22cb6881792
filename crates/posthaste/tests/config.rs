//! The configuration as its users see it: what is refused and how, who overrides whom, and that no secret shows.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

#[path = "config/connect.rs"]
mod connect;
#[path = "config/defaults.rs"]
mod defaults;
#[path = "config/hostile.rs"]
mod hostile;
#[path = "config/precedence.rs"]
mod precedence;
#[path = "config/refused.rs"]
mod refused;
#[path = "config/secrets.rs"]
mod secrets;

use std::ffi::OsString;
use std::path::PathBuf;

use posthaste::codes::Problem;
use posthaste::config::{Config, Request, effective, load};
use tempfile::TempDir;

/// The smallest file that is complete.
const SMALLEST: &str = r#"
[source]
url = "postgres://app@db/orders"
slot = "outbox"
publication = "outbox"
tables = ["public.outbox"]

[kafka]
brokers = "a:9092"
"#;

/// A file in a folder of its own, and what goes over it.
struct Case {
    folder: TempDir,
    request: Request,
}

impl Case {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("posthaste.toml");
        std::fs::write(&file, text).expect("file is written");
        let request = Request {
            file,
            ..Request::default()
        };
        Self { folder, request }
    }

    /// The smallest file with one piece replaced. An empty `from` appends `to`.
    fn with(from: &str, to: &str) -> Self {
        let text = if from.is_empty() {
            format!("{SMALLEST}{to}\n")
        } else {
            SMALLEST.replacen(from, to, 1)
        };
        assert_ne!(text, SMALLEST, "{from} is not in the file");
        Self::new(&text)
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.request
            .environment
            .push((OsString::from(name), OsString::from(value)));
        self
    }

    fn set(mut self, argument: &str) -> Self {
        self.request.set.push(argument.to_owned());
        self
    }

    /// Another file in the same folder, such as one with a secret.
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("file is written");
        path
    }

    fn load(&self) -> Result<Config, Problem> {
        load(&self.request)
    }

    fn config(&self) -> Config {
        self.load().unwrap_or_else(|problem| panic!("{problem}"))
    }

    fn effective(&self) -> String {
        effective(&self.request).unwrap_or_else(|problem| panic!("{problem}"))
    }

    fn refusal(&self) -> String {
        match self.load() {
            Ok(_) => panic!("the configuration was accepted"),
            Err(problem) => {
                assert_eq!(problem.exit_code(), 2, "{problem}");
                problem.to_string()
            }
        }
    }
}
