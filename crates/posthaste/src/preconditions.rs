//! Preconditions: everything that has to hold before the stream starts, checked from the most basic thing on.
//!
//! The order of [`check`] is the order in which a person would have to repair: server, names, tables, publication,
//! slot. The first thing that is wrong is the only one reported. Nothing but catalogs is read, with every name spelled
//! out in full, so neither a right on the outbox nor a `search_path` is needed; and nothing is made before all that can
//! be known beforehand has been checked.

use std::collections::HashMap;
use std::time::Duration;

use pgoutput::Lsn;
use replication::{ConnectError, ConnectOptions, ReplicationClient, TimelineSwitch};
use router::TableName;
use router::connect::{Catalog, ConnectConfig};
use tokio_postgres::Client;

use crate::captured;
use crate::codes::{Code, Problem};
use crate::connect_catalog;
use crate::first_start::FirstStart;
use crate::preconditions_server::Server;
use crate::preconditions_table::{Table, base_types};
use crate::publication::{self, Publication};
use crate::slot::{self, Slot};
use crate::slot_explain;
use crate::slot_lost::{self, Gap};
use crate::state::{Identity, Stored};
use crate::timeline::History;

/// What the configuration asks for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The slot to read.
    pub slot: String,
    /// The publication to name in START_REPLICATION.
    pub publication: String,
    /// The outbox tables; if there are none, those that `connect` captures.
    pub tables: Vec<TableName>,
    /// Where Debezium is followed: which tables are captured, and that their catalog is read.
    pub connect: Option<Box<ConnectConfig>>,
    /// The columns the router maps, and whether it can do without each.
    pub columns: Vec<(String, bool)>,
    /// Whether the stream carries logical messages too.
    pub messages: bool,
    /// Whether publication and slot are made when both, or the slot alone, do not exist.
    pub create: bool,
    /// What a start without a slot has to respect.
    pub first_start: FirstStart,
    /// The position this pipeline remembers, from its state file or from the stream before. When it belongs to the slot
    /// asked for and that slot is gone, a new one would hide a hole, so none is made.
    pub previous: Option<Stored>,
    /// Whether a slot that is lost for good is made anew, which leaves a gap.
    pub recreate_lost: bool,
    /// Whether it matters if anything was ever read from the slot.
    pub slot_use: bool,
}

/// What was found, with all that streaming needs to know.
#[derive(Debug, Clone)]
pub struct Checked {
    /// As `server_version_num`: 150020.
    pub server_version: u32,
    /// Which cluster, database and slot this is; what a stored position must belong to.
    pub identity: Identity,
    /// `confirmed_flush_lsn` of the slot, or the consistent point of one just made.
    pub slot_confirmed: Lsn,
    /// How far the server had written its WAL.
    pub server_wal_position: Lsn,
    /// Its timeline and where that came from.
    pub history: History,
    /// Nothing was ever read from the slot; known only where [`Wanted::slot_use`] asks for it.
    pub slot_unread: bool,
    /// After how much silence of ours the server ends the stream; zero for never.
    pub wal_sender_timeout: Duration,
    /// For each domain type among the mapped columns, the type it is made of.
    pub base_types: HashMap<u32, u32>,
    /// What the catalog says of the outbox tables, where Debezium is followed.
    pub catalog: Option<Catalog>,
    /// What this check made.
    pub created: Created,
    /// What a slot made in place of a lost one does not have.
    pub gap: Option<Gap>,
    /// What works but deserves a word, each with its code; the caller logs them.
    pub warnings: Vec<Warning>,
}

/// Objects made by a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Created {
    /// The publication was made.
    pub publication: bool,
    /// The slot was made.
    pub slot: bool,
}

impl Created {
    const SLOT: Self = Self {
        publication: false,
        slot: true,
    };
}

/// A remark with a code, as one line of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The stable code.
    pub code: Code,
    /// The line to log.
    pub text: String,
}

/// Why streaming cannot start now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A person has to change something; trying again gives the same.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// The server is a standby. Another host of the list may be the primary: try on if there are several.
    #[error("{0}")]
    Standby(Problem),
    /// Somebody else reads the slot. Wait for it, and never end the other.
    #[error("replication slot {slot} is held by {}", holder(*pid))]
    Held {
        /// The slot.
        slot: String,
        /// The server process that holds it, if the server said.
        pid: Option<i32>,
    },
    /// A connection could not be made or was lost; [`ConnectError::is_transient`] says whether to retry.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection for queries was lost, or the server is going down. Heals by itself.
    #[error("the connection for queries was interrupted")]
    Interrupted(#[source] tokio_postgres::Error),
}

