//! The walsender's command language, before streaming begins.

use crate::copyboth::CopyBoth;
use crate::error::ConnectError;
use crate::message::{Row, tag_name};
use crate::quote::{quote_command_literal, quote_ident};
use crate::session::Session;
use crate::wire::ANSWER_BYTES_MAX;
use std::fmt;

/// A replication connection to one database, idle between commands.
///
/// Commands wait for the server without limit (creating a slot waits for older transactions); put a
/// timeout around them where that matters, and drop the client when it strikes.
#[derive(Debug)]
pub struct ReplicationClient {
    session: Session,
    /// False while an answer is outstanding; a command dropped half-way leaves it so for ever.
    in_step: bool,
}

/// The answer to IDENTIFY_SYSTEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemIdentity {
    /// Made by initdb; the same on a primary and its standbys.
    pub system_id: String,
    /// Which branch of history the server is on.
    pub timeline: u32,
    /// How far its WAL is flushed.
    pub wal_position: u64,
    /// The database this connection is for.
    pub dbname: String,
}

/// One line of a timeline history: `timeline` ended at `end` and the next one of the list began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineSwitch {
    /// The timeline that was left.
    pub timeline: u32,
    /// Where it was left.
    pub end: u64,
}

impl ReplicationClient {
    pub(crate) fn new(session: Session) -> Self {
        Self {
            session,
            in_step: true,
        }
    }

    /// The server's major version, 0 if it could not be told.
    pub fn server_major(&self) -> u32 {
        self.session.server_major()
    }

    /// IDENTIFY_SYSTEM.
    ///
    /// # Errors
    ///
    /// `Server`, `Unreachable` for a lost connection, `Protocol`. The same for all commands here.
    ///
    /// # Cancel safety
    ///
    /// No command is cancel-safe: after one was dropped every further one is a `Protocol` error.
    pub async fn identify_system(&mut self) -> Result<SystemIdentity, ConnectError> {
        let rows = self.run("IDENTIFY_SYSTEM").await?;
        let field = |index: usize| text(&rows, index);
        let identity = (|| {
            Some(SystemIdentity {
                system_id: field(0)?.to_owned(),
                timeline: field(1)?.parse().ok()?,
                wal_position: parse_position(field(2)?)?,
                dbname: field(3)?.to_owned(),
            })
        })();
        identity.ok_or_else(|| ConnectError::protocol("the answer to IDENTIFY_SYSTEM"))
    }

    /// SHOW; `None` if the server does not know the setting.
    ///
    /// # Errors
    ///
    /// As [`identify_system`](Self::identify_system).
    pub async fn show(&mut self, setting: &str) -> Result<Option<String>, ConnectError> {
        let name = setting
            .split('.')
            .map(quote_ident)
            .collect::<Vec<_>>()
            .join(".");
        match self.run(&format!("SHOW {name}")).await {
            Ok(rows) => Ok(text(&rows, 0).map(str::to_owned)),
            Err(error) if error.sqlstate() == Some("42704") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// CREATE_REPLICATION_SLOT for the plugin `pgoutput`, without a snapshot. Returns the position
    /// from which on transactions are decoded completely.
    ///
    /// # Errors
    ///
    /// `Config` for a failover slot on a server older than 17; else as
    /// [`identify_system`](Self::identify_system).
    pub async fn create_logical_slot(
        &mut self,
        name: &str,
        failover: bool,
    ) -> Result<u64, ConnectError> {
        let command = create_slot_command(name, failover, self.server_major())?;
        let rows = self.run(&command).await?;
        let position = text(&rows, 1).and_then(parse_position);
        position.ok_or_else(|| ConnectError::protocol("the answer to CREATE_REPLICATION_SLOT"))
    }

    /// DROP_REPLICATION_SLOT; does not wait for a slot in use (SQLSTATE 55006).
    ///
    /// # Errors
    ///
    /// As [`identify_system`](Self::identify_system).
    pub async fn drop_slot(&mut self, name: &str) -> Result<(), ConnectError> {
        self.run(&format!("DROP_REPLICATION_SLOT {}", quote_ident(name)))
            .await
            .map(drop)
    }

    /// TIMELINE_HISTORY: the switches that led to `timeline`, oldest first. The first timeline has
    /// none, and the server is not asked.
    ///
    /// # Errors
    ///
    /// As [`identify_system`](Self::identify_system).
    pub async fn timeline_history(
        &mut self,
        timeline: u32,
    ) -> Result<Vec<TimelineSwitch>, ConnectError> {
        if timeline <= 1 {
            return Ok(Vec::new());
        }
        let rows = self.run(&format!("TIMELINE_HISTORY {timeline}")).await?;
        let history = text(&rows, 1).and_then(parse_history);
        history.ok_or_else(|| ConnectError::protocol("the answer to TIMELINE_HISTORY"))
    }

    /// START_REPLICATION from `start_lsn` or from what the slot has confirmed, whichever is later.
    ///
    /// Option values are quoted as they are: a list of publication names needs each name quoted
    /// with [`quote_ident`] inside the value.
    ///
    /// # Errors
    ///
    /// As [`identify_system`](Self::identify_system); a slot in use is SQLSTATE 55006.
    pub async fn start_replication(
        mut self,
        slot: &str,
        start_lsn: u64,
        options: &[(&str, String)],
    ) -> Result<CopyBoth, ConnectError> {
        self.check_in_step()?;
        let command = start_command(slot, start_lsn, options);
        self.session.wire.send_query(&command).await?;
        let message = self.session.wire.answer(ANSWER_BYTES_MAX).await?;
        if message.tag != b'W' {
            let context = format!(
                "message {} in the answer to START_REPLICATION",
                tag_name(message.tag)
            );
            return Err(ConnectError::protocol(context));
        }
        Ok(CopyBoth::new(self.session.wire))
    }

    /// Says goodbye. Dropping the client does as well, only the server then logs a lost connection.
    pub async fn close(self) {
        self.session.wire.terminate().await;
    }

    async fn run(&mut self, command: &str) -> Result<Vec<Row>, ConnectError> {
        self.check_in_step()?;
        self.in_step = false;
        let outcome = self.session.wire.query(command).await;
        // An error of the statement leaves the connection as it was.
        self.in_step = match &outcome {
            Ok(_) => true,
            Err(error) => error
                .server()
                .is_some_and(|error| error.severity == "ERROR"),
        };
        outcome
    }

    fn check_in_step(&self) -> Result<(), ConnectError> {
        if self.in_step {
            return Ok(());
        }
        Err(ConnectError::protocol(
            "an earlier command on this connection was not finished",
        ))
    }
}

fn create_slot_command(name: &str, failover: bool, major: u32) -> Result<String, ConnectError> {
    let slot = quote_ident(name);
    if failover && major < 17 {
        let reason = format!("failover slots need PostgreSQL 17 or later, the server has {major}");
        return Err(ConnectError::config("failover", reason));
    }
    let options = match (failover, major) {
        (true, _) => "(SNAPSHOT 'nothing', FAILOVER true)",
        (false, 15..) => "(SNAPSHOT 'nothing')",
        (false, _) => "NOEXPORT_SNAPSHOT",
    };
    Ok(format!(
        "CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput {options}"
    ))
}

fn start_command(slot: &str, start_lsn: u64, options: &[(&str, String)]) -> String {
    let mut command = format!(
        "START_REPLICATION SLOT {} LOGICAL {}",
        quote_ident(slot),
        Position(start_lsn)
    );
    if !options.is_empty() {
        let options = options
            .iter()
            .map(|(name, value)| format!("{} {}", quote_ident(name), quote_command_literal(value)));
        command.push_str(&format!(" ({})", options.collect::<Vec<_>>().join(", ")));
    }
    command
}

/// A WAL position in the manual's form, two hexadecimal halves.
struct Position(u64);

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

fn parse_position(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let (high, low) = (
        u32::from_str_radix(high, 16).ok()?,
        u32::from_str_radix(low, 16).ok()?,
    );
    Some(u64::from(high) << 32 | u64::from(low))
}

/// Lines of number, position and reason; comments begin with `#`.
fn parse_history(text: &str) -> Option<Vec<TimelineSwitch>> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.split_whitespace();
            Some(TimelineSwitch {
                timeline: fields.next()?.parse().ok()?,
                end: parse_position(fields.next()?)?,
            })
        })
        .collect()
}

