//! The two written forms of a connection string, taken apart into keywords and values as libpq does.
//!
//! Nothing here echoes the text it reads: a misplaced quote may put a password anywhere, so errors
//! name positions only.

use crate::error::ConnectError;

/// A keyword as written, and its value after unquoting.
pub(crate) type Pair = (String, String);

/// Splits `postgres://…`, `postgresql://…` or `keyword=value …`.
pub(crate) fn pairs(text: &str) -> Result<Vec<Pair>, ConnectError> {
    for scheme in ["postgresql://", "postgres://"] {
        if let Some(rest) = text.strip_prefix(scheme) {
            return Url {
                text: rest,
                offset: scheme.len(),
            }
            .pairs();
        }
    }
    // Another scheme would otherwise be read as an odd keyword, with a riddle for an error.
    if text
        .split('=')
        .next()
        .is_some_and(|start| start.contains("://"))
    {
        return Err(refused("a URL begins with postgres:// or postgresql://"));
    }
    keyword_pairs(text)
}

fn refused(reason: impl Into<String>) -> ConnectError {
    ConnectError::config("url", reason)
}

/// What is left of a URL, and how many bytes stood before it.
struct Url<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Url<'a> {
    fn pairs(mut self) -> Result<Vec<Pair>, ConnectError> {
        let mut pairs = Vec::new();
        self.user_info(&mut pairs)?;
        self.hosts(&mut pairs)?;
        if self.eat("/") {
            let (dbname, at) = self.until(&['?']);
            if !dbname.is_empty() {
                pairs.push(("dbname".into(), decode(dbname, at)?));
            }
        }
        if self.eat("?") {
            self.parameters(&mut pairs)?;
        }
        Ok(pairs)
    }

    fn user_info(&mut self, pairs: &mut Vec<Pair>) -> Result<(), ConnectError> {
        let end = self
            .text
            .find(['@', '/'])
            .filter(|&end| self.text[end..].starts_with('@'));
        if end.is_none() {
            return Ok(());
        }
        let (user, at) = self.until(&[':', '@']);
        if !user.is_empty() {
            pairs.push(("user".into(), decode(user, at)?));
        }
        if self.eat(":") {
            let (password, at) = self.until(&['@']);
            if !password.is_empty() {
                pairs.push(("password".into(), decode(password, at)?));
            }
        }
        self.eat("@");
        Ok(())
    }

    fn hosts(&mut self, pairs: &mut Vec<Pair>) -> Result<(), ConnectError> {
        let (mut hosts, mut ports) = (Vec::new(), Vec::new());
        loop {
            hosts.push(self.host()?);
            ports.push(if self.eat(":") {
                let (port, at) = self.until(&['/', '?', ',']);
                decode(port, at)?
            } else {
                String::new()
            });
            if !self.eat(",") {
                break;
            }
        }
        if hosts != [""] {
            pairs.push(("host".into(), hosts.join(",")));
        }
        if ports.iter().any(|port| !port.is_empty()) {
            pairs.push(("port".into(), ports.join(",")));
        }
        Ok(())
    }

    fn host(&mut self) -> Result<String, ConnectError> {
        if !self.eat("[") {
            let (host, at) = self.until(&[':', '/', '?', ',']);
            return decode(host, at);
        }
        let (address, at) = self.until(&[']']);
        if !self.eat("]") {
            return Err(refused(format!(
                "no `]` after the IPv6 address at byte {at}"
            )));
        }
        if address.is_empty() {
            return Err(refused(format!(
                "no IPv6 address between the brackets at byte {at}"
            )));
        }
        if !self.text.is_empty() && !self.text.starts_with([':', '/', '?', ',']) {
            return Err(refused(format!(
                "after `]` only `:`, `/`, `?` or `,` may follow (byte {})",
                self.offset
            )));
        }
        decode(address, at)
    }

    fn parameters(&mut self, pairs: &mut Vec<Pair>) -> Result<(), ConnectError> {
        while !self.text.is_empty() {
            let (parameter, at) = self.until(&['&']);
            self.eat("&");
            let Some((key, value)) = parameter.split_once('=') else {
                return Err(refused(format!("a parameter without `=` at byte {at}")));
            };
            if value.contains('=') {
                return Err(refused(format!(
                    "two `=` in the parameter at byte {at} (write %3D inside a value)"
                )));
            }
            let (key, value) = (decode(key, at)?, decode(value, at + key.len() + 1)?);
            // The form JDBC users write; libpq reads it the same way.
            pairs.push(if key == "ssl" && value == "true" {
                ("sslmode".into(), "require".into())
            } else {
                (key, value)
            });
        }
        Ok(())
    }

    /// Takes everything before the first of `ends` (or all), and says where it began.
    fn until(&mut self, ends: &[char]) -> (&'a str, usize) {
        let at = self.offset;
        let length = self.text.find(ends).unwrap_or(self.text.len());
        let (taken, rest) = self.text.split_at(length);
        self.text = rest;
        self.offset += length;
        (taken, at)
    }

    fn eat(&mut self, expected: &str) -> bool {
        let Some(rest) = self.text.strip_prefix(expected) else {
            return false;
        };
        self.text = rest;
        self.offset += expected.len();
        true
    }
}

