//! Stage 5 of 9, Connect's values: what a column, a JSON member or an envelope holds between PostgreSQL and bytes.

use std::borrow::Cow;

use super::java_number::BigDecimal;

/// A value, borrowed from its row where that is possible.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Boolean(bool),
    /// A whole number of any width; also the logical times, except those of the next variant.
    Integer(i64),
    /// Milliseconds of one of Connect's own dates and times: a `java.util.Date` in Java.
    Date(i64),
    Float(f32),
    Double(f64),
    Decimal(BigDecimal),
    Text(Cow<'a, str>),
    /// JSON that is sent as it stands, where the converter writes JSON: no Java value is like it.
    Json(Cow<'a, str>),
    /// A `ByteBuffer`.
    Bytes(Cow<'a, [u8]>),
    /// A `byte[]`: the same bytes, but without a text form of its own in Java.
    ByteArray(Cow<'a, [u8]>),
    Array(Vec<Self>),
    /// In the order Java iterates it.
    Map(Vec<(Self, Self)>),
    /// By the position of the schema's fields.
    Struct(Vec<Self>),
}

impl Value<'_> {
    pub(crate) fn text(text: &'static str) -> Value<'static> {
        Value::Text(Cow::Borrowed(text))
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The same value, borrowed as far as texts and bytes go.
    pub(crate) fn reborrow(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::Text(Cow::Borrowed(text)),
            Self::Json(text) => Value::Json(Cow::Borrowed(text)),
            Self::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
            Self::ByteArray(bytes) => Value::ByteArray(Cow::Borrowed(bytes)),
            other => other.clone().into_owned(),
        }
    }

    pub(crate) fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(value) => Value::Boolean(value),
            Self::Integer(value) => Value::Integer(value),
            Self::Date(value) => Value::Date(value),
            Self::Float(value) => Value::Float(value),
            Self::Double(value) => Value::Double(value),
            Self::Decimal(value) => Value::Decimal(value),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Json(text) => Value::Json(Cow::Owned(text.into_owned())),
            Self::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Self::ByteArray(bytes) => Value::ByteArray(Cow::Owned(bytes.into_owned())),
            Self::Array(values) => {
                Value::Array(values.into_iter().map(Value::into_owned).collect())
            }
            Self::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| (key.into_owned(), value.into_owned()))
                    .collect(),
            ),
            Self::Struct(values) => {
                Value::Struct(values.into_iter().map(Value::into_owned).collect())
            }
        }
    }

    /// Whether Java's `toString().trim()` would be empty: what counts as an empty payload.
    pub(crate) fn is_blank(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Text(text) | Self::Json(text) => text.bytes().all(|byte| byte <= b' '),
            _ => false,
        }
    }
}

/// The order in which a Java `HashMap` with these keys, put in this order, is iterated.
pub(crate) fn hash_map_order<T>(entries: Vec<(String, T)>) -> Vec<(String, T)> {
    let mut buckets: usize = 16;
    while entries.len() > buckets / 4 * 3 {
        buckets *= 2;
    }
    let mut ordered = entries;
    // Stable, as a bucket keeps the order of insertion. (From eight keys in a bucket on, Java turns it into a tree;
    // that keeps the order too.)
    ordered.sort_by_key(|(key, _)| java_hash(key) as usize & (buckets - 1));
    ordered
}

/// `String.hashCode`, spread as `HashMap` spreads it.
fn java_hash(text: &str) -> u32 {
    let hash = text.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(u32::from(unit))
    });
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_iterated_as_java_does() {
        // Seen in Java 17: new HashMap with these keys.
        let keys = ["zebra", "apple", "b", "a", "key 1", "key_2"];
        let entries = keys.iter().map(|key| ((*key).to_owned(), ())).collect();
        let ordered: Vec<_> = hash_map_order(entries)
            .into_iter()
            .map(|(key, ())| key)
            .collect();
        assert_eq!(ordered, JAVA_ORDER);

        let entries = (0..20).map(|n| (format!("k{n}"), n)).collect();
        let ordered: Vec<_> = hash_map_order(entries)
            .into_iter()
            .map(|(_, n)| n)
            .collect();
        assert_eq!(
            ordered,
            [
                0, 1, 2, 3, 4, 5, 11, 6, 10, 7, 13, 8, 12, 9, 15, 14, 17, 16, 19, 18
            ]
        );
    }

    const JAVA_ORDER: [&str; 6] = ["zebra", "apple", "a", "key_2", "b", "key 1"];

    #[test]
    fn blank_is_what_java_trims_away() {
        assert!(Value::text(" \t\n\u{1}").is_blank());
        assert!(Value::Null.is_blank());
        assert!(!Value::text("\u{a0}").is_blank());
        assert!(!Value::Bytes(Cow::Borrowed(b"")).is_blank());
    }
}
