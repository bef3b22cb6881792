//! Stage 5 of 9, numbers as Java writes them: `Double.toString`, `Float.toString`, and `BigDecimal`.

use std::fmt::{self, Write as _};

/// As `Double.toString` of Java 19 and later: the shortest digits that read back, in Java's notation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JavaDouble(pub(crate) f64);

/// As `Float.toString` of Java 19 and later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JavaFloat(pub(crate) f32);

impl fmt::Display for JavaDouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match special(self.0) {
            Some(word) => f.write_str(word),
            None => {
                let mut shortest = Digits::default();
                write!(shortest, "{:e}", self.0)?;
                if shortest.has_one_digit() {
                    // Java looks among numbers of two digits at least: 4.9E-324, not 5E-324.
                    shortest = Digits::default();
                    write!(shortest, "{:.1e}", self.0)?;
                }
                write_java(f, shortest.as_str())
            }
        }
    }
}

impl fmt::Display for JavaFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match special(f64::from(self.0)) {
            Some(word) => f.write_str(word),
            None => {
                let mut shortest = Digits::default();
                write!(shortest, "{:e}", self.0)?;
                if shortest.has_one_digit() {
                    shortest = Digits::default();
                    write!(shortest, "{:.1e}", self.0)?;
                }
                write_java(f, shortest.as_str())
            }
        }
    }
}

fn special(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        })
    } else {
        None
    }
}

/// From Rust's `-1.25e-7` to Java's `-1.25E-7`, or to `0.00125` between 10^-3 and 10^7.
fn write_java(f: &mut fmt::Formatter<'_>, scientific: &str) -> fmt::Result {
    let (sign, unsigned) = match scientific.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", scientific),
    };
    let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let (first, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    f.write_str(sign)?;
    if first == "0" {
        return f.write_str("0.0");
    }
    if !(-3..7).contains(&exponent) {
        let fraction = if fraction.is_empty() { "0" } else { fraction };
        return write!(f, "{first}.{fraction}E{exponent}");
    }
    let Ok(whole_digits) = usize::try_from(exponent) else {
        let zeros = usize::try_from(-exponent - 1).unwrap_or_default();
        return write!(f, "0.{:0<zeros$}{first}{fraction}", "");
    };
    let in_whole = fraction
        .get(..whole_digits.min(fraction.len()))
        .unwrap_or_default();
    let behind = fraction.get(in_whole.len()..).unwrap_or_default();
    let missing = whole_digits - in_whole.len();
    let behind = if behind.is_empty() { "0" } else { behind };
    write!(f, "{first}{in_whole}{:0<missing$}.{behind}", "")
}

/// Room for one double in scientific notation, so that printing one costs no allocation.
#[derive(Default)]
struct Digits {
    bytes: [u8; 32],
    len: usize,
}

impl Digits {
    fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes.get(..self.len).unwrap_or_default()).unwrap_or_default()
    }

    fn has_one_digit(&self) -> bool {
        !self.as_str().contains('.')
    }
}

impl fmt::Write for Digits {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// A `BigDecimal`: an unscaled whole number, and how many of its digits stand behind the point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BigDecimal {
    negative: bool,
    /// Decimal digits without leading zeros; `0` for zero.
    digits: String,
    scale: i32,
}

