//! Stage 5 of 9, PostgreSQL's dates and times: read from their text under `DateStyle ISO`, and written as Debezium and
//! Java write them.

use super::output::Output;
use crate::timestamp::{days_in_month, days_since_1970};

/// A moment or a day as text has it, without judgement on whether a record can carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Microseconds since 1970-01-01 UTC; far enough for all of PostgreSQL's times.
    Micros(i64),
    Infinity,
    NegativeInfinity,
}

/// `date[ time[offset]][ BC]`; without an offset, UTC.
pub(crate) fn parse_moment(text: &str) -> Option<Moment> {
    match text {
        "infinity" => return Some(Moment::Infinity),
        "-infinity" => return Some(Moment::NegativeInfinity),
        _ => {}
    }
    let (text, is_bc) = match text.strip_suffix(" BC") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    let days = parse_date(date, is_bc)?;
    let (micros, offset_seconds) = if time.is_empty() {
        (0, 0)
    } else {
        parse_time(time)?
    };
    let seconds = days.checked_mul(86_400)?.checked_sub(offset_seconds)?;
    Some(Moment::Micros(
        seconds.checked_mul(1_000_000)?.checked_add(micros)?,
    ))
}

/// A date's days since 1970-01-01.
pub(crate) fn parse_days(text: &str) -> Option<i64> {
    match text {
        // What pgjdbc's infinities become as a LocalDate.
        "infinity" => Some(days_since_1970(-5_877_611, 6, 21)),
        "-infinity" => Some(days_since_1970(-5_877_611, 6, 22)),
        _ => match text.strip_suffix(" BC") {
            Some(date) => parse_date(date, true),
            None => parse_date(text, false),
        },
    }
}

fn parse_date(date: &str, is_bc: bool) -> Option<i64> {
    let mut parts = date.splitn(3, '-').map(digits);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let year = if is_bc { 1 - year } else { year };
    if !(-10_000..=9_999_999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    (1..=days_in_month(year, month))
        .contains(&day)
        .then(|| days_since_1970(year, month, day))
}

/// `hh:mm[:ss[.ffffff]][offset]`: microseconds of the day, and seconds east of UTC. The end of day, 24:00, is a time.
pub(crate) fn parse_time(text: &str) -> Option<(i64, i64)> {
    let offset_at = text.find(['+', '-', 'Z']).unwrap_or(text.len());
    let (clock, offset) = text.split_at(offset_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let seconds = clock_seconds(clock)?;
    if seconds > 86_400 || fraction.len() > 6 {
        return None;
    }
    let fraction_micros = if fraction.is_empty() {
        0
    } else {
        digits(fraction)? * 10_i64.pow(u32::try_from(6 - fraction.len()).ok()?)
    };
    let offset_seconds = match offset.as_bytes().first() {
        None | Some(b'Z') => 0,
        Some(b'-') => -clock_seconds(offset.get(1..)?)?,
        Some(_) => clock_seconds(offset.get(1..)?)?,
    };
    Some((seconds * 1_000_000 + fraction_micros, offset_seconds))
}

fn clock_seconds(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':').map(digits);
    let hours = parts.next()??;
    let minutes = parts.next().unwrap_or(Some(0))?;
    let seconds = parts.next().unwrap_or(Some(0))?;
    (hours <= 24 && minutes < 60 && seconds <= 60).then_some(hours * 3600 + minutes * 60 + seconds)
}

fn digits(text: &str) -> Option<i64> {
    let is_number =
        !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Year, month and day of a day since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year_of_era + carry, month, day)
}

/// `ISO_LOCAL_DATE`: a sign before years that have none of four digits.
pub(crate) fn write_iso_date(days: i64, out: &mut impl Output) {
    let (year, month, day) = civil(days);
    match year {
        0..=9999 => out.text(Digits::<4>::of(year).all()),
        10_000.. => out.display(format_args!("+{year}")),
        _ => out.display(format_args!("-{:04}", -year)),
    }
    for part in [month, day] {
        out.text("-");
        out.text(Digits::<2>::of(part).all());
    }
}

/// `ISO_OFFSET_DATE_TIME` in UTC, with exactly `fraction_digits` behind the point; with 0 as many as are needed.
pub(crate) fn write_iso_moment(micros: i64, fraction_digits: u8, out: &mut impl Output) {
    write_iso_date(micros.div_euclid(DAY_MICROS), out);
    out.text("T");
    write_iso_time(micros.rem_euclid(DAY_MICROS), fraction_digits, out);
    out.text("Z");
}

