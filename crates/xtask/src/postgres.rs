//! A private PostgreSQL server of any major version, under full control of its owner.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use crate::postgres_programs::MAJOR_VARIABLE;
use crate::postgres_programs::{default_bin_dir, installed_bin_dir, on_path, server_user};
use crate::process::{Daemon, Signal, output, wait_for};
use crate::scratch::{Scratch, free_port};

/// A running PostgreSQL server with its data in a scratch folder. Dropping it stops the server and removes the data.
///
/// It listens on 127.0.0.1 and on a unix socket. The superuser `postgres` needs no password on either; every other role
/// needs its password (SCRAM-SHA-256), unless [`PostgresOptions::hba`] says otherwise.
#[derive(Debug)]
pub struct Postgres {
    // Declared before the folder, so that the server is gone before its files are.
    server: Mutex<Option<Daemon>>,
    port: u16,
    bin_dir: PathBuf,
    scratch: Scratch,
}

/// How a [`Postgres`] differs from the usual one.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Lines for `postgresql.conf`, after ours and so stronger. Ours: `wal_level=logical`, and `fsync=off`, since no test
    /// pulls the plug of the machine (a killed server keeps its writes).
    pub settings: Vec<(String, String)>,
    /// Lines for `pg_hba.conf`, before ours and so stronger.
    pub hba: Vec<String>,
    /// Further arguments of `initdb`.
    pub initdb_args: Vec<String>,
    /// Folder with another version's `initdb` and `postgres`. By default the version that [`MAJOR_VARIABLE`] names, or the
    /// newest that Debian's packages installed, or else what is on the PATH.
    pub bin_dir: Option<PathBuf>,
}

/// The three ways to shut PostgreSQL down, in the manual's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Waits until all clients have left (SIGTERM).
    Smart,
    /// Disconnects clients, writes a checkpoint (SIGINT).
    Fast,
    /// As a crash: the next start recovers from WAL (SIGQUIT).
    Immediate,
}

/// A smart stop waits for clients, so it may take as long as the caller lets them live.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const START_TIMEOUT: Duration = Duration::from_secs(60);

impl Postgres {
    /// Makes a new cluster and starts it; returns when it accepts connections.
    ///
    /// # Errors
    /// There is no PostgreSQL server on this machine, or it does not start: the text then ends with its log.
    pub fn start(options: PostgresOptions) -> Result<Self> {
        let bin_dir = match options.bin_dir {
            Some(folder) => folder,
            None => default_bin_dir()?,
        };
        let scratch = Scratch::new("postgres")?;
        let postgres = Self {
            server: Mutex::new(None),
            port: free_port()?,
            bin_dir,
            scratch,
        };
        postgres.prepare_folders()?;
        postgres.initdb(&options.initdb_args)?;
        postgres.write_settings(&options.settings)?;
        postgres.write_hba(&options.hba)?;
        postgres.start_again()?;
        Ok(postgres)
    }

