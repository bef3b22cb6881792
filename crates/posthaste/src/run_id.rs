//! The name of one run of the process, for the header in which Debezium puts one.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A random UUID of version 4, as text.
///
/// The standard library's hashers are seeded by the operating system; that is chance enough for a name that only has to
/// differ from other runs'.
pub(crate) fn new() -> String {
    let random = || RandomState::new().build_hasher().finish();
    let bits = u128::from(random()) << 64 | u128::from(random().rotate_left(32));
    // Version 4 and the variant of RFC 9562 have fixed places.
    let bits = bits & !(0xF000_u128 << 64) | 0x4000_u128 << 64;
    let bits = bits & !(0xC000_u128 << 48) | 0x8000_u128 << 48;
    let digits = format!("{bits:032x}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)]
        .map(|(from, to)| part(from, to))
        .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_uuid_of_its_own() {
        let (one, other) = (new(), new());
        assert_ne!(one, other);
        let lengths: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(
            one.split('-').nth(2).expect("a part").starts_with('4'),
            "{one}"
        );
        let variant = one.split('-').nth(3).expect("a part");
        assert!(variant.starts_with(['8', '9', 'a', 'b']), "{one}");
    }
}
