//! Stage 5 of 9, times: from PostgreSQL's text to the milliseconds that a record carries.

use std::ops::RangeInclusive;

use crate::error::ValueProblem;

/// Milliseconds since 1970 of a timestamptz, a timestamp (taken as UTC), a date (midnight UTC), or a whole number
/// (milliseconds already). The text tells which it is, so that domains and views of these types need no catalog.
///
/// Reads the form of `DateStyle ISO`, which the session pins: `2024-01-31 23:59:59.123456+00`. Parts of a
/// millisecond are cut off.
///
/// # Errors
///
/// For anything else, and for what no record can carry: `infinity`, and times before 1970.
pub(crate) fn unix_ms(text: &[u8]) -> Result<i64, ValueProblem> {
    match text {
        b"infinity" | b"-infinity" => return Err(ValueProblem::InfiniteTime),
        _ if text.ends_with(b" BC") => return Err(ValueProblem::BeforeEpoch),
        _ => {}
    }
    let ms = match whole_number(text) {
        Some(ms) => ms.ok_or(ValueProblem::TimeTooLarge)?,
        None => Cursor { text, at: 0 }.moment_ms()?,
    };
    if ms < 0 {
        return Err(ValueProblem::BeforeEpoch);
    }
    Ok(ms)
}

/// `None`: the text is something else. `Some(None)`: it is a whole number beyond 64 bits.
fn whole_number(text: &[u8]) -> Option<Option<i64>> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok()),
    )
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// `date[ time[offset]]`, in milliseconds since 1970. Counted in them throughout: a date may be so far off that
    /// its microseconds would not fit.
    fn moment_ms(mut self) -> Result<i64, ValueProblem> {
        let mut ms = self.date()? * 86_400_000;
        if self.take(b' ') {
            ms += self.time_micros()? / 1000;
            ms -= self.offset_seconds()? * 1000;
        }
        if self.at != self.text.len() {
            return Err(self.problem());
        }
        Ok(ms)
    }

    /// `yyyy-mm-dd`, in days since 1970.
    fn date(&mut self) -> Result<i64, ValueProblem> {
        let year = self.number(4..=7, 1..=9_999_999)?;
        self.expect(b'-')?;
        let month = self.number(2..=2, 1..=12)?;
        self.expect(b'-')?;
        let day = self.number(2..=2, 1..=days_in_month(year, month))?;
        Ok(days_since_1970(year, month, day))
    }

    /// `hh:mm:ss[.ffffff]`.
    fn time_micros(&mut self) -> Result<i64, ValueProblem> {
        let hours = self.number(2..=2, 0..=23)?;
        self.expect(b':')?;
        let minutes = self.number(2..=2, 0..=59)?;
        self.expect(b':')?;
        let seconds = self.number(2..=2, 0..=59)?;
        let whole = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000;
        if !self.take(b'.') {
            return Ok(whole);
        }
        let start = self.at;
        let fraction = self.number(1..=6, 0..=999_999)?;
        let missing_digits = (start + 6).saturating_sub(self.at);
        Ok(whole + (0..missing_digits).fold(fraction, |micros, _| micros * 10))
    }

    /// `(+|-)hh[:mm[:ss]]`, or nothing: a timestamp without time zone is taken as UTC.
    fn offset_seconds(&mut self) -> Result<i64, ValueProblem> {
        let sign = match self.text.get(self.at) {
            None => return Ok(0),
            Some(b'+') => 1,
            Some(b'-') => -1,
            Some(_) => return Err(self.problem()),
        };
        self.at += 1;
        let mut seconds = self.number(2..=2, 0..=15)? * 3600;
        if self.take(b':') {
            seconds += self.number(2..=2, 0..=59)? * 60;
            if self.take(b':') {
                seconds += self.number(2..=2, 0..=59)?;
            }
        }
        Ok(sign * seconds)
    }

    /// As many digits as there are, up to the most allowed.
    fn number(
        &mut self,
        digit_count: RangeInclusive<usize>,
        allowed: RangeInclusive<i64>,
    ) -> Result<i64, ValueProblem> {
        let start = self.at;
        let mut number = 0;
        while self.at - start < *digit_count.end()
            && let Some(digit @ b'0'..=b'9') = self.text.get(self.at)
        {
            number = number * 10 + i64::from(digit - b'0');
            self.at += 1;
        }
        if !digit_count.contains(&(self.at - start)) || !allowed.contains(&number) {
            self.at = start;
            return Err(self.problem());
        }
        Ok(number)
    }

    fn expect(&mut self, byte: u8) -> Result<(), ValueProblem> {
        if self.take(byte) {
            return Ok(());
        }
        Err(self.problem())
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn problem(&self) -> ValueProblem {
        ValueProblem::NotATime { offset: self.at }
    }
}

pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Of the proleptic Gregorian calendar, which PostgreSQL uses throughout. Years begin in March here, so that the
/// leap day comes last; 400 of them have 146 097 days.
pub(crate) fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - DAYS_FROM_YEAR_0_MARCH_TO_1970
}

