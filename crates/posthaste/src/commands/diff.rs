//! `posthaste debezium diff`: two topics, or all topics of two prefixes, compared record by record.

use std::collections::BTreeMap;
use std::io::Write;

use sink::{ReadRecord, ReadTopicError, TopicReader};

use crate::cli_diff::{Bound, DiffArgs};
use crate::clock::Now;
use crate::codes::{Code, Problem};
use crate::commands::printing::{line, write};
use crate::config;
use crate::diff::{Finding, Lone, Manner, Records, Side, compare};
use crate::diff_rules::{Kind, Rules};
use crate::takeover_offset::unreadable;
use crate::{explain, settings};

/// Compares and reports; returns the exit status.
///
/// Partitions are read one after the other, so that memory depends neither on their number nor on their length.
///
/// # Errors
///
/// A configuration without brokers, topics that are not there or cannot be read.
pub fn run(arguments: &DiffArgs, out: &mut dyn Write) -> Result<u8, Problem> {
    let config = config::load(&arguments.request())?;
    let Some(pipeline) = config.pipelines.first() else {
        return Err(Problem::new(Code::ConfigPipelineCount, "pipeline").found("none"));
    };
    let kafka = settings::kafka_config(pipeline);
    let reader = || TopicReader::new(&kafka).map_err(explain::kafka_config);
    let mut diff = Diff {
        arguments,
        left: reader()?,
        right: reader()?,
        manner: Manner {
            identity: arguments.identity.clone(),
            show_values: arguments.show_values,
        },
        rules: Rules::new(&arguments.ignore),
        now_ms: Now::read().wall.unix_micros() / 1_000,
        counts: Counts::default(),
        out,
    };
    diff.topics()?;
    diff.summary()
}

struct Diff<'a> {
    arguments: &'a DiffArgs,
    left: TopicReader,
    right: TopicReader,
    manner: Manner,
    rules: Rules,
    now_ms: i64,
    counts: Counts,
    out: &'a mut dyn Write,
}

/// What the whole comparison found.
#[derive(Debug, Default)]
struct Counts {
    topics: u64,
    partitions: u64,
    same: u64,
    /// Records with a counterpart that differs, by field.
    fields: BTreeMap<&'static str, u64>,
    differing: u64,
    only_left: u64,
    only_right: u64,
    repeats: u64,
    moved: u64,
    topics_alone: u64,
    shown: u64,
}

/// A record without a counterpart in its own partition: it may have one in another.
struct Stray {
    partition: i32,
    lone: Lone,
}

/// One partition of one side, as [`compare`] reads it.
struct Partition<'r>(&'r mut TopicReader);

impl Records for Partition<'_> {
    type Error = ReadTopicError;

    fn next(&mut self) -> Result<Option<ReadRecord>, ReadTopicError> {
        self.0.next_record()
    }
}

