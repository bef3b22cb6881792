//! How far was read: which transaction or message is the newest, and which position is needed to be done with it.

use pgoutput::Lsn;

/// How far something was read or handed over. The later of two is the greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reach {
    newest: Lsn,
    done_at: Lsn,
}

impl Reach {
    /// To a transaction whose commit begins at `commit_lsn`. A position passes the whole commit: one that stands just there is
    /// the end of the transaction before.
    #[must_use]
    pub fn transaction(commit_lsn: Lsn) -> Self {
        Self {
            newest: commit_lsn,
            done_at: Lsn::new(commit_lsn.as_u64().saturating_add(1)),
        }
    }

    /// To a message outside of transactions. Its place is the end of its log record, so a position that stands there has
    /// passed it.
    #[must_use]
    pub fn message(lsn: Lsn) -> Self {
        Self {
            newest: lsn,
            done_at: lsn,
        }
    }

    /// Where the commit of the newest transaction begins, or where the newest message stands; zero for none.
    #[must_use]
    pub fn newest(self) -> Lsn {
        self.newest
    }

    /// Whether a confirmed position covers everything up to here.
    #[must_use]
    pub fn is_done_at(self, confirmed: Lsn) -> bool {
        confirmed >= self.done_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_to_be_passed_and_a_message_only_reached() {
        let at = Lsn::new(100);
        let transaction = Reach::transaction(at);
        assert!(!transaction.is_done_at(at), "the end of the one before");
        assert!(transaction.is_done_at(Lsn::new(108)));
        let message = Reach::message(at);
        assert!(!message.is_done_at(Lsn::new(99)));
        assert!(message.is_done_at(at));
        assert!(Reach::default().is_done_at(Lsn::ZERO), "nothing was read");
        assert_eq!(transaction.max(message), transaction);
        assert_eq!(
            Reach::message(Lsn::new(200)).max(transaction).newest(),
            Lsn::new(200)
        );
    }
}
