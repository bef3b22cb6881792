//! `${provider:path:key}` in values: Connect's configuration providers.
//!
//! As in Connect, a reference needs a colon inside, so that `${routedByValue}` is none, and what cannot be looked up
//! stays as it is written.

use std::collections::BTreeMap;

use regex::Regex;

use crate::entry::Entry;
use crate::properties;

/// Where values come from that stand outside of the configuration. Whoever reads it says how; nothing here opens a file.
pub trait Lookup {
    /// The value of an environment variable.
    fn environment(&self, name: &str) -> Option<String>;

    /// The text of a file, `None` if it cannot be read.
    fn file(&self, path: &str) -> Option<String>;
}

/// Knows no variable and no file: every reference stays as it is written.
#[derive(Debug, Clone, Copy)]
pub struct NoLookup;

impl Lookup for NoLookup {
    fn environment(&self, _: &str) -> Option<String> {
        None
    }

    fn file(&self, _: &str) -> Option<String> {
        None
    }
}

/// A value after looking up its references.
pub(crate) struct Resolved {
    pub(crate) text: String,
    /// Whether any reference was replaced: then the text may be a secret.
    pub(crate) replaced: bool,
    /// References that stayed.
    pub(crate) left: Vec<Left>,
}

/// A reference that stayed, and why.
pub(crate) struct Left {
    pub(crate) text: String,
    /// Whether it names a provider. If not, it may be a part of the value that looks like a reference.
    pub(crate) known: bool,
}

/// The providers that may be named, by their aliases.
pub(crate) struct Providers<'a> {
    lookup: &'a dyn Lookup,
    secrets_directory: Option<&'a str>,
    named: BTreeMap<String, Provider>,
    /// Whether the worker said which there are.
    declared: bool,
}

/// The aliases that documentation and images use.
const USUAL: [&str; 6] = ["file", "env", "directory", "dir", "secrets", "configmaps"];

enum Provider {
    File { allowed: Vec<String> },
    Environment { allowed: Option<Regex> },
    Directory { allowed: Vec<String> },
    Kubernetes,
}

impl<'a> Providers<'a> {
    /// Those that `worker` declares in `config.providers`; without a worker's file, all under their usual names.
    pub(crate) fn new(
        lookup: &'a dyn Lookup,
        secrets_directory: Option<&'a str>,
        worker: Option<&[Entry]>,
    ) -> Self {
        let mut providers = Self {
            lookup,
            secrets_directory,
            named: BTreeMap::new(),
            declared: worker.is_some(),
        };
        match worker {
            Some(worker) => providers.declare(worker),
            None => providers.usual(),
        }
        providers
    }

    fn usual(&mut self) {
        for alias in USUAL {
            let allowed = Vec::new();
            let provider = match alias {
                "file" => Provider::File { allowed },
                "env" => Provider::Environment { allowed: None },
                "directory" | "dir" => Provider::Directory { allowed },
                _ => Provider::Kubernetes,
            };
            self.named.insert(alias.to_owned(), provider);
        }
    }

    fn declare(&mut self, worker: &[Entry]) {
        let get = |key: &str| {
            let entry = worker.iter().rev().find(|entry| entry.key == key);
            entry.and_then(|entry| entry.value.as_deref())
        };
        for alias in list(get("config.providers").unwrap_or_default()) {
            let option =
                |name: &str| get(&format!("config.providers.{alias}.{name}")).unwrap_or_default();
            let class = option("class");
            let allowed = list(option("param.allowed.paths"));
            let provider = match class.rsplit('.').next().unwrap_or_default() {
                "FileConfigProvider" => Provider::File { allowed },
                "DirectoryConfigProvider" => Provider::Directory { allowed },
                "EnvVarConfigProvider" => {
                    let pattern = option("param.allowlist.pattern");
                    let pattern =
                        (!pattern.is_empty()).then(|| Regex::new(&format!("^(?:{pattern})$")));
                    Provider::Environment {
                        allowed: pattern.and_then(Result::ok),
                    }
                }
                "KubernetesSecretConfigProvider" | "KubernetesConfigMapConfigProvider" => {
                    Provider::Kubernetes
                }
                _ => continue,
            };
            self.named.insert(alias, provider);
        }
    }

    /// Replaces each reference once; what a replacement contains is not looked at again.
    pub(crate) fn resolve(&self, text: &str) -> Resolved {
        let mut resolved = Resolved {
            text: String::with_capacity(text.len()),
            replaced: false,
            left: Vec::new(),
        };
        let mut rest = text;
        while let Some((before, reference, after)) = next_reference(rest) {
            resolved.text.push_str(before);
            match self.look_up(reference) {
                Ok(value) => {
                    resolved.text.push_str(&value);
                    resolved.replaced = true;
                }
                Err(why) => {
                    let literal = format!("${{{reference}}}");
                    resolved.text.push_str(&literal);
                    resolved.left.push(Left {
                        known: self.is_known(reference),
                        text: format!("`{literal}` stays as it is written, as in Connect: {why}"),
                    });
                }
            }
            rest = after;
        }
        resolved.text.push_str(rest);
        resolved
    }