    /// Starts the server again after [`Postgres::stop`] or a crash, on the same port and data.
    ///
    /// # Errors
    /// It does not start: the text ends with its log. It runs already.
    pub fn start_again(&self) -> Result<()> {
        let mut server = self.server();
        if let Some(running) = server.as_ref()
            && running.try_wait()?.is_none()
        {
            bail!("PostgreSQL runs already");
        }
        // A crashed server leaves the file; its old word "ready" must not be taken for the new server's.
        fs::remove_file(self.pid_file()).ok();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .context("open the log of PostgreSQL")?;
        let mut command = self.command("postgres")?;
        command
            .arg("-D")
            .arg(self.data_dir())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("open the log of PostgreSQL")?)
            .stderr(log);
        let daemon = Daemon::spawn_with("PostgreSQL", &mut command, Signal::INT)?;
        daemon.leave(self.scratch.path())?;
        wait_for("PostgreSQL to start", START_TIMEOUT, || {
            if let Some(status) = daemon.try_wait()? {
                bail!("PostgreSQL ended at once: {status}");
            }
            Ok(self.says_ready().then_some(()))
        })
        .with_context(|| format!("log of PostgreSQL:\n{}", self.log()))?;
        *server = Some(daemon);
        Ok(())
    }

    /// Makes a physical standby out of a copy of this server, which is stopped for that and started again, and starts it. It
    /// streams from here through the physical slot `standby`; with `sync_replication_slots` among its settings (17 and
    /// later) it keeps this server's failover slots in step.
    ///
    /// # Errors
    /// A server does not stop or start, or the copy fails.
    pub fn standby(&self, settings: &[(&str, &str)]) -> Result<Self> {
        let slot = "SELECT pg_create_physical_replication_slot('standby', true)";
        self.psql("postgres", slot)?;
        let standby = Self {
            server: Mutex::new(None),
            port: free_port()?,
            bin_dir: self.bin_dir.clone(),
            scratch: Scratch::new("postgres")?,
        };
        standby.prepare_folders()?;
        self.stop(StopMode::Fast)?;
        // With the server down a plain copy is a backup, whatever programs this version comes without.
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(self.data_dir().join("."));
        let copied = output(copy.arg(standby.data_dir()));
        self.start_again()?;
        copied.context("copy the data for a standby")?;
        // Slots belong to the server that made them.
        for slot in fs::read_dir(standby.data_dir().join("pg_replslot"))? {
            fs::remove_dir_all(slot?.path()).context("remove a copied slot")?;
        }
        let source = format!(
            "host=127.0.0.1 port={} user=postgres dbname=postgres",
            self.port
        );
        let ours = [
            ("primary_conninfo", source.as_str()),
            ("primary_slot_name", "standby"),
        ];
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let all: Vec<_> = ours.iter().chain(settings).map(owned).collect();
        standby.write_settings(&all)?;
        fs::write(standby.data_dir().join("standby.signal"), "").context("mark the standby")?;
        standby.start_again()?;
        Ok(standby)
    }

    /// Stops the server; its data stays.
    ///
    /// # Errors
    /// It does not run, or had to be killed since it did not stop in a minute.
    pub fn stop(&self, mode: StopMode) -> Result<()> {
        let Some(daemon) = self.server().take() else {
            bail!("PostgreSQL is stopped already");
        };
        daemon.signal(mode.signal())?;
        daemon.wait(STOP_TIMEOUT).map(|_| ())
    }

    /// [`Postgres::stop`], then [`Postgres::start_again`].
    ///
    /// # Errors
    /// As those two.
    pub fn restart(&self, mode: StopMode) -> Result<()> {
        self.stop(mode)?;
        self.start_again()
    }

    /// Kills the postmaster and all its processes as the kernel would when out of memory (SIGKILL).
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&self) -> Result<()> {
        let Some(daemon) = self.server().take() else {
            bail!("PostgreSQL is stopped already");
        };
        daemon.kill().map(|_| ())
    }

    /// Makes the server read its configuration files again. It returns at once; sessions follow at their next command.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn reload(&self) -> Result<()> {
        self.psql("postgres", "SELECT pg_reload_conf()").map(|_| ())
    }

    /// Changes a setting for good (`ALTER SYSTEM`) and reloads. A setting that needs a restart still needs one.
    ///
    /// # Errors
    /// PostgreSQL refuses the name or the value.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let statement = format!(
            "ALTER SYSTEM SET {} = {}",
            quote_identifier(name),
            quote_literal(value)
        );
        self.psql("postgres", &statement)?;
        self.reload()
    }

    /// Runs SQL as superuser through `psql` and gives its output: one row a line, columns parted by `|`, no headings.
    ///
    /// `sql` may hold several statements; each is a transaction of its own. Parameters such as the application name can
    /// be set with SQL.
    ///
    /// # Errors
    /// The first statement that fails ends the run; the text is what PostgreSQL said.
    pub fn psql(&self, db: &str, sql: &str) -> Result<String> {
        let rows = output(self.psql_command(db)?.args(["-c", sql]))?;
        Ok(rows.trim_end_matches('\n').to_owned())
    }

    /// Runs a file of SQL as superuser in one `psql` session, as a user would with `psql -f`.
    ///
    /// # Errors
    /// As [`Postgres::psql`].
    pub fn psql_file(&self, db: &str, file: &Path) -> Result<String> {
        output(self.psql_command(db)?.arg("-f").arg(file))
    }

    fn psql_command(&self, db: &str) -> Result<Command> {
        let mut command = Command::new(self.bin("psql")?);
        // The user's own servers, roles and options are none of ours.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
            .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"])
            .args(["-U", "postgres", "-p", &self.port.to_string(), "-h"])
            .arg(self.socket_dir())
            .args(["-d", db]);
        Ok(command)
    }

    /// The port on 127.0.0.1, also part of the socket's name.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Folder of the unix socket.
    #[must_use]
    pub fn socket_dir(&self) -> PathBuf {
        self.scratch.path().join("socket")
    }

    /// A connection URL over TCP, every part percent-encoded.
    #[must_use]
    pub fn url(&self, user: &str, password: Option<&str>, db: &str) -> String {
        let password = password.map_or_else(String::new, |word| format!(":{}", percent(word)));
        format!(
            "postgres://{}{password}@127.0.0.1:{}/{}",
            percent(user),
            self.port,
            percent(db)
        )
    }

    /// A connection URL over the unix socket.
    #[must_use]
    pub fn socket_url(&self, user: &str, password: Option<&str>, db: &str) -> String {
        let password = password.map_or_else(String::new, |word| format!(":{}", percent(word)));
        format!(
            "postgres://{}{password}@{}:{}/{}",
            percent(user),
            percent(&self.socket_dir().to_string_lossy()),
            self.port,
            percent(db)
        )
    }

    /// Process id of the postmaster.
    ///
    /// # Errors
    /// The server is stopped.
    pub fn postmaster_pid(&self) -> Result<u32> {
        let server = self.server();
        server
            .as_ref()
            .map(Daemon::pid)
            .context("PostgreSQL is stopped")
    }

    /// All that the server has logged since it was made.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Folder of the data.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// A program of this server's version, or if that distribution lacks it (some have no client programs) the newest
    /// installed one.
    ///
    /// # Errors
    /// There is none.
    pub fn bin(&self, name: &str) -> Result<PathBuf> {
        let own = self.bin_dir.join(name);
        if own.exists() {
            return Ok(own);
        }
        installed_bin_dir()
            .map(|folder| folder.join(name))
            .filter(|path| path.exists())
            .or_else(|| on_path(name))
            .with_context(|| format!("{name} is not installed"))
    }

    fn server(&self) -> MutexGuard<'_, Option<Daemon>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pid_file(&self) -> PathBuf {
        self.data_dir().join("postmaster.pid")
    }

    fn log_file(&self) -> PathBuf {
        self.scratch.path().join("postgres.log")
    }

    /// The postmaster's own word, as `pg_ctl` reads it: cheaper than trying to connect.
    fn says_ready(&self) -> bool {
        fs::read_to_string(self.pid_file()).is_ok_and(|text| {
            text.lines()
                .nth(7)
                .is_some_and(|word| matches!(word.trim(), "ready" | "standby"))
        })
    }

    /// A server program as the user it may run as, with its distribution's libraries if it brings its own.
    fn command(&self, program: &str) -> Result<Command> {
        let mut command = Command::new(self.bin(program)?);
        command.current_dir("/").env_remove("PGDATA");
        let libraries = self.bin_dir.join("../lib");
        if libraries.join("libpq.so.5").exists() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        if let Some((user, group)) = server_user()? {
            command.uid(user).gid(group);
        }
        Ok(command)
    }

    fn prepare_folders(&self) -> Result<()> {
        for (folder, mode) in [(self.data_dir(), 0o700), (self.socket_dir(), 0o755)] {
            fs::create_dir(&folder).context("make a folder for PostgreSQL")?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode))
                .context("make a folder for PostgreSQL")?;
            if let Some((user, group)) = server_user()? {
                chown(&folder, Some(user), Some(group)).context("give a folder to PostgreSQL")?;
            }
        }
        Ok(())
    }

    fn initdb(&self, further: &[String]) -> Result<()> {
        let mut command = self.command("initdb")?;
        command
            .arg("-D")
            .arg(self.data_dir())
            .args(["-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"])
            .args(["--auth=trust", "--no-instructions"])
            .args(further)
            .env("LC_ALL", "C");
        output(&mut command).map(|_| ())
    }

    fn write_settings(&self, further: &[(String, String)]) -> Result<()> {
        let socket_dir = self.socket_dir().to_string_lossy().into_owned();
        let port = self.port.to_string();
        let ours = [
            ("listen_addresses", "127.0.0.1"),
            ("port", port.as_str()),
            ("unix_socket_directories", socket_dir.as_str()),
            ("wal_level", "logical"),
            ("max_wal_senders", "20"),
            ("max_replication_slots", "20"),
            ("fsync", "off"),
            ("shared_buffers", "64MB"),
            ("log_line_prefix", "%m [%p] %q%u@%d %a "),
            // The log is read in tests, so its language must not depend on the machine.
            ("lc_messages", "C"),
        ];
        let theirs = further
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let mut text = String::from("\n# Written by xtask.\n");
        for (name, value) in ours.into_iter().chain(theirs) {
            text.push_str(&format!("{name} = {}\n", quote_literal(value)));
        }
        append(&self.data_dir().join("postgresql.conf"), &text)
    }

    fn write_hba(&self, first: &[String]) -> Result<()> {
        let mut text = String::new();
        for line in first.iter().map(String::as_str).chain(HBA) {
            text.push_str(line);
            text.push('\n');
        }
        // Written over the one of initdb, which trusts everybody; the file keeps its owner.
        fs::write(self.data_dir().join("pg_hba.conf"), text).context("write pg_hba.conf")
    }
}

