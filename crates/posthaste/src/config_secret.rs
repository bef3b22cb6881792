//! Values that must never be seen: [`Secret`], connection URLs with a password inside, and files that hold secrets.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};

use crate::codes::{Code, Problem};
use crate::config_file::why_unread;

/// What is shown in place of a secret. It is valid wherever the secret is, so a printed configuration can be read again.
pub(crate) const REDACTED: &str = "********";

/// Larger files are no secrets, but a wrong path.
const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;

/// A text that `Debug`, `Display` and `Serialize` show as `********`; only [`Secret::reveal`] gives it away.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Every use of it is a place where the secret leaves: keep them few.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

/// A connection URL or keyword string, as libpq takes them. Shown with its passwords as `********`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ConnectionUrl(String);

impl ConnectionUrl {
    /// Wraps a URL without judging it.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The URL with its password.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConnectionUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_connection(&self.0))
    }
}

impl fmt::Debug for ConnectionUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&redact_connection(&self.0), f)
    }
}

impl Serialize for ConnectionUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Shows a connection URL or keyword string with every password replaced. What cannot be understood is hidden rather than shown.
pub(crate) fn redact_connection(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, rest))
            if !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric()) =>
        {
            format!("{scheme}://{}", redact_url_rest(rest))
        }
        _ => redact_keywords(text),
    }
}

/// The keywords a URL or keyword string already speaks about, whether as a keyword or as a part of the URL: `user`, `sslmode`, …
pub(crate) fn connection_keywords(text: &str) -> Vec<String> {
    let Some((_, rest)) = text.split_once("://") else {
        return keyword_pairs(text)
            .map(|pairs| pairs.into_iter().map(|(key, _)| key).collect())
            .unwrap_or_default();
    };
    let Some(UrlParts {
        user,
        password,
        place,
        query,
    }) = url_parts(rest)
    else {
        return Vec::new();
    };
    let (_, database) = place.split_once('/').unwrap_or((place, ""));
    let parts = [("user", user), ("password", password), ("dbname", database)];
    let said = parts
        .into_iter()
        .filter(|(_, part)| !part.is_empty())
        .map(|(keyword, _)| keyword.to_owned());
    let pairs = query
        .split('&')
        .filter_map(|pair| Some(percent_decoded(pair.split_once('=')?.0)));
    said.chain(pairs).collect()
}

/// Reads a secret from a file, without the one line break that editors and `echo` leave at its end.
///
/// # Errors
/// The file is missing, may not be read, is empty, too large or not UTF-8. The message names `key` and the path, never the content.
pub(crate) fn read_secret_file(key: &str, path: &Path) -> Result<Secret, Problem> {
    let problem = |found: String| {
        Problem::new(Code::ConfigSecretFile, key)
            .found(format!("file \"{}\" {found}", path.display()))
            .needed("a readable file of UTF-8 text that holds the secret alone")
            .fix("correct the path (relative paths start at the working directory), its rights or its content")
    };
    let mut bytes = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(SECRET_FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Err(problem(format!("unreadable ({})", why_unread(&error))).caused_by(error));
    }
    if bytes.len() as u64 > SECRET_FILE_BYTES_MAX {
        return Err(problem("larger than 64 KiB".to_owned()));
    }
    // The decoding error would carry the bytes along, so it is dropped.
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(problem("not UTF-8".to_owned()));
    };
    let secret = text.strip_suffix('\n').map_or(text.as_str(), |line| {
        line.strip_suffix('\r').unwrap_or(line)
    });
    if secret.is_empty() {
        return Err(problem("empty".to_owned()));
    }
    Ok(Secret::new(secret))
}

/// `rest` is what follows `://`.
fn redact_url_rest(rest: &str) -> String {
    let Some(UrlParts {
        user,
        password,
        place,
        query,
    }) = url_parts(rest)
    else {
        return REDACTED.to_owned();
    };
    let mut shown = match (user, password) {
        ("", "") => place.to_owned(),
        (user, "") => format!("{user}@{place}"),
        (user, _) => format!("{user}:{REDACTED}@{place}"),
    };
    if !query.is_empty() {
        let pairs: Vec<String> = query.split('&').map(redact_query_pair).collect();
        shown.push('?');
        shown.push_str(&pairs.join("&"));
    }
    shown
}