impl BigDecimal {
    /// Reads what `new BigDecimal(text)` reads, in ASCII digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = format!("{whole}{fraction}");
        if all_digits.is_empty() || !all_digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        Some(Self::of(negative, &all_digits, scale))
    }

    fn of(negative: bool, digits: &str, scale: i32) -> Self {
        let digits = match digits.trim_start_matches('0') {
            "" => "0",
            rest => rest,
        };
        Self {
            negative: negative && digits != "0",
            digits: digits.to_owned(),
            scale,
        }
    }

    pub(crate) fn scale(&self) -> i32 {
        self.scale
    }

    /// `setScale(scale, HALF_UP)`. Where digits are only added, no rounding happens.
    pub(crate) fn with_scale(mut self, scale: i32) -> Self {
        let added = scale.saturating_sub(self.scale);
        self.scale = scale;
        if added >= 0 {
            if self.digits != "0" {
                let zeros = usize::try_from(added).unwrap_or_default();
                self.digits.extend(std::iter::repeat_n('0', zeros));
            }
            return self;
        }
        let removed = usize::try_from(-added).unwrap_or_default();
        let Some(kept) = self.digits.len().checked_sub(removed) else {
            return Self::of(false, "0", scale);
        };
        let rounds_up = self
            .digits
            .as_bytes()
            .get(kept)
            .is_some_and(|digit| *digit >= b'5');
        self.digits.truncate(kept);
        if rounds_up {
            self.digits = increment(&self.digits);
        }
        Self::of(self.negative, &self.digits, scale)
    }

    /// `stripTrailingZeros`, then a scale below 0 raised to 0.
    pub(crate) fn stripped(mut self) -> Self {
        if self.digits == "0" {
            self.scale = 0;
            return self;
        }
        while self.scale > 0 && self.digits.ends_with('0') {
            self.digits.pop();
            self.scale -= 1;
        }
        if self.scale < 0 {
            self.with_scale(0)
        } else {
            self
        }
    }

    /// `unscaledValue().toByteArray()`: two's complement, big-endian, no longer than needed.
    pub(crate) fn unscaled_bytes(&self) -> Vec<u8> {
        let mut bytes = magnitude(&self.digits);
        if self.negative {
            // -n is the complement of n - 1.
            for byte in &mut bytes {
                let (less, borrowed) = byte.overflowing_sub(1);
                *byte = less;
                if !borrowed {
                    break;
                }
            }
            for byte in &mut bytes {
                *byte = !*byte;
            }
        }
        let sign = if self.negative { 0xFF } else { 0 };
        while bytes.len() > 1 && bytes.last() == Some(&sign) {
            bytes.pop();
        }
        if bytes.last().is_none_or(|top| (top & 0x80) != (sign & 0x80)) {
            bytes.push(sign);
        }
        bytes.reverse();
        bytes
    }

    /// `toPlainString`.
    pub(crate) fn plain(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        if self.scale <= 0 {
            let zeros = if self.digits == "0" { 0 } else { -self.scale };
            let zeros = usize::try_from(zeros).unwrap_or_default();
            return format!("{sign}{}{:0<zeros$}", self.digits, "");
        }
        let scale = usize::try_from(self.scale).unwrap_or_default();
        let padded = format!("{:0>width$}", self.digits, width = scale + 1);
        let (whole, fraction) = padded.split_at(padded.len() - scale);
        format!("{sign}{whole}.{fraction}")
    }
}

/// `BigDecimal.toString`.
impl fmt::Display for BigDecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        let adjusted = length - 1 - i64::from(self.scale);
        if self.scale >= 0 && adjusted >= -6 {
            return f.write_str(&self.plain());
        }
        let sign = if self.negative { "-" } else { "" };
        let (first, rest) = self.digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{sign}{first}{point}{rest}E{adjusted:+}")
    }
}

fn increment(digits: &str) -> String {
    let kept = digits.trim_end_matches('9');
    let nines = digits.len() - kept.len();
    let mut raised = kept.to_owned();
    let last = raised.pop().map_or('1', |digit| {
        char::from(u8::try_from(digit).unwrap_or(b'0') + 1)
    });
    raised.push(last);
    raised.extend(std::iter::repeat_n('0', nines));
    raised
}

