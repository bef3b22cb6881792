//! "Did you mean …?": the nearest known name to one that is not known.

/// The candidate that is near enough to be what was meant. Dots, dashes and capitals do not count.
///
/// A wrong suggestion sends the reader away in the wrong direction, so few letters may differ: of long names one in
/// eight, of short ones two.
pub(crate) fn nearest<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // What is far longer than any option cannot be near one; this bounds the work.
    if written.len() > 200 {
        return None;
    }
    let plain_written = plain(written);
    let allowed = (plain_written.chars().count() / 8).max(2);
    let near = candidates.into_iter().filter_map(|candidate| {
        let distance = strsim::damerau_levenshtein(&plain_written, &plain(candidate));
        let short = plain_written.chars().count() <= 2 * distance;
        (distance <= allowed && !short).then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_find_what_was_meant() {
        let names = ["slot.name", "table.include.list", "route.by.field", "name"];
        for (written, expected) in [
            ("slot_name", Some("slot.name")),
            ("tabel.include.list", Some("table.include.list")),
            ("route.by.feild", Some("route.by.field")),
            ("nam", Some("name")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, names), expected, "{written}");
        }
    }
}
