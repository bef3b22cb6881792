//! Stage 5 of 9, intervals: read from the text of `IntervalStyle postgres`, as pgjdbc's `PGInterval` reads it.

use super::java_number::{BigDecimal, JavaDouble};

/// An interval in the parts that pgjdbc keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Interval {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    seconds: f64,
}

impl Interval {
    /// `1 year 2 mons -3 days 04:05:06.789`, any part of it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut interval = Self::default();
        let mut words = text.split_ascii_whitespace();
        while let Some(word) = words.next() {
            if word.contains(':') {
                interval.parse_clock(word)?;
                continue;
            }
            let number: i64 = word.parse().ok()?;
            match words.next()?.trim_end_matches('s') {
                "year" => interval.years = number,
                "mon" | "month" => interval.months = number,
                "day" => interval.days = number,
                "hour" => interval.hours = number,
                "min" | "minute" => interval.minutes = number,
                "sec" | "second" => interval.seconds = number as f64,
                _ => return None,
            }
        }
        Some(interval)
    }

    fn parse_clock(&mut self, text: &str) -> Option<()> {
        let (sign, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.trim_start_matches('+')),
        };
        let mut parts = unsigned.splitn(3, ':');
        let hours: i64 = parts.next()?.parse().ok()?;
        let minutes: i64 = parts.next()?.parse().ok()?;
        let seconds = parts.next().unwrap_or("0");
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let whole: i32 = whole.parse().ok()?;
        let micros: i32 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
        self.hours = sign * hours;
        self.minutes = sign * minutes;
        // The sum that pgjdbc makes, in the order it makes it.
        self.seconds = sign as f64 * (f64::from(whole) + f64::from(micros) / 1_000_000.0);
        Some(())
    }

    /// `MicroDuration.durationMicros`, with months of 365.25 / 12 days.
    pub(crate) fn micros(&self) -> i64 {
        let months = (self.years * 12 + self.months) as f64;
        let days = months * (365.25 / 12.0) + self.days as f64;
        let minutes = (days * 24.0 + self.hours as f64) * 60.0 + self.minutes as f64;
        ((minutes * 60.0 + self.seconds) * 1e6) as i64
    }

    /// `Interval.toIsoString`: every part, whether it is 0 or not.
    pub(crate) fn iso(&self) -> String {
        let seconds = BigDecimal::parse(&JavaDouble(self.seconds).to_string())
            .map_or_else(String::new, |seconds| truncated(seconds).stripped().plain());
        format!(
            "P{}Y{}M{}DT{}H{}M{seconds}S",
            self.years, self.months, self.days, self.hours, self.minutes
        )
    }
}

/// `setScale(6, DOWN)`, where there are more digits.
fn truncated(seconds: BigDecimal) -> BigDecimal {
    if seconds.scale() <= 6 {
        return seconds;
    }
    let plain = seconds.plain();
    let kept = plain.find('.').map_or(plain.len(), |point| point + 7);
    plain
        .get(..kept)
        .and_then(BigDecimal::parse)
        .unwrap_or(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, micros: i64, iso: &str) {
        let interval = Interval::parse(text).unwrap();
        assert_eq!(
            (interval.micros(), &*interval.iso()),
            (micros, iso),
            "{text}"
        );
    }

    #[test]
    fn intervals_are_read_as_pgjdbc_reads_them() {
        check("00:00:00", 0, "P0Y0M0DT0H0M0S");
        check("01:02:03", 3_723_000_000, "P0Y0M0DT1H2M3S");
        check("-00:00:01.5", -1_500_000, "P0Y0M0DT0H0M-1.5S");
        check("1 day", 86_400_000_000, "P0Y0M1DT0H0M0S");
        check("1 mon", 2_629_800_000_000, "P0Y1M0DT0H0M0S");
        check(
            "1 year 2 mons 3 days 04:05:06.78",
            37_091_106_780_000,
            "P1Y2M3DT4H5M6.78S",
        );
        check(
            "-1 years -2 mons +3 days",
            -36_558_000_000_000,
            "P-1Y-2M3DT0H0M0S",
        );
    }

    #[test]
    fn what_is_no_interval_is_refused() {
        for text in ["x", "1", "1 fortnight", "a:b:c"] {
            assert_eq!(Interval::parse(text), None, "{text}");
        }
    }
}
