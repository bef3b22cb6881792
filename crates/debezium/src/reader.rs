//! The values of one configuration, and what has been said of each so far.

use std::collections::BTreeMap;

use router::connect::DebeziumVersion;

use crate::entry::{Document, Entry};
use crate::finding::{DefaultUsed, Finding, Origin, Verdict};
use crate::native::Secret;
use crate::providers::Providers;
use crate::server::own_name;

/// A value as it is written and as it is after looking up what it refers to.
///
/// Has no `Debug`: it may be a secret. Only [`Value::shown`] goes into texts.
#[derive(Clone)]
pub(crate) struct Value {
    pub(crate) text: String,
    raw: String,
    pub(crate) line: usize,
}

impl Value {
    /// The value as messages may show it: as it is written, never what a reference stands for.
    pub(crate) fn shown(&self, key: &str) -> String {
        if is_secret(key) {
            return "`********`".to_owned();
        }
        let mut shown: String = self.raw.chars().take(80).collect();
        if shown.len() < self.raw.len() {
            shown.push('…');
        }
        format!("`{}`", shown.escape_debug())
    }
}

impl Value {
    pub(crate) fn secret(&self) -> Secret {
        Secret::new(&self.text, &self.raw)
    }
}

/// Whether the value of this key is kept out of all texts.
pub(crate) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let parts = [
        "pass",
        "secret",
        "token",
        "jaas",
        "credential",
        "user.info",
        "keystore.key",
        "statements",
        "api.key",
    ];
    parts.iter().any(|part| key.contains(part))
}

/// Which of the two files a key is looked up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum File {
    Connector,
    Worker,
}

/// Both files, and the report as it grows.
pub(crate) struct Reader {
    pub(crate) version: DebeziumVersion,
    pub(crate) has_worker: bool,
    own_names: Option<BTreeMap<usize, String>>,
    connector: BTreeMap<String, Value>,
    worker: BTreeMap<String, Value>,
    findings: Vec<Finding>,
    pub(crate) defaults_used: Vec<DefaultUsed>,
}

impl Reader {
    pub(crate) fn new(
        version: DebeziumVersion,
        document: &Document,
        worker: Option<&[Entry]>,
        providers: &Providers<'_>,
    ) -> Self {
        let mut reader = Self {
            version,
            has_worker: worker.is_some(),
            own_names: document.own_names.clone(),
            connector: BTreeMap::new(),
            worker: BTreeMap::new(),
            findings: Vec::new(),
            defaults_used: Vec::new(),
        };
        for remark in &document.remarks {
            let origin = Origin::Connector(remark.line);
            reader.push(origin, &remark.key, remark.verdict, &remark.text);
        }
        for entry in &document.entries {
            reader.add(File::Connector, entry, providers);
        }
        for entry in worker.unwrap_or_default() {
            reader.add(File::Worker, entry, providers);
        }
        reader
    }

    fn add(&mut self, file: File, entry: &Entry, providers: &Providers<'_>) {
        let origin = match file {
            File::Connector => Origin::Connector(entry.line),
            File::Worker => Origin::Worker(entry.line),
        };
        let Some(raw) = &entry.value else {
            self.push(
                origin,
                &entry.key,
                Verdict::Ignored,
                "null counts as not given, as in Connect",
            );
            return;
        };
        let resolved = match &self.own_names {
            // Only Debezium Server has names of its own, and Quarkus reads its file.
            Some(_) => providers.expand(raw),
            None => providers.resolve(raw),
        };
        for left in &resolved.left {
            // What looks like a reference may be a part of a password.
            let text = match left.known || !is_secret(&entry.key) {
                true => left.text.as_str(),
                false => {
                    "what looks like a reference in it stays as it is written, as in Connect: it names no provider"
                }
            };
            self.push(origin, &entry.key, Verdict::Warned, text);
        }
        let value = Value {
            text: resolved.text,
            raw: raw.clone(),
            line: entry.line,
        };
        let map = match file {
            File::Connector => &mut self.connector,
            File::Worker => &mut self.worker,
        };
        if let Some(earlier) = map.insert(entry.key.clone(), value) {
            let text = format!(
                "is given twice, here on line {} and again on line {}; the last one counts, as in Java",
                earlier.line, entry.line
            );
            self.push(origin, &entry.key, Verdict::Warned, &text);
        }
    }

