//! Installs what a machine lacks: with apt as root or through sudo, or else it says precisely what to install.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::postgres_programs::{installed_bin_dir, on_path};

/// Something that a command needs from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A PostgreSQL server of version 14 or later with its client programs.
    Postgres,
    /// Java 17 or later, for Kafka.
    Java,
    /// Maven, which fetches Kafka's jars.
    Maven,
    /// npm, which fetches PostgreSQL's other versions.
    Npm,
    /// A program started under a clock of its own.
    Faketime,
    /// A connection pooler in front of PostgreSQL.
    PgBouncer,
    /// What building librdkafka takes: C and C++ compilers, make, pkg-config, headers of OpenSSL and zlib.
    Librdkafka,
    /// What more it takes to sign in with tokens (OAUTHBEARER): the headers of libcurl.
    Curl,
    /// A Kerberos realm, and what it takes to sign in to it (GSSAPI): servers, `kinit`, Cyrus SASL and its plugin.
    Kerberos,
}

const POSTGRES_MAJOR_MIN: u32 = 14;
const JAVA_MAJOR_MIN: u32 = 17;

/// Makes sure that everything named is there, and installs what is not. Prints one line if it does install.
///
/// # Errors
/// Something is missing and cannot be installed by this user: the text then is the command to run as root. Or the
/// installed package is too old: the text names what was found.
pub fn ensure(needs: &[Need]) -> Result<()> {
    let packages = missing_packages(needs);
    if packages.is_empty() {
        return Ok(());
    }
    apt_install(&packages)?;
    let still: Vec<_> = needs.iter().filter(|need| !need.is_met()).collect();
    if !still.is_empty() {
        bail!(
            "installed {}, and yet there is no usable {still:?}",
            packages.join(" ")
        );
    }
    Ok(())
}

/// Tells what is missing without installing it, for code that runs in tests: those never change the machine.
///
/// # Errors
/// Something is missing: the text names the packages and the command that installs them.
pub fn check(needs: &[Need]) -> Result<()> {
    let packages = missing_packages(needs).join(" ");
    if !packages.is_empty() {
        bail!(
            "missing: {packages}; `cargo xtask test --only install` installs what the tests need"
        );
    }
    Ok(())
}

impl Need {
    fn is_met(self) -> bool {
        missing_packages(&[self]).is_empty()
    }

    /// Debian's packages for it, each with the test whether it is needed.
    fn packages(self) -> Vec<(&'static str, bool)> {
        match self {
            Self::Postgres => vec![("postgresql", has_postgres())],
            Self::Java => vec![("default-jre-headless", has_java())],
            Self::Maven => vec![("maven", runs("mvn", "-version"))],
            Self::Npm => vec![("npm", runs("npm", "--version"))],
            Self::Faketime => vec![("faketime", runs("faketime", "--version"))],
            Self::PgBouncer => vec![("pgbouncer", runs("pgbouncer", "--version"))],
            Self::Librdkafka => vec![
                ("g++", runs("c++", "--version") && runs("cc", "--version")),
                ("make", runs("make", "--version")),
                ("pkg-config", runs("pkg-config", "--version")),
                ("libssl-dev", has_header("openssl/ssl.h")),
                ("zlib1g-dev", has_header("zlib.h")),
            ],
            Self::Curl => vec![("libcurl4-openssl-dev", has_header("curl/curl.h"))],
            Self::Kerberos => vec![
                ("libsasl2-dev", has_header("sasl/sasl.h")),
                ("libsasl2-modules-gssapi-mit", has_gssapi_plugin()),
                ("krb5-kdc", has_program("krb5kdc")),
                ("krb5-admin-server", has_program("kadmin.local")),
                ("krb5-user", has_program("kinit")),
            ],
        }
    }
}

/// The user's cache folder for what is fetched or built once a machine, such as Kafka: outside of `target`, so that a
/// clean build does not fetch it again.
///
/// # Errors
/// The user has no home.
pub fn cache_dir() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    base.map(|folder| folder.join("posthaste"))
        .context("neither XDG_CACHE_HOME nor HOME is set")
}

