//! Routing: the native router or the one that does as Debezium does, as one type. The whole of a path uses one of them.

use std::collections::HashMap;

use pgoutput::{Relation, Row};
use router::connect::{Catalog, ConnectRouter, LogicalMessage, Routed, Tolerated};
use router::{RecordBuffer, RouteError, Router, RowSummary};

use crate::config::Pipeline;
use crate::explain;
use crate::policy::RunError;

/// What turns rows into records.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each connection, and it does not move"
)]
pub enum Routing {
    /// `[router]`.
    Native(Router),
    /// `[connect]`, or the configuration of a Debezium connector.
    Connect(Box<ConnectRouter>),
}

impl Routing {
    /// The router that the configuration asks for, knowing what the catalog says: types beneath domains, and where Debezium
    /// is followed also columns and defaults.
    ///
    /// # Errors
    ///
    /// Settings that contradict each other.
    pub fn new(
        settings: &Pipeline,
        run_id: &str,
        base_types: HashMap<u32, u32>,
        catalog: Option<Catalog>,
    ) -> Result<Self, RunError> {
        let Some(connect) = &settings.connect else {
            let mut router = Router::new(settings.router.clone())?;
            router.set_base_types(base_types);
            return Ok(router.into());
        };
        let mut router =
            ConnectRouter::new(connect.clone(), run_id).map_err(explain::connect_config)?;
        if let Some(catalog) = catalog {
            router.set_catalog(catalog);
        }
        Ok(router.into())
    }

    /// Whether records of this relation show what only the catalog has: defaults, whether NULL may stand, what types are
    /// made of.
    #[must_use]
    pub fn shows_catalog(&self, relation: &Relation) -> bool {
        match self {
            Self::Native(_) => false,
            Self::Connect(router) => router.captures(&relation.namespace, &relation.name),
        }
    }

    /// Adds what a later reading of the catalog says.
    pub fn extend_catalog(&mut self, later: Catalog) {
        match self {
            Self::Native(_) => {}
            Self::Connect(router) => router.extend_catalog(later),
        }
    }

    /// Takes note of a Type message.
    pub fn handle_type(&mut self, oid: u32, namespace: &str, name: &str) {
        match self {
            Self::Native(router) => router.handle_type(oid, namespace, name),
            Self::Connect(router) => router.handle_type(oid, namespace, name),
        }
    }

    /// Takes note of where a relation has its columns.
    pub fn handle_relation(&mut self, relation: &Relation) {
        match self {
            Self::Native(router) => router.handle_relation(relation),
            Self::Connect(router) => router.handle_relation(relation),
        }
    }

    /// Whether rows of this relation make records.
    #[must_use]
    pub fn is_outbox(&self, relation_id: u32) -> bool {
        match self {
            Self::Native(router) => router.is_outbox(relation_id),
            Self::Connect(router) => router.is_outbox(relation_id),
        }
    }

    /// What was sent although not all of it could be made what it was asked to be.
    #[must_use]
    pub fn tolerated(&self) -> Tolerated {
        match self {
            Self::Native(_) => Tolerated::default(),
            Self::Connect(router) => router.tolerated(),
        }
    }

    /// The column of the newest row of which a value could not be converted and was sent as NULL.
    #[must_use]
    pub fn nulled_column(&self) -> Option<&str> {
        match self {
            Self::Native(_) => None,
            Self::Connect(router) => router.nulled_column(),
        }
    }

    /// What the row says of itself; `None` if it is of no outbox table.
    #[must_use]
    pub fn summary<'a>(&'a self, row: &Row<'a>) -> Option<RowSummary<'a>> {
        match self {
            Self::Native(router) => router.summary(row),
            Self::Connect(router) => router.summary(row),
        }
    }

    /// Appends the row's record to `out`. `now_ms` is the wall clock, which only Debezium's router puts into records.
    ///
    /// # Errors
    ///
    /// When the row can make no record; `out` is as it was then.
    pub fn route(
        &mut self,
        row: &Row<'_>,
        now_ms: i64,
        out: &mut RecordBuffer,
    ) -> Result<Routed, RouteError> {
        match self {
            Self::Native(router) => Ok(if router.route(row, out)? {
                Routed::Record
            } else {
                Routed::NotOutbox
            }),
            Self::Connect(router) => router.route(row, now_ms, out),
        }
    }

    /// Appends the record of a logical message to `out`. The native router takes none.
    ///
    /// # Errors
    ///
    /// As [`Self::route`].
    pub fn route_message(
        &mut self,
        message: LogicalMessage<'_>,
        now_ms: i64,
        out: &mut RecordBuffer,
    ) -> Result<Routed, RouteError> {
        match self {
            Self::Native(_) => Ok(Routed::NotOutbox),
            Self::Connect(router) => router.route_message(message, now_ms, out),
        }
    }
}

impl From<Router> for Routing {
    fn from(router: Router) -> Self {
        Self::Native(router)
    }
}

impl From<ConnectRouter> for Routing {
    fn from(router: ConnectRouter) -> Self {
        Self::Connect(Box::new(router))
    }
}
