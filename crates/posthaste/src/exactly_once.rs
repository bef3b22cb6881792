//! Exactly once, what it needs beside the producer: from before the slot is ours until the stream goes on.

use pgoutput::Lsn;
use sink::{Confirmed, Kept, Resume, TransactionConfig};

use crate::claim::{self, Here, Judged};
use crate::clock::Clock;
use crate::codes::Problem;
use crate::feed::Feed;
use crate::policy::RunError;
use crate::positions::Positions;
use crate::preconditions::{Checked, Wanted};
use crate::publishing::Publishing;
use crate::source::stream_options;

/// Where the positions of one pipeline are kept, and what the operator said of them.
#[derive(Debug)]
pub(crate) struct ExactlyOnce<P> {
    config: TransactionConfig,
    positions: P,
    /// The operator wants to go on from the slot's position, whatever is written; at the next start only.
    is_accepted: bool,
}

impl<P: Positions> ExactlyOnce<P> {
    pub(crate) fn new(config: TransactionConfig, positions: P, is_accepted: bool) -> Self {
        Self {
            config,
            positions,
            is_accepted,
        }
    }

    /// Makes the next claim go on from the slot's own position, whatever is written.
    pub(crate) fn accept_slot_position(&mut self) {
        self.is_accepted = true;
    }

    pub(crate) fn config(&self) -> &TransactionConfig {
        &self.config
    }

    /// Before the first of all reads from the slot, notes where it stands.
    ///
    /// # Errors
    ///
    /// No broker answers in time, or one refuses.
    pub(crate) async fn note_beginning(&self, checked: &Checked) -> Result<(), RunError> {
        if !checked.slot_unread {
            return Ok(());
        }
        // So a start cut short is not taken for a lost position.
        let key = &self.config.position_key;
        let at = checked.slot_confirmed;
        self.positions.note_beginning(key, at).await
    }

    /// Takes the topics over from whoever wrote before, now that the slot is ours, and finds out what is done. Nothing may be
    /// sent before [`Self::resume`].
    ///
    /// # Errors
    ///
    /// As [`claim::claim`].
    pub(crate) async fn claim(
        &self,
        clock: &impl Clock,
        source: &mut impl Feed,
        publishing: &Publishing,
        start: Confirmed,
    ) -> Result<Kept, RunError> {
        let key = &self.config.position_key;
        claim::claim(clock, source, publishing, start, &self.positions, key).await
    }

    /// Whether this stream can go on behind what is kept, and where.
    ///
    /// # Errors
    ///
    /// As [`Here::judge`].
    pub(crate) fn judge(&self, kept: &Kept, stream: &Stream<'_>) -> Result<Judged, Problem> {
        let (checked, wanted) = (stream.checked, stream.wanted);
        let here = Here {
            identity: &checked.identity,
            history: &checked.history,
            publication: &wanted.publication,
            options: options_text(wanted),
            start: stream.start.as_lsn(),
            server_wal_position: stream.wal_position,
            // What Debezium read of the slot has no position of ours.
            is_first: stream.is_handed_over
                || has_not_moved(kept.beginning.as_deref(), checked.slot_confirmed),
            is_accepted: self.is_accepted,
        };
        here.judge(kept.position.as_deref())
    }

    /// Goes on from there.
    ///
    /// # Errors
    ///
    /// As [`claim::resume`].
    pub(crate) async fn resume(
        &mut self,
        clock: &impl Clock,
        source: &mut impl Feed,
        publishing: &Publishing,
        start: Confirmed,
        resume: Resume,
    ) -> Result<(), RunError> {
        claim::resume(clock, source, publishing, start, resume).await?;
        self.is_accepted = false;
        Ok(())
    }
}

/// The stream that is to go on.
#[derive(Debug)]
pub(crate) struct Stream<'a> {
    pub(crate) checked: &'a Checked,
    pub(crate) wanted: &'a Wanted,
    /// Where it was asked to start.
    pub(crate) start: Confirmed,
    /// How far the server has written its log, asked when nobody else could publish any more.
    pub(crate) wal_position: Lsn,
    /// Another connector read the slot before.
    pub(crate) is_handed_over: bool,
}

/// The options of the stream that decide which messages it has; the publication is told apart.
fn options_text(wanted: &Wanted) -> String {
    let options = stream_options(wanted).into_iter();
    let texts: Vec<String> = options
        .filter(|(name, _)| *name != "publication_names")
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    texts.join(", ")
}

/// Whether the slot stands where it was noted to stand before anything was read from it.
fn has_not_moved(beginning: Option<&[u8]>, slot_confirmed: Lsn) -> bool {
    let noted = beginning.and_then(|text| std::str::from_utf8(text).ok()?.parse::<Lsn>().ok());
    noted.is_some_and(|noted| slot_confirmed <= noted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_stands_where_it_was_noted_to_begin_has_not_moved() {
        let noted = Lsn::new(0x1_0000_00A0).to_string();
        let moved = |at: u64| !has_not_moved(Some(noted.as_bytes()), Lsn::new(at));
        assert!(!moved(0x1_0000_00A0));
        assert!(moved(0x1_0000_00A1));
        assert!(!has_not_moved(None, Lsn::new(1)), "nothing was noted");
        assert!(!has_not_moved(Some(b"rubbish"), Lsn::new(1)));
    }
}