/// `user:password@place?query`; what is missing is empty. The place is hosts and database.
struct UrlParts<'a> {
    user: &'a str,
    password: &'a str,
    place: &'a str,
    query: &'a str,
}

/// Splits a URL as libpq does it. In one whose password should have been percent-encoded, since it has `@`, `/` or `?` in it,
/// the password reaches rather too far than not far enough; `None` if nobody can say where it ends.
fn url_parts(rest: &str) -> Option<UrlParts<'_>> {
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (credentials, place) = before_query.rsplit_once('@').unwrap_or(("", before_query));
    let hosts = place.split_once('/').map_or(place, |(hosts, _)| hosts);
    if query.contains('@') || !hosts.split(',').all(has_legal_port) {
        return None;
    }
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    Some(UrlParts {
        user,
        password,
        place,
        query,
    })
}

/// What stands behind the colon of a host is a port, or part of a password.
fn has_legal_port(host: &str) -> bool {
    host.ends_with(']')
        || host
            .rsplit_once(':')
            .is_none_or(|(_, port)| port.chars().all(|c| c.is_ascii_digit()))
}

fn redact_query_pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((key, _))
            if percent_decoded(key)
                .to_ascii_lowercase()
                .contains("password") =>
        {
            format!("{key}={REDACTED}")
        }
        _ => pair.to_owned(),
    }
}

/// `host=db password='it''s'`; a text that does not read like this is hidden as a whole.
fn redact_keywords(text: &str) -> String {
    let Some(pairs) = keyword_pairs(text) else {
        return REDACTED.to_owned();
    };
    let shown = pairs.into_iter().map(|(key, value)| {
        let value = if key.to_ascii_lowercase().contains("password") {
            REDACTED
        } else {
            value
        };
        format!("{key}={value}")
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Splits a keyword string; values keep their quotes. `None` if it is not one.
fn keyword_pairs(text: &str) -> Option<Vec<(String, &str)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let key = key.trim_end();
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        let after = after.trim_start();
        let length = keyword_value_length(after)?;
        pairs.push((key.to_owned(), after.get(..length)?));
        rest = after.get(length..)?.trim_start();
    }
    (!pairs.is_empty()).then_some(pairs)
}

/// Bytes of the value at the start of `text`; `None` if its quote is not closed.
fn keyword_value_length(text: &str) -> Option<usize> {
    let quoted = text.starts_with('\'');
    let mut characters = text.char_indices().skip(usize::from(quoted));
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            '\'' if quoted => return Some(at + 1),
            space if !quoted && space.is_ascii_whitespace() => return Some(at),
            _ => {}
        }
    }
    (!quoted).then_some(text.len())
}