/// Connects twice and checks everything: the one way in which `posthaste run` reaches a server.
///
/// The connection for queries comes first, since a server that is wrong altogether often refuses the replication
/// connection with a riddle.
///
/// # Errors
/// See [`CheckError`]; each attempt reports one thing.
///
/// # Cancel safety
/// May be dropped at any time; see [`check`].
pub async fn open(
    options: &ConnectOptions,
    wanted: &Wanted,
) -> Result<(Client, ReplicationClient, Checked), CheckError> {
    let sql = replication::connect_sql(options).await?;
    Server::read(&sql).await?.judge()?;
    let mut replication = replication::connect_replication(options)
        .await
        .map_err(explain_refusal)?;
    let checked = check(&sql, &mut replication, wanted).await?;
    Ok((sql, replication, checked))
}

/// Checks every precondition and, when `wanted.create` says so, makes what is missing: publication first, then slot.
///
/// # Errors
/// See [`CheckError`]. Nothing made by this call is left behind by an error, unless the connection broke while the slot
/// was being made and it may exist: then the publication stays with it.
///
/// # Cancel safety
/// May be dropped at any time. A publication made by this call may then be left; the next call goes on from it.
pub async fn check(
    sql: &Client,
    replication: &mut ReplicationClient,
    wanted: &Wanted,
) -> Result<Checked, CheckError> {
    check_names(wanted)?;
    let server = Server::read(sql).await?;
    server.judge()?;
    judge_replication_end(replication).await?;
    let system = replication.identify_system().await?;
    let identity = Identity {
        system_identifier: system.system_id,
        timeline: system.timeline,
        database: server.database.clone(),
        slot: wanted.slot.clone(),
    };

    let wanted = &captured::with_tables(sql, wanted).await?;
    let mut warnings = Vec::new();
    let tables = read_tables(sql, &server, wanted, &mut warnings).await?;
    // The slot first: others make the publication before it, so a slot without a publication is really without one.
    let slot = Slot::read(sql, server.version, &wanted.slot).await?;
    let publication = Publication::read(sql, server.version, &wanted.publication, &tables).await?;
    let mut objects = Objects { publication, slot };
    if let Some(publication) = &objects.publication {
        warnings.extend(publication.judge(&server, &tables, &wanted.columns)?);
    }
    warnings.extend(objects.slot.as_ref().and_then(Slot::warning));
    let failover = |slot: &Slot| slot.failover_warning(wanted);
    warnings.extend(objects.slot.as_ref().and_then(failover));
    let lost_at = objects.give_up_lost(sql, &identity, wanted).await?;
    let plan = match lost_at {
        Some(_) => Plan::Create(Created::SLOT),
        None => objects.plan(&server, &identity, wanted)?,
    };
    let (slot_confirmed, created) = match plan {
        Plan::Use(confirmed) => (confirmed, Created::default()),
        Plan::Create(create) => {
            publication::judge_generated(&server, &tables, &wanted.columns)?;
            let confirmed = make(sql, replication, &server, &tables, wanted, create).await?;
            (confirmed, create)
        }
    };
    let gap = lost_at.map(|start| Gap {
        start,
        end: slot_confirmed,
    });
    warnings.extend(gap.map(|gap| gap.tell(&wanted.slot)));
    let catalog = connect_catalog::read_if_shown(sql, wanted, &tables).await?;
    let slot_unread =
        created.slot || (wanted.slot_use && Slot::is_unread(sql, &wanted.slot).await?);
    let history = History {
        timeline: system.timeline,
        switches: timeline_switches(replication, system.timeline).await?,
    };
    let mapped = tables
        .iter()
        .flat_map(|table| table.mapped_types(&wanted.columns));
    Ok(Checked {
        server_version: server.version,
        identity,
        slot_confirmed,
        server_wal_position: Lsn::new(system.wal_position),
        history,
        slot_unread,
        wal_sender_timeout: server.wal_sender_timeout,
        base_types: base_types(sql, mapped.collect()).await?,
        catalog,
        created,
        gap,
        warnings: warnings.iter().map(Warning::from).collect(),
    })
}