impl StopMode {
    fn signal(self) -> Signal {
        match self {
            Self::Smart => Signal::TERM,
            Self::Fast => Signal::INT,
            Self::Immediate => Signal::QUIT,
        }
    }
}

/// The word `all` does not cover physical replication, so it has lines of its own (`pg_basebackup` for standbys).
const HBA: [&str; 8] = [
    "local all         postgres                trust",
    "local replication postgres                trust",
    "host  all         postgres 127.0.0.1/32   trust",
    "host  replication postgres 127.0.0.1/32   trust",
    "local all         all                     scram-sha-256",
    "local replication all                     scram-sha-256",
    "host  all         all      127.0.0.1/32   scram-sha-256",
    "host  replication all      127.0.0.1/32   scram-sha-256",
];

fn append(file: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let mut file = fs::File::options()
        .append(true)
        .open(file)
        .context("open postgresql.conf")?;
    file.write_all(text.as_bytes())
        .context("write postgresql.conf")
}

fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn quote_identifier(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_survives_hostile_names() {
        assert_eq!(percent("a b/ü@:%"), "a%20b%2F%C3%BC%40%3A%25");
    }

    #[test]
    fn a_server_lives_stops_and_comes_back() {
        let postgres = Postgres::start(PostgresOptions::default()).unwrap();
        assert_eq!(
            postgres.psql("postgres", "SHOW wal_level").unwrap(),
            "logical"
        );
        postgres
            .psql("postgres", "CREATE TABLE kept (n int)")
            .unwrap();
        let pid = postgres.postmaster_pid().unwrap();
        postgres.restart(StopMode::Immediate).unwrap();
        assert_ne!(postgres.postmaster_pid().unwrap(), pid);
        postgres.set("log_min_duration_statement", "123").unwrap();
        assert_eq!(
            postgres
                .psql("postgres", "SELECT count(*) FROM kept")
                .unwrap(),
            "0"
        );
        postgres.kill().unwrap();
        postgres.start_again().unwrap();
        assert_eq!(
            postgres
                .psql("postgres", "SHOW log_min_duration_statement")
                .unwrap(),
            "123ms"
        );
        assert!(postgres.psql("postgres", "SELECT nonsense").is_err());
        assert!(postgres.log().contains("nonsense"));
    }

    #[test]
    fn other_roles_need_their_password() {
        let postgres = Postgres::start(PostgresOptions::default()).unwrap();
        postgres
            .psql("postgres", "CREATE ROLE app LOGIN PASSWORD 'p w'")
            .unwrap();
        let psql = postgres.bin("psql").unwrap();
        let select = |password| {
            let url = postgres.url("app", Some(password), "postgres");
            output(Command::new(&psql).args(["-X", "-A", "-t", "-w", "-c", "SELECT 1", &url]))
        };
        assert_eq!(select("p w").unwrap(), "1\n");
        assert!(select("wrong").is_err());
    }
}