fn missing_packages(needs: &[Need]) -> Vec<&'static str> {
    let packages = needs.iter().flat_map(|need| need.packages());
    let missing = packages.filter(|(_, there)| !there);
    missing.map(|(package, _)| package).collect()
}

fn apt_install(packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    let Some(prefix) = root_prefix() else {
        bail!("these Debian packages are missing: {list}\nPlease run: apt-get install {list}");
    };
    if !runs("apt-get", "--version") {
        bail!("this machine has no apt; please install what these Debian packages hold: {list}");
    }
    announce(&format!("installing {list}"));
    // A list of packages may be old or, on a new machine, absent. Its failure shows in the next step.
    apt(prefix, &["update", "-q"]).ok();
    let mut arguments = vec!["install", "-q", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    apt(prefix, &arguments).with_context(|| format!("install {list}"))
}

/// Words before a command that must run as root; nothing when this user cannot.
fn root_prefix() -> Option<&'static [&'static str]> {
    if rustix::process::geteuid().is_root() {
        return Some(&[]);
    }
    let sudo = Command::new("sudo")
        .args(["-n", "true"])
        .stderr(Stdio::null())
        .status();
    sudo.is_ok_and(|status| status.success())
        .then_some(&["sudo", "-n"])
}

fn apt(prefix: &[&str], arguments: &[&str]) -> Result<()> {
    let mut words = prefix.to_vec();
    // Another installation may be under way (unattended upgrades): wait for it rather than fail.
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    words.extend(["-o", "DPkg::Lock::Timeout=400"]);
    words.extend(arguments);
    let (program, rest) = words.split_first().context("nothing to run")?;
    crate::process::output(Command::new(program).args(rest)).map(|_| ())
}

fn runs(program: &str, argument: &str) -> bool {
    let run = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    run.is_ok_and(|status| status.success())
}

fn has_postgres() -> bool {
    let Some(folder) = installed_bin_dir() else {
        return false;
    };
    let version = crate::process::output(Command::new(folder.join("postgres")).arg("--version"));
    version.is_ok_and(|text| first_number(&text) >= POSTGRES_MAJOR_MIN)
        && folder.join("psql").exists()
}

fn has_java() -> bool {
    // The version goes to standard error, in quotes: openjdk version "17.0.15".
    let Ok(run) = Command::new("java").arg("-version").output() else {
        return false;
    };
    first_number(&String::from_utf8_lossy(&run.stderr)) >= JAVA_MAJOR_MIN
}

fn has_header(name: &str) -> bool {
    let folders = ["/usr/include", "/usr/local/include"];
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut all = folders.into_iter().chain([multiarch.as_str()]);
    all.any(|folder| Path::new(folder).join(name).exists())
}

/// Not run, as these print no version; and servers are not on every user's path.
fn has_program(name: &str) -> bool {
    on_path(name).is_some() || Path::new("/usr/sbin").join(name).exists()
}

fn has_gssapi_plugin() -> bool {
    let folder = format!("/usr/lib/{}-linux-gnu/sasl2", std::env::consts::ARCH);
    Path::new(&folder).join("libgssapiv2.so").exists()
}

fn first_number(text: &str) -> u32 {
    let digits = text.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let end = digits.find(|letter: char| !letter.is_ascii_digit());
    digits
        .get(..end.unwrap_or(digits.len()))
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Tells the user, who may wait for minutes, for what.
pub(crate) fn announce(text: &str) {
    writeln!(std::io::stderr(), "xtask: {text}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_print() {
        assert_eq!(first_number("postgres (PostgreSQL) 15.20 (Debian)"), 15);
        assert_eq!(first_number("openjdk version \"17.0.15\" 2025-04-15"), 17);
        assert_eq!(first_number("none"), 0);
    }

    #[test]
    fn what_is_there_is_not_installed() {
        assert!(!missing_packages(&[Need::Postgres, Need::Java]).contains(&"gcc"));
        ensure(&[]).unwrap();
    }
}
