//! Stage 5 of 9, Java's regular expressions: `matches`, then `replaceFirst`.
//!
//! The pattern is rewritten for fancy-regex, which has the look-around, back references, atomic groups and possessive
//! quantifiers that Java has. What Java means otherwise by the same characters is spelled out: `.` stops at five line
//! terminators, `\d`, `\w` and `\s` are ASCII, `\Q...\E` quotes. What has no counterpart is refused by name.

use fancy_regex::{Captures, Regex};

use super::java_replacement::{Part, Replacement};

/// A Java pattern.
#[derive(Debug, Clone)]
pub(crate) struct JavaRegex {
    form: Form,
    group_names: Vec<Option<String>>,
}

#[derive(Debug, Clone)]
enum Form {
    /// `.*`, in a group or not: matches each text without a line terminator, and all of it. Worth its own form, since
    /// it is what the defaults have, and is found without the engine.
    All,
    General {
        find: Box<Regex>,
        full: Box<Regex>,
    },
}

/// Why a pattern or its use is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternProblem {
    /// Java has it and this program does not.
    #[error("{construct} at byte {offset} is not supported")]
    Unsupported {
        /// The construct as written.
        construct: String,
        /// Where it stands.
        offset: usize,
    },
    /// It is no regular expression.
    #[error("it is no regular expression: {message}")]
    Syntax {
        /// What the parser says.
        message: String,
    },
}

/// The engine gave up: the pattern backtracks without end on this text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooComplex;

impl JavaRegex {
    pub(crate) fn new(pattern: &str) -> Result<Self, PatternProblem> {
        Self::with_case(pattern, false)
    }

    /// With `Pattern.CASE_INSENSITIVE`, as Debezium's lists of tables have it.
    pub(crate) fn case_insensitive(pattern: &str) -> Result<Self, PatternProblem> {
        Self::with_case(pattern, true)
    }

    fn with_case(pattern: &str, ignores_case: bool) -> Result<Self, PatternProblem> {
        let translated = Translator::new(pattern).translate()?;
        let flags = if ignores_case { "(?i)" } else { "" };
        let compile = |text: &str| {
            Regex::new(text).map_err(|error| PatternProblem::Syntax {
                message: error.to_string(),
            })
        };
        let find = compile(&format!("{flags}{translated}"))?;
        for name in find.capture_names().flatten() {
            let is_legal = name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphanumeric());
            if !is_legal {
                return Err(PatternProblem::Syntax {
                    message: format!(
                        "{name:?} cannot be a group's name: a letter, then letters and digits"
                    ),
                });
            }
        }
        let group_names = find
            .capture_names()
            .map(|name| name.map(str::to_owned))
            .collect();
        let form = if is_all(pattern) {
            Form::All
        } else {
            Form::General {
                full: Box::new(compile(&format!("{flags}\\A(?:{translated})\\z"))?),
                find: Box::new(find),
            }
        };
        Ok(Self { form, group_names })
    }

    /// The groups, whole match included.
    pub(crate) fn group_count(&self) -> usize {
        self.group_names.len() - 1
    }

    pub(crate) fn group_by_name(&self, name: &str) -> Option<usize> {
        self.group_names
            .iter()
            .position(|known| known.as_deref() == Some(name))
    }

    /// `Matcher.matches`: the whole text.
    pub(crate) fn matches(&self, text: &str) -> Result<bool, TooComplex> {
        match &self.form {
            Form::All => Ok(!text.contains(LINE_TERMINATORS)),
            Form::General { full, .. } => full.is_match(text).map_err(|_| TooComplex),
        }
    }

    /// `RegexRouter`: where the whole text matches, the first stretch that matches is replaced. Appends to `out`, and
    /// says whether it matched; the text itself is appended where it did not.
    pub(crate) fn route(
        &self,
        text: &str,
        replacement: &Replacement,
        out: &mut String,
    ) -> Result<bool, TooComplex> {
        if !self.matches(text)? {
            out.push_str(text);
            return Ok(false);
        }
        match &self.form {
            Form::All => expand(replacement, out, |_| Some(text)),
            Form::General { find, .. } => match find.captures(text).map_err(|_| TooComplex)? {
                Some(captures) => replace_first(text, &captures, replacement, out),
                None => out.push_str(text),
            },
        }
        Ok(true)
    }
}

