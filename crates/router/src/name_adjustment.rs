//! Stage 5 of 9, names for Avro: what the connector's adjustment modes make of names that Avro does not take.

use std::borrow::Cow;

use super::NameAdjustment;

/// A field's name under a mode.
pub(crate) fn adjusted(name: &str, mode: NameAdjustment) -> Cow<'_, str> {
    adjust(name, mode, false)
}

/// A schema's full name under a mode: dots are part of it.
pub(crate) fn adjusted_full_name(name: &str, mode: NameAdjustment) -> Cow<'_, str> {
    adjust(name, mode, true)
}

fn adjust(name: &str, mode: NameAdjustment, has_dots: bool) -> Cow<'_, str> {
    let is_unicode = mode == NameAdjustment::AvroUnicode;
    let is_legal = |(at, c): (usize, char)| match c {
        // The escape's own character.
        '_' => !is_unicode,
        '.' => has_dots && at > 0,
        _ => c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit()),
    };
    if mode == NameAdjustment::None || name.char_indices().all(is_legal) {
        return Cow::Borrowed(name);
    }
    let mut legal = String::with_capacity(name.len() + 8);
    for (at, c) in name.char_indices() {
        if is_legal((at, c)) {
            legal.push(c);
        } else if is_unicode {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                legal.push_str(&format!("_u{unit:04x}"));
            }
        } else {
            legal.push('_');
            // A digit in front is kept behind its underscore.
            legal.extend(c.is_ascii_digit().then_some(c));
        }
    }
    Cow::Owned(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `SchemaNameAdjuster` of Debezium 3.6.1 does it.
    #[test]
    fn names_are_made_legal() {
        for (name, full_avro, full_unicode, field_avro, field_unicode) in [
            ("1t.x", "_1t.x", "_u0031t.x", "_1t_x", "_u0031t_u002ex"),
            ("é", "_", "_u00e9", "_", "_u00e9"),
            (
                "a.é-b",
                "a.__b",
                "a._u00e9_u002db",
                "a___b",
                "a_u002e_u00e9_u002db",
            ),
            ("_a", "_a", "_u005fa", "_a", "_u005fa"),
            (
                "my-srv.public.1t",
                "my_srv.public.1t",
                "my_u002dsrv.public.1t",
                "my_srv_public_1t",
                "my_u002dsrv_u002epublic_u002e1t",
            ),
        ] {
            assert_eq!(adjusted_full_name(name, NameAdjustment::Avro), full_avro);
            assert_eq!(
                adjusted_full_name(name, NameAdjustment::AvroUnicode),
                full_unicode
            );
            assert_eq!(adjusted(name, NameAdjustment::Avro), field_avro);
            assert_eq!(adjusted(name, NameAdjustment::AvroUnicode), field_unicode);
            assert_eq!(adjusted(name, NameAdjustment::None), name);
        }
    }
}
