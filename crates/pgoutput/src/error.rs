//! `DecodeError`: why bytes or a sequence of messages could not be understood, and where.

use std::fmt;

use crate::Lsn;

/// The stream cannot be understood any further.
///
/// Carries positions and names, never values: it may be logged as it is. None of the variants heals
/// by itself; reading the same log again yields the same error, unless the connection garbled it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes contradict the layout of their own message: a defect here, in the server, or between.
    #[error("malformed {message} message at byte {offset}: {problem}")]
    Malformed {
        /// The manual's name for the message.
        message: &'static str,
        /// Bytes from the start of what was decoded.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// A byte that no protocol version known here has at this place: a newer server or a wrong plugin.
    #[error("unknown {place} 0x{byte:02X} at byte {offset}")]
    UnknownByte {
        /// What the byte should have been: "message tag", "tuple column kind", …
        place: &'static str,
        /// The byte found.
        byte: u8,
        /// Bytes from the start of what was decoded.
        offset: usize,
    },
    /// A message of a later protocol version: the stream was started with options this crate does not read.
    #[error(
        "{message} message (tag {tag:?}) belongs to protocol version {protocol_version}; start the stream with proto_version 1"
    )]
    LaterVersion {
        /// The manual's name for the message.
        message: &'static str,
        /// The tag byte found.
        tag: char,
        /// The protocol version that introduced it.
        protocol_version: u8,
    },
    /// A well-formed message that may not come here: messages were lost, repeated or reordered.
    #[error("{message} message at {lsn} breaks the protocol: {violation}")]
    Protocol {
        /// The manual's name for the message.
        message: &'static str,
        /// The log position the message came with.
        lsn: Lsn,
        /// The rule that was broken.
        violation: Violation,
    },
}

/// A rule about the order of messages, broken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The message belongs into a transaction and none is open.
    OutsideTransaction,
    /// Begin while a transaction is open.
    NestedBegin {
        /// Where the open transaction said it would commit.
        open_final_lsn: Lsn,
    },
    /// No Relation message has described this relation.
    UnknownRelation {
        /// The relation's id in the message.
        relation_id: u32,
    },
    /// The tuple does not fit its relation.
    ColumnCount {
        /// The relation, with its schema.
        relation: String,
        /// Columns the Relation message announced.
        expected: usize,
        /// Columns the tuple has.
        found: usize,
    },
    /// Commit of another position than Begin announced.
    CommitMismatch {
        /// What Begin announced.
        final_lsn: Lsn,
        /// What Commit says.
        commit_lsn: Lsn,
    },
    /// A commit record that would end before it begins; confirming its end could lose rows or repeat them.
    CommitEnd {
        /// Where the commit record begins.
        commit_lsn: Lsn,
        /// Where it is said to end.
        end_lsn: Lsn,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutsideTransaction => write!(f, "no transaction is open"),
            Self::NestedBegin { open_final_lsn } => {
                write!(
                    f,
                    "the transaction committing at {open_final_lsn} is still open"
                )
            }
            Self::UnknownRelation { relation_id } => {
                write!(f, "relation {relation_id} was never described")
            }
            Self::ColumnCount {
                relation,
                expected,
                found,
            } => {
                write!(
                    f,
                    "{found} columns for relation {relation}, which was described with {expected}"
                )
            }
            Self::CommitMismatch {
                final_lsn,
                commit_lsn,
            } => {
                write!(
                    f,
                    "commit at {commit_lsn} of a transaction announced for {final_lsn}"
                )
            }
            Self::CommitEnd {
                commit_lsn,
                end_lsn,
            } => {
                write!(
                    f,
                    "commit at {commit_lsn} ends at {end_lsn}, which is not behind it"
                )
            }
        }
    }
}

/// The manual's name for the message with this tag, for errors; envelopes and messages share no tag.
pub(crate) fn message_name(tag: u8) -> &'static str {
    match tag {
        b'w' => "XLogData",
        b'k' => "Keepalive",
        b'B' => "Begin",
        b'C' => "Commit",
        b'O' => "Origin",
        b'R' => "Relation",
        b'Y' => "Type",
        b'I' => "Insert",
        b'U' => "Update",
        b'D' => "Delete",
        b'T' => "Truncate",
        b'M' => "Message",
        later => later_version(later).map_or("unknown", |(name, _)| name),
    }
}

/// Name and protocol version of a message that only versions above 1 have.
pub(crate) fn later_version(tag: u8) -> Option<(&'static str, u8)> {
    Some(match tag {
        b'S' => ("Stream Start", 2),
        b'E' => ("Stream Stop", 2),
        b'c' => ("Stream Commit", 2),
        b'A' => ("Stream Abort", 2),
        b'b' => ("Begin Prepare", 3),
        b'P' => ("Prepare", 3),
        b'K' => ("Commit Prepared", 3),
        b'r' => ("Rollback Prepared", 3),
        b'p' => ("Stream Prepare", 3),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &DecodeError, expected: &str) {
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn texts_say_what_and_where() {
        check(
            &DecodeError::Malformed {
                message: "Insert",
                offset: 7,
                problem: "a negative length",
            },
            "malformed Insert message at byte 7: a negative length",
        );
        check(
            &DecodeError::UnknownByte {
                place: "message tag",
                byte: b'Z',
                offset: 0,
            },
            "unknown message tag 0x5A at byte 0",
        );
        check(
            &DecodeError::LaterVersion {
                message: "Stream Start",
                tag: 'S',
                protocol_version: 2,
            },
            "Stream Start message (tag 'S') belongs to protocol version 2; start the stream with proto_version 1",
        );
    }

    #[test]
    fn violations_name_both_sides() {
        let violation = |violation| DecodeError::Protocol {
            message: "Commit",
            lsn: Lsn::new(0x2A),
            violation,
        };
        check(
            &violation(Violation::OutsideTransaction),
            "Commit message at 0/2A breaks the protocol: no transaction is open",
        );
        check(
            &violation(Violation::CommitMismatch {
                final_lsn: Lsn::new(1),
                commit_lsn: Lsn::new(2),
            }),
            "Commit message at 0/2A breaks the protocol: commit at 0/2 of a transaction announced for 0/1",
        );
        check(
            &violation(Violation::ColumnCount {
                relation: "public.outbox".to_owned(),
                expected: 3,
                found: 2,
            }),
            "Commit message at 0/2A breaks the protocol: 2 columns for relation public.outbox, which was described with 3",
        );
    }
}
