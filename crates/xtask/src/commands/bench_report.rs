//! The numbers of `cargo xtask bench`: medians, ratios, and the table that shows them.

use std::time::Duration;

use xtask::process::Usage;

/// One program's run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    wall: Duration,
    cpu: Duration,
    peak_kib: u64,
}

/// The three runs of one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) connector: Measure,
    /// The same with exactly-once.
    pub(crate) exactly_once: Option<Measure>,
    pub(crate) reference: Measure,
    pub(crate) producer: Measure,
}

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) rows: u64,
    /// Rows in a transaction, and its rounds.
    pub(crate) sizes: Vec<(u64, Vec<Round>)>,
    pub(crate) machine: String,
}

impl Measure {
    pub(crate) fn new(wall: Duration, used: Usage) -> Self {
        Self {
            wall,
            cpu: Duration::from_millis(used.cpu_ms),
            peak_kib: used.peak_kib,
        }
    }
}

impl Round {
    pub(crate) fn line(&self, rows: u64) -> String {
        let once = self.exactly_once.map_or_else(String::new, |once| {
            format!(
                "   exactly once {:.1} s ({:.2} us, {:.1} MiB, {:.2} of at least once)",
                once.wall.as_secs_f64(),
                micros_per_event(once, rows),
                mebibytes(once),
                self.once_ratio().unwrap_or_default(),
            )
        });
        format!(
            "   posthaste {:.1} s ({:.2} us CPU/event, {:.1} MiB)   pg_recvlogical {:.1} s ({:.2} us)   producer {:.1} s ({:.2} us)   speed {:.2}   CPU {:.2}{once}",
            self.connector.wall.as_secs_f64(),
            micros_per_event(self.connector, rows),
            mebibytes(self.connector),
            self.reference.wall.as_secs_f64(),
            micros_per_event(self.reference, rows),
            self.producer.wall.as_secs_f64(),
            micros_per_event(self.producer, rows),
            self.speed_ratio(),
            self.cpu_ratio(),
        )
    }

    /// Our events per second over those of the reference. Ratios are taken within a round, where both had the same
    /// machine, and then the median of those.
    fn speed_ratio(&self) -> f64 {
        self.reference.wall.as_secs_f64() / self.connector.wall.as_secs_f64()
    }

    /// Events per second with exactly-once over those without.
    fn once_ratio(&self) -> Option<f64> {
        let once = self.exactly_once?;
        Some(self.connector.wall.as_secs_f64() / once.wall.as_secs_f64())
    }

    /// Our CPU time over that of the two programs that together do what ours does.
    fn cpu_ratio(&self) -> f64 {
        let together = self.reference.cpu + self.producer.cpu;
        self.connector.cpu.as_secs_f64() / together.as_secs_f64()
    }
}

impl Report {
    /// The report as a section of `docs/benchmarks.md`.
    pub(crate) fn markdown(&self) -> String {
        let rounds = self.sizes.first().map_or(0, |(_, rounds)| rounds.len());
        let mut text = format!(
            "## Drain of a backlog\n\n\
             Drain of a backlog of {} events (160 bytes of payload) written by 4 concurrent writers, with `acks=all` and one \
             default configuration for all rows. The time of Posthaste runs from the start of its process until an \
             independent consumer has every event id. `pg_recvlogical` reads a copy of the same slot to `/dev/null`; the \
             producer sends the same records from memory with librdkafka alone. Medians of {rounds} interleaved rounds; \
             server, broker and consumer share the machine's cores with what is measured.\n\n\
             {}.\n\n\
             Repeat with `cargo xtask bench`.\n\n\
             | rows in a transaction | Posthaste, events/s | `pg_recvlogical`, events/s | speed ratio (aim ≥ 0.8) | \
             Posthaste, CPU µs/event | `pg_recvlogical` | producer | CPU ratio (aim ≤ 1.5) | peak memory, MiB (aim < 64) |\n\
             |---|---|---|---|---|---|---|---|---|\n",
            self.rows, self.machine
        );
        for (batch, rounds) in &self.sizes {
            text.push_str(&self.row(*batch, rounds));
        }
        if self.sizes.iter().any(|(_, rounds)| has_once(rounds)) {
            text.push_str(
                "\nThe same rounds with `kafka.delivery = \"exactly-once\"` (`cargo xtask bench --exactly-once`), read by a \
                 read-committed consumer:\n\n\
                 | rows in a transaction | exactly once, events/s | of at least once (aim ≥ 0.85) | CPU µs/event | peak memory, MiB |\n\
                 |---|---|---|---|---|\n",
            );
            for (batch, rounds) in &self.sizes {
                text.push_str(&self.once_row(*batch, rounds));
            }
        }
        text
    }

