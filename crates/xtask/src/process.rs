//! Child processes that never outlive their owner: each in a process group of its own, with a watchdog beside it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, kill_process, kill_process_group};

pub use rustix::process::Signal;

/// A running child process, leader of a process group of its own.
///
/// Dropping it stops the whole group. When this process ends without dropping it (killed, `exit`, or the value lies in
/// a `static`), a small watchdog shell does the same: it waits on a pipe that only this process holds open. So a test
/// run leaves no server behind, whatever ends it, and Ctrl-C on the terminal reaches only the foreground process.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    pid: Pid,
    gentle: Signal,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: Child,
    watchdog: Watchdog,
    status: Option<ExitStatus>,
}

/// How long a group may take to end by itself before it is killed, when its owner does not say.
const GRACE: Duration = Duration::from_secs(10);

impl Daemon {
    /// Starts `command` in a new process group. Standard input is empty unless the caller set it; output goes where the
    /// caller pointed it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self> {
        Self::spawn_with(name, command, Signal::TERM)
    }

    /// As [`Daemon::spawn`], for a program whose quick clean stop is another signal than SIGTERM (PostgreSQL: SIGINT).
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn_with(name: &str, command: &mut Command, gentle: Signal) -> Result<Self> {
        // The watchdog is there first: whenever this process dies, there is somebody to clean up.
        let mut watchdog = Watchdog::spawn(gentle)?;
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        watchdog.guard(child.id())?;
        Ok(Self {
            name: name.to_owned(),
            pid: Pid::from_child(&child),
            gentle,
            state: Mutex::new(State {
                child,
                watchdog,
                status: None,
            }),
        })
    }

    /// Gives a folder to the watchdog, to be removed when this process ends without having stopped the program. As long
    /// as this process lives, the folder's owner here is the one to remove it.
    ///
    /// # Errors
    /// The watchdog has gone.
    pub fn leave(&self, folder: &Path) -> Result<()> {
        self.state().watchdog.tell(&folder.display().to_string())
    }

    /// The process id of the program itself, which is also the id of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal to the program alone.
    ///
    /// # Errors
    /// It has ended already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.alive()?;
        kill_process(self.pid, signal).with_context(|| format!("signal {}", self.name))
    }

    /// Sends a signal to the program and all its children that stayed in its group.
    ///
    /// # Errors
    /// It has ended already.
    pub fn signal_group(&self, signal: Signal) -> Result<()> {
        self.alive()?;
        kill_process_group(self.pid, signal).with_context(|| format!("signal {}", self.name))
    }

    /// The exit status, if it has ended.
    ///
    /// # Errors
    /// The operating system cannot tell.
    pub fn try_wait(&self) -> Result<Option<ExitStatus>> {
        let mut state = self.state();
        if state.status.is_none()
            && let Some(status) = state.child.try_wait().context("wait for a child")?
        {
            state.status = Some(status);
            // The id may be given to another process from now on, so the watchdog must not use it.
            state.watchdog.release();
        }
        Ok(state.status)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// It still runs at the deadline; it is left running then.
    pub fn wait(&self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("{} still runs after {timeout:?}", self.name);
            }
            thread::sleep(POLL);
        }
    }

    /// Sends `signal` to the whole group, waits up to `grace` for the program to end, then kills what is left.
    ///
    /// # Errors
    /// The operating system refuses to signal or to wait.
    pub fn terminate(&self, signal: Signal, grace: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.try_wait()? {
            return Ok(status);
        }
        // A stopped process takes the signal only once it continues.
        self.signal_group(signal)
            .and_then(|()| self.signal_group(Signal::CONT))
            .ok();
        if let Ok(status) = self.wait(grace) {
            // Its children may be slower, or deaf.
            kill_process_group(self.pid, Signal::KILL).ok();
            return Ok(status);
        }
        self.kill()
    }

    /// Kills the whole group at once (SIGKILL) and waits for the program.
    ///
    /// # Errors
    /// The operating system refuses to signal or to wait.
    pub fn kill(&self) -> Result<ExitStatus> {
        self.signal_group(Signal::KILL).ok();
        self.wait(GRACE)
    }

    fn alive(&self) -> Result<()> {
        match self.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} has ended: {status}", self.name),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure; the watchdog tries once more when this process ends.
        self.terminate(self.gentle, GRACE).ok();
    }
}

/// Calls `ready` until it gives a value, and no longer than `timeout`.
///
/// # Errors
/// `ready` failed, or gave nothing until the deadline; the text then names `what` was waited for.
pub fn wait_for<T>(
    what: &str,
    timeout: Duration,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("gave up waiting for {what} after {timeout:?}");
        }
        thread::sleep(POLL);
    }
}

/// Often enough that a start is not noticeably longer, seldom enough that waiting costs nothing.
const POLL: Duration = Duration::from_millis(20);

/// What a running process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time of all its threads, in steps of ten milliseconds.
    pub cpu_ms: u64,
    /// The most memory it ever had resident.
    pub peak_kib: u64,
}

