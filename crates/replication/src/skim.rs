//! What is kept of a frame that is too large to be kept whole.

use std::fmt;

/// Watches the body of a frame above the limit pass by, and keeps what is to be known of it.
///
/// The body comes in pieces that are cut anywhere, and may have 2 GiB: what is kept has to have a bound of its own. A body
/// that was begun and has not passed when the connection is lost is never shown.
pub trait Skim: fmt::Debug + Send {
    /// A body begins, and nothing of the one before is needed any more.
    fn begin(&mut self);

    /// The next piece of it.
    fn pass(&mut self, piece: &[u8]);

    /// What was kept of it, now that all of it has passed.
    fn kept(&self) -> &[u8];
}

/// Keeps the first bytes.
#[derive(Default)]
pub(crate) struct FirstBytes(Vec<u8>);

impl Skim for FirstBytes {
    fn begin(&mut self) {
        self.0.clear();
    }

    fn pass(&mut self, piece: &[u8]) {
        let room = FIRST_BYTES - self.0.len();
        self.0.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    fn kept(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for FirstBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FirstBytes({} bytes)", self.0.len())
    }
}

/// How much of a frame is kept where nothing else was asked for.
const FIRST_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_the_newest_body_are_kept() {
        let mut skim = FirstBytes::default();
        for byte in [1, 2] {
            skim.begin();
            assert_eq!(skim.kept(), b"");
            for _ in 0..3 {
                skim.pass(&[byte; 2000]);
            }
            assert_eq!(skim.kept(), [byte; 4096]);
        }
        assert_eq!(format!("{skim:?}"), "FirstBytes(4096 bytes)");
    }
}
