//! Stage 5 of 9, the chain of transforms: what happens to a record before the Event Router and behind it.
//!
//! Before it, everything about a record but its row is known from its relation, so that the chain is walked once per
//! relation. Behind it, topic and tombstones differ from row to row.

use std::collections::BTreeMap;

use super::event_mapping::{EventMapping, checked_name};
use super::header_plan::{HeaderList, HeaderSet, literal_header};
use super::java_regex::{JavaRegex, TooComplex};
use super::java_replacement::Replacement;
use super::{PredicateConfig, Transform, TransformConfig};
use crate::error::ConnectConfigError;

/// The chain.
#[derive(Debug)]
pub(crate) struct Transforms {
    steps: Vec<Step>,
    router_at: usize,
    /// What the Event Router adds.
    mapped: HeaderSet,
    context: HeaderSet,
}

#[derive(Debug)]
struct Step {
    action: Action,
    /// And whether it is negated.
    predicate: Option<(Predicate, bool)>,
}

#[derive(Debug)]
enum Action {
    EventRouter,
    Decode,
    ByLogicalTable(JavaRegex, Replacement),
    Regex(JavaRegex, Replacement),
    Insert(usize),
    Drop(HeaderSet),
    Filter,
}

#[derive(Debug)]
enum Predicate {
    Topic(JavaRegex),
    Header(HeaderSet),
    Tombstone,
}

/// What becomes of all records of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// They reach the Event Router.
    Routed {
        /// The headers they have by then.
        headers: HeaderSet,
        /// The name of their rows' schema; a message's has none.
        schema_name: Option<String>,
    },
    /// They are dropped before.
    Filtered,
    /// They pass it by: Debezium would publish them as they are.
    NotRouted,
}

/// A record on its way.
#[derive(Debug)]
pub(crate) struct Passing<'s> {
    pub(crate) topic: &'s mut String,
    pub(crate) spare: &'s mut String,
    pub(crate) headers: HeaderSet,
    pub(crate) is_tombstone: bool,
}

/// Which kind of record enters the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Row,
    Message,
}

impl Transforms {
    /// `headers` has the context's headers only, and gets the others in the order of the chain.
    pub(crate) fn new(
        configs: &[TransformConfig],
        predicates: &BTreeMap<String, PredicateConfig>,
        mapping: &EventMapping,
        context: HeaderSet,
        headers: &mut HeaderList,
    ) -> Result<Self, ConnectConfigError> {
        let is_router = |config: &TransformConfig| config.apply == Transform::EventRouter {};
        let router_at = configs.iter().position(is_router).ok_or(NO_ROUTER)?;
        if configs.iter().filter(|config| is_router(config)).count() > 1 {
            return Err(TWO_ROUTERS);
        }
        let mut mapped = HeaderSet::default();
        let mut inserted = Vec::new();
        for config in configs {
            match &config.apply {
                Transform::EventRouter {} => mapped = headers.add_mapped(mapping)?,
                Transform::InsertHeader {
                    header,
                    value_literal,
                } => {
                    let name = checked_name("transforms", header)?;
                    inserted.push(headers.add(name, literal_header(value_literal)?)?);
                }
                _ => {}
            }
        }
        let mut inserted = inserted.into_iter();
        let steps = configs
            .iter()
            .map(|config| step(config, predicates, headers, &mut inserted))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            steps,
            router_at,
            mapped,
            context,
        })
    }

    /// Walks the chain up to the Event Router.
    pub(crate) fn entry(
        &self,
        origin: Origin,
        topic: &str,
        schema_name: Option<&str>,
    ) -> Result<Entry, TooComplex> {
        let (mut topic, mut spare) = (topic.to_owned(), String::new());
        let mut schema_name = schema_name.map(str::to_owned);
        let mut is_envelope = origin == Origin::Row;
        let mut passing = Passing {
            topic: &mut topic,
            spare: &mut spare,
            headers: match origin {
                Origin::Row => self.context,
                Origin::Message => HeaderSet::default(),
            },
            is_tombstone: false,
        };
        for step in self.steps.iter().take(self.router_at + 1) {
            if !step.applies(&passing)? {
                if matches!(step.action, Action::EventRouter) {
                    return Ok(Entry::NotRouted);
                }
                continue;
            }
            match &step.action {
                Action::Filter => return Ok(Entry::Filtered),
                Action::Decode => is_envelope |= origin == Origin::Message,
                Action::ByLogicalTable(regex, replacement) if is_envelope => {
                    if passing.route(regex, replacement)? && origin == Origin::Row {
                        schema_name = Some(format!("{}.Value", passing.topic));
                    }
                }
                Action::EventRouter if !is_envelope => return Ok(Entry::NotRouted),
                Action::EventRouter | Action::ByLogicalTable(..) => {}
                other => passing.apply(other)?,
            }
        }
        Ok(Entry::Routed {
            headers: passing.headers.union(self.mapped),
            schema_name,
        })
    }

    /// Walks the chain behind the Event Router. `false`: the record is dropped.
    pub(crate) fn finish(&self, passing: &mut Passing<'_>) -> Result<bool, TooComplex> {
        for step in self.steps.iter().skip(self.router_at + 1) {
            if !step.applies(passing)? {
                continue;
            }
            match &step.action {
                Action::Filter => return Ok(false),
                // What left the router is no envelope any more, and passes these untouched.
                Action::EventRouter | Action::Decode | Action::ByLogicalTable(..) => {}
                other => passing.apply(other)?,
            }
        }
        Ok(true)
    }
}

