//! Stage 5 of 9, names for Avro: what the connector's adjustment modes make of names that Avro does not take.

use std::borrow::Cow;

use super::NameAdjustment;

/// A field's name under a mode.
pub(crate) fn adjusted(name: &str, mode: NameAdjustment) -> Cow<'_, str> {
    let is_legal = |(at, c): (usize, char)| {
        c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit())
    };
    if mode == NameAdjustment::None || name.char_indices().all(is_legal) {
        return Cow::Borrowed(name);
    }
    let mut legal = String::with_capacity(name.len() + 8);
    for (at, c) in name.char_indices() {
        if is_legal((at, c)) && !(mode == NameAdjustment::AvroUnicode && c == '_') {
            legal.push(c);
            continue;
        }
        match mode {
            NameAdjustment::AvroUnicode => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    legal.push_str(&format!("_u{unit:04x}"));
                }
            }
            _ if at == 0 && c.is_ascii_digit() => {
                legal.push('_');
                legal.push(c);
            }
            _ => legal.push('_'),
        }
    }
    Cow::Owned(legal)
}

/// A schema's full name under a mode: each part between dots by itself.
pub(crate) fn adjusted_full_name(name: &str, mode: NameAdjustment) -> Cow<'_, str> {
    if mode == NameAdjustment::None {
        return Cow::Borrowed(name);
    }
    let parts: Vec<_> = name.split('.').map(|part| adjusted(part, mode)).collect();
    Cow::Owned(parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_legal() {
        let check = |name, mode, expected: &str| assert_eq!(adjusted(name, mode), expected);
        check("a-b", NameAdjustment::None, "a-b");
        check("a-b", NameAdjustment::Avro, "a_b");
        check("1a", NameAdjustment::Avro, "_1a");
        check("a-b", NameAdjustment::AvroUnicode, "a_u002db");
        check("ok_1", NameAdjustment::Avro, "ok_1");
        assert_eq!(
            adjusted_full_name("my-srv.public", NameAdjustment::Avro),
            "my_srv.public"
        );
    }
}
