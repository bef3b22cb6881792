//! Runs the programs that a command consists of: in the foreground, stopped with everything they started when the user
//! interrupts.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use xtask::process::{Daemon, Signal, wait_for};

use super::tidy;

/// Notes that the user wants to stop. From its making on, a first SIGINT or SIGTERM no longer ends this process by
/// itself; a second one does, and then the watchdogs clean up. SIGHUP is left alone: `nohup` has its meaning.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// # Errors
    /// The operating system takes no handler.
    pub(crate) fn new() -> Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the shutdown is armed by the flag of the signal before.
            signal_hook::flag::register_conditional_shutdown(signal, 130, raised.clone())
                .context("handle signals")?;
            signal_hook::flag::register(signal, raised.clone()).context("handle signals")?;
        }
        Ok(Self(raised))
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    /// The user has interrupted.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_raised() {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// Numbers of tests as `cargo test` reports them, summed over its programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Counts {
    /// Adds the numbers of a line such as `test result: ok. 3 passed; 0 failed; …`; other lines have none.
    fn add_line(&mut self, line: &str) {
        let Some((_, result)) = line.split_once("test result: ") else {
            return;
        };
        let words: Vec<&str> = result.split([' ', ';']).collect();
        let before = |word: &str| {
            let at = words.iter().position(|other| *other == word)?;
            words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
        };
        self.passed += before("passed").unwrap_or(0);
        self.failed += before("failed").unwrap_or(0);
    }
}

/// A command line, its words parted by spaces, to be run at the root of the repository.
///
/// # Errors
/// There are no words.
pub(crate) fn command_line(words: &str) -> Result<Command> {
    program(&words.split_whitespace().collect::<Vec<_>>())
}

/// As [`command_line`], word by word.
///
/// # Errors
/// There are no words.
pub(crate) fn program(words: &[&str]) -> Result<Command> {
    let (name, arguments) = words.split_first().context("a command without a program")?;
    let mut command = Command::new(name);
    command.args(arguments).current_dir(tidy::root());
    Ok(command)
}

/// Where cargo puts the product's programs; xtask's own are elsewhere.
pub(crate) fn target_dir() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    tidy::root().join(folder)
}

/// How long an interrupted program may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);
/// Longer than any command of ours; the real limit is the user's patience.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Runs a program to its end. Its output is the user's; on the way the test results in it are counted, also those of a run
/// that fails.
///
/// # Errors
/// It cannot be started, fails, or the user interrupts: then it and all that it started are stopped first.
pub(crate) fn counted(
    command: &mut Command,
    interrupt: &Interrupt,
    counts: &mut Counts,
) -> Result<()> {
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    command.stdout(writer);
    let counter = thread::spawn(move || copy_and_count(reader, std::io::stdout()));
    let status = supervise(command, interrupt);
    // The command holds our end of the pipe; while it is open, the copy does not end.
    command.stdout(Stdio::null());
    let own = counter.join().unwrap_or_default();
    counts.passed += own.passed;
    counts.failed += own.failed;
    let status = status?;
    if !status.success() && own.failed > 0 {
        bail!("{} tests failed", own.failed);
    }
    succeeded(status)
}

/// Runs a program to its end with the user's terminal as its output.
///
/// # Errors
/// As [`counted`].
pub(crate) fn plain(command: &mut Command, interrupt: &Interrupt) -> Result<()> {
    supervise(command, interrupt).and_then(succeeded)
}

fn supervise(command: &mut Command, interrupt: &Interrupt) -> Result<ExitStatus> {
    let name = command.get_program().to_string_lossy().into_owned();
    let daemon = Daemon::spawn(&name, command.stdin(Stdio::null()))?;
    let status = wait_for(&name, FOREVER, || {
        if interrupt.is_raised() {
            daemon.terminate(Signal::TERM, GRACE)?;
        }
        daemon.try_wait()
    })?;
    interrupt.check().map(|()| status)
}

fn succeeded(status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("failed: {status}");
    }
    Ok(())
}

fn copy_and_count(from: impl Read, mut to: impl Write) -> Counts {
    let mut counts = Counts::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from
        .read_until(b'\n', &mut line)
        .is_ok_and(|length| length > 0)
    {
        counts.add_line(&String::from_utf8_lossy(&line));
        // A reader that has gone (`| head`) must not block the tests.
        to.write_all(&line).and_then(|()| to.flush()).ok();
        line.clear();
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_over_programs() {
        let mut counts = Counts::default();
        counts.add_line(
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out",
        );
        counts.add_line(
            "test result: \u{1b}[31mFAILED\u{1b}(B\u{1b}[m. 5 passed; 2 failed; 0 ignored",
        );
        counts.add_line("test a ... ok");
        assert_eq!(
            counts,
            Counts {
                passed: 17,
                failed: 2
            }
        );
    }

    #[test]
    fn output_is_copied_and_counted_to_its_last_line() {
        let text = "test result: ok. 1 passed; 0 failed;\ntest result: ok. 2 passed; 0 failed;";
        let mut copy = Vec::new();
        assert_eq!(copy_and_count(text.as_bytes(), &mut copy).passed, 3);
        assert_eq!(copy, text.as_bytes());
    }

    #[test]
    fn an_interrupt_stops_what_was_started() {
        let interrupt = Interrupt(Arc::default());
        interrupt.0.store(true, Ordering::Relaxed);
        let mut endless = Command::new("sh");
        endless.args(["-c", "sleep 1000 & sleep 1000"]);
        let stopped = counted(&mut endless, &interrupt, &mut Counts::default()).unwrap_err();
        assert_eq!(stopped.to_string(), "interrupted");
    }
}