/// Decodes `%41`; what is not a valid escape stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(redact_connection(text), expected);
        assert!(!redact_connection(text).contains("hunter2"));
        assert!(
            !format!(
                "{:?} {}",
                ConnectionUrl::new(text),
                ConnectionUrl::new(text)
            )
            .contains("hunter2")
        );
    }

    #[test]
    fn a_secret_shows_in_no_form() {
        let secret = Secret::new("hunter2");
        let shown = format!(
            "{secret} {secret:?} {:?} {}",
            Some(&secret),
            serde_json::to_string(&secret).expect("serializes")
        );
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(secret.reveal(), "hunter2");
    }

    #[test]
    fn a_url_keeps_all_but_its_password() {
        check(
            "postgres://app:hunter2@db:5432/orders?sslmode=require",
            "postgres://app:********@db:5432/orders?sslmode=require",
        );
        check("postgresql://app@db/orders", "postgresql://app@db/orders");
        check(
            "postgres://db/orders?user=app&password=hunter2",
            "postgres://db/orders?user=app&password=********",
        );
        check(
            "postgres://db?sslPassword=hunter2&x=1",
            "postgres://db?sslPassword=********&x=1",
        );
        check(
            "postgres://db?pass%77ord=hunter2",
            "postgres://db?pass%77ord=********",
        );
        check(
            "postgres://app:%68unter2:hunter2@[::1]/orders",
            "postgres://app:********@[::1]/orders",
        );
        check(
            "postgres:///orders?host=/run/postgresql",
            "postgres:///orders?host=/run/postgresql",
        );
    }

    #[test]
    fn a_password_that_was_not_encoded_stays_hidden_too() {
        check(
            "postgres://app:hunt/er@hunter2@db/orders",
            "postgres://app:********@db/orders",
        );
        check(
            "postgres://app:a/hunter2@db:1,[::1]:2/orders",
            "postgres://app:********@db:1,[::1]:2/orders",
        );
        check(
            "postgres://app:a?b=hunter2@db/orders",
            "postgres://********",
        );
        check(
            "postgres://app:1/a?b=hunter2&c=d@db/x",
            "postgres://********",
        );
        check("postgres://app:hunter2/x", "postgres://********");
        check("postgres://app:hunter2,b:1/x", "postgres://********");
    }

    proptest! {
        #[test]
        fn no_password_shows_whatever_surrounds_it(before in "[@/?#:&=%, a-z0-9]{0,8}", after in "[@/?#:&=%, a-z0-9]{0,8}") {
            // The part after is part of the password; so it has to be followed by what ends one.
            for url in [
                format!("postgres://app:{before}hunter2{after}@db:5432/orders?sslmode=require"),
                format!("postgres://app:{before}hunter2{after}@[::1]"),
            ] {
                let shown = redact_connection(&url);
                prop_assert!(!shown.contains("hunter2"), "{} {}", url, shown);
            }
        }
    }

    #[test]
    fn a_keyword_string_keeps_all_but_its_password() {
        check(
            "host=db password=hunter2 user=app",
            "host=db password=******** user=app",
        );
        check(
            "host = db password = 'hunter2 \\' hunter2' user=app",
            "host=db password=******** user=app",
        );
        check("password=hunter2", "password=********");
        check("password='hunter2", "********");
        check("hunter2", "********");
    }

    #[test]
    fn the_keywords_of_a_url_are_listed() {
        assert_eq!(
            connection_keywords("postgres://a:b@db/x?sslmode=require&host=h"),
            ["user", "password", "dbname", "sslmode", "host"]
        );
        assert_eq!(connection_keywords("postgres://a@db/x"), ["user", "dbname"]);
        assert_eq!(connection_keywords("postgres://db"), Vec::<String>::new());
        assert_eq!(
            connection_keywords("host=db password=x"),
            ["host", "password"]
        );
    }

    #[test]
    fn a_secret_file_loses_one_line_break_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        for (content, expected) in [
            ("hunter2\n", "hunter2"),
            ("hunter2\r\n", "hunter2"),
            (" hunter2 \n\n", " hunter2 \n"),
            ("hunter2", "hunter2"),
        ] {
            std::fs::write(&path, content).expect("written");
            assert_eq!(
                read_secret_file("k", &path).expect("read").reveal(),
                expected
            );
        }
    }

    #[test]
    fn an_unusable_secret_file_is_named_without_its_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        let missing = read_secret_file("source.password_file", &path)
            .expect_err("missing")
            .to_string();
        assert!(
            missing.starts_with("PH0114: source.password_file: found file \""),
            "{missing}"
        );
        let too_large = vec![b'x'; 70_000];
        for content in [b"\n".as_slice(), b"hunter2\xff", &too_large] {
            std::fs::write(&path, content).expect("written");
            let problem = read_secret_file("source.password_file", &path).expect_err("refused");
            assert!(!format!("{problem} {problem:?}").contains("hunter2"));
        }
    }
}
