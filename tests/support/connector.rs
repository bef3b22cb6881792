//! The connector as a child process: its configuration file, its log, its signals, its exit code and its HTTP pages.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use xtask::process::{Daemon, Signal};
use xtask::scratch::{Scratch, free_port};

use crate::config::Config;
use crate::wait;

/// A running `posthaste run`. Dropping it kills it.
pub struct Connector {
    daemon: Daemon,
    http_port: u16,
    quiet: bool,
    // Declared after the process, so that its files outlive it.
    folder: Scratch,
}

/// What a request to one of the connector's pages gave.
#[derive(Debug, Clone)]
pub struct Page {
    /// HTTP status code.
    pub status: u16,
    /// Content type as sent.
    pub content_type: String,
    /// Body as text.
    pub body: String,
}

/// From the start of the process until it streams, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A graceful stop with a healthy broker ends within this time (B27).
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Lines of the log shown when a test fails.
const LOG_LINES_SHOWN: usize = 60;

impl Connector {
    /// Starts the process and returns at once.
    ///
    /// # Errors
    /// There is no binary, or no scratch folder.
    pub fn start(config: &Config) -> Result<Self> {
        Self::start_with(config, &[], &[])
    }

    /// As [`Connector::start`], with further arguments and environment variables.
    ///
    /// # Errors
    /// As [`Connector::start`].
    pub fn start_with(
        config: &Config,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        Self::start_file("posthaste.toml", &config.render(), arguments, environment)
    }

    /// As [`Connector::start_with`], with a configuration in any format, as the file's name says.
    ///
    /// # Errors
    /// As [`Connector::start`].
    pub fn start_file(
        name: &str,
        text: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = Scratch::new("connector")?;
        let log = File::create(folder.path().join("log")).context("create the log")?;
        Self::spawn(folder, log, (name, text), arguments, environment)
    }

    /// As [`Connector::start`], but every line that it logs meets a full disk.
    ///
    /// # Errors
    /// As [`Connector::start`].
    pub fn start_without_room_for_its_log(config: &Config) -> Result<Self> {
        let log = File::options()
            .write(true)
            .open("/dev/full")
            .context("open /dev/full")?;
        let file = ("posthaste.toml", &*config.render());
        Self::spawn(Scratch::new("connector")?, log, file, &[], &[])
    }

    fn spawn(
        folder: Scratch,
        log: File,
        (name, text): (&str, &str),
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let http_port = free_port()?;
        let file = folder.path().join(name);
        std::fs::write(&file, text).context("write the configuration")?;
        let mut command = Command::new(binary()?);
        command
            .args(["run", "-c"])
            .arg(&file)
            .args(arguments)
            .env("POSTHASTE__HTTP__LISTEN", format!("127.0.0.1:{http_port}"))
            .envs(environment.iter().copied())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the log")?)
            .stderr(log);
        let daemon = Daemon::spawn_with("posthaste", &mut command, Signal::KILL)?;
        Ok(Self {
            daemon,
            http_port,
            quiet: false,
            folder,
        })
    }

    /// Keeps the log to itself when dropped: for programs, whose reader has not failed.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Waits until it streams: `/readyz` answers 200, and so does `/activez`, which it does not for a standby.
    ///
    /// # Errors
    /// The process ended, or is not ready within the deadline; the text ends with its log.
    pub async fn ready(&self) -> Result<()> {
        wait::until_true(
            "/readyz and /activez to answer 200",
            READY_TIMEOUT,
            async || {
                if let Some(status) = self.daemon.try_wait()? {
                    bail!("posthaste ended: {status}");
                }
                Ok(self.is_ready().await && self.is_active().await)
            },
        )
        .await
        .with_context(|| self.log_tail())
    }

    /// Whether `/activez` answers 200 now.
    pub async fn is_active(&self) -> bool {
        self.get("/activez")
            .await
            .is_ok_and(|page| page.status == 200)
    }

    /// Whether `/readyz` answers 200 now.
    pub async fn is_ready(&self) -> bool {
        self.get("/readyz")
            .await
            .is_ok_and(|page| page.status == 200)
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.daemon.signal(signal)
    }