    fn once_row(&self, batch: u64, rounds: &[Round]) -> String {
        let rows = self.rows;
        let once: Vec<Measure> = rounds
            .iter()
            .filter_map(|round| round.exactly_once)
            .collect();
        let of = |value: &dyn Fn(&Measure) -> f64| median(once.iter().map(value).collect());
        format!(
            "| {batch} | {:.0} | {:.2} | {:.2} | {:.1} |\n",
            of(&|once| per_second(*once, rows)),
            median(rounds.iter().filter_map(Round::once_ratio).collect()),
            of(&|once| micros_per_event(*once, rows)),
            of(&|once| mebibytes(*once)),
        )
    }

    fn row(&self, batch: u64, rounds: &[Round]) -> String {
        let of = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
        let rows = self.rows;
        format!(
            "| {batch} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} |\n",
            of(&|round| per_second(round.connector, rows)),
            of(&|round| per_second(round.reference, rows)),
            of(&Round::speed_ratio),
            of(&|round| micros_per_event(round.connector, rows)),
            of(&|round| micros_per_event(round.reference, rows)),
            of(&|round| micros_per_event(round.producer, rows)),
            of(&Round::cpu_ratio),
            of(&|round| mebibytes(round.connector)),
        )
    }
}

/// The document with its section of the same name replaced by this one, or with this one at its end.
pub(crate) fn spliced(document: &str, section: &str) -> String {
    let heading = section.lines().next().unwrap_or_default();
    let Some((before, rest)) = document.split_once(&format!("{heading}\n")) else {
        return format!("{}\n\n{section}", document.trim_end());
    };
    match rest.split_once("\n## ") {
        Some((_, after)) => format!("{before}{section}\n## {after}"),
        None => format!("{before}{section}"),
    }
}

fn has_once(rounds: &[Round]) -> bool {
    rounds.iter().any(|round| round.exactly_once.is_some())
}

fn per_second(measure: Measure, rows: u64) -> f64 {
    number(rows) / measure.wall.as_secs_f64()
}

fn micros_per_event(measure: Measure, rows: u64) -> f64 {
    measure.cpu.as_secs_f64() * 1e6 / number(rows)
}

fn mebibytes(measure: Measure) -> f64 {
    number(measure.peak_kib) / 1024.0
}

/// Counts here are far below where a float would round them.
fn number(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or(f64::NAN);
    if values.len() % 2 == 1 {
        return upper;
    }
    let lower = middle
        .checked_sub(1)
        .and_then(|index| values.get(index))
        .copied();
    lower.map_or(upper, |lower| f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(wall_s: u64, cpu_ms: u64, peak_kib: u64) -> Measure {
        Measure::new(Duration::from_secs(wall_s), Usage { cpu_ms, peak_kib })
    }

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn only_the_section_of_the_same_name_is_replaced() {
        let section = "## Drain\n\nnew\n";
        let of = |document: &str| spliced(document, section);
        assert_eq!(
            of("# Benchmarks\n\n## Drain\n\nold\n\n## Parts\n\nkept\n"),
            "# Benchmarks\n\n## Drain\n\nnew\n\n## Parts\n\nkept\n"
        );
        assert_eq!(of("## Drain\nold\n"), section);
        assert_eq!(of("# Other\n"), "# Other\n\n## Drain\n\nnew\n");
    }

    #[test]
    fn a_row_shows_speed_cpu_and_memory() {
        let round = Round {
            connector: measure(10, 3_000, 20 * 1024),
            exactly_once: Some(measure(11, 3_300, 21 * 1024)),
            reference: measure(8, 1_500, 0),
            producer: measure(2, 1_000, 0),
        };
        let report = Report {
            rows: 1_000_000,
            sizes: Vec::new(),
            machine: String::new(),
        };
        let row = report.row(10, &[round]);
        assert_eq!(
            row,
            "| 10 | 100000 | 125000 | 0.80 | 3.00 | 1.50 | 1.00 | 1.20 | 20.0 |\n"
        );
    }
}
