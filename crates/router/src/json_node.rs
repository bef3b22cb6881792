//! Stage 5 of 9, JSON as Jackson reads it: numbers keep their kind, a repeated member its first place and last value,
//! and what follows the first value is not looked at.

use std::borrow::Cow;
use std::collections::HashMap;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node<'a> {
    Null,
    Boolean(bool),
    /// `IntNode`: fits 32 bits.
    Int(i32),
    /// `LongNode`: fits 64 bits.
    Long(i64),
    /// `BigIntegerNode`.
    BigInteger,
    Double(f64),
    Text(Cow<'a, str>),
    Array(Vec<Self>),
    Object(Vec<(Cow<'a, str>, Self)>),
}

/// Reads the first value of `text`, and says where it ends. `None`: it is no JSON, or nested too deeply.
pub(crate) fn read_first(text: &str) -> Option<(Node<'_>, usize)> {
    let mut reader = Reader { text, at: 0 };
    let node = reader.value(0)?;
    Some((node, reader.at))
}

/// Jackson's own limit (`StreamReadConstraints`).
const DEPTH_MAX: usize = 1000;
/// Objects with more members than this are checked for repetitions by a map.
const SMALL_OBJECT: usize = 16;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<Node<'a>> {
        if depth >= DEPTH_MAX {
            return None;
        }
        self.skip_blanks();
        match self.peek()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(Node::Text),
            b't' => self.word("true", Node::Boolean(true)),
            b'f' => self.word("false", Node::Boolean(false)),
            b'n' => self.word("null", Node::Null),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Node<'a>> {
        self.at += 1;
        let mut members = Vec::new();
        if self.take_after_blanks(b'}') {
            return Some(Node::Object(members));
        }
        loop {
            self.skip_blanks();
            let name = self.string()?;
            if !self.take_after_blanks(b':') {
                return None;
            }
            members.push((name, self.value(depth + 1)?));
            if self.take_after_blanks(b'}') {
                return Some(Node::Object(without_repetitions(members)));
            }
            if !self.take_after_blanks(b',') {
                return None;
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Node<'a>> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take_after_blanks(b']') {
            return Some(Node::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take_after_blanks(b']') {
                return Some(Node::Array(items));
            }
            if !self.take_after_blanks(b',') {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        if !self.take(b'"') {
            return None;
        }
        let start = self.at;
        let rest = self.rest();
        let length = rest
            .bytes()
            .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F))?;
        if rest.as_bytes().get(length) == Some(&b'"') {
            self.at += length + 1;
            return self.text.get(start..start + length).map(Cow::Borrowed);
        }
        let mut unescaped = String::new();
        loop {
            let rest = self.rest();
            let length = rest
                .bytes()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F))?;
            unescaped.push_str(rest.get(..length)?);
            self.at += length + 1;
            match rest.as_bytes().get(length)? {
                b'"' => return Some(Cow::Owned(unescaped)),
                b'\\' => unescaped.push(self.escape()?),
                _ => return None,
            }
        }
    }

    /// A lone surrogate, which no UTF-8 has, is no character.
    fn escape(&mut self) -> Option<char> {
        let kind = self.peek()?;
        self.at += 1;
        Some(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex()?;
                if !(0xD800..0xDC00).contains(&first) {
                    return char::from_u32(first);
                }
                if !self.rest().starts_with("\\u") {
                    return None;
                }
                self.at += 2;
                let low = self.hex()?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
                char::from_u32(0x10000 + ((first - 0xD800) << 10) + low)?
            }
            _ => return None,
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4)?;
        self.at += 4;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex
            .then(|| u32::from_str_radix(digits, 16).ok())
            .flatten()
    }

    fn number(&mut self) -> Option<Node<'a>> {
        let start = self.at;
        self.take(b'-');
        let whole = self.digits();
        let has_leading_zero = self.text.get(self.at - whole..)?.starts_with('0') && whole > 1;
        if whole == 0 || has_leading_zero {
            return None;
        }
        let mut is_whole = true;
        if self.take(b'.') {
            is_whole = false;
            if self.digits() == 0 {
                return None;
            }
        }
        if self.take(b'e') || self.take(b'E') {
            is_whole = false;
            let _ = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return None;
            }
        }
        let text = self.text.get(start..self.at)?;
        if !is_whole {
            return text.parse().ok().map(Node::Double);
        }
        Some(match (text.parse::<i32>(), text.parse::<i64>()) {
            (Ok(number), _) => Node::Int(number),
            (_, Ok(number)) => Node::Long(number),
            _ => Node::BigInteger,
        })
    }

    fn digits(&mut self) -> usize {
        let count = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.at += count;
        count
    }

    fn word(&mut self, word: &str, node: Node<'a>) -> Option<Node<'a>> {
        self.rest().strip_prefix(word)?;
        self.at += word.len();
        Some(node)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn take_after_blanks(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        self.take(byte)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
}

fn without_repetitions<'a>(
    members: Vec<(Cow<'a, str>, Node<'a>)>,
) -> Vec<(Cow<'a, str>, Node<'a>)> {
    let mut kept: Vec<(Cow<'a, str>, Node<'a>)> = Vec::with_capacity(members.len());
    if members.len() <= SMALL_OBJECT {
        for (name, node) in members {
            match kept.iter_mut().find(|(known, _)| *known == name) {
                Some((_, place)) => *place = node,
                None => kept.push((name, node)),
            }
        }
        return kept;
    }
    let mut places: HashMap<Cow<'a, str>, usize> = HashMap::with_capacity(members.len());
    for (name, node) in members {
        match places.get(&name).and_then(|at| kept.get_mut(*at)) {
            Some((_, place)) => *place = node,
            None => {
                places.insert(name.clone(), kept.len());
                kept.push((name, node));
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<Node<'_>> {
        read_first(text).map(|(node, _)| node)
    }

    #[test]
    fn numbers_keep_their_kind() {
        assert_eq!(read("2147483647"), Some(Node::Int(i32::MAX)));
        assert_eq!(read("2147483648"), Some(Node::Long(1 << 31)));
        assert_eq!(read("9223372036854775808"), Some(Node::BigInteger));
        assert_eq!(read("-0"), Some(Node::Int(0)));
        assert_eq!(read("1e2"), Some(Node::Double(100.0)));
        assert_eq!(read("1.0"), Some(Node::Double(1.0)));
        for text in ["01", "-", "1.", "1e", ".5", "+1", "NaN"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn strings_are_unescaped() {
        let text = |text: &'static str| Some(Node::Text(Cow::Borrowed(text)));
        assert_eq!(
            read(r#""a\"\\\/\b\f\n\r\té\u00e9\ud83d\ude00""#),
            text("a\"\\/\u{8}\u{c}\n\r\téé😀")
        );
        for bad in [r#""\ud83d""#, r#""\ud83dx""#, r#""\x""#, "\"\n\"", "\"a"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_repeated_member_keeps_its_place() {
        let names = |text| match read(text) {
            Some(Node::Object(members)) => members
                .iter()
                .map(|(name, node)| format!("{name}={node:?}"))
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(names(r#"{"a":1,"b":2,"a":3}"#), ["a=Int(3)", "b=Int(2)"]);
        let many: Vec<_> = (0..20).map(|n| format!("\"m{n}\":{n}")).collect();
        let many = format!("{{{},\"m1\":99}}", many.join(","));
        let read = names(&many);
        assert_eq!((read.len(), &*read[1]), (20, "m1=Int(99)"));
    }

    #[test]
    fn what_follows_is_not_looked_at() {
        assert_eq!(read_first("{} trailing"), Some((Node::Object(vec![]), 2)));
        assert_eq!(read(&"[".repeat(2000)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[{}\\[\\]\",:0-9eE.+\\-truefalsn\\\\u ]{0,40}") {
            let _ = read_first(&text);
        }
    }
}
