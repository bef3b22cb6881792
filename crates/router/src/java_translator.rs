//! Stage 5 of 9: a Java pattern in the words of the engine.

use super::PatternProblem;

/// Rewrites a pattern, one construct at a time.
///
/// The engine's own `(?i)` folds all of Unicode, Java's only ASCII. It is never handed on: a letter whose case is ignored
/// is spelled out as a class of two.
pub(super) struct Translator<'p> {
    pattern: &'p str,
    at: usize,
    out: String,
    /// Inside how many character classes the place is.
    class_depth: usize,
    /// The flags of each open group.
    flags: Vec<Flags>,
    in_range: InRange,
}

const NO_LINE_TERMINATOR: &str = "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]";

#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    /// Whether `.` takes line terminators too.
    dot_all: bool,
    ignores_case: bool,
}

/// How far a range in a character class has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InRange {
    No,
    /// A range may begin with this.
    From(char),
    /// And its hyphen is there.
    Open(char),
}

impl<'p> Translator<'p> {
    pub(super) fn new(pattern: &'p str, ignores_case: bool) -> Self {
        Self {
            pattern,
            at: 0,
            out: String::new(),
            class_depth: 0,
            flags: vec![Flags {
                dot_all: false,
                ignores_case,
            }],
            in_range: InRange::No,
        }
    }

    pub(super) fn translate(mut self) -> Result<String, PatternProblem> {
        while let Some(character) = self.next() {
            match character {
                '\\' => self.escape()?,
                '[' => self.open_class(),
                ']' if self.class_depth > 0 => {
                    self.class_depth -= 1;
                    self.in_range = InRange::No;
                    self.out.push(']');
                }
                _ if self.class_depth > 0 => self.in_class(character),
                '{' if !self.rest().starts_with(|c: char| c.is_ascii_digit()) => {
                    return Err(PatternProblem::Syntax {
                        message: format!("a brace without a number at byte {}", self.at - 1),
                    });
                }
                '.' if self.top().dot_all => self.out.push_str("(?s:.)"),
                '.' => self.out.push_str(NO_LINE_TERMINATOR),
                '(' => self.open_group()?,
                ')' => {
                    self.flags.pop();
                    self.out.push(')');
                }
                other if other.is_ascii_alphabetic() => self.character(other),
                other => self.out.push(other),
            }
        }
        Ok(self.out)
    }

    fn next(&mut self) -> Option<char> {
        let character = self.rest().chars().next()?;
        self.at += character.len_utf8();
        Some(character)
    }

