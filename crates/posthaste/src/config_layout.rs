//! Where things stand in a file: one pipeline at the top, or under `[[pipeline]]` with a name; the rest belongs to the process.

use crate::codes::{Code, Problem};
use crate::config_check::{all_tables, place, unknown_table};
use crate::config_reference::{PIPELINE_TABLES, PROCESS_TABLES};
use crate::config_suggest::nearest;
use crate::config_tree::{Node, Origin, Table, Value, quoted};
use crate::connect_secrets::ConnectSecrets;
use crate::first_start::FirstStart;

/// The name of the pipeline in a file without `[[pipeline]]`.
pub(crate) const DEFAULT_PIPELINE_NAME: &str = "default";

/// Names become parts of metrics, file names and Kafka client ids.
const NAME_CHARACTERS_MAX: usize = 63;

/// A file taken apart. There is room for several pipelines; for now exactly one is allowed.
#[derive(Clone)]
pub(crate) struct Document {
    /// True if the file had `[[pipeline]]`, so that it is printed as it was written.
    pub(crate) is_named: bool,
    pub(crate) name: String,
    /// `source`, `router`, `kafka`, `retry`.
    pub(crate) pipeline: Table,
    /// `http`, `state`, `log`.
    pub(crate) process: Table,
    /// What a start without a slot has to respect.
    pub(crate) first_start: FirstStart,
    /// What a connector's file takes from elsewhere.
    pub(crate) connect_secrets: Option<ConnectSecrets>,
    /// What deserves a word at every start.
    pub(crate) remarks: Vec<String>,
}

impl Document {
    /// Takes the tree of a file apart. Tables inside are not looked at.
    ///
    /// # Errors
    /// A table that is unknown or in the wrong place, both ways of writing at once, a number of pipelines other than one, a
    /// name that is missing or illegal.
    pub(crate) fn new(mut tree: Table) -> Result<Self, Problem> {
        let entries = tree.remove("pipeline");
        check_names(&tree, entries.is_some())?;
        let process = take(&mut tree, &PROCESS_TABLES);
        let Some(entries) = entries else {
            return Ok(Self {
                is_named: false,
                name: DEFAULT_PIPELINE_NAME.to_owned(),
                pipeline: tree,
                process,
                first_start: FirstStart::default(),
                connect_secrets: None,
                remarks: Vec::new(),
            });
        };
        if let Some((name, node)) = tree.iter().next() {
            return Err(Problem::new(
                Code::ConfigPipelineLayout,
                place(&format!("[{name}]"), &node.origin),
            )
            .found(format!("[{name}] beside [[pipeline]] ({})", entries.origin))
            .needed("either [[pipeline]] or the pipeline's tables at the top, not both")
            .fix(format!(
                "write [pipeline.{name}] below [[pipeline]], or remove [[pipeline]]"
            )));
        }
        let (name, pipeline) = only_entry(entries)?;
        Ok(Self {
            is_named: true,
            name,
            pipeline,
            process,
            first_start: FirstStart::default(),
            connect_secrets: None,
            remarks: Vec::new(),
        })
    }
}

/// Refuses tables nobody knows.
fn check_names(tree: &Table, has_entries: bool) -> Result<(), Problem> {
    let legal = all_tables();
    let Some((name, node)) = tree
        .iter()
        .find(|(name, _)| !legal.contains(&name.as_str()))
    else {
        return Ok(());
    };
    if name == "name" {
        return Err(
            Problem::new(Code::ConfigPipelineLayout, place("name", &node.origin))
                .found("a name outside of [[pipeline]]")
                .needed(
                    "a name below a line [[pipeline]]; without one the pipeline is called default",
                )
                .fix("write [[pipeline]] above it, and [pipeline.source] for [source]"),
        );
    }
    if nearest(name, ["pipeline"]).is_some() && !has_entries {
        return Err(unknown_table(name, node, &legal).fix("did you mean [[pipeline]]?"));
    }
    Err(unknown_table(name, node, &legal))
}

fn take(tree: &mut Table, names: &[&str]) -> Table {
    names
        .iter()
        .filter_map(|name| tree.remove_entry(*name))
        .collect()
}

/// The one entry of `[[pipeline]]` with its name.
fn only_entry(entries: Node) -> Result<(String, Table), Problem> {
    let origin = entries.origin;
    let Value::List(mut items) = entries.value else {
        return Err(not_a_list("a single value or table", &origin));
    };
    let count = items.len();
    let (Some(entry), true) = (items.pop(), items.is_empty()) else {
        return Err(
            Problem::new(Code::ConfigPipelineCount, place("pipeline", &origin))
                .found(format!("{count} pipelines"))
                .needed("exactly one: this version runs one pipeline in each process")
                .fix("keep one [[pipeline]] in each file, and start one process for each file"),
        );
    };
    let entry_origin = entry.origin;
    let Value::Table(mut pipeline) = entry.value else {
        return Err(not_a_list("an entry that is no table", &entry_origin));
    };
    let Some(name) = pipeline.remove("name") else {
        return Err(Problem::new(
            Code::ConfigKeyMissing,
            place("pipeline.name", &entry_origin),
        )
        .found("no name")
        .needed("a name of letters, digits, - and _, at most 63")
        .fix("add name = \"…\" below [[pipeline]]"));
    };
    let legal: Vec<&str> = PIPELINE_TABLES.into_iter().collect();
    if let Some((name, node)) = pipeline
        .iter()
        .find(|(name, _)| !legal.contains(&name.as_str()))
    {
        return Err(unknown_table(name, node, &legal));
    }
    Ok((legal_name(&name)?, pipeline))
}