/// A column of the first row as text.
fn text(rows: &[Row], index: usize) -> Option<&str> {
    std::str::from_utf8(rows.first()?.get(index)?.as_deref()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_created_in_the_servers_dialect() {
        for (failover, major, expected) in [
            (
                false,
                14,
                r#"CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput NOEXPORT_SNAPSHOT"#,
            ),
            (
                false,
                15,
                r#"CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput (SNAPSHOT 'nothing')"#,
            ),
            (
                true,
                17,
                r#"CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput (SNAPSHOT 'nothing', FAILOVER true)"#,
            ),
        ] {
            assert_eq!(create_slot_command("s", failover, major).unwrap(), expected);
        }
        assert!(create_slot_command("s", true, 16).is_err());
    }

    #[test]
    fn names_and_values_cannot_leave_their_quotes() {
        let options = [
            ("proto_version", "1".to_owned()),
            ("publication_names", r#""a,b","it's""#.to_owned()),
        ];
        assert_eq!(
            start_command(r#"s" LOGICAL 0/0"#, 0x16_B374_D848, &options),
            r#"START_REPLICATION SLOT "s"" LOGICAL 0/0" LOGICAL 16/B374D848 ("proto_version" '1', "publication_names" '"a,b","it''s"')"#
        );
        assert_eq!(
            start_command("s", 0, &[]),
            r#"START_REPLICATION SLOT "s" LOGICAL 0/0"#
        );
    }

    #[test]
    fn positions_are_read_in_both_halves() {
        assert_eq!(parse_position("16/B374D848"), Some(0x16_B374_D848));
        assert_eq!(parse_position("FFFFFFFF/FFFFFFFF"), Some(u64::MAX));
        for text in ["", "/", "1", "1/", "1/G", "100000000/0", "-1/0"] {
            assert_eq!(parse_position(text), None, "{text}");
        }
    }

    #[test]
    fn a_timeline_history_is_read_line_by_line() {
        let text = "1\t0/5000060\tno recovery target specified\n\n# comment\n2\t1/0\treason\n";
        let history = parse_history(text).unwrap();
        assert_eq!(history.len(), 2);
        assert_eq!(
            history[0],
            TimelineSwitch {
                timeline: 1,
                end: 0x500_0060
            }
        );
        assert_eq!(
            history[1],
            TimelineSwitch {
                timeline: 2,
                end: 1 << 32
            }
        );
        assert_eq!(parse_history("x\t0/1\t"), None);
        assert_eq!(parse_history(""), Some(Vec::new()));
    }
}