/// `ISO_LOCAL_TIME`. Without a fixed number of digits Java writes those up to the last that is not 0.
pub(crate) fn write_iso_time(day_micros: i64, fraction_digits: u8, out: &mut impl Output) {
    let (seconds, micros) = (day_micros / 1_000_000, day_micros % 1_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    out.text(Digits::<2>::of(hours).all());
    for part in [minutes, seconds] {
        out.text(":");
        out.text(Digits::<2>::of(part).all());
    }
    let fraction = Digits::<6>::of(micros);
    let shown = match fraction_digits {
        0 => fraction.significant(),
        1..=6 => fraction.first(usize::from(fraction_digits)),
        _ => fraction.first(6),
    };
    if !shown.is_empty() {
        out.text(".");
        out.text(shown);
    }
}

/// The last `N` digits of a number that is not negative, with zeros before it: a formatter takes many times as long.
struct Digits<const N: usize>([u8; N]);

impl<const N: usize> Digits<N> {
    fn of(number: i64) -> Self {
        let mut rest = number;
        let mut bytes = [b'0'; N];
        for byte in bytes.iter_mut().rev() {
            *byte = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
        }
        Self(bytes)
    }

    fn all(&self) -> &str {
        self.first(N)
    }

    fn first(&self, count: usize) -> &str {
        std::str::from_utf8(self.0.get(..count).unwrap_or_default()).unwrap_or_default()
    }

    fn significant(&self) -> &str {
        self.all().trim_end_matches('0')
    }
}

/// `java.util.Date.toString` of a machine that runs in UTC.
pub(crate) fn write_java_date(unix_ms: i64, out: &mut impl Output) {
    let days = unix_ms.div_euclid(86_400_000);
    let (year, month, day) = civil(days);
    let pick = |names: &'static [&'static str], at: i64| {
        usize::try_from(at)
            .ok()
            .and_then(|at| names.get(at))
            .copied()
            .unwrap_or_default()
    };
    let weekday = pick(&WEEKDAYS, (days + 4).rem_euclid(7));
    let month = pick(&MONTHS, month - 1);
    let seconds = unix_ms.rem_euclid(86_400_000) / 1000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    out.display(format_args!(
        "{weekday} {month} {day:02} {hours:02}:{minutes:02}:{seconds:02} UTC {year}"
    ));
}

/// As Connect's `Values` writes a `java.util.Date`: a time of the first day, a date at midnight, or both.
pub(crate) fn write_connect_date(unix_ms: i64, out: &mut impl Output) {
    let is_time = unix_ms < 86_400_000;
    if !is_time {
        // Not as ISO has it: no sign stands before a long year.
        let (year, month, day) = civil(unix_ms.div_euclid(86_400_000));
        out.display(format_args!("{year:04}-{month:02}-{day:02}"));
        if unix_ms % 86_400_000 == 0 {
            return;
        }
        out.text("T");
    }
    write_iso_time(unix_ms.rem_euclid(86_400_000) * 1000, 3, out);
    out.text("Z");
}

const DAY_MICROS: i64 = 86_400_000_000;
const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn iso(text: &str, fraction_digits: u8) -> String {
        let Some(Moment::Micros(micros)) = parse_moment(text) else {
            panic!("{text}");
        };
        let mut out = String::new();
        write_iso_moment(micros, fraction_digits, &mut out);
        out
    }

    #[test]
    fn moments_are_written_in_utc() {
        assert_eq!(
            iso("2024-02-29 12:34:56.789+02", 6),
            "2024-02-29T10:34:56.789000Z"
        );
        assert_eq!(iso("2024-02-29 12:34:56+00", 0), "2024-02-29T12:34:56Z");
        assert_eq!(iso("2024-02-29 12:34:56.5+00", 0), "2024-02-29T12:34:56.5Z");
        assert_eq!(
            iso("2024-02-29 12:34:56.789+00", 3),
            "2024-02-29T12:34:56.789Z"
        );
        assert_eq!(
            iso("0044-03-15 12:00:00+00 BC", 6),
            "-0043-03-15T12:00:00.000000Z"
        );
        assert_eq!(iso("0001-01-01 00:00:00+00 BC", 0), "0000-01-01T00:00:00Z");
        assert_eq!(iso("10000-01-01 00:00:00+00", 0), "+10000-01-01T00:00:00Z");
        assert_eq!(
            iso("1969-12-31 23:59:59.999999+00", 6),
            "1969-12-31T23:59:59.999999Z"
        );
    }

    #[test]
    fn infinities_are_told_apart() {
        assert_eq!(parse_moment("infinity"), Some(Moment::Infinity));
        assert_eq!(parse_moment("-infinity"), Some(Moment::NegativeInfinity));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2024-13-01",
            "2023-02-29",
            "2024-01-01 25:00:00",
            "2024-01-01 0:0:x",
        ] {
            assert_eq!(parse_moment(text), None, "{text}");
        }
        assert_eq!(parse_time("24:00:00"), Some((86_400_000_000, 0)));
        assert_eq!(
            parse_time("12:00:00.5-03:30"),
            Some((43_200_500_000, -12_600))
        );
    }

    proptest! {
        #[test]
        fn any_day_reads_back(days in -2_000_000..100_000_000_i64) {
            let (year, month, day) = civil(days);
            prop_assert_eq!(days_since_1970(year, month, day), days);
            prop_assert!((1..=days_in_month(year, month)).contains(&day));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9:. +BCZT-]{0,30}") {
            let _ = parse_moment(&text);
            let _ = parse_days(&text);
            let _ = parse_time(&text);
        }
    }
}