fn not_a_list(found: &str, origin: &Origin) -> Problem {
    Problem::new(Code::ConfigPipelineLayout, place("pipeline", origin))
        .found(found)
        .needed("a list of pipelines")
        .fix("write [[pipeline]] with two brackets")
}

/// Whether a pipeline can have this name.
pub(crate) fn is_legal_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=NAME_CHARACTERS_MAX).contains(&name.len()) && name.chars().all(legal)
}

fn legal_name(node: &Node) -> Result<String, Problem> {
    match node.as_text() {
        Some(name) if is_legal_name(name) => Ok(name.to_owned()),
        text => Err(Problem::new(
            Code::ConfigPipelineName,
            place("pipeline.name", &node.origin),
        )
        .found(text.map_or_else(|| node.describe(), quoted))
        .needed("a name of letters, digits, - and _, 1 to 63 of them")
        .fix("for example name = \"orders-eu\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_file::parse_toml;

    fn layout(text: &str) -> Result<Document, String> {
        parse_toml(text, "f")
            .and_then(Document::new)
            .map_err(|problem| problem.to_string())
    }

    fn check_refused(text: &str, parts: &[&str]) {
        let message = layout(text)
            .err()
            .unwrap_or_else(|| panic!("accepted: {text}"));
        for part in parts {
            assert!(message.contains(part), "{text}: {message} lacks {part}");
        }
    }

    #[test]
    fn a_flat_file_is_the_pipeline_default() {
        let document = layout("[source]\n[kafka]\n[http]\n").expect("legal");
        assert_eq!(document.name, "default");
        assert_eq!(
            document.pipeline.keys().collect::<Vec<_>>(),
            ["kafka", "source"]
        );
        assert_eq!(document.process.keys().collect::<Vec<_>>(), ["http"]);
    }

    #[test]
    fn a_pipeline_entry_has_a_name_and_the_same_tables() {
        let document = layout("[[pipeline]]\nname = \"orders-EU_1\"\n[pipeline.source]\n[log]\n")
            .expect("legal");
        assert_eq!(document.name, "orders-EU_1");
        assert_eq!(document.pipeline.keys().collect::<Vec<_>>(), ["source"]);
        assert_eq!(document.process.keys().collect::<Vec<_>>(), ["log"]);
    }

    #[test]
    fn misplaced_tables_are_refused() {
        check_refused(
            "[source]\n[[pipeline]]\nname='a'",
            &["PH0111", "[source] (line 1)", "line 2", "[pipeline.source]"],
        );
        check_refused(
            "[[pipeline]]\nname='a'\n[pipeline.http]",
            &["PH0105", "http (line 3)", "move [http] to the top"],
        );
        check_refused("[pipeline]\nname='a'", &["PH0111", "two brackets"]);
        check_refused("pipeline = ['a']", &["PH0111", "two brackets"]);
        check_refused("name = 'a'\n[source]", &["PH0111", "[[pipeline]]"]);
        check_refused(
            "[[pipelines]]\nname='a'",
            &["PH0105", "did you mean [[pipeline]]?"],
        );
        check_refused("[sorce]", &["PH0105", "did you mean [source]?"]);
        check_refused("slot = 'a'", &["PH0105", "did you mean source.slot?"]);
        check_refused(
            "colour = 'a'",
            &["PH0105", "one of the tables: source, router, connect"],
        );
    }

    #[test]
    fn names_and_their_number_are_checked() {
        check_refused(
            "[[pipeline]]\nname='a'\n[[pipeline]]\nname='b'",
            &["PH0112", "2 pipelines", "one process"],
        );
        check_refused("pipeline = []", &["PH0112", "0 pipelines"]);
        check_refused(
            "[[pipeline]]\n[pipeline.source]",
            &["PH0108", "pipeline.name"],
        );
        check_refused(
            "[[pipeline]]\nname='a b'",
            &["PH0113", "\"a b\"", "letters, digits"],
        );
        check_refused("[[pipeline]]\nname=''", &["PH0113"]);
        check_refused("[[pipeline]]\nname=7", &["PH0113", "number 7"]);
        check_refused(
            &format!("[[pipeline]]\nname='{}'", "a".repeat(64)),
            &["PH0113"],
        );
    }
}