fn replace_first(
    text: &str,
    captures: &Captures<'_, str>,
    replacement: &Replacement,
    out: &mut String,
) {
    let whole = captures
        .get(0)
        .map_or(0..0, |found| found.start()..found.end());
    out.push_str(text.get(..whole.start).unwrap_or_default());
    expand(replacement, out, |group| {
        captures.get(group).map(|found| found.as_str())
    });
    out.push_str(text.get(whole.end..).unwrap_or_default());
}

/// A group that took no part gives nothing.
fn expand<'t>(
    replacement: &Replacement,
    out: &mut String,
    group: impl Fn(usize) -> Option<&'t str>,
) {
    for part in replacement.parts() {
        match part {
            Part::Literal(text) => out.push_str(text),
            Part::Group(number) => out.push_str(group(*number).unwrap_or_default()),
        }
    }
}

fn is_all(pattern: &str) -> bool {
    let inner = match pattern
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
    {
        Some(group) => match group
            .strip_prefix("?<")
            .and_then(|named| named.split_once('>'))
        {
            Some((name, inner)) if name.chars().all(|c| c.is_ascii_alphanumeric()) => inner,
            _ => group,
        },
        None => pattern,
    };
    inner == ".*"
}

const LINE_TERMINATORS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
const NO_LINE_TERMINATOR: &str = "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]";

/// Rewrites a pattern, one construct at a time.
struct Translator<'p> {
    pattern: &'p str,
    at: usize,
    out: String,
    /// Inside how many character classes the place is.
    class_depth: usize,
    /// Whether `.` takes line terminators too, for each open group.
    dot_all: Vec<bool>,
}

impl<'p> Translator<'p> {
    fn new(pattern: &'p str) -> Self {
        Self {
            pattern,
            at: 0,
            out: String::new(),
            class_depth: 0,
            dot_all: vec![false],
        }
    }

