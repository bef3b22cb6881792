//! Where PostgreSQL's programs are, and which user may run its server.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::install::{Need, check};

/// Environment variable with the major version that all servers are of, unless they ask for another.
pub const MAJOR_VARIABLE: &str = "POSTHASTE_TEST_POSTGRES";

/// The programs that a server is started with unless its owner asks for others.
///
/// # Errors
/// There are none, or the variable names no version.
pub(crate) fn default_bin_dir() -> Result<PathBuf> {
    match std::env::var(MAJOR_VARIABLE) {
        Ok(major) => {
            let major = major
                .parse()
                .with_context(|| format!("{MAJOR_VARIABLE} is {major:?}"))?;
            crate::postgres_versions::bin_dir(major)
        }
        Err(_) => {
            check(&[Need::Postgres])?;
            installed_bin_dir().context("no PostgreSQL server is installed")
        }
    }
}

/// Debian keeps servers out of the PATH, one folder a major version.
pub(crate) fn installed_bin_dir() -> Option<PathBuf> {
    let majors = fs::read_dir("/usr/lib/postgresql").ok()?;
    let newest = majors
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|major| bin_dir_of(*major).join("postgres").exists())
        .max();
    newest.map(bin_dir_of).or_else(|| {
        let initdb = on_path("initdb")?;
        fs::canonicalize(initdb)
            .ok()?
            .parent()
            .map(Path::to_path_buf)
    })
}

pub(crate) fn bin_dir_of(major: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"))
}

pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// PostgreSQL refuses to run as root: then it runs as the package's own user, or else as `nobody`.
pub(crate) fn server_user() -> Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    let ids = |name: &str| {
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next()? == name;
            let user = fields.nth(1)?.parse().ok()?;
            let group = fields.next()?.parse().ok()?;
            found.then_some((user, group))
        })
    };
    let user = ids("postgres").or_else(|| ids("nobody"));
    user.map(Some).context("no user for PostgreSQL to run as")
}
