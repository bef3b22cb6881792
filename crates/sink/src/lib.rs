//! Publishing to Kafka, and the position that follows the acknowledgements.
//!
//! # The promise
//!
//! [`Publisher::confirmed`] never passes a record that is not acknowledged by all in-sync replicas, never stands
//! inside a transaction, and never goes back. Records are enqueued in stream order, and nothing is enqueued behind
//! one that failed until the attempt is begun again. An acknowledgement is a delivery report for that very record;
//! no flush, no empty queue and no silence counts as one. With nothing outstanding and no transaction open, the
//! position follows the server's keepalives. Everything is bounded: records and bytes in flight, and what is
//! remembered of them.
//!
//! # The nouns
//!
//! A [`Batch`] is a stretch of the stream. The [`Publisher`] takes it apart: each record gets a [`Ticket`] from the
//! [`Tracker`] and goes to the [`Producer`], which gives the ticket back in a [`Delivery`]. The tracker turns the
//! tickets given back into a [`Confirmed`] position, and nothing else can make one.
//!
//! ```
//! use pgoutput::{Lsn, PgTimestamp, TransactionId};
//! use sink::Tracker;
//!
//! let mut tracker = Tracker::new(Lsn::new(0x10));
//! tracker.begin(TransactionId { final_lsn: Lsn::new(0x20), commit_time: PgTimestamp::new(0), xid: 7 });
//! let first = tracker.issue(100);
//! let second = tracker.issue(100);
//! tracker.commit(Lsn::new(0x28));
//!
//! tracker.ack(second);
//! assert_eq!(tracker.confirmed().as_lsn(), Lsn::new(0x10));
//! tracker.ack(first);
//! assert_eq!(tracker.confirmed().as_lsn(), Lsn::new(0x28));
//! ```

mod batch;
mod careful;
mod error;
mod kafka;
mod kafka_context;
mod kafka_creation;
mod kafka_files;
mod kafka_lookup;
mod kafka_opening;
mod kafka_options;
mod kafka_properties;
mod kafka_reader;
mod kafka_retention;
mod position;
mod position_topic;
mod producer;
mod publisher;
mod ticket;
mod tracker;
mod transactional;

pub use batch::{Batch, Entry, EventIdentity};
pub use careful::Careful;
pub use error::{Failure, KafkaConfigError, PublishError};
pub use kafka::{BrokerProbe, KafkaProducer};
pub use kafka_options::{KafkaConfig, ReadSecrets};
pub use kafka_properties::is_secret_property;
pub use kafka_reader::{ReadRecord, ReadTopicError, TopicReader};
pub use kafka_retention::is_compacted;
pub use position::{
    FORMAT_VERSION as POSITION_FORMAT_VERSION, OpenTransaction,
    PLAIN_VERSION as POSITION_PLAIN_VERSION, Position, PositionRecord, UNNOTED_ROWS_MAX,
};
pub use position_topic::{Kept, PositionTopic, PositionTopicError};
pub use producer::{Delivery, EnqueueError, Producer, Resume, TransactionCounts};
pub use publisher::{Accepted, Limits, Polled, Publisher};
pub use ticket::Ticket;
pub use tracker::{Ack, Confirmed, Tracker};
pub use transactional::{TransactionConfig, TransactionalProducer};