    /// Quarkus' expressions: `${NAME}` and `${NAME:default}` are variables, `\\${` is a dollar and a brace. References of
    /// Connect's kind are looked up as well.
    pub(crate) fn expand(&self, text: &str) -> Resolved {
        let mut resolved = Resolved {
            text: String::with_capacity(text.len()),
            replaced: false,
            left: Vec::new(),
        };
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('\\') {
                resolved.text.push_str(before);
                resolved.text.push_str("${");
                rest = after;
                continue;
            }
            let Some((inside, after)) = after.split_once('}') else {
                break;
            };
            resolved.text.push_str(before);
            self.expand_one(inside, &mut resolved);
            rest = after;
        }
        resolved.text.push_str(rest);
        resolved
    }

    fn expand_one(&self, inside: &str, resolved: &mut Resolved) {
        let (name, default) = match inside.split_once(':') {
            Some((alias, _)) if USUAL.contains(&alias) => {
                let reference = self.resolve(&format!("${{{inside}}}"));
                resolved.text.push_str(&reference.text);
                resolved.replaced |= reference.replaced;
                resolved.left.extend(reference.left);
                return;
            }
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let shell_name: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect();
        let variable = [name, &shell_name]
            .into_iter()
            .find_map(|name| self.lookup.environment(name));
        resolved.replaced |= variable.is_some();
        match variable.as_deref().or(default) {
            Some(value) => resolved.text.push_str(value),
            None => {
                resolved.text.push_str(&format!("${{{inside}}}"));
                resolved.left.push(Left {
                    known: true,
                    text: format!(
                        "there is no environment variable {shell_name}; set it, or write \
                        \\\\${{{inside}}} if the text itself is meant"
                    ),
                });
            }
        }
    }

    fn is_known(&self, reference: &str) -> bool {
        let alias = reference.split(':').next().unwrap_or_default();
        self.named.contains_key(alias) || USUAL.contains(&alias)
    }

    fn look_up(&self, reference: &str) -> Result<String, String> {
        let (alias, rest) = reference.split_once(':').unwrap_or((reference, ""));
        let (path, key) = rest.split_once(':').unwrap_or(("", rest));
        match self.named.get(alias) {
            Some(Provider::File { allowed }) => self.in_properties(path, key, allowed),
            Some(Provider::Directory { allowed }) => self.in_directory(path, key, allowed),
            Some(Provider::Environment { allowed }) => {
                let hidden = allowed
                    .as_ref()
                    .is_some_and(|pattern| !pattern.is_match(key));
                if hidden {
                    return Err(format!(
                        "the worker's allowlist.pattern hides the variable {key}"
                    ));
                }
                let value = self.lookup.environment(key);
                value.ok_or_else(|| format!("there is no environment variable {key}; set it"))
            }
            Some(Provider::Kubernetes) => self.in_kubernetes(path, key),
            None if self.declared => Err(format!(
                "the worker's config.providers has no `{alias}` of a known class; declare it there"
            )),
            None => Err(format!(
                "there is no provider `{alias}`; the known ones are file, env, directory, secrets and configmaps"
            )),
        }
    }

    fn in_properties(&self, path: &str, key: &str, allowed: &[String]) -> Result<String, String> {
        let text = self.read(path, allowed)?;
        let entries = properties::parse(&text)
            .map_err(|_| format!("the file {path} is no properties file"))?;
        let entry = entries.into_iter().rev().find(|entry| entry.key == key);
        let value = entry.and_then(|entry| entry.value);
        value.ok_or_else(|| format!("the file {path} has no key {key}; add it"))
    }

    fn in_directory(&self, path: &str, key: &str, allowed: &[String]) -> Result<String, String> {
        if key.contains(['/', '\\']) || key == ".." {
            return Err(format!("`{key}` is no name of a file in {path}"));
        }
        self.read(&format!("{}/{key}", path.trim_end_matches('/')), allowed)
    }

    fn in_kubernetes(&self, path: &str, key: &str) -> Result<String, String> {
        let Some(root) = self.secrets_directory else {
            return Err(
                "no directory with secrets is configured; give --secrets-directory, with files \
                NAMESPACE/NAME/KEY or NAME/KEY"
                    .to_owned(),
            );
        };
        let (namespace, name) = path.split_once('/').unwrap_or(("", path));
        if [namespace, name, key]
            .iter()
            .any(|part| part.contains('/') || *part == "..")
            || name.is_empty()
            || key.is_empty()
        {
            return Err("it is not written NAMESPACE/NAME:KEY".to_owned());
        }
        let root = root.trim_end_matches('/');
        let with_namespace = self
            .lookup
            .file(&format!("{root}/{namespace}/{name}/{key}"));
        let value = with_namespace.or_else(|| self.lookup.file(&format!("{root}/{name}/{key}")));
        value.ok_or_else(|| {
            format!("neither {root}/{namespace}/{name}/{key} nor {root}/{name}/{key} can be read")
        })
    }

    fn read(&self, path: &str, allowed: &[String]) -> Result<String, String> {
        let climbs = path.split('/').any(|part| part == "..");
        if !allowed.is_empty() && (climbs || !allowed.iter().any(|root| below(path, root))) {
            return Err(format!("the worker's allowed.paths does not have {path}"));
        }
        self.lookup
            .file(path)
            .ok_or_else(|| format!("the file {path} cannot be read"))
    }
}

