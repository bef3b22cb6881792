//! Scratch folders and free ports: what a private server needs before it can start.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

/// A temporary folder of its own for one server or one test, removed when dropped unless [`Scratch::keep`] was called.
///
/// The folder may be entered, though not listed, by other users: a server started by root runs as another user and has
/// its own folder inside.
#[derive(Debug)]
pub struct Scratch {
    folder: Option<tempfile::TempDir>,
    path: PathBuf,
}

impl Scratch {
    /// Makes a new empty folder `posthaste-<label>-<random>` below the system's temporary folder.
    ///
    /// # Errors
    /// The folder cannot be made; there is nothing to clean up then.
    pub fn new(label: &str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("posthaste-{label}-"))
            .tempdir()
            .context("make a scratch folder")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))
            .context("open the scratch folder to the server's user")?;
        let path = folder.path().to_path_buf();
        Ok(Self {
            folder: Some(folder),
            path,
        })
    }

    /// Leaves the folder where it is when this value is dropped, for looking at it afterwards.
    pub fn keep(&mut self) {
        if let Some(folder) = self.folder.take() {
            self.path = folder.keep();
        }
    }

    /// Where the folder is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Ports are taken below Linux's ephemeral range (32768 on), so that no outgoing connection can occupy one while the
/// server that owns it is stopped for a moment.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Locked files, one a port; held until the process ends, so that two test processes never share a port.
static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Reserves a port of 127.0.0.1 that nothing listens on, for the rest of this process's life.
///
/// A server may be stopped and started on it again: no other caller of this function, in this or another process, is
/// given the same port meanwhile.
///
/// # Errors
/// No port of the range is free, or the folder of reservations cannot be written.
pub fn free_port() -> Result<u16> {
    let reservations = std::env::temp_dir().join("posthaste-ports");
    fs::create_dir_all(&reservations).context("make the folder of port reservations")?;
    // Everybody starts at a place of their own, else each call would walk over all that earlier ones took.
    let span = PORTS.end - PORTS.start;
    let offset = u16::try_from(std::process::id() % u32::from(span)).unwrap_or(0);
    let mut reserved = RESERVED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for step in 0..span {
        let port = PORTS.start + (offset + step) % span;
        let Ok(file) = File::create(reservations.join(port.to_string())) else {
            continue;
        };
        if file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            reserved.push(file);
            return Ok(port);
        }
    }
    bail!("no free port in {}..{}", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_goes_with_its_owner() {
        let scratch = Scratch::new("test").unwrap();
        let path = scratch.path().to_path_buf();
        fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_kept_scratch_folder_stays() {
        let mut scratch = Scratch::new("test").unwrap();
        scratch.keep();
        let path = scratch.path().to_path_buf();
        drop(scratch);
        assert!(path.exists());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn no_port_is_given_twice() {
        let mut ports: Vec<u16> = (0..20).map(|_| free_port().unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
