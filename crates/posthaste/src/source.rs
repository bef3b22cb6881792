//! Stage 1 of 9: Source. Opens the stream and reads it, one Frame at a time.
//!
//! Opening means: an SQL connection for the checks, a replication connection, the checks themselves,
//! the choice of the start position, START_REPLICATION. The SQL connection is closed again, unless the tables of parked
//! events need it: nothing that could break separately is kept without need.

use std::time::Duration;

use pgoutput::{InsertSkim, Lsn};
use replication::{ConnectError, CopyBoth, Frame, ReplicationClient, Skim, quote_ident};
use router::connect::Catalog;
use tokio_postgres::Client;
use tracing::warn;

use crate::catalog_watch::Outdated;
use crate::config::Pipeline as Settings;
use crate::connect_catalog;
use crate::connector_words;
use crate::feed::{Feed, ReadCatalog};
use crate::policy::RunError;
use crate::preconditions::{self, Checked, Wanted};
use crate::progress::Timing;
use crate::settings::connect_options;
use crate::slot::{Stream, explain_start_error};

/// Two connections and a server that fits: everything but the start of the stream.
#[derive(Debug)]
pub struct Opened {
    client: ReplicationClient,
    checked: Checked,
    sql: Option<Client>,
}

/// An open replication stream.
#[derive(Debug)]
pub struct Source {
    copy: CopyBoth,
    timing: Timing,
    /// Where Debezium is followed: how to reach the catalog again.
    settings: Option<Box<Settings>>,
    told: Told,
}

impl Opened {
    /// Connects and checks every precondition.
    ///
    /// # Errors
    ///
    /// A connection that fails, a precondition that does not hold, or a slot in use.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections. A publication or slot made on the way stays, whole.
    pub async fn open(settings: &Settings, wanted: &Wanted) -> Result<Self, RunError> {
        let options = connect_options(settings).await?;
        let (sql, client, checked) = preconditions::open(&options, wanted).await?;
        for warning in &checked.warnings {
            let text = connector_words::text_told_to(settings, &warning.text);
            warn!(code = %warning.code, "{text}");
        }
        let sql = Some(sql);
        Ok(Self {
            client,
            checked,
            sql,
        })
    }

    /// The connection for queries, for whoever needs it longer; otherwise it ends with the start of the stream.
    pub fn take_sql(&mut self) -> Option<Client> {
        self.sql.take()
    }

    /// A replication connection on which everything was checked.
    #[must_use]
    pub fn new(client: ReplicationClient, checked: Checked) -> Self {
        Self {
            client,
            checked,
            sql: None,
        }
    }

    /// What the checks found.
    #[must_use]
    pub fn checked(&self) -> &Checked {
        &self.checked
    }

    /// Starts the stream.
    ///
    /// # Errors
    ///
    /// The server refuses, or the connection was lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn start(
        self,
        settings: &Settings,
        wanted: &Wanted,
        start: Lsn,
    ) -> Result<Source, RunError> {
        let told = Told {
            slot: wanted.slot.clone(),
            publication: wanted.publication.clone(),
            start,
        };
        let mut copy = self
            .client
            .start_replication(&wanted.slot, start.as_u64(), &stream_options(wanted))
            .await
            .map_err(|error| told.explain(error))?;
        // Above what the protocol can express there is no limit to set.
        copy.set_frame_bytes_max(
            u32::try_from(settings.source.frame_bytes_max).unwrap_or(u32::MAX),
        );
        copy.set_skim(Box::<RowSkim>::default());
        Ok(Source {
            copy,
            timing: Timing::for_server(
                self.checked.wal_sender_timeout,
                settings.source.status_interval,
            ),
            settings: settings
                .connect
                .is_some()
                .then(|| Box::new(settings.clone())),
            told,
        })
    }
}

impl Source {
    /// A stream of a server that was not checked.
    #[cfg(test)]
    pub(crate) fn over(copy: CopyBoth) -> Self {
        Self {
            copy,
            timing: Timing::for_server(Duration::from_secs(60), Duration::from_secs(10)),
            settings: None,
            told: Told {
                slot: String::new(),
                publication: String::new(),
                start: Lsn::ZERO,
            },
        }
    }
}

impl Feed for Source {
    /// # Cancel safety
    ///
    /// Bytes read stay in the connection's own buffer when the future is dropped.
    async fn next_frame(&mut self) -> Result<Frame<'_>, RunError> {
        let Self { copy, told, .. } = self;
        copy.next_frame().await.map_err(|error| told.explain(error))
    }

    fn buffered_frame(&mut self) -> Result<Option<Frame<'_>>, RunError> {
        let Self { copy, told, .. } = self;
        copy.buffered_frame().map_err(|error| told.explain(error))
    }

    fn received_bytes(&self) -> u64 {
        self.copy.received_bytes()
    }

    async fn send(&mut self, body: &[u8]) -> Result<(), RunError> {
        match tokio::time::timeout(SEND_TIMEOUT, self.copy.send(body)).await {
            Ok(sent) => sent.map_err(|error| self.told.explain(error)),
            Err(_) => Err(RunError::Stalled {
                silent_for: SEND_TIMEOUT,
            }),
        }
    }

    async fn finish(self) {
        self.copy.finish().await;
    }

    fn timing(&self) -> Timing {
        self.timing
    }

    fn read_catalog(&self, outdated: &Outdated) -> ReadCatalog {
        let settings = self.settings.clone();
        let outdated = outdated.clone();
        Box::pin(async move {
            match settings {
                Some(settings) => connect_catalog::read_anew(&settings, &outdated).await,
                None => Ok((Lsn::new(u64::MAX), Catalog::new())),
            }
        })
    }
}

/// Of a frame above the limit, what [`Intake::handle_too_large`](crate::intake::Intake::handle_too_large) takes.
#[derive(Debug, Default)]
struct RowSkim(InsertSkim);

impl Skim for RowSkim {
    fn begin(&mut self) {
        self.0.begin();
    }

    fn pass(&mut self, piece: &[u8]) {
        self.0.pass(piece);
    }

    fn kept(&self) -> &[u8] {
        self.0.excerpt()
    }
}

/// The options of START_REPLICATION (manual: "Logical Streaming Replication Parameters").
///
/// Publication names are quoted *inside* the value, since the server splits it like a list of identifiers.
pub(crate) fn stream_options(wanted: &Wanted) -> Vec<(&'static str, String)> {
    let mut options = vec![
        ("proto_version", "1".to_owned()),
        ("publication_names", quote_ident(&wanted.publication)),
    ];
    if wanted.messages {
        options.push(("messages", "true".to_owned()));
    }
    options
}

/// What the server was told at the start of the stream, to say what its errors are about.
#[derive(Debug)]
struct Told {
    slot: String,
    publication: String,
    start: Lsn,
}

impl Told {
    fn explain(&self, error: ConnectError) -> RunError {
        let stream = Stream {
            slot: &self.slot,
            publication: &self.publication,
            position: self.start,
        };
        explain_start_error(stream, error).into()
    }
}

/// How long the socket may refuse a status update of 39 bytes.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_asked_for_only_where_they_are_wanted() {
        let mut wanted = Wanted {
            publication: "Orders".to_owned(),
            ..Wanted::default()
        };
        let names = |wanted: &Wanted| {
            let options = stream_options(wanted).into_iter();
            options.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&wanted), ["proto_version", "publication_names"]);
        wanted.messages = true;
        assert_eq!(
            stream_options(&wanted).last(),
            Some(&("messages", "true".to_owned()))
        );
    }
}
