//! Which keywords there are, which environment variable stands in for each, and which we refuse.

use crate::error::ConnectError;

/// What we do with a keyword of libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    /// Read and obeyed.
    Full,
    /// Known to libpq users, but refused: a setting that is silently ignored is a trap.
    Refused(&'static str),
}

pub(crate) struct Keyword {
    pub(crate) name: &'static str,
    pub(crate) environment: Option<&'static str>,
    pub(crate) support: Support,
}

const fn full(name: &'static str, environment: Option<&'static str>) -> Keyword {
    Keyword {
        name,
        environment,
        support: Support::Full,
    }
}

const fn refused(name: &'static str, reason: &'static str) -> Keyword {
    Keyword {
        name,
        environment: None,
        support: Support::Refused(reason),
    }
}

const NO_KERBEROS: &str = "Kerberos and GSSAPI are not supported";
const NOT_HERE: &str = "not supported";

pub(crate) const KEYWORDS: &[Keyword] = &[
    full("host", Some("PGHOST")),
    full("hostaddr", Some("PGHOSTADDR")),
    full("port", Some("PGPORT")),
    full("user", Some("PGUSER")),
    full("password", Some("PGPASSWORD")),
    full("passfile", Some("PGPASSFILE")),
    full("dbname", Some("PGDATABASE")),
    full("options", Some("PGOPTIONS")),
    full("application_name", Some("PGAPPNAME")),
    full("fallback_application_name", None),
    full("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    full("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    full("sslmode", Some("PGSSLMODE")),
    full("sslrootcert", Some("PGSSLROOTCERT")),
    full("sslcert", Some("PGSSLCERT")),
    full("sslkey", Some("PGSSLKEY")),
    full("sslnegotiation", Some("PGSSLNEGOTIATION")),
    full("channel_binding", Some("PGCHANNELBINDING")),
    full("keepalives", None),
    full("keepalives_idle", None),
    full("keepalives_interval", None),
    full("keepalives_count", None),
    full("tcp_user_timeout", None),
    full("client_encoding", None),
    full("gssencmode", None),
    full("load_balance_hosts", None),
    refused(
        "sslpassword",
        "encrypted keys are not supported; decrypt the key with `openssl pkey` and protect the file by its permissions",
    ),
    refused("sslcrl", "revocation lists are not supported"),
    refused("sslcrldir", "revocation lists are not supported"),
    refused("sslcertmode", NOT_HERE),
    refused("sslcompression", NOT_HERE),
    refused("sslsni", NOT_HERE),
    refused("sslkeylogfile", NOT_HERE),
    refused(
        "ssl_min_protocol_version",
        "not supported; TLS 1.2 and 1.3 are spoken",
    ),
    refused(
        "ssl_max_protocol_version",
        "not supported; TLS 1.2 and 1.3 are spoken",
    ),
    refused("min_protocol_version", NOT_HERE),
    refused("max_protocol_version", NOT_HERE),
    refused("requirepeer", NOT_HERE),
    refused("requiressl", "write sslmode=require"),
    refused("require_auth", "not supported; see channel_binding"),
    refused("scram_client_key", NOT_HERE),
    refused("scram_server_key", NOT_HERE),
    refused("krbsrvname", NO_KERBEROS),
    refused("gsslib", NO_KERBEROS),
    refused("gssdelegation", NO_KERBEROS),
    refused("service", "service files are not supported"),
    refused("servicefile", "service files are not supported"),
    refused(
        "replication",
        "set by this program for each connection it makes",
    ),
    refused("oauth_issuer", NOT_HERE),
    refused("oauth_client_id", NOT_HERE),
    refused("oauth_client_secret", NOT_HERE),
    refused("oauth_scope", NOT_HERE),
];

/// Finds the keyword, or says what it may have been meant to be.
///
/// # Errors
///
/// `Config` for a keyword libpq does not know, and for those we refuse.
pub(crate) fn find(name: &str) -> Result<&'static Keyword, ConnectError> {
    let Some(keyword) = KEYWORDS.iter().find(|keyword| keyword.name == name) else {
        return Err(unknown(name));
    };
    match keyword.support {
        Support::Full => Ok(keyword),
        Support::Refused(reason) => Err(ConnectError::config(name, reason)),
    }
}

fn unknown(name: &str) -> ConnectError {
    // A badly quoted password can end up here, so only what looks like a keyword is repeated.
    let shown = if name.len() <= 32 && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_')) {
        name
    } else {
        "(not shown)"
    };
    let names = KEYWORDS
        .iter()
        .filter(|keyword| keyword.support == Support::Full);
    let reason = match nearest(name, names.map(|keyword| keyword.name)) {
        Some(suggestion) => format!("unknown keyword; did you mean {suggestion}?"),
        None => "unknown keyword".to_owned(),
    };
    ConnectError::config(shown, reason)
}

/// Reads a value that must be one of a few words.
///
/// # Errors
///
/// `Config` with the legal list, and the nearest word of it if one is near.
pub(crate) fn choice<T: Copy>(
    keyword: &str,
    value: &str,
    legal: &[(&'static str, T)],
) -> Result<T, ConnectError> {
    if let Some((_, meaning)) = legal.iter().find(|(word, _)| *word == value) {
        return Ok(*meaning);
    }
    let list = legal
        .iter()
        .map(|(word, _)| *word)
        .collect::<Vec<_>>()
        .join(", ");
    let mut reason = format!("\"{}\" is not one of {list}", value.escape_debug());
    if let Some(suggestion) = nearest(value, legal.iter().map(|(word, _)| *word)) {
        reason.push_str(&format!("; did you mean {suggestion}?"));
    }
    Err(ConnectError::config(keyword, reason))
}

/// The word at most a third of its length of edits away; `_` for `-` and capitals count little.
fn nearest<'a>(value: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if value.is_empty() || value.len() > 64 {
        return None;
    }
    let folded = value.to_ascii_lowercase().replace('_', "-");
    words
        .map(|word| {
            (
                strsim::damerau_levenshtein(&folded, &word.replace('_', "-")),
                word,
            )
        })
        .filter(|(distance, word)| distance * 3 <= word.len().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_stands_once() {
        for (index, keyword) in KEYWORDS.iter().enumerate() {
            assert!(
                KEYWORDS[..index]
                    .iter()
                    .all(|other| other.name != keyword.name)
            );
        }
    }

    #[test]
    fn a_misspelt_keyword_is_refused_with_a_suggestion() {
        for (name, suggestion) in [
            ("sslmodus", "sslmode"),
            ("ssl_mode", "sslmode"),
            ("pasword", "password"),
            ("hosts", "host"),
            ("application-name", "application_name"),
            ("database", ""),
        ] {
            let text = find(name)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(text.contains("unknown keyword"), "{text}");
            assert!(text.contains(suggestion), "{text}");
        }
    }

    #[test]
    fn a_keyword_that_may_be_part_of_a_password_is_not_repeated() {
        let text = find("Hunter2-rest")
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            text.contains("(not shown)") && !text.contains("Hunter2"),
            "{text}"
        );
    }
}
