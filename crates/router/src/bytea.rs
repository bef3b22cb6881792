//! Stage 5 of 9, bytea: from its text forms back to the bytes ("Binary Data Types" in the manual).

use crate::error::ValueProblem;
use crate::record::ValueWriter;

/// Writes the bytes that `text` stands for.
///
/// Both forms are read, although the session pins `bytea_output` to hex: what a role or database sets against us
/// must never reach a topic as hex digits. Escape form never begins with `\x`, as it doubles a backslash.
///
/// # Errors
///
/// [`ValueProblem::NotBytea`]; part of the value may have been written then.
pub(crate) fn decode(text: &[u8], out: &mut ValueWriter<'_>) -> Result<(), ValueProblem> {
    match text.strip_prefix(b"\\x") {
        Some(digits) => decode_hex(digits, out),
        None => decode_escaped(text, out),
    }
}

fn decode_hex(digits: &[u8], out: &mut ValueWriter<'_>) -> Result<(), ValueProblem> {
    let (pairs, odd) = digits.as_chunks::<2>();
    // One look at the end instead of one per digit: a nibble has no bits above its four, anything else has.
    let mut seen = 0;
    out.extend(pairs.iter().map(|[high, low]| {
        let (high, low) = (nibble(*high), nibble(*low));
        seen |= high | low;
        high << 4 | low
    }));
    if seen <= 0xF && odd.is_empty() {
        return Ok(());
    }
    let bad = digits.iter().position(|digit| nibble(*digit) > 0xF);
    Err(ValueProblem::NotBytea {
        offset: b"\\x".len() + bad.unwrap_or(digits.len()),
    })
}

fn decode_escaped(text: &[u8], out: &mut ValueWriter<'_>) -> Result<(), ValueProblem> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let (plain, escape) = rest.split_at(at);
        out.push_slice(plain);
        rest = match escape {
            [_, b'\\', after @ ..] => {
                out.push_slice(b"\\");
                after
            }
            [
                _,
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] => {
                out.push_slice(&[(a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')]);
                after
            }
            _ => {
                return Err(ValueProblem::NotBytea {
                    offset: text.len() - escape.len(),
                });
            }
        };
    }
    out.push_slice(rest);
    Ok(())
}

fn nibble(digit: u8) -> u8 {
    NIBBLES.get(usize::from(digit)).copied().unwrap_or(0xFF)
}

/// The value of each hex digit; 0xFF for what is none.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [0xFF; 256];
    let mut value = 0_u8;
    while value < 16 {
        nibbles[b"0123456789abcdef"[value as usize] as usize] = value;
        nibbles[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    nibbles
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Place, RecordBuffer};

    fn decoded(text: &[u8]) -> Result<Vec<u8>, ValueProblem> {
        let mut buffer = RecordBuffer::new();
        let mut builder = buffer.begin();
        builder.put_with(Place::Payload, |out| decode(text, out))?;
        builder.finish();
        Ok(buffer.get(0).payload.unwrap().to_vec())
    }

    /// As `byteaout` writes with `bytea_output = hex`.
    fn hex(bytes: &[u8]) -> Vec<u8> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\\x{digits}").into_bytes()
    }

    /// As `byteaout` writes with `bytea_output = escape`.
    fn escaped(bytes: &[u8]) -> Vec<u8> {
        let escape = |byte: &u8| match byte {
            b'\\' => b"\\\\".to_vec(),
            0x20..=0x7E => vec![*byte],
            other => format!("\\{other:03o}").into_bytes(),
        };
        bytes.iter().flat_map(escape).collect()
    }

    #[test]
    fn both_forms_of_the_same_bytes_are_read() {
        let bytes = Ok(vec![0x00, 0xFF, 0x5C, 0x27]);
        assert_eq!(decoded(br"\x00ff5c27"), bytes);
        assert_eq!(decoded(br"\x00FF5C27"), bytes);
        assert_eq!(decoded(br"\000\377\\'"), bytes);
    }

    #[test]
    fn an_empty_value_stays_empty() {
        assert_eq!(decoded(br"\x"), Ok(vec![]));
        assert_eq!(decoded(b""), Ok(vec![]));
    }

    #[test]
    fn bytes_that_look_like_the_other_form_are_kept() {
        assert_eq!(decoded(br"\\x00"), Ok(br"\x00".to_vec()));
        assert_eq!(decoded(b"x00"), Ok(b"x00".to_vec()));
    }

    #[test]
    fn what_is_no_bytea_names_its_offset() {
        let at = |text: &[u8]| match decoded(text) {
            Err(ValueProblem::NotBytea { offset }) => offset,
            other => panic!("{other:?}"),
        };
        assert_eq!(at(br"\x0"), 3);
        assert_eq!(at(br"\x00g0"), 4);
        assert_eq!(at(br"\x 00"), 2);
        assert_eq!(at(br"ab\"), 2);
        assert_eq!(at(br"ab\4000"), 2);
        assert_eq!(at(br"\\\09"), 2);
    }

    proptest! {
        #[test]
        fn any_bytes_survive_both_forms(bytes: Vec<u8>) {
            prop_assert_eq!(decoded(&hex(&bytes)), Ok(bytes.clone()));
            prop_assert_eq!(decoded(&escaped(&bytes)), Ok(bytes));
        }

        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>) {
            for text in [[b"\\x", &*text].concat(), text] {
                if let Err(ValueProblem::NotBytea { offset }) = decoded(&text) {
                    prop_assert!(offset <= text.len());
                }
            }
        }
    }
}