    fn push(&mut self, origin: Origin, key: &str, verdict: Verdict, text: &str) {
        self.findings.push(Finding {
            key: key.to_owned(),
            verdict,
            origin,
            text: text.to_owned(),
        });
    }

    /// The connector's keys, in alphabetical order.
    pub(crate) fn keys(&self, file: File) -> Vec<String> {
        self.map(file).keys().cloned().collect()
    }

    fn map(&self, file: File) -> &BTreeMap<String, Value> {
        match file {
            File::Connector => &self.connector,
            File::Worker => &self.worker,
        }
    }

    pub(crate) fn value(&self, file: File, key: &str) -> Option<&Value> {
        self.map(file).get(key)
    }

    /// The connector's value of a key, trimmed as Connect trims what is not text.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.connector.get(key).map(|value| value.text.trim())
    }

    /// The same, where an empty value is as good as none.
    pub(crate) fn filled(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|text| !text.is_empty())
    }

    /// A switch; what is no switch has been refused already.
    pub(crate) fn flag(&self, key: &str, default: bool) -> bool {
        self.get(key)
            .map_or(default, |text| text.eq_ignore_ascii_case("true"))
    }

    /// Says what becomes of a key of the connector. What was said before is replaced, except a refusal.
    pub(crate) fn say(&mut self, key: &str, verdict: Verdict, text: impl AsRef<str>) {
        self.say_in(File::Connector, key, verdict, text.as_ref());
    }

    pub(crate) fn say_in(&mut self, file: File, key: &str, verdict: Verdict, text: &str) {
        let line = self.map(file).get(key).map_or(0, |value| value.line);
        let origin = match file {
            File::Connector => Origin::Connector(line),
            File::Worker => Origin::Worker(line),
        };
        let said = self.findings.iter_mut().find(|finding| {
            finding.key == key && finding.origin == origin && finding.verdict != Verdict::Warned
        });
        match said {
            Some(finding) if finding.verdict == Verdict::Refused => {}
            Some(finding) => {
                finding.verdict = verdict;
                text.clone_into(&mut finding.text);
            }
            None => self.push(origin, key, verdict, text),
        }
    }

    /// The connector's key in whose value this text stands: as a whole, else as a part.
    pub(crate) fn key_of_value(&self, text: &str) -> Option<String> {
        let whole = self
            .connector
            .iter()
            .find(|(_, value)| value.text.trim() == text);
        let part = || {
            self.connector
                .iter()
                .find(|(_, value)| value.text.contains(text))
        };
        whole.or_else(part).map(|(key, _)| key.clone())
    }

    /// Goes on as if a key were not there, after what has been said of it.
    pub(crate) fn forget(&mut self, file: File, key: &str) {
        match file {
            File::Connector => self.connector.remove(key),
            File::Worker => self.worker.remove(key),
        };
    }

    /// Adds a warning, which replaces nothing.
    pub(crate) fn warn(&mut self, key: &str, text: impl AsRef<str>) {
        let line = self.connector.get(key).map_or(0, |value| value.line);
        self.push(Origin::Connector(line), key, Verdict::Warned, text.as_ref());
    }

    /// Refuses a value: what it is, why it cannot be followed, what to do.
    pub(crate) fn refuse(&mut self, key: &str, text: impl AsRef<str>) {
        self.refuse_in(File::Connector, key, text.as_ref());
    }

    pub(crate) fn refuse_in(&mut self, file: File, key: &str, text: &str) {
        let text = match self.map(file).get(key) {
            Some(value) => format!("{} {text}", value.shown(key)),
            None => text.to_owned(),
        };
        self.say_in(file, key, Verdict::Refused, &text);
    }

    pub(crate) fn is_refused(&self, key: &str) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.key == key && finding.verdict == Verdict::Refused)
    }

    pub(crate) fn any_refused(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.verdict == Verdict::Refused)
    }

    /// The findings in the order of the files, those of keys that are not there first.
    pub(crate) fn finish(mut self) -> (Vec<Finding>, Vec<DefaultUsed>) {
        if let Some(names) = self.own_names.take() {
            for finding in &mut self.findings {
                let line = finding.origin.line();
                let own = names.get(&line).cloned();
                finding.key = own.unwrap_or_else(|| own_name(&finding.key));
                finding.origin = Origin::Connector(line);
            }
        }
        self.findings.sort_by(|one, other| {
            (one.origin, &one.key, one.verdict).cmp(&(other.origin, &other.key, other.verdict))
        });
        self.findings.dedup();
        (self.findings, self.defaults_used)
    }
}
