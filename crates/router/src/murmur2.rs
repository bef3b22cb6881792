//! Stage 5 of 9, Kafka's partitioner: the hash by which Java clients choose a key's partition.

/// The partition that Kafka's Java producer chooses for a key, and `murmur2_random` of librdkafka too.
///
/// `None` where there is no partition to choose from.
#[must_use]
pub fn key_partition(key: &[u8], partition_count: u32) -> Option<u32> {
    (murmur2(key) & 0x7FFF_FFFF).checked_rem(partition_count)
}

/// `Utils.murmur2` of Kafka's Java client.
fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5BD1_E995;
    // Java's lengths are of 32 bits.
    let mut hash = 0x9747_B28C ^ (bytes.len() as u32);
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(M);
        mixed = (mixed ^ (mixed >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ mixed;
    }
    if !tail.is_empty() {
        let last = tail
            .iter()
            .rev()
            .fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 2.6 of the contract, as the Java client computed them.
    #[test]
    fn partitions_are_those_of_the_java_client() {
        for (key, hash, of_3, of_6, of_12, of_50) in [
            ("", 275_646_681, 0, 3, 9, 31),
            ("1", -1_993_445_489, 0, 3, 3, 9),
            ("42", 417_700_972, 1, 4, 4, 22),
            ("\"42\"", -970_110_212, 0, 0, 0, 36),
            ("null", -75_681_477, 2, 5, 11, 21),
            ("order-1", 1_221_710_326, 1, 4, 10, 26),
            ("\"order-1\"", -838_367_976, 2, 2, 8, 22),
            (
                "5f1d7e9c-0000-4000-8000-000000000001",
                524_471_615,
                2,
                5,
                11,
                15,
            ),
            (
                "\"5f1d7e9c-0000-4000-8000-000000000001\"",
                -575_501_544,
                2,
                2,
                8,
                4,
            ),
            (
                r#"{"schema":{"type":"string","optional":false},"payload":"42"}"#,
                -1_675_082_983,
                1,
                1,
                1,
                15,
            ),
            ("é", 186_971_271, 0, 3, 3, 21),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
            for (count, partition) in [(3, of_3), (6, of_6), (12, of_12), (50, of_50)] {
                assert_eq!(
                    key_partition(key.as_bytes(), count),
                    Some(partition),
                    "{key}"
                );
            }
        }
        assert_eq!(key_partition(b"x", 0), None);
    }
}
