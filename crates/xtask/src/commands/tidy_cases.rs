//! House rule on the field problems: each case, and each lettered part of one, has a test whose name begins with its id.
//!
//! The ids stand for real reports of what readers of the log did wrong; they are never renumbered.

use std::collections::BTreeSet;

use super::tidy::File;

/// Cases without a test of their name.
pub(crate) fn check(files: &[File]) -> Vec<String> {
    let names = files
        .iter()
        .filter(|file| file.is_rust())
        .flat_map(|file| file.tests().filter_map(|(_, line)| test_name(line)));
    let covered: BTreeSet<String> = names.flat_map(cases).collect();
    let mut missing = Vec::new();
    for number in 1..=CASES {
        let id = format!("b{number:02}");
        let letters = PARTS
            .iter()
            .find(|(case, _)| *case == number)
            .map_or("", |(_, letters)| *letters);
        let wanted = std::iter::once(id.clone())
            .chain(letters.chars().map(|letter| format!("{id}_{letter}")));
        missing.extend(
            wanted
                .filter(|case| !covered.contains(case))
                .map(|case| format!("field problem {case}: no test's name begins with it")),
        );
    }
    missing
}

/// The name of the function that the line begins.
fn test_name(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("async ");
    let (name, _) = line.strip_prefix("fn ")?.split_once('(')?;
    Some(name)
}

/// The cases that a test is about: `b31_i_and_l_runs` is about B31, B31 i and B31 l.
fn cases(name: &str) -> Vec<String> {
    let mut words = name.split('_');
    let id = words.next().unwrap_or_default();
    let is_case = id.len() == 3
        && id.starts_with('b')
        && id.bytes().skip(1).all(|byte| byte.is_ascii_digit());
    if !is_case {
        return Vec::new();
    }
    let mut cases = vec![id.to_owned()];
    let mut last = "";
    for word in words.filter(|word| *word != "and") {
        // Parts stand in their order, so what does not is the article `a`.
        if word.len() != 1 || word <= last {
            break;
        }
        cases.push(format!("{id}_{word}"));
        last = word;
    }
    cases
}

/// Their number.
const CASES: u32 = 31;

/// Cases of several parts, each of which is a fault of its own.
const PARTS: [(u32, &str); 10] = [
    (2, "abcd"),
    (7, "abc"),
    (9, "abcd"),
    (17, "abc"),
    (20, "abc"),
    (22, "abc"),
    (24, "abc"),
    (25, "abcdefg"),
    (26, "abc"),
    (31, "abcdefghijkl"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File {
            path: "tests/one.rs".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_name_says_which_cases_it_is_about() {
        for (name, expected) in [
            ("b03_keepalives_confirm_nothing", &["b03"][..]),
            ("b09_a_c_d_rows_arrive", &["b09", "b09_a", "b09_c", "b09_d"]),
            ("b31_i_and_l_a_role_runs", &["b31", "b31_i", "b31_l"]),
            ("b22_a_a_frozen_holder", &["b22", "b22_a"]),
            ("batches_circulate", &[]),
            ("b3_is_none", &[]),
        ] {
            assert_eq!(cases(name), expected, "{name}");
        }
    }

    #[test]
    fn a_case_without_a_test_is_told() {
        let names: Vec<String> = (1..=CASES).map(|n| format!("b{n:02}")).collect();
        let mut text = String::new();
        for name in &names {
            text += &format!("fn {name}_x() {{}}\n");
        }
        for (number, letters) in PARTS {
            for letter in letters.chars() {
                text += &format!("    async fn b{number:02}_{letter}_x() {{}}\n");
            }
        }
        assert_eq!(check(&[file(&text)]), [] as [String; 0]);
        for gone in ["fn b05_x", "fn b25_g_x"] {
            let broken = check(&[file(&text.replace(gone, "fn other"))]);
            assert_eq!(broken.len(), 1, "{gone}: {broken:?}");
        }
    }
}