impl Diff<'_> {
    fn topics(&mut self) -> Result<(), Problem> {
        let arguments = self.arguments;
        let (left, right) = (&arguments.left, &arguments.right);
        if !arguments.prefix {
            return self.topic(left, right);
        }
        let names = self.left.topics().map_err(unreadable)?;
        // `shadow.` stands in front of what the other side has without it.
        let of_left: Vec<&str> = names
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| {
                name.starts_with(left) && (left.starts_with(right) || !name.starts_with(right))
            })
            .filter(|name| !name.starts_with("__"))
            .collect();
        let of_right = |name: &str| {
            let rest = name.get(left.len()..).unwrap_or_default();
            format!("{right}{rest}")
        };
        let mut pairs = 0;
        for name in &of_left {
            let other = of_right(name);
            if names.iter().any(|(found, _)| *found == other) {
                self.topic(name, &other)?;
                pairs += 1;
            } else {
                self.alone(Side::Left, name)?;
            }
        }
        let is_paired = |name: &str| of_left.iter().any(|left| of_right(left) == name);
        for (name, _) in &names {
            let is_of_right =
                name.starts_with(right) && (right.starts_with(left) || !name.starts_with(left));
            if is_of_right && !name.starts_with("__") && !is_paired(name) {
                self.alone(Side::Right, name)?;
            }
        }
        match pairs {
            0 => Err(no_topic(&format!("topics {left}* and {right}*"))),
            _ => Ok(()),
        }
    }

    /// A topic that the other side has not counts if it holds anything.
    fn alone(&mut self, side: Side, topic: &str) -> Result<(), Problem> {
        let mut records = 0;
        for partition in 0..self.left.partitions(topic).map_err(unreadable)? {
            let (first, end) = self.left.bounds(topic, partition).map_err(unreadable)?;
            records += end - first;
        }
        if records > 0 {
            self.counts.topics_alone += 1;
            self.show(&format!(
                "{topic}: only on the {side}, with {records} records"
            ))?;
        }
        Ok(())
    }

    fn topic(&mut self, left: &str, right: &str) -> Result<(), Problem> {
        let lefts = self.left.partitions(left).map_err(unreadable)?;
        let rights = self.right.partitions(right).map_err(unreadable)?;
        for (topic, partitions) in [(left, lefts), (right, rights)] {
            if partitions == 0 {
                return Err(no_topic(&format!("topic {topic}")));
            }
        }
        self.counts.topics += 1;
        if lefts != rights {
            self.counts.topics_alone += 1;
            self.show(&format!(
                "{left}: {lefts} partitions on the left, {rights} on the right, so that keys lie in different ones"
            ))?;
        }
        let mut strays = Vec::new();
        for partition in 0..lefts.max(rights) {
            let exist = (partition < lefts, partition < rights);
            self.partition((left, right), partition, exist, &mut strays)?;
        }
        self.settle(left, strays)
    }

    fn partition(
        &mut self,
        (left_topic, right_topic): (&str, &str),
        partition: i32,
        exist: (bool, bool),
        strays: &mut Vec<Stray>,
    ) -> Result<(), Problem> {
        let Self {
            left,
            right,
            counts,
            rules,
            manner,
            arguments,
            now_ms,
            out,
        } = self;
        counts.partitions += 1;
        let arguments: &DiffArgs = arguments;
        let begin = |reader: &mut TopicReader,
                     side,
                     topic: &str,
                     exists: bool|
         -> Result<(), ReadTopicError> {
            let (from, until) = match exists {
                true => range(reader, arguments, *now_ms, side, topic, partition)?,
                false => (0, 0),
            };
            reader.read(topic, partition, from, until)
        };
        begin(left, Side::Left, left_topic, exist.0).map_err(unreadable)?;
        begin(right, Side::Right, right_topic, exist.1).map_err(unreadable)?;
        let mut failed = None;
        let compared = compare::<ReadTopicError>(
            &mut Partition(left),
            &mut Partition(right),
            manner,
            rules,
            &mut |finding| {
                let told = counts.take(finding, left_topic, partition, strays);
                if let Some(told) = told {
                    failed = failed
                        .take()
                        .or(show(&mut **out, counts, arguments, &told).err());
                }
            },
        );
        compared.map_err(unreadable)?;
        failed.map_or(Ok(()), Err)
    }

    /// Tells of the records without a counterpart: those that have one in another partition are moved.
    fn settle(&mut self, topic: &str, strays: Vec<Stray>) -> Result<(), Problem> {
        let mut by_identity: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, stray) in strays.iter().enumerate() {
            if let Some(identity) = stray.lone.identity {
                by_identity.entry(identity).or_default().push(index);
            }
        }
        let mut done = vec![false; strays.len()];
        for indices in by_identity.values() {
            let of = |side| {
                indices.iter().copied().find_map(|index| {
                    let stray = strays.get(index)?;
                    (stray.lone.side == side).then_some((index, stray))
                })
            };
            let (Some((left_index, left)), Some((right_index, right))) =
                (of(Side::Left), of(Side::Right))
            else {
                continue;
            };
            if left.partition == right.partition {
                continue;
            }
            for index in [left_index, right_index] {
                if let Some(done) = done.get_mut(index) {
                    *done = true;
                }
            }
            let alike = left.lone.content == right.lone.content;
            if self.rules.apply(Kind::Partition, 1) && alike {
                self.counts.same += 1;
                continue;
            }
            self.counts.moved += 1;
            let rest = if alike {
                "equal otherwise"
            } else {
                "and more differs"
            };
            self.show(&format!(
                "{topic}: partition differs: {}/{} on the left, {}/{} on the right, {rest}",
                left.partition, left.lone.offset, right.partition, right.lone.offset
            ))?;
        }
        for (stray, done) in strays.iter().zip(done) {
            if !done {
                self.counts.count_lone(&stray.lone);
                let text = told_lone(topic, stray.partition, &stray.lone);
                self.show(&text)?;
            }
        }
        Ok(())
    }

    fn show(&mut self, text: &str) -> Result<(), Problem> {
        show(self.out, &mut self.counts, self.arguments, text)
    }

    fn summary(self) -> Result<u8, Problem> {
        let counts = &self.counts;
        let mut text = String::new();
        if counts.shown > self.arguments.show {
            let more = counts.shown - self.arguments.show;
            line(&mut text, &format!("… and {more} more (--show)"));
        }
        line(
            &mut text,
            &format!(
                "compared {} topics, {} partitions: {} records equal, {} differ{}, {} in another partition, {} only on the left, {} only on the right",
                counts.topics,
                counts.partitions,
                counts.same,
                counts.differing,
                counts.by_field(),
                counts.moved,
                counts.only_left,
                counts.only_right
            ),
        );
        for (rule, used) in self.rules.used() {
            line(&mut text, &format!("rule {rule}: needed {used} times"));
        }
        let unused: Vec<String> = self.rules.unused().map(ToString::to_string).collect();
        if !unused.is_empty() {
            line(
                &mut text,
                &format!(
                    "nothing needed the rule {}: correct it or leave it out",
                    unused.join(", ")
                ),
            );
        }
        let clean = counts.differences() == 0 && unused.is_empty();
        line(
            &mut text,
            if clean { "no differences" } else { "DIFFERENT" },
        );
        write(&text, self.out)?;
        Ok(if clean { EXIT_SAME } else { EXIT_DIFFERENT })
    }
}

