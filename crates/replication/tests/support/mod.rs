//! A private PostgreSQL server for one test: its own folder and port, gone with the value.

pub(crate) mod certificates;
pub(crate) mod proxy;

use certificates::Pair;
use replication::{ConnectError, ConnectOptions};
use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tokio_postgres::Client;

/// Settings every server starts with: fast, and able to decode.
const CONFIGURATION: &str = "
listen_addresses = '127.0.0.1,::1'
wal_level = logical
max_wal_senders = 8
max_replication_slots = 8
fsync = off
shared_buffers = 16MB
password_encryption = scram-sha-256
";

/// A running server. The superuser is `postgres`, let in over the socket without a password.
pub(crate) struct Server {
    folder: TempDir,
    binaries: PathBuf,
    account: Option<(u32, u32)>,
    pub(crate) port: u16,
}

impl Server {
    /// Makes a cluster and starts it; `hba` decides who is let in beside the superuser.
    pub(crate) fn start(configuration: &str, hba: &str) -> Self {
        let server = Self::prepare();
        server.make_cluster();
        server.configure(configuration);
        server.set_hba(hba);
        server.control("start");
        server
    }

    /// Makes a streaming standby; the primary is stopped for the copy.
    pub(crate) fn standby_of(primary: &Self) -> Self {
        let standby = Self::prepare();
        primary.control("stop");
        copy(&primary.data(), &standby.data());
        primary.control("start");
        let (sockets, port) = (primary.sockets(), primary.port);
        let (own_sockets, own_port) = (standby.sockets(), standby.port);
        standby.configure(&format!(
            "primary_conninfo = 'host={} port={port} user=postgres'
             unix_socket_directories = '{}'\nport = {own_port}",
            sockets.display(),
            own_sockets.display()
        ));
        standby.put("standby.signal", "");
        standby.control("start");
        standby
    }

    /// Folder, port and account; no cluster yet.
    fn prepare() -> Self {
        let server = Self {
            folder: tempfile::Builder::new()
                .prefix("pg-")
                .tempdir_in("/tmp")
                .unwrap(),
            binaries: binaries(),
            account: server_account(),
            port: free_port(),
        };
        fs::set_permissions(server.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(server.sockets()).unwrap();
        server.own(&server.sockets());
        server.own(server.folder.path());
        server
    }

    /// Appends to the configuration; takes effect with the next start or reload.
    pub(crate) fn configure(&self, configuration: &str) {
        let path = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&path).unwrap();
        if !text.contains("unix_socket_directories = '/tmp/pg-") {
            text.push_str(CONFIGURATION);
            let sockets = self.sockets();
            text.push_str(&format!(
                "unix_socket_directories = '{}'\nport = {}\n",
                sockets.display(),
                self.port
            ));
        }
        text.push_str(configuration);
        text.push('\n');
        fs::write(&path, text).unwrap();
    }

    pub(crate) fn set_hba(&self, hba: &str) {
        let text = format!("local all,replication postgres trust\n{hba}\n");
        fs::write(self.data().join("pg_hba.conf"), text).unwrap();
    }

