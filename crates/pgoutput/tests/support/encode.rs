//! A writer of messages, for tests only, made from the manual's layouts and not from the decoder.

use pgoutput::{Column, Message, Relation, Tuple, TupleKind, Value};

/// A message that owns its parts, so that it can be generated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plain {
    Begin {
        final_lsn: u64,
        commit_time: i64,
        xid: u32,
    },
    Commit {
        commit_lsn: u64,
        end_lsn: u64,
        commit_time: i64,
    },
    Origin {
        commit_lsn: u64,
        name: String,
    },
    Relation(Relation),
    Type {
        oid: u32,
        namespace: String,
        name: String,
    },
    Insert {
        relation_id: u32,
        new: Vec<Cell>,
    },
    Update {
        relation_id: u32,
        old: Option<(TupleKind, Vec<Cell>)>,
        new: Vec<Cell>,
    },
    Delete {
        relation_id: u32,
        old: (TupleKind, Vec<Cell>),
    },
    Truncate {
        options: u8,
        relation_ids: Vec<u32>,
    },
    Logical {
        transactional: bool,
        lsn: u64,
        prefix: String,
        content: Vec<u8>,
    },
}

/// A [`Value`] that owns its bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    UnchangedToast,
    Text(Vec<u8>),
    Binary(Vec<u8>),
}

impl Plain {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer(Vec::new());
        match self {
            Self::Begin {
                final_lsn,
                commit_time,
                xid,
            } => {
                to.byte(b'B')
                    .put(final_lsn.to_be_bytes())
                    .put(commit_time.to_be_bytes())
                    .put(xid.to_be_bytes());
            }
            Self::Commit {
                commit_lsn,
                end_lsn,
                commit_time,
            } => {
                to.byte(b'C').byte(0).put(commit_lsn.to_be_bytes());
                to.put(end_lsn.to_be_bytes()).put(commit_time.to_be_bytes());
            }
            Self::Origin { commit_lsn, name } => {
                to.byte(b'O').put(commit_lsn.to_be_bytes()).string(name);
            }
            Self::Relation(relation) => to.relation(relation),
            Self::Type {
                oid,
                namespace,
                name,
            } => {
                to.byte(b'Y')
                    .put(oid.to_be_bytes())
                    .namespace(namespace)
                    .string(name);
            }
            Self::Logical {
                transactional,
                lsn,
                prefix,
                content,
            } => {
                to.byte(b'M')
                    .byte(u8::from(*transactional))
                    .put(lsn.to_be_bytes());
                to.string(prefix).counted(content);
            }
            change => change.encode_change(&mut to),
        }
        to.0
    }

    fn encode_change(&self, to: &mut Writer) {
        match self {
            Self::Insert { relation_id, new } => {
                to.byte(b'I')
                    .put(relation_id.to_be_bytes())
                    .tuple(TupleKind::New, new);
            }
            Self::Update {
                relation_id,
                old,
                new,
            } => {
                to.byte(b'U').put(relation_id.to_be_bytes());
                if let Some((kind, old)) = old {
                    to.tuple(*kind, old);
                }
                to.tuple(TupleKind::New, new);
            }
            Self::Delete {
                relation_id,
                old: (kind, old),
            } => {
                to.byte(b'D')
                    .put(relation_id.to_be_bytes())
                    .tuple(*kind, old);
            }
            Self::Truncate {
                options,
                relation_ids,
            } => {
                to.byte(b'T')
                    .put(u32::try_from(relation_ids.len()).unwrap().to_be_bytes())
                    .byte(*options);
                relation_ids.iter().for_each(|id| {
                    to.put(id.to_be_bytes());
                });
            }
            other => unreachable!("{other:?}"),
        }
    }
}

