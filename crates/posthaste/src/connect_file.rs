//! A Connect configuration's files: their texts, and what they refer to in other files and in the environment.
//!
//! `debezium` decides what the texts mean and never opens a file; here they are opened.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use debezium::{Finding, Format, Input, Lookup, ReadError, Reading};
use router::connect::DebeziumVersion;

use crate::codes::{Code, Problem};
use crate::config_file::why_unread;

/// Where a Connect configuration is, and what stands beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectFiles {
    /// The connector's file.
    pub file: PathBuf,
    /// `--format`, where neither name nor text tell it.
    pub format: Option<String>,
    /// The worker's properties file.
    pub worker: Option<PathBuf>,
    /// Bootstrap brokers, instead of the worker's.
    pub brokers: Option<String>,
    /// The version whose behaviour is followed; without one, the default of the router.
    pub version: Option<DebeziumVersion>,
    /// Where Kubernetes' secrets are mounted.
    pub secrets_directory: Option<PathBuf>,
}

/// What stands in the files themselves. It may hold secrets, so it is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    connector: String,
    worker: Option<String>,
}

impl ConnectFiles {
    /// Reads the files, and whatever they refer to.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or breaks the rules of its format. A key that cannot be followed is no error: it is in the
    /// [`Reading`].
    pub fn read(&self) -> Result<Reading, Problem> {
        self.interpret(&self.texts()?, &Outside::default())
    }

    /// Reads the files alone.
    ///
    /// # Errors
    ///
    /// One of them cannot be read.
    pub(crate) fn texts(&self) -> Result<Texts, Problem> {
        let worker = self.worker.as_deref().map(|path| text_of(path, "--worker"));
        Ok(Texts {
            connector: text_of(&self.file, "-c")?,
            worker: worker.transpose()?,
        })
    }

    /// Says what the files mean, and reads whatever they refer to.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub(crate) fn interpret(&self, texts: &Texts, outside: &Outside) -> Result<Reading, Problem> {
        let name = self.file.display().to_string();
        let format = self.format.as_deref().map(str::parse::<Format>).transpose();
        let format = format.map_err(malformed)?;
        let secrets_directory = self.secrets_directory.as_deref().map(Path::to_string_lossy);
        let mut input = Input::new(&texts.connector, &name, outside);
        input.format = format;
        input.worker = texts.worker.as_deref();
        input.brokers = self.brokers.as_deref();
        input.version = self.version.unwrap_or_default();
        input.secrets_directory = secrets_directory.as_deref();
        debezium::read(&input).map_err(malformed)
    }

    /// The message of a configuration in which something cannot be followed, with every such key. `None` if there is none.
    pub(crate) fn refusal(&self, reading: &Reading) -> Option<Problem> {
        let refused: Vec<&Finding> = reading.refused().collect();
        if refused.is_empty() {
            return None;
        }
        let keys: Vec<String> = refused
            .iter()
            .map(|finding| {
                let line = finding.to_string();
                let line = line.trim_start_matches("refused").trim_start();
                line.to_owned()
            })
            .collect();
        Some(
            Problem::new(
                Code::ConfigConnectRefused,
                format!("connector configuration \"{}\"", self.file.display()),
            )
            .found(format!(
                "{} that cannot be followed: {}",
                counted(refused.len()),
                keys.join(" | ")
            ))
            .needed("a configuration in which nothing has to be guessed or left out")
            .fix(format!(
                "change these keys as said; posthaste debezium check {} tells of every key",
                self.file.display()
            )),
        )
    }
}

/// `1 key`, `3 keys`.
pub(crate) fn counted(keys: usize) -> String {
    match keys {
        1 => "1 key".to_owned(),
        _ => format!("{keys} keys"),
    }
}

