//! The files that a client reads once, when it is made: certificates, keys, and secrets that stand in files of their own.
//!
//! A client that is at work needs none of them until a broker ends a connection; the next one is then made with what was
//! read long ago. So when brokers no longer let us in and a file is not what it was, a new client has to read it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::kafka_options::KafkaConfig;

/// What was there when the client was made.
#[derive(Debug)]
pub(crate) struct Files {
    seen: Vec<(PathBuf, Option<Stamp>)>,
    looked_at: Instant,
}

/// Enough to tell that a file was written or replaced, also behind a symbolic link; nothing of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    size_bytes: u64,
    inode: u64,
}

impl Files {
    /// The files of this configuration, as they are now.
    pub(crate) fn of(config: &KafkaConfig) -> Self {
        let locations = config
            .properties
            .iter()
            .filter(|(name, _)| LOCATIONS.contains(&name.as_str()))
            .map(|(_, path)| PathBuf::from(path));
        let paths = locations.chain(config.secret_files.iter().cloned());
        Self {
            seen: paths
                .map(|path| {
                    let stamp = Stamp::of(&path);
                    (path, stamp)
                })
                .collect(),
            looked_at: Instant::now(),
        }
    }

    /// Whether one of them is another by now. Looks at most once in [`LOOK_EVERY`]. A file that is gone is one that is being
    /// replaced: it says nothing yet.
    pub(crate) fn have_changed(&mut self) -> bool {
        if self.seen.is_empty() || self.looked_at.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked_at = Instant::now();
        self.seen.iter().any(|(path, seen)| {
            let now = Stamp::of(path);
            now.is_some() && now != *seen
        })
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            modified: found.modified().ok()?,
            size_bytes: found.len(),
            inode: found.ino(),
        })
    }
}

/// Properties whose value is the name of a file that is read when a client is made.
const LOCATIONS: [&str; 6] = [
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "https.ca.location",
];

/// Time between two looks, while brokers refuse us.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Files {
        let mut config = KafkaConfig {
            secret_files: vec![folder.join("secret")],
            ..KafkaConfig::default()
        };
        let ca = folder.join("ca.pem").display().to_string();
        config.properties.insert("ssl.ca.location".to_owned(), ca);
        let log = folder.join("other").display().to_string();
        config.properties.insert("ssl.key.password".to_owned(), log);
        let mut files = Files::of(&config);
        files.looked_at -= LOOK_EVERY;
        files
    }

    #[test]
    fn only_what_changes_counts_and_what_is_gone_does_not() {
        let folder = std::env::temp_dir().join(format!("posthaste-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["secret", "ca.pem", "other"] {
            std::fs::write(folder.join(name), "1").unwrap();
        }
        assert_eq!(files(&folder).seen.len(), 2);
        assert!(!files(&folder).have_changed());
        for name in ["secret", "ca.pem"] {
            let mut files = files(&folder);
            std::fs::remove_file(folder.join(name)).unwrap();
            assert!(!files.have_changed(), "{name} is gone");
            std::fs::write(folder.join(name), "22").unwrap();
            assert!(!files.have_changed(), "it was looked at a moment ago");
            files.looked_at -= LOOK_EVERY;
            assert!(files.have_changed(), "{name} is another");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
