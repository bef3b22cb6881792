//! Durations and sizes as people write them: `"10s"`, `"500ms"`, `"64MiB"`.

use std::time::Duration;

/// Units of time by their length in milliseconds, longest first.
const DURATION_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of size by their length in bytes. Only powers of 1024, so that nobody has to know which kind of megabyte is meant.
const SIZE_UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Reads `1h30m`, `10s`, `500ms`: whole numbers, each with its unit, longest unit first.
///
/// # Errors
/// What is wrong, in words that end a sentence beginning with the value.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let total_ms = parse(text, &DURATION_UNITS, "h, m, s or ms")?;
    Ok(Duration::from_millis(total_ms))
}

/// Reads `64MiB`, `512KiB`, `1GiB`, `100B`.
///
/// # Errors
/// What is wrong, in words that end a sentence beginning with the value.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    parse(text, &SIZE_UNITS, "B, KiB, MiB or GiB")
}

fn parse(text: &str, units: &[(&str, u64)], unit_names: &str) -> Result<u64, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("is empty".to_owned());
    }
    let mut total: u64 = 0;
    let mut shorter_units = units;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.trim_start();
        let unit_length = letters
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(letters.len());
        let (unit, tail) = letters.split_at(unit_length);
        if number.is_empty() {
            return Err("is not a whole number with a unit".to_owned());
        }
        if unit.is_empty() {
            return Err(if tail.is_empty() {
                format!("has no unit ({unit_names})")
            } else {
                "is not a whole number with a unit".to_owned()
            });
        }
        let place = shorter_units.iter().position(|(name, _)| *name == unit);
        let Some((&(_, length), later_units)) = place
            .and_then(|at| shorter_units.get(at..))
            .and_then(<[_]>::split_first)
        else {
            return Err(format!(
                "has the unit \"{unit}\", known are {unit_names}, each once and the longest first"
            ));
        };
        let amount = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(length));
        total = amount
            .and_then(|amount| total.checked_add(amount))
            .ok_or_else(|| "is too large".to_owned())?;
        shorter_units = later_units;
        rest = tail.trim_start();
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_written() {
        for (text, ms) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("0s", 0),
            (" 1 s ", 1_000),
            ("1h 1ms", 3_600_001),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
    }

    #[test]
    fn sizes_are_read_as_written() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("1GiB", 1 << 30),
            ("512 KiB", 512 << 10),
            ("100B", 100),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("", "is empty"),
            ("10", "has no unit"),
            ("ten seconds", "is not a whole number"),
            ("1.5s", "is not a whole number"),
            ("-1s", "is not a whole number"),
            ("10sec", "unit \"sec\""),
            ("1s1h", "unit \"h\""),
            ("99999999999999999999h", "is too large"),
            ("9999999999999999h", "is too large"),
        ] {
            let message = parse_duration(text).expect_err(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
        for (text, expected) in [
            ("64MB", "unit \"MB\""),
            ("64", "has no unit"),
            ("64mib", "unit \"mib\""),
        ] {
            let message = parse_size(text).expect_err(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            drop(parse_duration(&text));
            drop(parse_size(&text));
        }
    }
}