/// Little-endian bytes of a decimal number.
fn magnitude(digits: &str) -> Vec<u8> {
    let mut limbs: Vec<u32> = Vec::with_capacity(digits.len() / 9 + 1);
    let first = match digits.len() % 9 {
        0 => 9,
        rest => rest,
    };
    let (head, tail) = digits.split_at(first.min(digits.len()));
    let chunks = std::iter::once(head.as_bytes()).chain(tail.as_bytes().chunks(9));
    for chunk in chunks {
        let mut carry = chunk
            .iter()
            .fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
        for limb in &mut limbs {
            carry += u64::from(*limb) * 1_000_000_000;
            *limb = (carry & 0xFFFF_FFFF) as u32;
            carry >>= 32;
        }
        if carry > 0 {
            limbs.push((carry & 0xFFFF_FFFF) as u32);
        }
    }
    let mut bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    if bytes.is_empty() {
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn doubles_are_written_as_java_writes_them() {
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (100.0, "100.0"),
            (39.98, "39.98"),
            (-1.5, "-1.5"),
            (0.001, "0.001"),
            (0.00123, "0.00123"),
            (0.000_999, "9.99E-4"),
            (1e-7, "1.0E-7"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (1e8, "1.0E8"),
            (123_456.789, "123456.789"),
            (1.234_567_89e15, "1.23456789E15"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::from_bits(1), "4.9E-324"),
            (2e-323, "2.0E-323"),
            (2e23, "2.0E23"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(JavaDouble(number).to_string(), text);
        }
    }

    #[test]
    fn floats_are_written_as_java_writes_them() {
        for (number, text) in [
            (1.1_f32, "1.1"),
            (1e10, "1.0E10"),
            (3.4e38, "3.4E38"),
            (f32::from_bits(1), "1.4E-45"),
            (16_777_216.0, "1.6777216E7"),
        ] {
            assert_eq!(JavaFloat(number).to_string(), text);
        }
    }

    #[test]
    fn decimals_are_written_as_java_writes_them() {
        for (text, written, plain) in [
            ("0", "0", "0"),
            ("0.00", "0.00", "0.00"),
            ("-12.340", "-12.340", "-12.340"),
            ("1E+3", "1E+3", "1000"),
            ("-1.5E+10", "-1.5E+10", "-15000000000"),
            ("0.000001", "0.000001", "0.000001"),
            ("0.0000001", "1E-7", "0.0000001"),
            ("0.00000012", "1.2E-7", "0.00000012"),
            ("0E-10", "0E-10", "0.0000000000"),
            ("007", "7", "7"),
            ("-0", "0", "0"),
        ] {
            let decimal = BigDecimal::parse(text).unwrap();
            assert_eq!(
                (&*decimal.to_string(), &*decimal.plain()),
                (written, plain),
                "{text}"
            );
        }
        for text in ["", "-", ".", "NaN", "1e", "1 ", "0x1"] {
            assert_eq!(BigDecimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn scales_are_set_and_zeros_stripped() {
        let set = |text: &str, scale| BigDecimal::parse(text).unwrap().with_scale(scale).plain();
        assert_eq!(set("1.5", 3), "1.500");
        assert_eq!(set("1.235", 2), "1.24");
        assert_eq!(set("-1.235", 2), "-1.24");
        assert_eq!(set("9.995", 2), "10.00");
        assert_eq!(set("0.4", 0), "0");
        assert_eq!(set("0.5", 0), "1");
        assert_eq!(set("0.04", 0), "0");
        let stripped = |text: &str| BigDecimal::parse(text).unwrap().stripped().to_string();
        assert_eq!(stripped("100.00"), "100");
        assert_eq!(stripped("1.50"), "1.5");
        assert_eq!(stripped("0.000"), "0");
    }

    #[test]
    fn unscaled_bytes_are_twos_complement() {
        for (text, bytes) in [
            ("0", &[0][..]),
            ("1", &[1]),
            ("127", &[0x7F]),
            ("128", &[0, 0x80]),
            ("-128", &[0x80]),
            ("-129", &[0xFF, 0x7F]),
            ("-1", &[0xFF]),
            ("256", &[1, 0]),
            ("-256", &[0xFF, 0]),
            ("123.45", &[0x30, 0x39]),
            ("18446744073709551616", &[1, 0, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(
                BigDecimal::parse(text).unwrap().unscaled_bytes(),
                bytes,
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_double_reads_back(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            prop_assert_eq!(JavaDouble(number).to_string().parse::<f64>().unwrap().to_bits(), bits);
        }

        #[test]
        fn unscaled_bytes_agree_with_i128(number: i128) {
            let bytes = BigDecimal::parse(&number.to_string()).unwrap().unscaled_bytes();
            let sign = if number < 0 { 0xFF } else { 0 };
            let mut wide = [sign; 16];
            let start = 16 - bytes.len().min(16);
            wide[start..].copy_from_slice(&bytes[bytes.len().saturating_sub(16)..]);
            prop_assert_eq!(i128::from_be_bytes(wide), number);
        }
    }
}