impl From<Message<'_>> for Plain {
    fn from(message: Message<'_>) -> Self {
        match message {
            Message::Begin {
                final_lsn,
                commit_time,
                xid,
            } => Self::Begin {
                final_lsn: final_lsn.as_u64(),
                commit_time: commit_time.as_i64(),
                xid,
            },
            Message::Commit {
                commit_lsn,
                end_lsn,
                commit_time,
            } => Self::Commit {
                commit_lsn: commit_lsn.as_u64(),
                end_lsn: end_lsn.as_u64(),
                commit_time: commit_time.as_i64(),
            },
            Message::Origin { commit_lsn, name } => Self::Origin {
                commit_lsn: commit_lsn.as_u64(),
                name: name.to_owned(),
            },
            Message::Relation(relation) => Self::Relation(relation),
            Message::Type {
                oid,
                namespace,
                name,
            } => Self::Type {
                oid,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            Message::Logical {
                transactional,
                lsn,
                prefix,
                content,
            } => Self::Logical {
                transactional,
                lsn: lsn.as_u64(),
                prefix: prefix.to_owned(),
                content: content.to_vec(),
            },
            change => change_from(change),
        }
    }
}

fn change_from(message: Message<'_>) -> Plain {
    match message {
        Message::Insert { relation_id, new } => Plain::Insert {
            relation_id,
            new: cells(&new),
        },
        Message::Update {
            relation_id,
            old,
            new,
        } => {
            let old = old.map(|old| (old.kind(), cells(&old)));
            Plain::Update {
                relation_id,
                old,
                new: cells(&new),
            }
        }
        Message::Delete { relation_id, old } => Plain::Delete {
            relation_id,
            old: (old.kind(), cells(&old)),
        },
        Message::Truncate {
            options,
            relation_ids,
        } => Plain::Truncate {
            options,
            relation_ids: relation_ids.iter().collect(),
        },
        other => unreachable!("{other:?}"),
    }
}

fn cells(tuple: &Tuple<'_>) -> Vec<Cell> {
    let cell = |value| match value {
        Value::Null => Cell::Null,
        Value::UnchangedToast => Cell::UnchangedToast,
        Value::Text(bytes) => Cell::Text(bytes.to_vec()),
        Value::Binary(bytes) => Cell::Binary(bytes.to_vec()),
    };
    tuple.columns().map(cell).collect()
}

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) -> &mut Self {
        self.put([byte])
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> &mut Self {
        self.0.extend_from_slice(&bytes);
        self
    }

    fn string(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self.byte(0)
    }

    fn namespace(&mut self, namespace: &str) -> &mut Self {
        self.string(if namespace == "pg_catalog" {
            ""
        } else {
            namespace
        })
    }

    fn counted(&mut self, bytes: &[u8]) {
        self.put(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        self.0.extend_from_slice(bytes);
    }

    fn count(&mut self, count: usize) {
        self.put(i16::try_from(count).unwrap().to_be_bytes());
    }

    fn relation(&mut self, relation: &Relation) {
        self.byte(b'R').put(relation.id.to_be_bytes());
        self.namespace(&relation.namespace)
            .string(&relation.name)
            .byte(relation.replica_identity);
        self.count(relation.columns.len());
        for Column {
            key,
            name,
            type_oid,
            type_modifier,
        } in &relation.columns
        {
            self.byte(u8::from(*key)).string(name);
            self.put(type_oid.to_be_bytes())
                .put(type_modifier.to_be_bytes());
        }
    }

    fn tuple(&mut self, kind: TupleKind, cells: &[Cell]) {
        self.byte(match kind {
            TupleKind::New => b'N',
            TupleKind::Key => b'K',
            TupleKind::Old => b'O',
        });
        self.count(cells.len());
        for cell in cells {
            match cell {
                Cell::Null => {
                    self.byte(b'n');
                }
                Cell::UnchangedToast => {
                    self.byte(b'u');
                }
                Cell::Text(bytes) => self.byte(b't').counted(bytes),
                Cell::Binary(bytes) => self.byte(b'b').counted(bytes),
            }
        }
    }
}
