//! Stage 5 of 9, writing: where converters put their text, be it a record's arena or a string of its own.

use std::fmt;

use crate::record::ValueWriter;

/// Takes bytes at its end, and never refuses.
pub(crate) trait Output {
    fn bytes(&mut self, bytes: &[u8]);

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Writes what `value` displays as, without a string between.
    fn display(&mut self, value: impl fmt::Display)
    where
        Self: Sized,
    {
        use fmt::Write as _;
        // Neither this writer nor any of the numbers and names written here ever fails.
        write!(Formatted(self), "{value}").unwrap_or_default();
    }
}

impl Output for ValueWriter<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.push_slice(bytes);
    }
}

impl Output for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// For text only: bytes that are none are replaced.
impl Output for String {
    fn bytes(&mut self, bytes: &[u8]) {
        self.push_str(&Self::from_utf8_lossy(bytes));
    }

    fn text(&mut self, text: &str) {
        self.push_str(text);
    }
}

struct Formatted<'a, O: Output>(&'a mut O);

impl<O: Output> fmt::Write for Formatted<'_, O> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.text(text);
        Ok(())
    }
}

/// Standard Base64 with padding, in pieces, so that no copy of the whole is made.
pub(crate) fn write_base64(bytes: &[u8], out: &mut impl Output) {
    for chunk in bytes.chunks(BASE64_CHUNK_BYTES) {
        let mut buffer = [0; BASE64_CHUNK_BYTES / 3 * 4];
        let Ok(length) = base64::Engine::encode_slice(
            &base64::engine::general_purpose::STANDARD,
            chunk,
            &mut buffer,
        ) else {
            continue;
        };
        out.bytes(buffer.get(..length).unwrap_or_default());
    }
}

/// A multiple of 3, so that only the last piece has padding.
const BASE64_CHUNK_BYTES: usize = 768;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_in_pieces_is_base64() {
        let bytes: Vec<u8> = (0..2000_u32).map(|n| (n % 251) as u8).collect();
        for length in [0, 1, 2, 3, 767, 768, 769, 1537, 2000] {
            let mut pieces = String::new();
            write_base64(&bytes[..length], &mut pieces);
            let whole = base64::Engine::encode(
                &base64::engine::general_purpose::STANDARD,
                &bytes[..length],
            );
            assert_eq!(pieces, whole);
        }
    }
}