    /// Puts a file into the data folder, readable for the server alone.
    pub(crate) fn put(&self, name: &str, contents: &str) {
        let path = self.data().join(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        self.own(&path);
    }

    /// Gives the server a certificate under the names its configuration has.
    pub(crate) fn put_certificate(&self, pair: &Pair) {
        self.put("server.crt", &pair.certificate_pem);
        self.put("server.key", &pair.key.serialize_pem());
    }

    /// `start`, `stop`, `restart` or `promote`, waiting until done.
    pub(crate) fn control(&self, action: &str) {
        let (data, log) = (self.data(), self.folder.path().join("log"));
        let mut arguments = vec![
            action.as_ref(),
            OsStr::new("-w"),
            OsStr::new("-D"),
            data.as_os_str(),
        ];
        match action {
            "start" => arguments.extend([OsStr::new("-l"), log.as_os_str()]),
            "restart" => {
                arguments.extend([OsStr::new("-mfast"), OsStr::new("-l"), log.as_os_str()])
            }
            "promote" => {}
            _ => arguments.push(OsStr::new("-mfast")),
        }
        self.run("pg_ctl", &arguments);
    }

    pub(crate) fn sockets(&self) -> PathBuf {
        self.folder.path().join("sockets")
    }

    /// A place for certificates and password files of the client.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    }

    /// Settings for the superuser over the socket.
    pub(crate) fn superuser(&self) -> ConnectOptions {
        self.options(&format!(
            "host={} user=postgres dbname=postgres",
            self.sockets().display()
        ))
    }

    /// Settings with the port added.
    pub(crate) fn options(&self, text: &str) -> ConnectOptions {
        ConnectOptions::parse(&format!("port={} {text}", self.port)).unwrap()
    }

    /// Runs statements as the superuser.
    pub(crate) async fn sql(&self, statements: &str) -> Client {
        let client = replication::connect_sql(&self.superuser()).await.unwrap();
        client.batch_execute(statements).await.unwrap();
        client
    }

    /// A fresh cluster, copied from one that an earlier test made: that is much quicker.
    fn make_cluster(&self) {
        let name = self.binaries.display().to_string().replace('/', "-");
        let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster{name}"));
        if template.join("PG_VERSION").exists() {
            copy(&template, &self.data());
            return;
        }
        let data = self.data();
        let fixed = ["-Upostgres", "--no-sync", "-EUTF8", "--locale=C"].map(OsStr::new);
        self.run(
            "initdb",
            &[&[OsStr::new("-D"), data.as_os_str()], &fixed[..]].concat(),
        );
        // Tests run side by side: the first to finish names the template, the others are in vain.
        let unfinished = template.with_extension(self.port.to_string());
        copy(&data, &unfinished);
        if fs::rename(&unfinished, &template).is_err() {
            fs::remove_dir_all(&unfinished).unwrap();
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn own(&self, path: &Path) {
        if let Some((user, group)) = self.account {
            chown(path, Some(user), Some(group)).unwrap();
        }
    }

    fn run(&self, program: &str, arguments: &[&OsStr]) {
        let log = self.folder.path().join("output");
        let output = fs::File::create(&log).unwrap();
        let mut command = Command::new(self.binaries.join(program));
        command
            .args(arguments)
            .current_dir("/tmp")
            .stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        let status = command.status().unwrap();
        assert!(
            status.success(),
            "{program}: {}{}",
            fs::read_to_string(log).unwrap_or_default(),
            fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut command = Command::new(self.binaries.join("pg_ctl"));
        command
            .args(["stop", "-w", "-mimmediate", "-D"])
            .arg(self.data())
            .current_dir("/tmp");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        // A server that a test stopped itself is fine.
        drop(command.status());
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(
        Command::new("cp")
            .arg("-a")
            .args([from, to])
            .status()
            .unwrap()
            .success()
    );
}

/// The newest server on this machine, or the one `POSTGRES_BINARIES` names.
fn binaries() -> PathBuf {
    if let Some(folder) = std::env::var_os("POSTGRES_BINARIES") {
        return folder.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").map(|entries| {
        let folders = entries.filter_map(|entry| entry.ok().map(|entry| entry.path().join("bin")));
        let mut folders = folders
            .filter(|bin| bin.join("postgres").exists())
            .collect::<Vec<_>>();
        folders.sort_by_key(|bin| {
            let version = bin
                .parent()
                .and_then(Path::file_name)
                .and_then(OsStr::to_str);
            version.and_then(|version| version.parse::<u32>().ok())
        });
        folders.pop()
    });
    let found = versions.ok().flatten();
    found.expect("no PostgreSQL server under /usr/lib/postgresql: install the package postgresql, or set POSTGRES_BINARIES")
}

/// PostgreSQL refuses to run as root; then the account of its package does.
fn server_account() -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    is_root.then(|| {
        let accounts = fs::read_to_string("/etc/passwd").unwrap();
        let line = accounts.lines().find(|line| line.starts_with("postgres:"));
        let mut fields = line
            .expect("no account postgres to run the server as")
            .split(':')
            .skip(2);
        let mut number = || fields.next().unwrap().parse().unwrap();
        (number(), number())
    })
}

/// Free at this moment; the server is started next.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Opens both kinds of connection and asserts that they agree; gives back what happened.
pub(crate) async fn connect_both(options: &ConnectOptions) -> Result<(), ConnectError> {
    let sql = replication::connect_sql(options).await;
    let replication = replication::connect_replication(options).await;
    match (sql, replication) {
        (Ok(_), Ok(_)) => Ok(()),
        (Err(first), Err(second)) => {
            assert_eq!(first.to_string(), second.to_string());
            Err(first)
        }
        (first, second) => panic!(
            "SQL: {:?}, replication: {:?}",
            first.map(drop).map_err(|error| error.to_string()),
            second.map(drop).map_err(|error| error.to_string())
        ),
    }
}

/// Asserts an error whose text, or that of a cause, contains each part.
pub(crate) async fn assert_refused(options: &ConnectOptions, parts: &[&str]) -> ConnectError {
    let error = connect_both(options).await.expect_err("it connected");
    let text = with_causes(&error);
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
    error
}

pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
