//! The password file (`~/.pgpass`): which line is ours, and whether the file may be trusted.

use crate::secret::Secret;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a line of the file is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) dbname: &'a str,
    pub(crate) user: &'a str,
}

/// Reads the file and looks the password up; a file that is not there holds none.
///
/// As libpq does, a file that others can read is passed over with a warning, never used.
pub(crate) fn password(path: &Path, wanted: Wanted<'_>) -> Option<Secret> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() {
        tracing::warn!(file = %path.display(), "password file is not a plain file, ignored");
        return None;
    }
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(
            file = %path.display(),
            "password file has group or world access, ignored; permissions should be u=rw (0600) or less"
        );
        return None;
    }
    match fs::read(path) {
        Ok(contents) => find(&contents, wanted),
        Err(error) => {
            tracing::warn!(file = %path.display(), kind = %error.kind(), "password file cannot be read");
            None
        }
    }
}

/// The password of the first line that matches `host:port:dbname:user:password`.
fn find(contents: &[u8], wanted: Wanted<'_>) -> Option<Secret> {
    let port = wanted.port.to_string();
    let fields = [wanted.host, &port, wanted.dbname, wanted.user];
    contents
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
        .find_map(|line| {
            fields
                .iter()
                .try_fold(line, |rest, field| strip_field(rest, field))
        })
        .map(|rest| Secret::new(unescape(rest)))
        .filter(|secret| !secret.expose().is_empty())
}

/// The rest of the line after a field that is `*` or, unescaped, equal to `wanted`.
fn strip_field<'a>(line: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    if let Some(rest) = line.strip_prefix(b"*:") {
        return Some(rest);
    }
    let mut expected = wanted.bytes();
    let mut bytes = line.iter();
    loop {
        let mut byte = *bytes.next()?;
        if byte == b':' {
            return expected.next().is_none().then_some(bytes.as_slice());
        }
        if byte == b'\\' {
            byte = *bytes.next()?;
        }
        if expected.next() != Some(byte) {
            return None;
        }
    }
}

/// The password ends at a bare colon, as in libpq; `\:` and `\\` stand for themselves.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut password = Vec::with_capacity(field.len());
    let mut bytes = field.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b':' => break,
            b'\\' => password.push(bytes.next().unwrap_or(b'\\')),
            _ => password.push(byte),
        }
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const WANTED: Wanted<'static> = Wanted {
        host: "db.internal",
        port: 5432,
        dbname: "orders",
        user: "app",
    };

    fn check(contents: &str, expected: Option<&str>) {
        let found = find(contents.as_bytes(), WANTED);
        assert_eq!(found, expected.map(Secret::new), "{contents:?}");
    }

    #[test]
    fn the_first_matching_line_wins() {
        check("db.internal:5432:orders:app:one\n*:*:*:*:two", Some("one"));
        check("*:*:*:*:two\ndb.internal:5432:orders:app:one", Some("two"));
        check("other:5432:orders:app:one\n", None);
        check("db.internal:5433:orders:app:one\n", None);
        check("db.internal:5432:order:app:one\n", None);
        check("db.internal:5432:orders:apps:one\n", None);
        check("", None);
    }

    #[test]
    fn a_star_matches_any_field_but_only_alone() {
        check("*:5432:*:app:p", Some("p"));
        check("db*:5432:*:app:p", None);
        check("*x:5432:*:app:p", None);
    }

    #[test]
    fn comments_and_line_ends_are_not_part_of_a_password() {
        check(
            "#db.internal:5432:orders:app:no\r\n*:*:*:*:yes\r\n",
            Some("yes"),
        );
        check("\n\n*:*:*:*:yes", Some("yes"));
    }

    #[test]
    fn escapes_are_resolved_in_names_and_passwords() {
        check(r"*:*:*:*:a\:b\\c", Some(r"a:b\c"));
        check("*:*:*:*:a:b", Some("a"));
        check(r"*:*:*:*:ends\", Some(r"ends\"));
        let ipv6 = Wanted {
            host: "::1",
            ..WANTED
        };
        assert_eq!(
            find(br"\:\:1:5432:orders:app:six", ipv6),
            Some(Secret::new("six"))
        );
    }

    #[test]
    fn short_lines_and_empty_passwords_do_not_match() {
        check("db.internal:5432:orders:app", None);
        check("db.internal:5432:orders:app:", None);
        check("db.internal", None);
        check("\\", None);
    }

    #[test]
    fn a_file_others_can_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pass");
        fs::write(&path, "*:*:*:*:secret\n").unwrap();
        for (mode, expected) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(password(&path, WANTED).is_some(), expected, "{mode:o}");
        }
        assert_eq!(password(&folder.path().join("absent"), WANTED), None);
        assert_eq!(password(folder.path(), WANTED), None);
    }
}