    fn translate(mut self) -> Result<String, PatternProblem> {
        while let Some(character) = self.next() {
            match character {
                '\\' => self.escape()?,
                '[' => {
                    self.class_depth += 1;
                    self.out.push('[');
                    // A bracket right behind the opening is itself in Java too.
                }
                ']' if self.class_depth > 0 => {
                    self.class_depth -= 1;
                    self.out.push(']');
                }
                _ if self.class_depth > 0 => self.in_class(character),
                '{' if !self.rest().starts_with(|c: char| c.is_ascii_digit()) => {
                    return Err(PatternProblem::Syntax {
                        message: format!("a brace without a number at byte {}", self.at - 1),
                    });
                }
                '.' if self.dot_all.last() == Some(&true) => self.out.push_str("(?s:.)"),
                '.' => self.out.push_str(NO_LINE_TERMINATOR),
                '(' => self.open_group()?,
                ')' => {
                    self.dot_all.pop();
                    if self.dot_all.is_empty() {
                        self.dot_all.push(false);
                    }
                    self.out.push(')');
                }
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

    /// `~~` and `--` are operators in a class here and plain characters in Java.
    fn in_class(&mut self, character: char) {
        match character {
            '~' => self.out.push_str("\\~"),
            '-' if self.rest().starts_with('-') => self.out.push_str("\\-"),
            other => self.out.push(other),
        }
    }

    /// Behind an opening bracket: `?:`, `?<name>`, look-around, or flags.
    fn open_group(&mut self) -> Result<(), PatternProblem> {
        let offset = self.at - 1;
        let inherited = self.dot_all.last() == Some(&true);
        let Some(special) = self.rest().strip_prefix('?') else {
            self.dot_all.push(inherited);
            self.out.push('(');
            return Ok(());
        };
        let flags_length = special
            .find(|c: char| !c.is_ascii_alphabetic() && c != '-')
            .unwrap_or(special.len());
        let (flags, behind) = special.split_at(flags_length);
        let is_flags = !flags.is_empty() && behind.starts_with([')', ':']);
        if !is_flags {
            self.dot_all.push(inherited);
            self.out.push('(');
            return Ok(());
        }
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        if let Some(flag) = flags.chars().find(|c| !"ims-".contains(*c)) {
            return Err(PatternProblem::Unsupported {
                construct: format!("the flag {flag}"),
                offset,
            });
        }
        let dot_all = (inherited || on.contains('s')) && !off.contains('s');
        // `s` is carried out here, as `.` is spelled out.
        let kept = |flags: &str| flags.replace('s', "");
        let (on, off) = (kept(on), kept(off));
        let minus = if off.is_empty() { "" } else { "-" };
        let scoped = behind.starts_with(':');
        if scoped {
            self.dot_all.push(dot_all);
        } else if let Some(last) = self.dot_all.last_mut() {
            *last = dot_all;
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
            'Q' => self.quoted(),
            'E' => String::new(),
            'u' => self.hex(4, offset)?,
            'x' if self.rest().starts_with('{') => "\\x".to_owned(),
            'x' => self.hex(2, offset)?,
            'p' | 'P' => return self.property(character == 'P', offset),
            'e' => "\\x1B".to_owned(),
            'R' if !in_class => "(?:\\r\\n|[\\n\\x0B\\f\\r\\x{85}\\x{2028}\\x{2029}])".to_owned(),
            't' | 'n' | 'r' | 'f' | 'a' => format!("\\{character}"),
            'b' | 'B' | 'A' | 'z' | 'k' if !in_class => format!("\\{character}"),
            'Z' if !in_class => "(?=\\n?\\z)".to_owned(),
            '1'..='9' if !in_class => format!("\\{character}"),
            other if other.is_alphanumeric() => {
                return Err(PatternProblem::Unsupported {
                    construct: format!("\\{other}"),
                    offset,
                });
            }
            other => literal(other),
        };
        self.out.push_str(&translated);
        Ok(())
    }

    fn quoted(&mut self) -> String {
        let rest = self.rest();
        let (quoted, behind_bytes) = match rest.find("\\E") {
            Some(end) => (rest.get(..end).unwrap_or_default(), end + 2),
            None => (rest, rest.len()),
        };
        self.at += behind_bytes;
        quoted.chars().map(literal).collect()
    }

    fn hex(&mut self, digits: usize, offset: usize) -> Result<String, PatternProblem> {
        let code = self.rest().get(..digits).unwrap_or_default();
        let character = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
        let Some(character) = character else {
            return Err(PatternProblem::Unsupported {
                construct: format!("the escape \\{code}"),
                offset,
            });
        };
        self.at += digits;
        Ok(literal(character))
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

/// A character that stands for itself, whatever it would mean.
fn literal(character: char) -> String {
    if character.is_alphanumeric() || character == '_' {
        return character.to_string();
    }
    format!("\\x{{{:X}}}", u32::from(character))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn routed(pattern: &str, replacement: &str, text: &str) -> String {
        let regex = JavaRegex::new(pattern).unwrap();
        let replacement = Replacement::new(replacement, &regex).unwrap();
        let mut out = String::new();
        regex.route(text, &replacement, &mut out).unwrap();
        out
    }

    /// Section 1.5 of the contract.
    #[test]
    fn topics_are_routed_as_the_event_router_does() {
        for (pattern, replacement, topic) in [
            (
                "(?<routedByValue>.*)",
                "outbox.event.${routedByValue}",
                "outbox.event.Order",
            ),
            (
                "(?<routedByValue>.*)",
                "${routedByValue}.events",
                "Order.events",
            ),
            ("^foo(.*)$", "x.$1", "Order"),
            ("O|Order", "X", "Xrder"),
            ("(.*?)", "x.$1", "x.Order"),
            (".*", "a.$0", "a.Order"),
            ("(?i)order", "x", "x"),
            ("(O)(.*)", "$2$1", "rderO"),
            ("(?:(a)|O)rder", "[$1]", "[]"),
        ] {
            assert_eq!(routed(pattern, replacement, "Order"), topic, "{pattern}");
        }
    }

    #[test]
    fn what_other_engines_lack_is_there() {
        assert_eq!(routed("(?=Or)(.*)", "x.$1", "Order"), "x.Order");
        assert_eq!(routed("(?!foo).*", "x", "foo"), "foo");
        assert_eq!(routed("(.)(.)\\2\\1", "x", "abba"), "x");
        assert_eq!(routed("(?>a+)b", "x", "aab"), "x");
        assert_eq!(routed("a*+a", "x", "aaa"), "aaa");
        assert_eq!(routed("a++b", "x", "aab"), "x");
        assert_eq!(routed("(?<a>x)\\k<a>", "y", "xx"), "y");
        assert_eq!(routed("(?<=O)rder|Order", "-", "Order"), "-");
    }

    #[test]
    fn the_same_characters_mean_what_they_mean_in_java() {
        assert_eq!(routed(".*", "x", "a\u{2028}b"), "a\u{2028}b");
        assert_eq!(routed("(?s).*", "x", "a\nb"), "x");
        assert_eq!(routed("(?s:.)(.)", "x", "\n\n"), "\n\n");
        assert_eq!(routed("\\d+", "x", "٣"), "٣");
        assert_eq!(routed("\\w+", "x", "é"), "é");
        assert_eq!(routed("[\\w-]+", "x", "a-b"), "x");
        assert_eq!(routed("[^\\W]+", "x", "ab"), "x");
        assert_eq!(routed("\\Qa.b\\E.*", "x", "a.bc"), "x");
        assert_eq!(routed("\\Qa.b\\E.*", "x", "aXbc"), "aXbc");
        assert_eq!(routed("\\u004frder", "x", "Order"), "x");
        assert_eq!(routed("\\p{Upper}\\p{Lower}+", "x", "Order"), "x");
        assert_eq!(routed("[\\p{L}&&[^a]]+", "x", "bc"), "x");
        assert_eq!(routed("[a-z&&[^b]]+", "x", "ab"), "ab");
        assert_eq!(routed("\\<a\\>", "x", "<a>"), "x");
        assert_eq!(routed("a\\-b\\.c", "x", "a-b.c"), "x");
    }

    #[test]
    fn case_is_ignored_only_where_asked() {
        let matches = |regex: JavaRegex, text| regex.matches(text).unwrap();
        assert!(matches(
            JavaRegex::case_insensitive("public\\.outbox").unwrap(),
            "Public.OutBox"
        ));
        assert!(!matches(
            JavaRegex::new("public\\.outbox").unwrap(),
            "Public.OutBox"
        ));
        assert!(!matches(JavaRegex::new("outbox").unwrap(), "outbox2"));
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        for (pattern, names) in [
            ("\\G", "\\G"),
            ("\\X", "\\X"),
            ("\\p{javaLowerCase}", "javaLowerCase"),
            ("(?x)a", "flag x"),
            ("(?u:a)", "flag u"),
            ("\\", "backslash"),
            ("(", "regular expression"),
            ("a)", "regular expression"),
            ("*", "regular expression"),
            ("(?<a_b>x)", "a_b"),
            ("x{,3}", "brace"),
        ] {
            let error = JavaRegex::new(pattern).unwrap_err().to_string();
            assert!(error.contains(names), "{pattern}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_pattern_is_compiled_or_refused(
            pattern in "[a-c.*+?|()\\[\\]^$\\\\dwQEpu{}<>=!:&-]{0,14}",
            text in "[a-c\\n\\\\-]{0,8}",
        ) {
            if let Ok(regex) = JavaRegex::new(&pattern) {
                let replacement = Replacement::new("$0", &regex).unwrap();
                let mut out = String::new();
                if regex.route(&text, &replacement, &mut out).is_ok() {
                    prop_assert_eq!(out, text);
                }
            }
        }

        #[test]
        fn the_short_form_agrees_with_the_engine(text in "\\PC{0,5}[\\n\\r\u{85}\u{2028}a]{0,2}") {
            prop_assert_eq!(routed("(.*)", "<$1>", &text), routed("(.*){1}", "<$1>", &text));
        }
    }
}
