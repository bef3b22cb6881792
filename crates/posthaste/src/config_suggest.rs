//! "Did you mean …?": the nearest legal name to a mistyped one.

/// The candidate that is near enough to `written` to be what was meant; dashes, dots and case do not count.
///
/// A suggestion that is wrong sends the reader away in the wrong direction, so at most a third of the letters may differ.
pub(crate) fn nearest<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = plain(written);
    let distances = candidates.into_iter().map(|candidate| {
        let candidate_plain = plain(candidate);
        let distance = strsim::damerau_levenshtein(&written, &candidate_plain);
        let longest = written.chars().count().max(candidate_plain.chars().count());
        (distance, longest, candidate)
    });
    let near = distances.filter(|(distance, longest, _)| *distance * 3 <= *longest);
    near.min_by_key(|(distance, _, _)| *distance)
        .map(|(_, _, candidate)| candidate)
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '-' | '_' | '.' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_find_what_was_meant() {
        let keys = [
            "aggregate_type",
            "aggregate_id",
            "payload",
            "slot",
            "status_interval",
        ];
        for (written, expected) in [
            ("aggregate-type", Some("aggregate_type")),
            ("aggregatetype", Some("aggregate_type")),
            ("AggregateId", Some("aggregate_id")),
            ("paylaod", Some("payload")),
            ("slots", Some("slot")),
            ("statusinterval_", Some("status_interval")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, keys), expected, "{written}");
        }
    }

    #[test]
    fn an_equal_plain_name_wins_over_a_near_one() {
        assert_eq!(nearest("tables", ["table", "tables"]), Some("tables"));
    }
}