impl Counts {
    /// Counts a finding; returns what to tell of it now.
    fn take(
        &mut self,
        finding: Finding,
        topic: &str,
        partition: i32,
        strays: &mut Vec<Stray>,
    ) -> Option<String> {
        match finding {
            Finding::Same => self.same += 1,
            Finding::Edge { .. } => {}
            Finding::Repeat => self.repeats += 1,
            Finding::Only(lone) if strays.len() < STRAYS_MAX => {
                strays.push(Stray { partition, lone });
            }
            Finding::Only(lone) => {
                self.count_lone(&lone);
                return Some(told_lone(topic, partition, &lone));
            }
            Finding::Differs {
                left,
                right,
                fields,
            } => {
                self.differing += 1;
                let mut texts = Vec::new();
                for difference in fields {
                    *self.fields.entry(difference.field).or_default() += 1;
                    texts.push(format!("{} differs {}", difference.field, difference.text));
                }
                return Some(format!(
                    "{topic}/{partition}: offset {left} and {right}: {}",
                    texts.join("; ")
                ));
            }
        }
        None
    }

    fn count_lone(&mut self, lone: &Lone) {
        match lone.side {
            Side::Left => self.only_left += 1,
            Side::Right => self.only_right += 1,
        }
    }

    fn differences(&self) -> u64 {
        self.differing + self.only_left + self.only_right + self.moved + self.topics_alone
    }

    fn by_field(&self) -> String {
        if self.fields.is_empty() {
            return String::new();
        }
        let fields = self.fields.iter();
        let fields: Vec<String> = fields
            .map(|(field, count)| format!("{field} {count}"))
            .collect();
        format!(" ({})", fields.join(", "))
    }
}

fn told_lone(topic: &str, partition: i32, lone: &Lone) -> String {
    let repeat = if lone.repeat { ", a repeat" } else { "" };
    format!(
        "{topic}/{partition}: only on the {}: offset {}{repeat}",
        lone.side, lone.offset
    )
}

fn show(
    out: &mut dyn Write,
    counts: &mut Counts,
    arguments: &DiffArgs,
    text: &str,
) -> Result<(), Problem> {
    counts.shown += 1;
    if counts.shown > arguments.show {
        return Ok(());
    }
    let mut shown = String::new();
    line(&mut shown, text);
    write(&shown, out)
}

/// From where and up to which offset a partition is read, by the bounds given for it.
fn range(
    reader: &TopicReader,
    arguments: &DiffArgs,
    now_ms: i64,
    side: Side,
    topic: &str,
    partition: i32,
) -> Result<(i64, i64), ReadTopicError> {
    let (first, end) = reader.bounds(topic, partition)?;
    let resolve = |bounds: &[Bound], otherwise: i64| -> Result<i64, ReadTopicError> {
        let mut found = otherwise;
        for bound in bounds {
            match bound {
                Bound::Time(ms) => {
                    found = reader.offset_at(topic, partition, *ms)?.unwrap_or(end);
                }
                Bound::Ago(time) => {
                    let ago = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
                    let at = now_ms.saturating_sub(ago);
                    found = reader.offset_at(topic, partition, at)?.unwrap_or(end);
                }
                Bound::Offset {
                    side: of,
                    partition: at,
                    offset,
                } if *of == side && *at == partition => found = *offset,
                Bound::Offset { .. } => {}
            }
        }
        Ok(found.clamp(first, end))
    };
    Ok((
        resolve(&arguments.from, first)?,
        resolve(&arguments.until, end)?,
    ))
}

fn no_topic(what: &str) -> Problem {
    Problem::new(Code::DiffTopics, what)
        .found("nothing of this name that this client may see")
        .needed("two topics, or with --prefix two beginnings of names that go on alike")
        .fix("correct the names")
}

/// Records without a counterpart that are kept to be looked for in other partitions.
const STRAYS_MAX: usize = 100_000;

const EXIT_SAME: u8 = 0;

/// Exit status where anything differs, or a rule was not needed.
const EXIT_DIFFERENT: u8 = 5;