    /// Kills the process as a crash does, and waits until it is gone.
    ///
    /// # Errors
    /// It had ended before.
    pub fn kill(&self) -> Result<()> {
        self.daemon.signal(Signal::KILL)?;
        tokio::task::block_in_place(|| self.daemon.wait(STOP_TIMEOUT))?;
        Ok(())
    }

    /// The exit code, if the process has ended by itself.
    ///
    /// # Errors
    /// The operating system cannot tell.
    pub fn try_exit_code(&self) -> Result<Option<i32>> {
        Ok(self.daemon.try_wait()?.and_then(|status| status.code()))
    }

    /// Waits for the end of the process and gives its exit code.
    ///
    /// # Errors
    /// It still runs at the deadline, or was ended by a signal; the text ends with its log.
    pub async fn exit_code(&self, deadline: Duration) -> Result<i32> {
        let status = wait::until("posthaste to end", deadline, async || {
            self.daemon.try_wait()
        })
        .await
        .with_context(|| self.log_tail())?;
        status
            .code()
            .with_context(|| format!("posthaste ended by a signal: {status}"))
    }

    /// Stops it as an operator does, and demands a clean end within ten seconds.
    ///
    /// # Errors
    /// It takes longer, or its exit code is not 0.
    pub async fn stop(&self) -> Result<()> {
        self.signal(Signal::TERM)?;
        match self.exit_code(STOP_TIMEOUT).await? {
            0 => Ok(()),
            code => bail!("exit code {code} after SIGTERM, log:\n{}", self.log_tail()),
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// Everything it has printed, to either stream.
    pub fn log(&self) -> String {
        std::fs::read(self.folder.path().join("log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The lines it has printed that contain all of `words`.
    pub fn lines_with(&self, words: &[&str]) -> Vec<String> {
        self.log()
            .lines()
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .map(str::to_owned)
            .collect()
    }

    /// The messages it has printed that contain all of `words`, whether as a line for a person or in a line of JSON.
    pub fn messages_with(&self, words: &[&str]) -> Vec<String> {
        self.log()
            .lines()
            .map(message_of)
            .filter(|message| words.iter().all(|word| message.contains(word)))
            .collect()
    }

    /// Waits until it has printed a line that contains all of `words`.
    ///
    /// # Errors
    /// It did not within the deadline; the text ends with the log.
    pub async fn prints(&self, words: &[&str], deadline: Duration) -> Result<String> {
        wait::until(
            &format!("a log line with {words:?}"),
            deadline,
            async || Ok(self.lines_with(words).into_iter().next()),
        )
        .await
        .with_context(|| self.log_tail())
    }

    /// Requests one of its pages.
    ///
    /// # Errors
    /// Nothing listens, or the answer is no HTTP.
    pub async fn get(&self, path: &str) -> Result<Page> {
        self.request("GET", path).await
    }

    /// As [`Connector::get`], with any method.
    ///
    /// # Errors
    /// As [`Connector::get`].
    pub async fn request(&self, method: &str, path: &str) -> Result<Page> {
        let exchange = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.http_port)).await?;
            let request =
                format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        };
        // A page that hangs is a fault of its own: it must answer also when everything else is stuck.
        let answer = tokio::time::timeout(Duration::from_secs(5), exchange)
            .await
            .with_context(|| format!("{path} does not answer"))??;
        Page::parse(&answer).with_context(|| format!("answer of {path}"))
    }

    /// The value of a metric, added up over its label sets; 0 if it is not there.
    ///
    /// # Errors
    /// The page does not answer.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        Ok(self.get("/metrics").await?.metric(name, ""))
    }

    /// One field of `/proc/<pid>/status` in kilobytes, for example `VmHWM`.
    ///
    /// # Errors
    /// The process has ended.
    pub fn memory_kb(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .with_context(|| format!("no {field} in /proc"))?;
        line.trim()
            .trim_end_matches(" kB")
            .parse()
            .context("memory")
    }

    /// Changes one of its resource limits as `prlimit` of util-linux names them, for example `--nofile=10:`.
    ///
    /// # Errors
    /// There is no `prlimit`, or the limit is refused.
    pub fn limit(&self, limit: &str) -> Result<()> {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &self.pid().to_string(), limit]);
        xtask::process::output(&mut command).map(|_| ())
    }

    /// How many file descriptors it has open.
    ///
    /// # Errors
    /// The process has ended.
    pub fn open_files(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.pid()))?.count())
    }

    /// The folder it runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(LOG_LINES_SHOWN);
        format!(
            "log of posthaste {}:\n{}",
            self.pid(),
            lines.get(from..).unwrap_or_default().join("\n")
        )
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        if self.quiet {
            return;
        }
        // The test runner shows this only when the test fails.
        #[expect(
            clippy::print_stderr,
            reason = "the test runner's capture is the log's only way to the reader"
        )]
        {
            eprintln!("{}", self.log_tail());
        }
    }
}

