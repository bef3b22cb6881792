//! The model of the tables of parked events and of decisions to skip, which outlive processes, and of the person who decides about them.

use std::collections::{BTreeMap, HashSet};

use pgoutput::{Lsn, RowId};
use posthaste::parked_row::ParkedRow;
use posthaste::poison::Aside;
use posthaste::watchlist::{Aggregate, SkipRequest, SkippedEvent, Waiting, Watchlist};

/// The tables; parked events by row.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<RowId, Parked>,
    /// The newest session; those before it cannot write any more.
    session: u64,
    /// Writes that such a session tried.
    pub(crate) stale: u64,
    pub(crate) parked: u64,
    pub(crate) behind: u64,
    pub(crate) published: u64,
    pub(crate) refused_again: u64,
    /// What people decided to pass over.
    requests: Vec<Request>,
}

#[derive(Debug)]
struct Request {
    event: SkippedEvent,
    asked_at: Lsn,
    /// Which row it was used on, and when.
    used: Option<(RowId, Lsn)>,
}

/// A row and all that was ever written of it, with the positions behind the commits.
#[derive(Debug)]
struct Parked {
    row: ParkedRow,
    journal: Vec<(Lsn, State)>,
    repaired_at: Option<Lsn>,
}

impl Parked {
    fn state(&self) -> State {
        self.journal.last().expect("it was written").1
    }

    /// Its state is changed, unless it is just that.
    fn change(&mut self, at: Lsn, state: State) -> bool {
        let changes = self.state() != state;
        if changes {
            self.journal.push((at, state));
        }
        changes
    }

    /// With its time put right, if somebody did that.
    fn row(&self) -> ParkedRow {
        let mut row = self.row.clone();
        if self.repaired_at.is_some() {
            let at = row.columns.last_mut().expect("the time");
            at.value = Some(b"0".to_vec());
        }
        row
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    Queued,
    Published,
}

impl Table {
    pub(crate) fn write(&mut self, aside: &Aside, at: Lsn) {
        for (request, row) in &aside.skipped {
            let number = usize::try_from(request.number).expect("one of ours");
            self.requests[number].used = Some((*row, at));
        }
        for row in &aside.rows {
            let is_behind = row.reason.stage.name() == "behind";
            let state = if is_behind {
                State::Queued
            } else {
                State::Held
            };
            let row = row.clone();
            if let std::collections::btree_map::Entry::Vacant(entry) = self.rows.entry(row.row) {
                entry.insert(Parked {
                    row,
                    journal: vec![(at, state)],
                    repaired_at: None,
                });
                self.parked += u64::from(!is_behind);
                self.behind += u64::from(is_behind);
            }
        }
    }

    /// Whether there are rows that may come again.
    pub(crate) fn load(&self, start: Lsn, watchlist: &mut Watchlist) -> bool {
        let rows = self.rows.keys().copied();
        let rows: Vec<RowId> = rows.filter(|row| row.commit_lsn >= start).collect();
        let has_some = !rows.is_empty();
        watchlist.settle(rows);
        self.refresh(watchlist);
        has_some
    }

    /// A standby takes over that has the log up to `branch`.
    pub(crate) fn promote(&mut self, branch: Lsn) {
        self.rows.retain(|_, parked| {
            parked.journal.retain(|(at, _)| *at <= branch);
            parked.repaired_at = parked.repaired_at.filter(|at| *at <= branch);
            !parked.journal.is_empty()
        });
        self.requests.retain_mut(|request| {
            request.used = request.used.filter(|(_, at)| *at <= branch);
            request.asked_at <= branch
        });
    }

    /// `posthaste skip`.
    pub(crate) fn request(&mut self, event: SkippedEvent, at: Lsn) {
        let mut known = self.requests.iter();
        if known.all(|known| known.event != event) {
            self.requests.push(Request {
                event,
                asked_at: at,
                used: None,
            });
        }
    }

    pub(crate) fn used_requests(&self) -> u64 {
        let used = self.requests.iter().filter(|known| known.used.is_some());
        used.count() as u64
    }