    fn rest(&self) -> &'p str {
        self.pattern.get(self.at..).unwrap_or_default()
    }

    /// Of the innermost group. One bracket too many is left to the engine to refuse.
    fn top(&self) -> Flags {
        self.flags.last().copied().unwrap_or_default()
    }

    fn open_class(&mut self) {
        self.class_depth += 1;
        self.in_range = InRange::No;
        self.out.push('[');
        if self.rest().starts_with('^') {
            self.at += 1;
            self.out.push('^');
        }
        // A bracket right behind the opening is itself.
        if self.rest().starts_with(']') {
            self.at += 1;
            self.character(']');
        }
    }

    /// `~~` and `--` are operators in a class here and plain characters in Java.
    fn in_class(&mut self, character: char) {
        let rest = self.rest();
        match (character, self.in_range) {
            ('&', _) if rest.starts_with('&') => {
                self.at += 1;
                self.in_range = InRange::No;
                self.out.push_str("&&");
            }
            ('-', InRange::From(first)) if !rest.starts_with(['-', '[', ']']) => {
                self.in_range = InRange::Open(first);
                self.out.push('-');
            }
            ('~', _) => self.character('~'),
            ('-', _) if rest.starts_with('-') => self.character('-'),
            (other, _) => self.spelled(other, &other.to_string()),
        }
    }

    /// A character that stands for itself, or begins or ends a range.
    fn character(&mut self, character: char) {
        self.spelled(character, &literal(character));
    }

    fn spelled(&mut self, character: char, text: &str) {
        let ignores_case = self.top().ignores_case;
        let other = other_case(character).filter(|_| ignores_case);
        if self.class_depth == 0 {
            match other {
                Some(other) => self.out.push_str(&format!("[{text}{other}]")),
                None => self.out.push_str(text),
            }
            return;
        }
        if let InRange::Open(first) = self.in_range {
            self.out.push_str(text);
            if ignores_case {
                self.out.push_str(&other_cases(first, character));
            }
            self.in_range = InRange::No;
            return;
        }
        // In front, so that a range can begin with the character itself.
        self.out.extend(other);
        self.out.push_str(text);
        self.in_range = InRange::From(character);
    }

    /// Behind an opening bracket: `?:`, `?<name>`, look-around, or flags.
    fn open_group(&mut self) -> Result<(), PatternProblem> {
        let offset = self.at - 1;
        let inherited = self.top();
        let Some(special) = self.rest().strip_prefix('?') else {
            self.flags.push(inherited);
            self.out.push('(');
            return Ok(());
        };
        let flags_length = special
            .find(|c: char| !c.is_ascii_alphabetic() && c != '-')
            .unwrap_or(special.len());
        let (flags, behind) = special.split_at(flags_length);
        let is_flags = !flags.is_empty() && behind.starts_with([')', ':']);
        if !is_flags {
            self.flags.push(inherited);
            // A name's letters are no pattern.
            let name_length = match special.starts_with('<') {
                true => special.find('>').map_or(0, |end| end + 1),
                false => 0,
            };
            let is_name = !special.starts_with("<=") && !special.starts_with("<!");
            let length = if is_name { 1 + name_length } else { 0 };
            self.out.push('(');
            self.out
                .push_str(self.rest().get(..length).unwrap_or_default());
            self.at += length;
            return Ok(());
        }
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        if let Some(flag) = flags.chars().find(|c| !"ims-".contains(*c)) {
            return Err(PatternProblem::Unsupported {
                construct: format!("the flag {flag}"),
                offset,
            });
        }
        let now = |flag: char, before: bool| (before || on.contains(flag)) && !off.contains(flag);
        let flags = Flags {
            dot_all: now('s', inherited.dot_all),
            ignores_case: now('i', inherited.ignores_case),
        };
        // The others are carried out here.
        let kept = |flags: &str| if flags.contains('m') { "m" } else { "" };
        let (on, off) = (kept(on), kept(off));
        let minus = if off.is_empty() { "" } else { "-" };
        let scoped = behind.starts_with(':');
        if scoped {
            self.flags.push(flags);
        } else if let Some(last) = self.flags.last_mut() {
            *last = flags;
        }
        match (scoped, on.is_empty() && off.is_empty()) {
            (true, _) => self.out.push_str(&format!("(?{on}{minus}{off}:")),
            (false, true) => {}
            (false, false) => self.out.push_str(&format!("(?{on}{minus}{off})")),
        }
        self.at += 1 + flags_length + 1;
        Ok(())
    }

    fn escape(&mut self) -> Result<(), PatternProblem> {
        let offset = self.at - 1;
        let Some(character) = self.next() else {
            return Err(PatternProblem::Syntax {
                message: "a backslash at the end".to_owned(),
            });
        };
        let in_class = self.class_depth > 0;
        if !in_class && matches!(character, '1'..='9' | 'k') && self.top().ignores_case {
            return Err(PatternProblem::Unsupported {
                construct: format!("the back reference \\{character} where case is ignored"),
                offset,
            });
        }
        if let Some(escaped) = escaped(character) {
            self.character(escaped);
            return Ok(());
        }
        let class = |inner: &str, negated: bool| match (in_class, negated) {
            (true, false) => inner.to_owned(),
            (_, true) => format!("[^{inner}]"),
            (false, false) => format!("[{inner}]"),
        };
        let translated = match character {
            'd' | 'D' => class("0-9", character == 'D'),
            'w' | 'W' => class("a-zA-Z0-9_", character == 'W'),
            's' | 'S' => class(" \\t\\n\\x0B\\f\\r", character == 'S'),
            'h' | 'H' => class(
                " \\t\\x{A0}\\x{1680}\\x{180e}\\x{2000}-\\x{200a}\\x{202f}\\x{205f}\\x{3000}",
                character == 'H',
            ),
            'v' | 'V' => class("\\n\\x0B\\f\\r\\x{85}\\x{2028}\\x{2029}", character == 'V'),
            'Q' => {
                self.quoted();
                return Ok(());
            }
            'E' => String::new(),
            'u' => return self.hex(4, offset),
            'x' if self.rest().starts_with('{') => return self.hex_in_braces(offset),
            'x' => return self.hex(2, offset),
            'p' | 'P' => return self.property(character == 'P', offset),
            'R' if !in_class => "(?:\\r\\n|[\\n\\x0B\\f\\r\\x{85}\\x{2028}\\x{2029}])".to_owned(),
            'b' | 'B' | 'A' | 'z' | 'k' if !in_class => format!("\\{character}"),
            'Z' if !in_class => "(?=\\n?\\z)".to_owned(),
            '1'..='9' if !in_class => format!("\\{character}"),
            other => {
                return Err(PatternProblem::Unsupported {
                    construct: format!("\\{other}"),
                    offset,
                });
            }
        };
        self.in_range = InRange::No;
        self.out.push_str(&translated);
        Ok(())
    }

    fn quoted(&mut self) {
        let rest = self.rest();
        let (quoted, behind_bytes) = match rest.find("\\E") {
            Some(end) => (rest.get(..end).unwrap_or_default(), end + 2),
            None => (rest, rest.len()),
        };
        self.at += behind_bytes;
        for character in quoted.chars() {
            self.character(character);
        }
    }

    fn hex(&mut self, digits: usize, offset: usize) -> Result<(), PatternProblem> {
        let code = self.rest().get(..digits).unwrap_or_default();
        self.at += code.len();
        self.code(code, offset)
    }

    fn hex_in_braces(&mut self, offset: usize) -> Result<(), PatternProblem> {
        let inner = self.rest().get(1..).unwrap_or_default();
        let code = inner.split('}').next().unwrap_or_default();
        self.at = (self.at + code.len() + 2).min(self.pattern.len());
        self.code(code, offset)
    }

    fn code(&mut self, code: &str, offset: usize) -> Result<(), PatternProblem> {
        let character = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
        let Some(character) = character else {
            return Err(PatternProblem::Unsupported {
                construct: format!("the escape \\{code}"),
                offset,
            });
        };
        self.character(character);
        Ok(())
    }

    /// POSIX names are ASCII in Java; categories and scripts are left to the engine.
    fn property(&mut self, negated: bool, offset: usize) -> Result<(), PatternProblem> {
        let rest = self.rest();
        let (name, length) = match rest
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'))
        {
            Some((name, _)) => (name, name.len() + 2),
            None => {
                let length = rest.chars().next().map_or(0, char::len_utf8);
                (rest.get(..length).unwrap_or_default(), length)
            }
        };
        self.at += length;
        self.in_range = InRange::No;
        if self.top().ignores_case && is_of_one_case(name) {
            return Err(PatternProblem::Unsupported {
                construct: format!("\\p{{{name}}} where case is ignored"),
                offset,
            });
        }
        let inner = match name {
            "Lower" => "a-z",
            "Upper" => "A-Z",
            "ASCII" => "\\x00-\\x7F",
            "Alpha" => "a-zA-Z",
            "Digit" => "0-9",
            "Alnum" => "a-zA-Z0-9",
            "Punct" => "!-/:-@\\[-`{-~",
            "Graph" => "!-~",
            "Print" => " -~",
            "Blank" => " \\t",
            "Cntrl" => "\\x00-\\x1F\\x7F",
            "XDigit" => "0-9a-fA-F",
            "Space" => " \\t\\n\\x0B\\f\\r",
            _ if name.starts_with("java") || name.starts_with("In") => {
                return Err(PatternProblem::Unsupported {
                    construct: format!("\\p{{{name}}}"),
                    offset,
                });
            }
            _ => {
                let plain = name.strip_prefix("Is").unwrap_or(name);
                let letter = if negated { 'P' } else { 'p' };
                self.out.push_str(&format!("\\{letter}{{{plain}}}"));
                return Ok(());
            }
        };
        match (self.class_depth > 0, negated) {
            (true, false) => self.out.push_str(inner),
            (_, true) => self.out.push_str(&format!("[^{inner}]")),
            (false, false) => self.out.push_str(&format!("[{inner}]")),
        }
        Ok(())
    }
}