/// Resolves `%XX`; `at` is where `text` stands in the whole, for the error.
fn decode(text: &str, at: usize) -> Result<String, ConnectError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes().enumerate();
    while let Some((index, byte)) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = (
            rest.next().and_then(hex_digit),
            rest.next().and_then(hex_digit),
        );
        match digits {
            (Some(0), Some(0)) => {
                return Err(refused(format!("%00 is not allowed (byte {})", at + index)));
            }
            (Some(high), Some(low)) => bytes.push(high << 4 | low),
            _ => {
                return Err(refused(format!(
                    "`%` at byte {} is not followed by two hexadecimal digits (a `%` itself is %25)",
                    at + index
                )));
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| {
        refused(format!(
            "the part at byte {at} is not UTF-8 after percent-decoding"
        ))
    })
}

fn hex_digit((_, byte): (usize, u8)) -> Option<u8> {
    (byte as char)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// `host = a port=1 password='it\'s'`: blanks around `=` are allowed, a backslash takes the next
/// character as it is, inside quotes and outside.
fn keyword_pairs(text: &str) -> Result<Vec<Pair>, ConnectError> {
    let mut pairs = Vec::new();
    let mut characters = text.char_indices().peekable();
    while skip_blanks(&mut characters).is_some() {
        let (mut keyword, mut at) = (String::new(), text.len());
        while let Some((index, character)) =
            characters.next_if(|(_, character)| *character != '=' && !is_blank(*character))
        {
            at = at.min(index);
            keyword.push(character);
        }
        if !matches!(skip_blanks(&mut characters), Some('=')) {
            let at = at.min(text.len());
            return Err(refused(format!(
                "no `=` after the keyword that begins at byte {at}"
            )));
        }
        characters.next();
        if keyword.is_empty() {
            return Err(refused("a `=` without a keyword before it"));
        }
        skip_blanks(&mut characters);
        let quoted = characters.next_if(|(_, character)| *character == '\'');
        let value = match quoted {
            Some((at, _)) => quoted_value(&mut characters, at)?,
            None => plain_value(&mut characters),
        };
        pairs.push((keyword, value));
    }
    Ok(pairs)
}

type Characters<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// Moves to the next character that is not blank and shows it.
fn skip_blanks(characters: &mut Characters<'_>) -> Option<char> {
    while characters
        .next_if(|(_, character)| is_blank(*character))
        .is_some()
    {}
    characters.peek().map(|(_, character)| *character)
}

/// C's `isspace`, not Unicode's.
fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

fn plain_value(characters: &mut Characters<'_>) -> String {
    let mut value = String::new();
    while let Some((_, character)) = characters.next_if(|(_, character)| !is_blank(*character)) {
        if character == '\\' {
            value.extend(characters.next().map(|(_, escaped)| escaped));
        } else {
            value.push(character);
        }
    }
    value
}

fn quoted_value(characters: &mut Characters<'_>, at: usize) -> Result<String, ConnectError> {
    let mut value = String::new();
    while let Some((_, character)) = characters.next() {
        match character {
            '\'' => return Ok(value),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    Err(refused(format!(
        "the quote opened at byte {at} is not closed"
    )))
}