/// Asks the kernel what a process has used; nothing once it has ended.
#[must_use]
pub fn usage(pid: u32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse_usage(&stat, &status)
}

/// The program's name, in parentheses, may hold anything; after it come fields by number ("proc_pid_stat" in the
/// manual): the third is the state, user and system time are the 14th and 15th.
fn parse_usage(stat: &str, status: &str) -> Option<Usage> {
    // Linux counts in hundredths of a second on every machine that matters here (`getconf CLK_TCK`).
    const TICK_MS: u64 = 10;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let peak_kib = peak.trim().trim_end_matches(" kB").parse().ok()?;
    let cpu_ms = ticks * TICK_MS;
    Some(Usage { cpu_ms, peak_kib })
}

/// Runs a program to its end and gives what it printed.
///
/// # Errors
/// It cannot be started, or exits with a failure: the text then ends with what it wrote to standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {program}"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{program} failed ({}): {}",
            output.status,
            message.trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A shell that blocks on its standard input. A line tells it the group to guard, another may name a folder to remove
/// afterwards, the word `done` relieves it; the end of the input without that word means that the owner is gone.
#[derive(Debug)]
struct Watchdog(Child);

const WATCHDOG: &str = r#"
trap '' INT TERM HUP
read -r group || exit 0
folder=
while read -r word; do
    case "$word" in
        done) exit 0 ;;
        /*) folder=$word ;;
    esac
done
kill -s "$1" -- "-$group" && kill -s CONT -- "-$group"
tries=100
while [ "$tries" -gt 0 ] && kill -s 0 -- "-$group"; do sleep 0.1; tries=$((tries - 1)); done
kill -s KILL -- "-$group"
[ -z "$folder" ] || rm -rf -- "$folder"
"#;

impl Watchdog {
    fn spawn(gentle: Signal) -> Result<Self> {
        Command::new("/bin/sh")
            .args(["-c", WATCHDOG, "posthaste-watchdog"])
            .arg(gentle.as_raw().to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map(Self)
            .context("start the watchdog of a child process")
    }

    fn guard(&mut self, group: u32) -> Result<()> {
        self.tell(&group.to_string())
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.0.stdin.as_mut().context("the watchdog has gone")?;
        writeln!(input, "{line}").context("talk to the watchdog of a child process")
    }

    fn release(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            writeln!(input, "done").ok();
        }
        self.0.wait().ok();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Without `release` the end of the input makes it act; either way it must not stay a zombie.
        drop(self.0.stdin.take());
        self.0.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(10);

    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("1000");
        command
    }

    #[test]
    fn what_does_not_listen_is_killed() {
        let mut deaf = Command::new("sh");
        deaf.args(["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
            .stdout(Stdio::piped());
        let daemon = Daemon::spawn("deaf", &mut deaf).unwrap();
        let mut ready = [0; 6];
        let stdout = daemon.state().child.stdout.take();
        std::io::Read::read_exact(&mut stdout.unwrap(), &mut ready).unwrap();
        let status = daemon
            .terminate(Signal::TERM, Duration::from_millis(100))
            .unwrap();
        assert!(!status.success());
        assert!(daemon.signal(Signal::TERM).is_err());
    }

    #[test]
    fn the_watchdog_ends_what_its_owner_left_behind() {
        let mut watchdog = Watchdog::spawn(Signal::TERM).unwrap();
        let mut orphan = sleeper().process_group(0).spawn().unwrap();
        watchdog.guard(orphan.id()).unwrap();
        let mut scratch = crate::scratch::Scratch::new("orphan").unwrap();
        scratch.keep();
        watchdog
            .tell(&scratch.path().display().to_string())
            .unwrap();
        // The pipe closes without a word, as when the owner is killed.
        drop(watchdog.0.stdin.take());
        let status = wait_for("the orphan to end", SHORT, || Ok(orphan.try_wait()?));
        assert!(!status.unwrap().success());
        watchdog.0.wait().unwrap();
        assert!(!scratch.path().exists());
    }

    #[test]
    fn a_relieved_watchdog_harms_nobody() {
        let mut watchdog = Watchdog::spawn(Signal::TERM).unwrap();
        let daemon = Daemon::spawn("sleep", &mut sleeper()).unwrap();
        watchdog.guard(daemon.pid()).unwrap();
        watchdog.release();
        assert!(daemon.try_wait().unwrap().is_none());
    }

    #[test]
    fn usage_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 120 34 5 6 20 0 1 0 99";
        let used = parse_usage(stat, "Name:\ta\nVmHWM:\t    4321 kB\n").unwrap();
        assert_eq!(
            used,
            Usage {
                cpu_ms: 1540,
                peak_kib: 4321
            }
        );
        assert!(usage(std::process::id()).is_some());
    }

    #[test]
    fn waiting_ends_at_its_deadline() {
        let never = wait_for::<()>("what never comes", Duration::ZERO, || Ok(None));
        assert!(never.unwrap_err().to_string().contains("what never comes"));
    }
}