    /// Those not used yet, and those used on rows that come again.
    pub(crate) fn requests(&self, start: Lsn) -> Vec<SkipRequest> {
        let numbered = self.requests.iter().zip(0_i64..);
        let may_come =
            |used: Option<(RowId, Lsn)>| used.is_none_or(|(row, _)| row.commit_lsn >= start);
        let open = numbered.filter(|(request, _)| may_come(request.used));
        open.map(|(request, number)| SkipRequest {
            number,
            event: match request.used {
                Some((row, _)) => SkippedEvent::Row(row),
                None => request.event.clone(),
            },
        })
        .collect()
    }

    pub(crate) fn refresh(&self, watchlist: &mut Watchlist) {
        let (aggregates, waiting) = self.waiting();
        watchlist.set_parked(aggregates, waiting);
    }

    pub(crate) fn waiting(&self) -> (HashSet<Aggregate>, Waiting) {
        let waiting = || {
            self.rows
                .values()
                .filter(|row| row.state() != State::Published)
        };
        let aggregates: HashSet<Aggregate> =
            waiting().filter_map(|row| row.row.aggregate()).collect();
        let rows = waiting().count() as u64;
        (aggregates, Waiting { rows, bytes: 0 })
    }

    /// Queued, passed by the position, and with nothing of their aggregate held before them.
    pub(crate) fn publishable(&self, confirmed: Lsn) -> Vec<ParkedRow> {
        let mut held: HashSet<Aggregate> = HashSet::new();
        let mut rows = Vec::new();
        for parked in self.rows.values() {
            let aggregate = parked.row.aggregate().expect("every event has a key");
            match parked.state() {
                State::Held => {
                    held.insert(aggregate);
                }
                State::Queued
                    if parked.row.row.commit_lsn < confirmed && !held.contains(&aggregate) =>
                {
                    rows.push(parked.row());
                }
                State::Queued | State::Published => {}
            }
        }
        rows.truncate(PASS_ROWS_MAX);
        rows
    }

    pub(crate) fn published(&mut self, rows: &[RowId], at: Lsn) {
        for row in rows {
            let parked = self.rows.get_mut(row).expect("it was queued");
            self.published += u64::from(parked.change(at, State::Published));
        }
    }

    /// Ends the session before.
    pub(crate) fn take_over(&mut self) -> u64 {
        self.session += 1;
        self.session
    }

    pub(crate) fn is_open(&self, session: u64) -> bool {
        self.session == session
    }

    pub(crate) fn refused(&mut self, row: RowId, at: Lsn) {
        let parked = self.rows.get_mut(&row).expect("it was parked");
        if parked.state() == State::Queued {
            parked.change(at, State::Held);
            self.refused_again += 1;
        }
    }

    /// `posthaste parked edit` and `retry`: the first held row, or all of them. With `repair` its time is put right.
    pub(crate) fn retry(&mut self, all: bool, repair: bool, at: Lsn) {
        let held = self
            .rows
            .values_mut()
            .filter(|row| row.state() == State::Held);
        for parked in held.take(if all { usize::MAX } else { 1 }) {
            if repair {
                parked.repaired_at = parked.repaired_at.or(Some(at));
            }
            parked.change(at, State::Queued);
        }
    }

    /// Each row with its newest change that a position behind it rests on: that it was parked, or is noted as published.
    pub(crate) fn settled_at(&self) -> impl Iterator<Item = (RowId, Lsn, bool)> {
        self.rows.iter().map(|(row, parked)| {
            let (parked_at, _) = parked.journal.first().expect("it was written");
            match parked.journal.last() {
                Some((noted_at, State::Published)) => (*row, *noted_at, true),
                _ => (*row, *parked_at, false),
            }
        })
    }

    pub(crate) fn has(&self, row: RowId) -> bool {
        self.rows.contains_key(&row)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows
            .values()
            .all(|row| row.state() == State::Published)
    }
}

const PASS_ROWS_MAX: usize = 30;