/// The one character that an escape stands for, where it does.
fn escaped(character: char) -> Option<char> {
    match character {
        't' => Some('\t'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        'f' => Some('\x0C'),
        'a' => Some('\x07'),
        'e' => Some('\x1B'),
        other => (!other.is_alphanumeric()).then_some(other),
    }
}

/// A character that stands for itself, whatever it would mean.
fn literal(character: char) -> String {
    if character.is_alphanumeric() || character == '_' {
        return character.to_string();
    }
    format!("\\x{{{:X}}}", u32::from(character))
}

/// Properties that versions of Java take differently where case is ignored.
fn is_of_one_case(name: &str) -> bool {
    let value = name.rsplit('=').next().unwrap_or_default();
    let value = value.strip_prefix("Is").unwrap_or(value);
    let known = [
        "lower",
        "upper",
        "lowercase",
        "uppercase",
        "titlecase",
        "lu",
        "ll",
        "lt",
    ];
    known.iter().any(|known| value.eq_ignore_ascii_case(known))
}

/// A letter of ASCII in its other case.
fn other_case(character: char) -> Option<char> {
    if !character.is_ascii_alphabetic() {
        return None;
    }
    Some(char::from(u8::try_from(character).ok()? ^ 0x20))
}

/// The letters of a range in their other case, as ranges.
fn other_cases(first: char, last: char) -> String {
    [('A', 'Z'), ('a', 'z')]
        .into_iter()
        .filter_map(|(low, high)| {
            let (low, high) = (low.max(first), high.min(last));
            (low <= high).then_some((other_case(low)?, other_case(high)?))
        })
        .map(|(low, high)| format!("{low}-{high}"))
        .collect()
}