fn below(path: &str, root: &str) -> bool {
    let rest = path.strip_prefix(root.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The text before the first reference, what is inside its braces, and the text after it.
fn next_reference(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(start) = text.get(from..)?.find("${").map(|at| from + at) {
        let inside = text.get(start + 2..)?;
        let end = inside.find('}')?;
        let reference = inside.get(..end)?;
        if reference.contains(':') {
            return Some((text.get(..start)?, reference, inside.get(end + 1..)?));
        }
        from = start + 2;
    }
    None
}

/// A list with commas, as Connect reads it.
pub(crate) fn list(text: &str) -> Vec<String> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Lookup for Fake {
        fn environment(&self, name: &str) -> Option<String> {
            (name == "HOST").then(|| "db".to_owned())
        }

        fn file(&self, path: &str) -> Option<String> {
            match path {
                "/s/a.properties" => Some("k=v\nother:x\n".to_owned()),
                "/s/dir/pw" => Some("from-dir".to_owned()),
                "/k8s/ns/db/password" => Some("in-namespace".to_owned()),
                "/k8s/db/user" => Some("without".to_owned()),
                _ => None,
            }
        }
    }

    fn resolve(text: &str, worker: Option<&str>) -> (String, usize) {
        let worker = worker.map(|text| properties::parse(text).unwrap());
        let providers = Providers::new(&Fake, Some("/k8s/"), worker.as_deref());
        let resolved = providers.resolve(text);
        (resolved.text, resolved.left.len())
    }

    #[test]
    fn each_provider_answers() {
        for (text, expected) in [
            ("${file:/s/a.properties:k}", "v"),
            ("${env:HOST}", "db"),
            ("${env::HOST}:5432", "db:5432"),
            ("a ${directory:/s/dir:pw} b", "a from-dir b"),
            (
                "${secrets:ns/db:password}${configmaps:other/db:user}",
                "in-namespacewithout",
            ),
        ] {
            assert_eq!(resolve(text, None), (expected.to_owned(), 0), "{text}");
        }
    }

    #[test]
    fn the_routers_variable_is_no_reference() {
        for text in ["${routedByValue}.events", "outbox.${a}${b}", "${", "$", "}"] {
            assert_eq!(resolve(text, None), (text.to_owned(), 0));
        }
        assert_eq!(resolve("${x}.${env:HOST}", None), ("${x}.db".to_owned(), 0));
    }

    #[test]
    fn expressions_of_quarkus_are_variables_with_defaults() {
        let providers = Providers::new(&Fake, None, None);
        for (text, expected, left) in [
            ("${HOST}", "db", 0),
            ("${host:x}:${PORT:5432}", "db:5432", 0),
            ("\\${routedByValue}.events", "${routedByValue}.events", 0),
            ("${env:HOST}-${NO}", "db-${NO}", 1),
            ("${HOST", "${HOST", 0),
            ("a\\b", "a\\b", 0),
        ] {
            let resolved = providers.expand(text);
            assert_eq!(
                (resolved.text.as_str(), resolved.left.len()),
                (expected, left),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_looked_up_stays_and_is_told() {
        for text in [
            "${file:/no:k}",
            "${file:/s/a.properties:no}",
            "${env:NO}",
            "${vault:a:b}",
            "${directory:/s:../a}",
            "${secrets:a}",
        ] {
            assert_eq!(resolve(text, None), (text.to_owned(), 1), "{text}");
        }
    }

    #[test]
    fn a_worker_says_which_providers_there_are() {
        let worker = "config.providers=f, e\nconfig.providers.f.class=org.apache.kafka.common.config.provider.FileConfigProvider\n\
            config.providers.f.param.allowed.paths=/s\nconfig.providers.e.class=x.EnvVarConfigProvider\nconfig.providers.e.param.allowlist.pattern=H.*\n";
        assert_eq!(resolve("${f:/s/a.properties:k}", Some(worker)).0, "v");
        assert_eq!(resolve("${e:HOST}", Some(worker)).0, "db");
        for text in [
            "${file:/s/a.properties:k}",
            "${f:/etc/passwd:k}",
            "${f:/s/../etc/x:k}",
            "${e:PATH}",
        ] {
            assert_eq!(resolve(text, Some(worker)), (text.to_owned(), 1), "{text}");
        }
    }
}