const NO_ROUTER: ConnectConfigError = ConnectConfigError::Transforms {
    why: "without the event router nothing would be published",
};
const TWO_ROUTERS: ConnectConfigError = ConnectConfigError::Transforms {
    why: "there can be one event router only: what has left it is no row any more",
};
const FILTERS_ALL: ConnectConfigError = ConnectConfigError::Transforms {
    why: "a filter without a predicate would drop everything",
};

impl Step {
    fn applies(&self, passing: &Passing<'_>) -> Result<bool, TooComplex> {
        let Some((predicate, negate)) = &self.predicate else {
            return Ok(true);
        };
        let holds = match predicate {
            Predicate::Topic(pattern) => pattern.matches(passing.topic)?,
            Predicate::Header(named) => passing.headers.meets(*named),
            Predicate::Tombstone => passing.is_tombstone,
        };
        Ok(holds != *negate)
    }
}

impl Passing<'_> {
    fn apply(&mut self, action: &Action) -> Result<(), TooComplex> {
        match action {
            Action::Regex(regex, replacement) => {
                self.route(regex, replacement)?;
            }
            Action::Insert(at) => self.headers.insert(*at),
            Action::Drop(named) => self.headers.remove_all(*named),
            Action::EventRouter | Action::Decode | Action::ByLogicalTable(..) | Action::Filter => {}
        }
        Ok(())
    }

    fn route(&mut self, regex: &JavaRegex, replacement: &Replacement) -> Result<bool, TooComplex> {
        self.spare.clear();
        let matched = regex.route(self.topic, replacement, self.spare)?;
        std::mem::swap(self.topic, self.spare);
        Ok(matched)
    }
}

fn step(
    config: &TransformConfig,
    predicates: &BTreeMap<String, PredicateConfig>,
    headers: &HeaderList,
    inserted: &mut impl Iterator<Item = usize>,
) -> Result<Step, ConnectConfigError> {
    let predicate = config
        .predicate
        .as_ref()
        .map(|alias| predicate(alias, predicates, headers))
        .transpose()?;
    let action = match &config.apply {
        Transform::EventRouter {} => Action::EventRouter,
        Transform::DecodeLogicalMessage { .. } => Action::Decode,
        Transform::ByLogicalTableRouter {
            topic_regex,
            topic_replacement,
        } => {
            let (regex, replacement) = route(
                "ByLogicalTableRouter topic.regex",
                topic_regex,
                topic_replacement,
            )?;
            Action::ByLogicalTable(regex, replacement)
        }
        Transform::RegexRouter { regex, replacement } => {
            let (regex, replacement) = route("RegexRouter regex", regex, replacement)?;
            Action::Regex(regex, replacement)
        }
        Transform::InsertHeader { .. } => Action::Insert(inserted.next().unwrap_or_default()),
        Transform::DropHeaders { headers: names } => {
            Action::Drop(names.iter().fold(HeaderSet::default(), |set, name| {
                set.union(headers.named(name))
            }))
        }
        Transform::Filter {} if predicate.is_none() => return Err(FILTERS_ALL),
        Transform::Filter {} => Action::Filter,
    };
    Ok(Step {
        action,
        predicate: predicate.map(|predicate| (predicate, config.negate)),
    })
}

fn predicate(
    alias: &str,
    predicates: &BTreeMap<String, PredicateConfig>,
    headers: &HeaderList,
) -> Result<Predicate, ConnectConfigError> {
    let config = predicates
        .get(alias)
        .ok_or_else(|| ConnectConfigError::UnknownPredicate {
            alias: alias.to_owned(),
        })?;
    Ok(match config {
        PredicateConfig::TopicNameMatches { pattern } => {
            Predicate::Topic(compiled(&format!("predicates.{alias}.pattern"), pattern)?)
        }
        PredicateConfig::HasHeaderKey { name } => Predicate::Header(headers.named(name)),
        PredicateConfig::RecordIsTombstone {} => Predicate::Tombstone,
    })
}

pub(crate) fn compiled(key: &str, pattern: &str) -> Result<JavaRegex, ConnectConfigError> {
    JavaRegex::new(pattern).map_err(|why| ConnectConfigError::Pattern {
        key: key.to_owned(),
        pattern: pattern.to_owned(),
        why,
    })
}

pub(crate) fn route(
    key: &str,
    pattern: &str,
    replacement: &str,
) -> Result<(JavaRegex, Replacement), ConnectConfigError> {
    let regex = compiled(key, pattern)?;
    match Replacement::new(replacement, &regex) {
        Ok(read) => Ok((regex, read)),
        Err(why) => Err(ConnectConfigError::Replacement {
            key: key.to_owned(),
            replacement: replacement.to_owned(),
            why,
        }),
    }
}
