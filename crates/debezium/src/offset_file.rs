//! The offsets file of a standalone worker and of Debezium Server: a `HashMap<byte[], byte[]>` as Java serialises it.

/// A key and its value, `None` for a value that was deleted.
pub(crate) type Pair = (Vec<u8>, Option<Vec<u8>>);

/// Whether the bytes begin as Java's serialisation does.
pub(crate) fn is_java(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xac, 0xed, 0, 5])
}

/// The map's pairs; `None` if the bytes are something else, or end too early.
pub(crate) fn pairs(bytes: &[u8]) -> Option<Vec<Pair>> {
    let name = b"java.util.HashMap";
    let named = bytes
        .windows(name.len())
        .position(|window| window == name)?;
    // The map's own data: a block of eight bytes, its capacity and its size.
    let block = bytes
        .get(named..)?
        .windows(2)
        .position(|window| window == [0x77, 8])?;
    let mut rest = bytes.get(named + block + 2..)?;
    take(&mut rest, 4)?;
    let size = length(&mut rest)?;
    let mut pairs = Vec::new();
    for _ in 0..size {
        let key = array(&mut rest)??;
        pairs.push((key, array(&mut rest)?));
    }
    Some(pairs)
}

/// A `byte[]`, or null. The outer `None` is the end of the bytes, or something else.
#[expect(
    clippy::option_option,
    reason = "absence in the file is no failure to read it"
)]
fn array(rest: &mut &[u8]) -> Option<Option<Vec<u8>>> {
    match take(rest, 1)? {
        [0x70] => return Some(None),
        [0x75] => {}
        _ => return None,
    }
    match take(rest, 1)? {
        // The class as it was written before.
        [0x71] => drop(take(rest, 4)?),
        // The class itself: name, number, flags, no fields, end, no class above it.
        [0x72] => {
            let name = take(rest, 2)?;
            let name = usize::from(*name.first()?) << 8 | usize::from(*name.get(1)?);
            take(rest, name + 8 + 1 + 2 + 1 + 1)?;
        }
        _ => return None,
    }
    let length = length(rest)?;
    Some(Some(take(rest, length)?.to_vec()))
}

fn length(rest: &mut &[u8]) -> Option<usize> {
    let bytes: [u8; 4] = take(rest, 4)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(bytes)).ok()
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by Java 17.
    const FILE: &[u8] = include_bytes!("../tests/offsets/standalone.dat");

    #[test]
    fn a_file_of_java_is_read() {
        let pairs = pairs(FILE).unwrap();
        let keys: Vec<_> = pairs
            .iter()
            .map(|(key, _)| String::from_utf8_lossy(key))
            .collect();
        assert_eq!(
            keys,
            [
                r#"["gone",{"server":"y"}]"#,
                r#"["kafka",{"server":"tutorial"}]"#,
                r#"["other",{"server":"x"}]"#,
            ]
        );
        let values: Vec<_> = pairs
            .iter()
            .map(|(_, value)| value.as_ref().map(Vec::len))
            .collect();
        assert_eq!(values, [None, Some(125), Some(9)]);
    }

    #[test]
    fn a_part_of_a_file_is_not_taken_for_the_whole() {
        assert!(is_java(FILE));
        // The last byte only ends the map.
        for end in 0..FILE.len() - 1 {
            assert_eq!(pairs(&FILE[..end]), None, "{end}");
        }
    }
}
