//! From keywords with a value to connection settings: defaults, and every refusal.

use crate::dsn::{
    ConnectOptions, Host, Policy, RootCert, SslMode, SslOptions, TargetSession, TcpOptions,
};
use crate::dsn_keywords::{self, KEYWORDS, choice};
use crate::error::ConnectError;
use crate::secret::Secret;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// libpq waits without limit; a reader that must notice a frozen peer may not.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const PORT_DEFAULT: u16 = 5432;

/// Keywords with a value, whoever gave it. A value may be empty, which is not the same as absent:
/// the environment is then not asked.
#[derive(Default)]
pub(crate) struct Given(BTreeMap<&'static str, String>);

impl Given {
    pub(crate) fn set(&mut self, keyword: &str, value: String) -> Result<(), ConnectError> {
        self.0.insert(dsn_keywords::find(keyword)?.name, value);
        Ok(())
    }

    pub(crate) fn fill_from(&mut self, lookup: &dyn Fn(&str) -> Option<String>) {
        for keyword in KEYWORDS {
            if !self.0.contains_key(keyword.name) {
                let value = keyword.environment.and_then(lookup);
                self.0.extend(value.map(|value| (keyword.name, value)));
            }
        }
    }

    pub(crate) fn into_options(
        mut self,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ConnectOptions, ConnectError> {
        if let Some(name) = self
            .0
            .iter()
            .find_map(|(name, value)| value.contains('\0').then_some(*name))
        {
            return Err(ConnectError::config(name, "a zero byte is not allowed"));
        }
        self.check_fixed_words()?;
        let home = lookup("HOME")
            .filter(|home| !home.is_empty())
            .map(PathBuf::from);
        let hosts = self.hosts()?;
        let ssl = self.ssl(home.as_ref())?;
        let user = self
            .take("user")
            .or_else(|| lookup("USER"))
            .ok_or_else(|| {
                ConnectError::config("user", "not given, and the system does not name one")
            })?;
        Ok(ConnectOptions {
            hosts,
            ssl,
            dbname: self.take("dbname").unwrap_or_else(|| user.clone()),
            user,
            password: self.take("password").map(Secret::new),
            passfile: self
                .take("passfile")
                .map(PathBuf::from)
                .or_else(|| home.map(|home| home.join(".pgpass"))),
            channel_binding: self.channel_binding()?,
            application_name: self
                .take("application_name")
                .or_else(|| self.take("fallback_application_name")),
            connect_timeout: self.connect_timeout()?,
            target_session: self.target_session()?,
            tcp: self.tcp()?,
            options: self.options()?,
        })
    }

    /// Moves a value out, with empty as absent.
    fn take(&mut self, keyword: &str) -> Option<String> {
        self.0.remove(keyword).filter(|value| !value.is_empty())
    }

    /// Keywords whose every other value would change what we do: only the harmless ones pass.
    fn check_fixed_words(&mut self) -> Result<(), ConnectError> {
        for (keyword, legal) in [
            ("gssencmode", [("disable", ()), ("prefer", ())].as_slice()),
            ("load_balance_hosts", &[("disable", ())]),
            (
                "client_encoding",
                &[
                    ("UTF8", ()),
                    ("utf8", ()),
                    ("UTF-8", ()),
                    ("utf-8", ()),
                    ("auto", ()),
                ],
            ),
        ] {
            if let Some(value) = self.take(keyword) {
                choice(keyword, &value, legal)?;
            }
        }
        Ok(())
    }

    fn hosts(&mut self) -> Result<Vec<Host>, ConnectError> {
        let list = |text: Option<String>| {
            text.map(|text| {
                text.split(',')
                    .map(|item| item.trim().to_owned())
                    .collect::<Vec<_>>()
            })
        };
        let (names, addresses) = (list(self.take("host")), list(self.take("hostaddr")));
        let count = names.as_ref().or(addresses.as_ref()).map_or(1, Vec::len);
        let names = names.unwrap_or_else(|| vec![String::new(); count]);
        let addresses = addresses.unwrap_or_else(|| vec![String::new(); count]);
        if addresses.len() != count {
            let reason = format!("{} addresses for {count} hosts", addresses.len());
            return Err(ConnectError::config("hostaddr", reason));
        }
        let mut ports = list(self.take("port")).unwrap_or_else(|| vec![String::new()]);
        if let [port] = ports.as_slice() {
            ports = vec![port.clone(); count];
        }
        if ports.len() != count {
            let reason = format!("{} ports for {count} hosts", ports.len());
            return Err(ConnectError::config("port", reason));
        }
        let hosts = names.into_iter().zip(addresses).zip(ports);
        hosts
            .map(|((name, address), port)| {
                Ok(Host {
                    name,
                    address: parse_address(&address)?,
                    port: parse_port(&port)?,
                })
            })
            .collect()
    }

    fn ssl(&mut self, home: Option<&PathBuf>) -> Result<SslOptions, ConnectError> {
        let in_home = |file: &str| home.map(|home| home.join(".postgresql").join(file));
        let root = match self.take("sslrootcert") {
            Some(word) if word == "system" => RootCert::System,
            Some(path) => RootCert::File(path.into()),
            None => in_home("root.crt").map_or(RootCert::Absent, RootCert::File),
        };
        let mode = match self.take("sslmode") {
            Some(word) => choice(
                "sslmode",
                &word,
                &[
                    ("disable", SslMode::Disable),
                    ("prefer", SslMode::Prefer),
                    ("require", SslMode::Require),
                    ("verify-ca", SslMode::VerifyCa),
                    ("verify-full", SslMode::VerifyFull),
                ],
            )?,
            None if root == RootCert::System => SslMode::VerifyFull,
            None => SslMode::Prefer,
        };
        if root == RootCert::System && mode < SslMode::VerifyFull {
            return Err(ConnectError::config(
                "sslmode",
                "sslrootcert=system needs sslmode=verify-full: anybody can get a certificate from a public authority",
            ));
        }
        let direct = match self.take("sslnegotiation") {
            Some(word) => choice(
                "sslnegotiation",
                &word,
                &[("postgres", false), ("direct", true)],
            )?,
            None => false,
        };
        if direct && mode < SslMode::Require {
            return Err(ConnectError::config(
                "sslnegotiation",
                "direct needs sslmode=require, verify-ca or verify-full",
            ));
        }
        Ok(SslOptions {
            mode,
            root,
            cert: self
                .take("sslcert")
                .map(PathBuf::from)
                .or_else(|| in_home("postgresql.crt")),
            key: self
                .take("sslkey")
                .map(PathBuf::from)
                .or_else(|| in_home("postgresql.key")),
            direct,
        })
    }

    fn channel_binding(&mut self) -> Result<Policy, ConnectError> {
        let Some(word) = self.take("channel_binding") else {
            return Ok(Policy::Prefer);
        };
        choice(
            "channel_binding",
            &word,
            &[
                ("disable", Policy::Disable),
                ("prefer", Policy::Prefer),
                ("require", Policy::Require),
            ],
        )
    }

    fn target_session(&mut self) -> Result<TargetSession, ConnectError> {
        let Some(word) = self.take("target_session_attrs") else {
            return Ok(TargetSession::Any);
        };
        choice(
            "target_session_attrs",
            &word,
            &[
                ("any", TargetSession::Any),
                ("read-write", TargetSession::Primary),
                ("read-only", TargetSession::Standby),
                ("primary", TargetSession::Primary),
                ("standby", TargetSession::Standby),
                ("prefer-standby", TargetSession::PreferStandby),
            ],
        )
    }

    fn connect_timeout(&mut self) -> Result<Option<Duration>, ConnectError> {
        let Some(text) = self.take("connect_timeout") else {
            return Ok(Some(CONNECT_TIMEOUT_DEFAULT));
        };
        let seconds: i64 = number("connect_timeout", &text, "seconds, 0 for no limit")?;
        Ok(u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs))
    }

    fn tcp(&mut self) -> Result<TcpOptions, ConnectError> {
        let mut positive = |keyword: &str, unit: &str| -> Result<Option<u32>, ConnectError> {
            let Some(text) = self.take(keyword) else {
                return Ok(None);
            };
            let value: i64 = number(keyword, &text, unit)?;
            Ok(u32::try_from(value).ok().filter(|value| *value > 0))
        };
        let seconds = |value: Option<u32>| value.map(|value| Duration::from_secs(value.into()));
        Ok(TcpOptions {
            idle: seconds(positive(
                "keepalives_idle",
                "seconds, 0 for the system's default",
            )?),
            interval: seconds(positive(
                "keepalives_interval",
                "seconds, 0 for the system's default",
            )?),
            count: positive("keepalives_count", "probes, 0 for the system's default")?,
            user_timeout: positive(
                "tcp_user_timeout",
                "milliseconds, 0 for the system's default",
            )?
            .map(|value| Duration::from_millis(value.into())),
            keepalives: match self.take("keepalives") {
                Some(text) => number::<i64>("keepalives", &text, "1 for on, 0 for off")? != 0,
                None => true,
            },
        })
    }

    fn options(&mut self) -> Result<String, ConnectError> {
        let options = self.take("options").unwrap_or_default();
        let trailing = options
            .bytes()
            .rev()
            .take_while(|byte| *byte == b'\\')
            .count();
        // An open escape would swallow the blank before our pins.
        if trailing % 2 == 1 {
            return Err(ConnectError::config(
                "options",
                "ends with a single backslash",
            ));
        }
        Ok(options)
    }
}

fn parse_address(text: &str) -> Result<Option<IpAddr>, ConnectError> {
    if text.is_empty() {
        return Ok(None);
    }
    let address = text
        .parse()
        .map_err(|_| ConnectError::config("hostaddr", "not an IP address"))?;
    Ok(Some(address))
}

fn parse_port(text: &str) -> Result<u16, ConnectError> {
    if text.is_empty() {
        return Ok(PORT_DEFAULT);
    }
    // The text is not repeated: a `/` inside a password puts the password here.
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
        ConnectError::config(
            "port",
            "not a number from 1 to 65535 (in a URL, write `/`, `@` and `:` of a password as %2F, %40 and %3A)",
        )
    })
}

fn number<T: FromStr>(keyword: &str, text: &str, unit: &str) -> Result<T, ConnectError> {
    text.trim().parse().map_err(|_| {
        let reason = format!("\"{}\" is not a whole number ({unit})", text.escape_debug());
        ConnectError::config(keyword, reason)
    })
}