fn malformed(error: ReadError) -> Problem {
    let (what, found, fix) = match &error {
        ReadError::Syntax {
            file,
            line,
            what,
            fix,
        } => (
            format!("connector configuration \"{file}\", line {line}"),
            what.clone(),
            fix.clone(),
        ),
        ReadError::NotAConnector { file, what, fix } => (
            format!("connector configuration \"{file}\""),
            what.clone(),
            fix.clone(),
        ),
        ReadError::Argument { value, what, fix } => {
            (format!("\"{value}\""), what.clone(), fix.clone())
        }
        _ => (
            "connector configuration".to_owned(),
            error.to_string(),
            String::new(),
        ),
    };
    Problem::new(Code::ConfigConnectFile, what)
        .found(found)
        .needed("the configuration of a Debezium PostgreSQL connector, in one of its four formats")
        .fix(fix)
        .caused_by(error)
}

fn text_of(path: &Path, option: &str) -> Result<String, Problem> {
    let problem = |found: String| {
        Problem::new(
            Code::ConfigFileUnreadable,
            format!("configuration file \"{}\"", path.display()),
        )
        .found(found)
        .needed("a readable file of UTF-8 text, at most 1 MiB")
        .fix(format!(
            "correct the path given with {option}, or the rights of the file"
        ))
    };
    let bytes = bytes_of(path).map_err(|error| problem(why_unread(&error)).caused_by(error))?;
    let bytes = bytes.ok_or_else(|| problem("more than 1 MiB".to_owned()))?;
    // The decoding error would carry the bytes along, so only its position is kept.
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        problem(format!("bytes that are not UTF-8, after {valid} bytes"))
    })
}

/// The file's bytes; `None` if it is too large to be a configuration.
fn bytes_of(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= FILE_BYTES_MAX).then_some(bytes))
}

/// What lies outside of the configuration: this machine's files, and this process's environment.
#[derive(Default)]
pub(crate) struct Outside {
    asked: RefCell<BTreeSet<PathBuf>>,
}

impl Outside {
    /// The files that were asked for, whether they were there or not.
    pub(crate) fn into_paths(self) -> Vec<PathBuf> {
        self.asked.into_inner().into_iter().collect()
    }
}

impl Lookup for Outside {
    fn environment(&self, name: &str) -> Option<String> {
        // A name with `=` or a zero byte is none; asking for it would panic.
        let legal = !name.is_empty() && !name.contains(['=', '\0']);
        legal.then(|| std::env::var(name).ok()).flatten()
    }

    fn file(&self, path: &str) -> Option<String> {
        self.asked.borrow_mut().insert(path.into());
        String::from_utf8(bytes_of(Path::new(path)).ok()??).ok()
    }
}

/// A configuration is written by hand; anything larger is the wrong file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_none_have_no_value() {
        for name in ["", "A=B", "A\0B", "POSTHASTE_NO_SUCH_VARIABLE"] {
            assert_eq!(Outside::default().environment(name), None);
        }
        assert!(Outside::default().environment("PATH").is_some());
    }

    #[test]
    fn only_files_of_text_have_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("f");
        let path = file.to_str().expect("a path of text");
        assert_eq!(Outside::default().file(path), None);
        std::fs::write(&file, "text\n").expect("written");
        assert_eq!(Outside::default().file(path).as_deref(), Some("text\n"));
        std::fs::write(&file, b"\xFF").expect("written");
        assert_eq!(Outside::default().file(path), None);
        std::fs::write(&file, vec![b'a'; 1024 * 1024 + 1]).expect("written");
        assert_eq!(Outside::default().file(path), None);
        assert_eq!(
            Outside::default().file(folder.path().to_str().expect("text")),
            None
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let files = ConnectFiles {
            file: "/no/such/file.json".into(),
            ..ConnectFiles::default()
        };
        let problem = files.read().expect_err("no file");
        assert_eq!(problem.code, Code::ConfigFileUnreadable);
        assert!(problem.to_string().contains("/no/such/file.json"));
    }
}
