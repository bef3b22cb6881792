//! What waits in a slot, counted by reading it as `run` would, and confirming nothing.

use std::time::{Duration, Instant};

use debezium::offset::{Waiting, WaitingRow};
use pgoutput::{
    Envelope, Lsn, Message, Step, TransactionId, Transactions, decode, peek_relation_id,
};
use replication::Frame;
use router::RecordBuffer;
use router::connect::{LogicalMessage, Routed};
use sink::Tracker;

use crate::clock::Now;
use crate::feed::Feed;
use crate::intake::IntakeError;
use crate::policy::RunError;
use crate::progress::Progress;
use crate::routing::Routing;
use crate::source::Source;

/// Reads to `until`, or to the limits once the open transaction is behind. Returns whether everything was read.
///
/// The status updates that keep the server listening carry position zero, which it takes for none: the slot stays where it is.
///
/// # Errors
/// The connection was lost, or what arrives cannot be decoded.
///
/// # Cancel safety
/// Dropping the future closes the connection; nothing is changed.
pub(crate) async fn count(
    mut source: Source,
    routing: Routing,
    until: Lsn,
    waiting: &mut Waiting,
) -> Result<bool, RunError> {
    let nothing = Tracker::new(Lsn::ZERO).confirmed();
    let mut progress = Progress::new(nothing, Now::read(), source.timing());
    let mut counter = Counter {
        transactions: Transactions::new(),
        routing,
        records: RecordBuffer::new(),
        until,
        begun: None,
        transactions_begun: 0,
        waiting,
    };
    let started = Instant::now();
    let whole = loop {
        let now = Now::read();
        // Heard from, whatever it says; nothing is told back.
        progress.handle_bytes(source.received_bytes(), now);
        if progress.is_stalled(now) {
            return Err(RunError::Stalled {
                silent_for: progress.silence_max(),
            });
        }
        if let Some(status) = progress.poll_status(now) {
            source.send(&status.encode()).await?;
        }
        let wake_at = progress.next_deadline(now).into();
        tokio::select! {
            biased;
            frame = source.next_frame() => {
                if counter.take(frame?)? == Next::End {
                    break true;
                }
            }
            () = tokio::time::sleep_until(wake_at) => {}
        }
        // The transaction in question is the first one that Connect has not seen the end of.
        let enough = counter.waiting.rows() >= ROWS_MAX || started.elapsed() >= TIME_MAX;
        if enough && counter.transactions_begun > 1 && counter.waiting.is_past_open() {
            break false;
        }
    };
    source.finish().await;
    Ok(whole)
}

struct Counter<'a> {
    transactions: Transactions,
    routing: Routing,
    records: RecordBuffer,
    until: Lsn,
    begun: Option<TransactionId>,
    transactions_begun: u64,
    waiting: &'a mut Waiting,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    More,
    End,
}

impl Counter<'_> {
    fn take(&mut self, frame: Frame<'_>) -> Result<Next, RunError> {
        match frame {
            Frame::Data(body) => match Envelope::parse(body).map_err(IntakeError::from)? {
                Envelope::XLogData {
                    start_lsn, message, ..
                } => self.message(start_lsn, message),
                Envelope::Keepalive { wal_end, .. } => {
                    let at_end = !self.transactions.is_open() && wal_end >= self.until;
                    Ok(if at_end { Next::End } else { Next::More })
                }
            },
            Frame::TooLarge { head, .. } => {
                self.too_large(head);
                Ok(Next::More)
            }
            Frame::End => Err(RunError::StreamEnded),
        }
    }

    fn message(&mut self, start_lsn: Lsn, message: &[u8]) -> Result<Next, RunError> {
        let message = decode(message).map_err(IntakeError::from)?;
        if let Message::Type {
            oid,
            namespace,
            name,
        } = &message
        {
            self.routing.handle_type(*oid, namespace, name);
        }
        let step = self.transactions.handle(start_lsn, message);
        match step.map_err(IntakeError::from)? {
            Step::Begin(transaction) => {
                self.begun = Some(transaction);
                self.transactions_begun += 1;
                if transaction.final_lsn >= self.until {
                    return Ok(Next::End);
                }
            }
            Step::Relation(relation) => self.routing.handle_relation(relation),
            Step::Insert(row) if self.routing.is_outbox(row.relation.id) => {
                self.waiting.push(WaitingRow {
                    transaction: Some(row.transaction.xid),
                    final_lsn: row.transaction.final_lsn,
                    lsn: row.lsn,
                });
            }
            Step::Logical {
                transaction,
                insert_index,
                lsn,
                prefix,
                content,
            } => {
                let message = LogicalMessage {
                    transaction,
                    insert_index,
                    lsn,
                    prefix,
                    content,
                };
                // One that cannot be routed stops `run` there; here it counts, since Debezium may have sent it.
                let routed = self.routing.route_message(message, 0, &mut self.records);
                self.records.clear();
                if !matches!(routed, Ok(Routed::NotOutbox)) {
                    self.waiting.push(WaitingRow {
                        // Outside of any transaction it is a unit of its own, at its own place.
                        transaction: transaction.map(|transaction| transaction.xid),
                        final_lsn: transaction.map_or(lsn, |transaction| transaction.final_lsn),
                        lsn,
                    });
                }
            }
            Step::Insert(_) | Step::Ignored(_) | Step::Commit { .. } => {}
        }
        Ok(Next::More)
    }

    /// A row that was read past. It may be one that `run` will stop at; for the count it is one like any other.
    fn too_large(&mut self, head: &[u8]) {
        let (
            Ok(Envelope::XLogData {
                start_lsn, message, ..
            }),
            Some(transaction),
        ) = (Envelope::parse(head), self.begun)
        else {
            return;
        };
        let is_outbox = peek_relation_id(message).is_some_and(|id| self.routing.is_outbox(id));
        if message.first() == Some(&b'I') && is_outbox {
            self.waiting.push(WaitingRow {
                transaction: Some(transaction.xid),
                final_lsn: transaction.final_lsn,
                lsn: start_lsn,
            });
        }
    }
}

/// Rows after which counting ends: more than this is said as "more than".
const ROWS_MAX: u64 = 10_000_000;

/// Time after which counting ends.
const TIME_MAX: Duration = Duration::from_secs(60);
