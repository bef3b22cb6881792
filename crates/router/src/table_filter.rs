//! Stage 5 of 9, which tables are captured: the connector's lists of patterns.

use super::TableFilter;
use super::java_regex::{JavaRegex, PatternProblem};
use crate::error::ConnectConfigError;
use crate::table::TableName;

/// The lists of tables, compiled.
#[derive(Debug)]
pub(crate) struct CompiledFilter {
    names: Vec<TableName>,
    include: Vec<JavaRegex>,
    exclude: Vec<JavaRegex>,
    schema_include: Vec<JavaRegex>,
    schema_exclude: Vec<JavaRegex>,
}

impl CompiledFilter {
    pub(crate) fn new(filter: &TableFilter) -> Result<Self, ConnectConfigError> {
        Ok(Self {
            names: filter.names.clone(),
            include: compiled_list(
                "tables.include",
                &filter.include,
                JavaRegex::case_insensitive,
            )?,
            exclude: compiled_list(
                "tables.exclude",
                &filter.exclude,
                JavaRegex::case_insensitive,
            )?,
            schema_include: compiled_list(
                "tables.schema_include",
                &filter.schema_include,
                JavaRegex::case_insensitive,
            )?,
            schema_exclude: compiled_list(
                "tables.schema_exclude",
                &filter.schema_exclude,
                JavaRegex::case_insensitive,
            )?,
        })
    }

    /// A pattern that gives up matches nothing.
    pub(crate) fn captures(&self, schema: &str, table: &str) -> bool {
        if !self.names.is_empty() {
            return self
                .names
                .iter()
                .any(|name| name.schema == schema && name.name == table);
        }
        if matches!(schema, "pg_catalog" | "information_schema") {
            return false;
        }
        let full_name = format!("{schema}.{table}");
        passes(&self.schema_include, &self.schema_exclude, schema)
            && passes(&self.include, &self.exclude, &full_name)
    }
}

pub(crate) fn passes(include: &[JavaRegex], exclude: &[JavaRegex], text: &str) -> bool {
    let matches = |pattern: &JavaRegex| pattern.matches(text).unwrap_or(false);
    (include.is_empty() || include.iter().any(matches)) && !exclude.iter().any(matches)
}

pub(crate) fn compiled_list(
    key: &str,
    patterns: &[String],
    compile: impl Fn(&str) -> Result<JavaRegex, PatternProblem>,
) -> Result<Vec<JavaRegex>, ConnectConfigError> {
    let compiled = |pattern: &String| {
        compile(pattern.trim()).map_err(|why| ConnectConfigError::Pattern {
            key: key.to_owned(),
            pattern: pattern.clone(),
            why,
        })
    };
    patterns.iter().map(compiled).collect()
}
