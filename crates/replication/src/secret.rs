//! A password that does not print itself.

use std::fmt;

/// Bytes that never appear in `Debug` output, logs or error text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes in.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes themselves; every use of a secret can be found by this name.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_bytes_and_their_number() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(***)");
        assert_eq!(format!("{:?}", Some(Secret::new(""))), "Some(Secret(***))");
    }
}
