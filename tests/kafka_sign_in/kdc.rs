//! A Kerberos realm of its own: MIT's key distribution centre on a port of this machine, without any right of root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xtask::process::{Daemon, output, wait_for};
use xtask::scratch::{Scratch, free_port};

pub(crate) const REALM: &str = "POSTHASTE.TEST";
/// The broker, by the name that its address has on this machine.
pub(crate) const SERVICE: &str = "kafka/localhost";
/// The connector.
pub(crate) const CLIENT: &str = "relay";

/// A running realm. Dropping it ends it.
pub(crate) struct Kdc {
    // Declared before the folder, so that it is gone before its files are.
    _server: Daemon,
    folder: Scratch,
}

const START_TIMEOUT: Duration = Duration::from_secs(20);

impl Kdc {
    /// Starts a realm with a broker and a connector in it. Tickets of the connector last as long as `lifetime` says, such
    /// as `10s`.
    pub(crate) fn start(lifetime: &str) -> Result<Self> {
        let folder = Scratch::new("kerberos")?;
        let port = free_port()?;
        let path = folder.path();
        std::fs::write(krb5_conf(path), client_side(port))?;
        std::fs::write(kdc_conf(path), server_side(path, port))?;
        let create = ["create", "-s", "-r", REALM, "-P", "master"];
        output(program(path, "kdb5_util").args(create)).context("make the realm")?;
        let mut server = program(path, "krb5kdc");
        server
            .arg("-n")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let kdc = Self {
            _server: Daemon::spawn("the key distribution centre", &mut server)?,
            folder,
        };
        kdc.add(SERVICE, "1 day")?;
        kdc.add(CLIENT, lifetime)?;
        wait_for("the realm to answer", START_TIMEOUT, || {
            Ok(std::net::TcpStream::connect(("127.0.0.1", port)).ok())
        })?;
        Ok(kdc)
    }

    /// What the client side reads: `KRB5_CONFIG`.
    pub(crate) fn krb5_conf(&self) -> PathBuf {
        krb5_conf(self.folder.path())
    }

    /// Where a process of this name keeps its tickets: `KRB5CCNAME`.
    pub(crate) fn cache(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("tickets-{name}"))
    }

    /// The keys of a principal.
    pub(crate) fn keytab(&self, principal: &str) -> PathBuf {
        let name = principal.replace('/', "-");
        self.folder.path().join(format!("{name}.keytab"))
    }

    /// Gives a principal new keys, so that all earlier keytabs are of no use; the new ones stand in its keytab.
    pub(crate) fn change_keys(&self, principal: &str) -> Result<()> {
        std::fs::remove_file(self.keytab(principal))?;
        self.export(principal)
    }

    /// Lets the principal have tickets, or not.
    pub(crate) fn allow(&self, principal: &str, allowed: bool) -> Result<()> {
        let sign = if allowed { '+' } else { '-' };
        self.admin(&format!("modprinc {sign}allow_tix {principal}"))
    }

    /// How many times a principal has signed in.
    pub(crate) fn tickets(&self, principal: &str) -> Result<usize> {
        let log = std::fs::read_to_string(self.folder.path().join("kdc.log"))?;
        let sign_in = format!("{principal}@{REALM} for krbtgt/{REALM}@{REALM}");
        let granted = |line: &&str| line.contains("AS_REQ") && line.contains("ISSUE");
        Ok(log
            .lines()
            .filter(granted)
            .filter(|line| line.contains(&sign_in))
            .count())
    }

    fn add(&self, principal: &str, lifetime: &str) -> Result<()> {
        self.admin(&format!(
            "addprinc -randkey -maxlife \"{lifetime}\" {principal}"
        ))?;
        self.export(principal)
    }

    /// Taking the keys out makes new ones.
    fn export(&self, principal: &str) -> Result<()> {
        let keytab = self.keytab(principal);
        self.admin(&format!("ktadd -k {} {principal}", keytab.display()))?;
        ensure!(keytab.exists(), "no keytab for {principal}");
        Ok(())
    }

    fn admin(&self, query: &str) -> Result<()> {
        let mut command = program(self.folder.path(), "kadmin.local");
        output(command.args(["-r", REALM, "-q", query])).with_context(|| query.to_owned())?;
        Ok(())
    }
}

/// A program of the realm; Debian keeps them where only root's path leads.
fn program(folder: &Path, name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command
        .env("PATH", format!("{path}:/usr/sbin"))
        .env("KRB5_CONFIG", krb5_conf(folder))
        .env("KRB5_KDC_PROFILE", kdc_conf(folder));
    command
}

fn krb5_conf(folder: &Path) -> PathBuf {
    folder.join("krb5.conf")
}

fn kdc_conf(folder: &Path) -> PathBuf {
    folder.join("kdc.conf")
}

/// One machine has one clock: a ticket that is over is over, where by default five minutes more are granted.
fn client_side(port: u16) -> String {
    format!(
        "[libdefaults]\n\
         default_realm = {REALM}\n\
         dns_lookup_kdc = false\n\
         dns_lookup_realm = false\n\
         udp_preference_limit = 1\n\
         clockskew = 1\n\
         [realms]\n\
         {REALM} = {{\n\
           kdc = 127.0.0.1:{port}\n\
         }}\n\
         [domain_realm]\n\
         localhost = {REALM}\n"
    )
}

fn server_side(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "[kdcdefaults]\n\
         kdc_listen = 127.0.0.1:{port}\n\
         kdc_tcp_listen = 127.0.0.1:{port}\n\
         [realms]\n\
         {REALM} = {{\n\
           database_name = {folder}/principal\n\
           key_stash_file = {folder}/stash\n\
           acl_file = {folder}/acl\n\
           max_life = 1d\n\
         }}\n\
         [logging]\n\
         kdc = FILE:{folder}/kdc.log\n\
         admin_server = FILE:{folder}/admin.log\n\
         default = FILE:{folder}/default.log\n"
    )
}
