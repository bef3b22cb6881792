//! The golden corpus: what real servers sent, scenario by scenario.
#![allow(dead_code, reason = "each includer uses its own part")]

use std::fs;
use std::path::{Path, PathBuf};

use pgoutput::Lsn;

/// One `.hex` file.
pub(crate) struct Scenario {
    pub(crate) path: PathBuf,
    /// The server's `version()`.
    pub(crate) version: String,
    pub(crate) messages: Vec<Captured>,
}

/// One line of it.
pub(crate) struct Captured {
    pub(crate) lsn: Lsn,
    pub(crate) xid: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Scenario {
    pub(crate) fn name(&self) -> String {
        self.path
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .into_owned()
    }

    /// `pg15`, from the folder.
    pub(crate) fn folder(&self) -> String {
        self.path
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned()
    }
}

/// Every scenario of every version under `tests/golden`, in a stable order.
pub(crate) fn scenarios(golden: &Path) -> Vec<Scenario> {
    let mut paths: Vec<PathBuf> = entries(golden)
        .filter(|path| path.is_dir())
        .flat_map(|folder| entries(&folder).collect::<Vec<_>>())
        .filter(|path| path.extension().is_some_and(|extension| extension == "hex"))
        .collect();
    paths.sort();
    assert!(
        !paths.is_empty(),
        "no golden files under {}",
        golden.display()
    );
    paths.into_iter().map(read).collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
}

fn read(path: PathBuf) -> Scenario {
    let text = fs::read_to_string(&path).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    let version = header.strip_prefix("# ").unwrap().to_owned();
    Scenario {
        path,
        version,
        messages: lines.lines().map(captured).collect(),
    }
}

// The form of a line is `position xid hexadecimal`.
fn captured(line: &str) -> Captured {
    let mut fields = line.split(' ');
    let mut field = || fields.next().unwrap();
    Captured {
        lsn: field().parse().unwrap(),
        xid: field().parse().unwrap(),
        bytes: from_hex(field()),
    }
}

fn from_hex(digits: &str) -> Vec<u8> {
    assert_eq!(digits.len() % 2, 0, "half a byte");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}
