//! The commands, one a file.

pub(crate) mod bench;
mod bench_report;
pub(crate) mod chaos;
pub(crate) mod demo;
pub(crate) mod golden;
pub(crate) mod image;
mod run;
pub(crate) mod test;
mod test_full;
pub(crate) mod tidy;
mod tidy_cases;
mod tidy_docs;
mod tidy_text;
mod tidy_tree;