/// Runs a command that ends by itself, such as `parked list`, with a configuration, and gives what it printed.
///
/// # Errors
/// Its exit code is not 0; the text has what it printed.
pub fn command(config: &Config, arguments: &[&str]) -> Result<String> {
    let folder = Scratch::new("command")?;
    let file = folder.path().join("posthaste.toml");
    std::fs::write(&file, config.render()).context("write the configuration")?;
    let mut command = Command::new(binary()?);
    command.args(arguments).arg("-c").arg(&file);
    tokio::task::block_in_place(|| xtask::process::output(&mut command))
}

/// What a line of the log says, without what the log adds.
fn message_of(line: &str) -> String {
    let object: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let message = object
        .as_ref()
        .and_then(|object| object.get("message")?.as_str());
    message
        .or_else(|| line.strip_prefix("posthaste: "))
        .unwrap_or(line)
        .to_owned()
}

impl Page {
    fn parse(answer: &str) -> Result<Self> {
        let (head, body) = answer.split_once("\r\n\r\n").context("no end of headers")?;
        let status = head
            .split_whitespace()
            .nth(1)
            .context("no status")?
            .parse()
            .context("status")?;
        let content_type = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
            .map_or("", |(_, value)| value.trim());
        Ok(Self {
            status,
            content_type: content_type.to_owned(),
            body: body.to_owned(),
        })
    }

    /// The sum of a metric's samples whose label part contains `labels`.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        self.samples(name)
            .filter(|(found, _)| found.contains(labels))
            .map(|(_, value)| value)
            .sum()
    }

    /// The label part and value of each sample of a metric.
    pub fn samples(&self, name: &str) -> impl Iterator<Item = (&str, f64)> {
        self.body.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            let whole_name = labels.is_empty() || labels.starts_with('{');
            whole_name.then_some((labels, value.parse().ok()?))
        })
    }
}

/// The binary under test: `POSTHASTE_BIN`, or the one beside this test's executable.
///
/// # Errors
/// There is none; `cargo build -p posthaste` makes it.
pub fn binary() -> Result<PathBuf> {
    let path = match std::env::var_os("POSTHASTE_BIN") {
        Some(path) => PathBuf::from(path),
        // This executable lies in `target/<profile>/deps`.
        None => std::env::current_exe()?
            .ancestors()
            .nth(2)
            .context("the test lies in no target folder")?
            .join("posthaste"),
    };
    if !path.is_file() {
        bail!(
            "no connector at {}: run `cargo build -p posthaste` first",
            path.display()
        );
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(body: &str) -> Page {
        Page::parse(&format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{body}"
        ))
        .unwrap()
    }

    #[test]
    fn metrics_are_added_up_over_their_labels() {
        let page =
            page("# TYPE a counter\na_total{k=\"x\"} 2\na_total{k=\"y\"} 3\na_total_more 9\n");
        assert!((page.metric("a_total", "") - 5.0).abs() < f64::EPSILON);
        assert!((page.metric("a_total", "k=\"y\"") - 3.0).abs() < f64::EPSILON);
        assert!(page.metric("b", "").abs() < f64::EPSILON);
    }

    #[test]
    fn a_message_is_the_same_for_people_and_machines() {
        let json = r#"{"level":"ERROR","message":"PH0301: found \"replica\"","target":"x"}"#;
        assert_eq!(message_of(json), "PH0301: found \"replica\"");
        assert_eq!(message_of("posthaste: PH0301: x"), "PH0301: x");
    }

    #[test]
    fn a_page_has_status_and_type() {
        let page = page("x");
        assert_eq!(
            (page.status, page.content_type.as_str()),
            (200, "text/plain")
        );
        assert!(Page::parse("garbage").is_err());
    }
}
