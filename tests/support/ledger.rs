//! What was committed: the truth that the topics are compared with.

use std::collections::HashMap;

use anyhow::Result;
use tokio_postgres::Client;

/// Committed events by id.
///
/// Versions are taken under the aggregate's row lock, so among the events of one key the order of
/// versions is the order of commits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    events: HashMap<String, Event>,
}

/// One committed event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The aggregate id, which is the Kafka key.
    pub key: String,
    /// Its place among the events of this key.
    pub version: i64,
}

impl Ledger {
    /// Reads the committed events from the outbox table, which nothing deletes from in these tests.
    ///
    /// This is what settles a commit whose answer was lost with the connection.
    ///
    /// # Errors
    /// The query failed.
    pub async fn from_table(client: &Client) -> Result<Self> {
        let rows = client
            .query(
                "SELECT id::text, aggregateid, aggregate_version FROM public.outbox",
                &[],
            )
            .await?;
        let mut ledger = Self::default();
        for row in rows {
            ledger.insert(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        }
        Ok(ledger)
    }

    /// Notes one committed event.
    pub fn insert(&mut self, id: String, key: String, version: i64) {
        self.events.insert(id, Event { key, version });
    }

    /// Adds the events of another writer.
    pub fn extend(&mut self, other: Self) {
        self.events.extend(other.events);
    }

    /// The event of this id, if it was committed.
    pub fn get(&self, id: &str) -> Option<&Event> {
        self.events.get(id)
    }

    /// How many events were committed.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True before the first commit.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// All events with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Event)> {
        self.events.iter().map(|(id, event)| (id.as_str(), event))
    }
}