const DAYS_FROM_YEAR_0_MARCH_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: i64) {
        assert_eq!(unix_ms(text.as_bytes()), Ok(expected), "{text}");
    }

    #[track_caller]
    fn refused(text: &str, problem: ValueProblem) {
        assert_eq!(unix_ms(text.as_bytes()), Err(problem), "{text}");
    }

    #[test]
    fn timestamps_are_read_to_the_millisecond() {
        check("1970-01-01 00:00:00", 0);
        check("2024-02-29 12:34:56", 1_709_210_096_000);
        check("2024-02-29 12:34:56.7", 1_709_210_096_700);
        check("2024-02-29 12:34:56.78", 1_709_210_096_780);
        check("2024-02-29 12:34:56.789", 1_709_210_096_789);
        check("2024-02-29 12:34:56.789999", 1_709_210_096_789);
        check("2024-02-29 12:34:56.000999", 1_709_210_096_000);
        check("2000-01-01 00:00:00", 946_684_800_000);
        check("2038-01-19 03:14:08", 2_147_483_648_000);
    }

    #[test]
    fn time_zones_are_taken_off() {
        check("2024-02-29 12:34:56.5+00", 1_709_210_096_500);
        check("2024-02-29 12:34:56+02", 1_709_202_896_000);
        check("2024-02-29 12:34:56-03:30", 1_709_222_696_000);
        check("2024-02-29 12:34:56+05:53:28", 1_709_188_888_000);
        check("1969-12-31 23:00:00-01", 0);
        refused("1970-01-01 00:00:00+01", ValueProblem::BeforeEpoch);
    }

    #[test]
    fn dates_are_midnight_utc() {
        check("1970-01-02", 86_400_000);
        check("2000-02-29", 951_782_400_000);
        check("2100-03-01", 4_107_542_400_000);
    }

    #[test]
    fn years_beyond_four_digits_are_read() {
        check("10000-01-01 00:00:00+00", 253_402_300_800_000);
        check("5874897-12-31", 185_331_706_992_000_000);
        check("294276-12-31 23:59:59.999999+00", 9_224_318_015_999_999);
    }

    #[test]
    fn whole_numbers_are_milliseconds_already() {
        check("0", 0);
        check("1709210096789", 1_709_210_096_789);
        check("9223372036854775807", i64::MAX);
        refused("-1", ValueProblem::BeforeEpoch);
        refused("9223372036854775808", ValueProblem::TimeTooLarge);
    }

    #[test]
    fn what_no_record_can_carry_says_so() {
        refused("infinity", ValueProblem::InfiniteTime);
        refused("-infinity", ValueProblem::InfiniteTime);
        refused("0044-03-15 BC", ValueProblem::BeforeEpoch);
        refused("0044-03-15 12:00:00+00 BC", ValueProblem::BeforeEpoch);
        refused("4713-01-01 00:00:00 BC", ValueProblem::BeforeEpoch);
        refused("1969-12-31 23:59:59.999999", ValueProblem::BeforeEpoch);
        refused("0001-01-01", ValueProblem::BeforeEpoch);
    }

    #[test]
    fn other_text_names_its_offset() {
        for (text, offset) in [
            ("", 0),
            ("-", 0),
            ("now", 0),
            ("12:00:00", 0),
            ("1.5", 0),
            ("99-01-01", 0),
            ("2024-13-01", 5),
            ("2024-00-01", 5),
            ("2023-02-29", 8),
            ("1900-02-29", 8),
            ("2024-04-31", 8),
            ("2024-1-01", 5),
            ("2024/01/01", 4),
            ("2024-01-01T00:00:00", 10),
            ("2024-01-01 ", 11),
            ("2024-01-01 24:00:00", 11),
            ("2024-01-01 00:60:00", 14),
            ("2024-01-01 00:00", 16),
            ("2024-01-01 00:00:60", 17),
            ("2024-01-01 00:00:00.", 20),
            ("2024-01-01 00:00:00.1234567", 26),
            ("2024-01-01 00:00:00Z", 19),
            ("2024-01-01 00:00:00+0", 20),
            ("2024-01-01 00:00:00+16", 20),
            ("2024-01-01 00:00:00+00 ", 22),
            ("2024-01-01 00:00:00+00:00:00:00", 28),
            ("Mon Jan 01 2024", 0),
            ("01/02/2024", 0),
        ] {
            refused(text, ValueProblem::NotATime { offset });
        }
    }

    #[test]
    fn every_day_of_eight_centuries_follows_the_day_before() {
        let mut expected = 0;
        for year in 1970..2770 {
            for month in 1..=12 {
                for day in 1..=days_in_month(year, month) {
                    assert_eq!(days_since_1970(year, month, day), expected);
                    expected += 1;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_moment_reads_back(
            (year, month, day) in (1970..294_277_i64, 1..=12_i64, 1..=28_i64),
            (hour, minute, second, micros) in (0..24_i64, 0..60_i64, 0..60_i64, 0..1_000_000_i64),
        ) {
            let text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}+00");
            let ms = days_since_1970(year, month, day) * 86_400_000
                + (hour * 3600 + minute * 60 + second) * 1000 + micros / 1000;
            prop_assert_eq!(unix_ms(text.as_bytes()), Ok(ms));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9:. +BC-]{0,30}") {
            if let Err(ValueProblem::NotATime { offset }) = unix_ms(text.as_bytes()) {
                prop_assert!(offset <= text.len());
            }
        }
    }
}