/// A server whose history file is gone can still be read: only a position of an earlier timeline cannot be placed then.
async fn timeline_switches(
    replication: &mut ReplicationClient,
    timeline: u32,
) -> Result<Option<Vec<TimelineSwitch>>, CheckError> {
    match replication.timeline_history(timeline).await {
        Ok(switches) => Ok(Some(switches)),
        Err(error) if !error.is_transient() => {
            tracing::warn!(
                timeline,
                "the server cannot tell the history of its timeline: {error}"
            );
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The two objects as they were found.
struct Objects {
    publication: Option<Publication>,
    slot: Option<Slot>,
}

/// What to do about them.
enum Plan {
    Use(Lsn),
    Create(Created),
}

impl Objects {
    /// Where asked for, takes the slot for gone if it is lost for good, and says where it stood.
    async fn give_up_lost(
        &mut self,
        sql: &Client,
        identity: &Identity,
        wanted: &Wanted,
    ) -> Result<Option<Lsn>, CheckError> {
        if !wanted.recreate_lost || self.publication.is_none() {
            return Ok(None);
        }
        let remembered = lost_position(wanted, identity);
        let lost_at = slot_lost::lost_at(self.slot.as_ref(), &identity.database, remembered);
        if let (Some(at), Some(_)) = (lost_at, &self.slot) {
            slot_lost::drop_slot(sql, wanted, at).await?;
            self.slot = None;
        }
        Ok(lost_at)
    }

    /// Decides between using, making and refusing. Pure: everything was read before.
    fn plan(
        &self,
        server: &Server,
        identity: &Identity,
        wanted: &Wanted,
    ) -> Result<Plan, CheckError> {
        match (&self.publication, &self.slot) {
            (Some(_), Some(slot)) => Ok(Plan::Use(slot.judge(&server.database)?)),
            (None, slot) if !wanted.create => {
                let problem = publication::missing(wanted, slot.as_ref());
                Err(match slot {
                    Some(_) => problem.into(),
                    None => wanted.first_start.explain(problem).into(),
                })
            }
            (None, Some(slot)) => {
                // A slot of the wrong kind is the more basic problem, a held one is none yet.
                match slot.judge(&server.database) {
                    Err(CheckError::Problem(problem)) => Err(problem.into()),
                    _ => {
                        Err(slot_explain::older_than_publication(slot, &wanted.publication).into())
                    }
                }
            }
            (publication, None) => {
                if let Some(previous) = lost_position(wanted, identity) {
                    return Err(slot_explain::lost(&wanted.slot, previous).into());
                }
                let missing = || slot_explain::missing(&wanted.slot);
                wanted.first_start.judge(server.version, missing)?;
                if !wanted.create {
                    return Err(wanted.first_start.explain(missing()).into());
                }
                let publication = publication.is_none();
                if publication && wanted.first_start.publication_exists {
                    return Err(publication::missing(wanted, None).into());
                }
                Ok(Plan::Create(Created {
                    publication,
                    slot: true,
                }))
            }
        }
    }
}

/// Where this slot stood when it was last read, if the saved position belongs to it.
///
/// The timeline is left out: a promotion that lost the slot is exactly what must not pass unnoticed.
fn lost_position(wanted: &Wanted, identity: &Identity) -> Option<Lsn> {
    let previous = wanted.previous.as_ref()?;
    let same = previous.identity.system_identifier == identity.system_identifier
        && previous.identity.database == identity.database
        && previous.identity.slot == identity.slot;
    same.then_some(previous.confirmed_lsn)
}

/// Makes what is missing, and takes back the publication when the slot cannot be made.
async fn make(
    sql: &Client,
    replication: &mut ReplicationClient,
    server: &Server,
    tables: &[Table],
    wanted: &Wanted,
    create: Created,
) -> Result<Lsn, CheckError> {
    slot::check_capacity(sql, server.slots_max).await?;
    if create.publication {
        publication::judge_rights(server, tables, wanted)?;
        publication::create(sql, wanted, tables).await?;
        tracing::info!(publication = wanted.publication, "publication created");
    }
    match Slot::create(sql, replication, wanted).await {
        Ok(confirmed) => {
            tracing::info!(slot = wanted.slot, position = %confirmed, "replication slot created");
            Ok(confirmed)
        }
        Err(error) => {
            if create.publication {
                take_back(sql, server, wanted).await;
            }
            Err(error)
        }
    }
}

/// Drops the publication made a moment ago, unless a slot of the name exists: that one may be in need of it.
async fn take_back(sql: &Client, server: &Server, wanted: &Wanted) {
    if let Ok(None) = Slot::read(sql, server.version, &wanted.slot).await {
        match publication::drop(sql, &wanted.publication).await {
            Ok(()) => return,
            Err(error) => tracing::debug!(%error, "dropping the publication failed"),
        }
    }
    tracing::warn!(
        publication = wanted.publication,
        "the publication just created was left in place, because the slot may exist or the server did not answer"
    );
}

async fn read_tables(
    sql: &Client,
    server: &Server,
    wanted: &Wanted,
    warnings: &mut Vec<Problem>,
) -> Result<Vec<Table>, CheckError> {
    let mut tables = Vec::with_capacity(wanted.tables.len());
    for name in &wanted.tables {
        let table = Table::read(sql, name, &server.database).await?;
        table.judge(&wanted.columns)?;
        warnings.extend(table.warning(&wanted.tables));
        tables.push(table);
    }
    Ok(tables)
}

/// With a list of hosts the two connections may have ended on different servers.
async fn judge_replication_end(replication: &mut ReplicationClient) -> Result<(), CheckError> {
    match replication.show("in_hot_standby").await?.as_deref() {
        Some("on") => Err(CheckError::Standby(slot_explain::standby(
            "the replication connection reached a standby",
        ))),
        _ => Ok(()),
    }
}

/// Names the server would refuse or, worse, cut off silently.
fn check_names(wanted: &Wanted) -> Result<(), Problem> {
    slot::check_name(&wanted.slot)?;
    check_name("source.publication", &wanted.publication)?;
    for table in &wanted.tables {
        check_name("source.tables", &table.schema)?;
        check_name("source.tables", &table.name)?;
    }
    Ok(())
}

fn check_name(key: &str, name: &str) -> Result<(), Problem> {
    if (1..=slot::NAME_BYTES_MAX).contains(&name.len()) && !name.contains('\0') {
        return Ok(());
    }
    Err(Problem::new(Code::ConfigName, key)
        .found(format!("{name:?}"))
        .needed("a name of 1 to 63 bytes")
        .fix("correct the name; longer ones would be cut off by the server"))
}

/// What a refused replication connection means, when a connection for queries with the same settings was accepted.
#[must_use]
pub fn explain_refusal(error: ConnectError) -> CheckError {
    let Some(server) = error.server() else {
        return error.into();
    };
    let problem = match server.sqlstate.as_str() {
        "42501" => slot_explain::right_missing(&server.message),
        // The words of PgBouncer; others may use other words but hardly another name for the parameter.
        "08P01"
            if server.message.contains("parameter") || server.message.contains("replication") =>
        {
            Problem::new(Code::ServerPooler, "server")
                .found(format!(
                    "it refuses a start-up parameter, as a connection pooler does: {}",
                    server.message
                ))
                .needed("a direct connection to PostgreSQL")
                .fix("give the address of the PostgreSQL server itself in source")
        }
        _ => return error.into(),
    };
    CheckError::Problem(problem.caused_by(error))
}

impl From<&Problem> for Warning {
    fn from(problem: &Problem) -> Self {
        Self {
            code: problem.code,
            text: problem.to_string(),
        }
    }
}

/// Sorts the error of a catalog query: the connection's troubles pass, a refusal does not.
impl From<tokio_postgres::Error> for CheckError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(server) = error.as_db_error() else {
            return Self::Interrupted(error);
        };
        let sqlstate = server.code().code();
        let passes = ["08", "40", "53", "57"]
            .iter()
            .any(|class| sqlstate.starts_with(class));
        // Lock not available: somebody is changing the table; later it is free.
        if passes || sqlstate == "55P03" {
            return Self::Interrupted(error);
        }
        let found = format!("SQLSTATE {sqlstate}: {}", server.message());
        let problem = Problem::new(Code::CatalogRefused, "query of the system catalogs")
            .found(found)
            .needed("the rights every role has on pg_catalog by default")
            .fix("see the server's message");
        Self::Problem(problem.caused_by(error))
    }
}

fn holder(pid: Option<i32>) -> String {
    pid.map_or_else(
        || "another session".to_owned(),
        |pid| format!("server process {pid}"),
    )
}
