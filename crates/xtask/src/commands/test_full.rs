//! The long parts of `cargo xtask test --full`: many versions, long runs. Each can be run alone with `--only`.

use super::test::Part;

/// Grows with the features that need it: a part is a name and a program or a filter of the end-to-end tests.
pub(crate) const FULL: &[Part] = &[];
