//! Stage 5 of 9, Java's regular expressions: `matches`, then `replaceFirst`.
//!
//! The pattern is rewritten for fancy-regex, which has the look-around, back references, atomic groups and possessive
//! quantifiers that Java has. What Java means otherwise by the same characters is spelled out: `.` stops at five line
//! terminators, `\d`, `\w` and `\s` are ASCII, `(?i)` ignores the case of ASCII, `\Q...\E` quotes. What has no counterpart is refused by name.

use fancy_regex::{Captures, Regex};

use super::java_replacement::{Part, Replacement};

#[path = "java_translator.rs"]
mod java_translator;

use java_translator::Translator;

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
        let translated = Translator::new(pattern, ignores_case).translate()?;
        let compile = |text: &str| {
            Regex::new(text).map_err(|error| PatternProblem::Syntax {
                message: error.to_string(),
            })
        };
        let find = compile(&translated)?;
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
                full: Box::new(compile(&format!("\\A(?:{translated})\\z"))?),
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

    /// Java's `(?i)` is of ASCII only, until `(?u)`, which is refused.
    #[test]
    fn case_is_ignored_in_ascii_only() {
        for (pattern, text, is_match) in [
            ("(?i)caf\u{e9}", "CAF\u{e9}", true),
            ("(?i)caf\u{e9}", "CAF\u{c9}", false),
            ("(?i)\\u00e9", "\u{c9}", false),
            ("(?i)k", "K", true),
            ("(?i)k", "\u{212a}", false),
            ("(?i)\u{212a}", "k", false),
            ("(?i)s", "\u{17f}", false),
            ("(?i)\\w", "\u{17f}", false),
            ("(?i)\\x{6b}", "K", true),
            ("(?i)\\x{6b}", "\u{212a}", false),
            ("(?i)\\x4b\\u004b\\Qk.\\E", "kkK.", true),
            ("(?i)\\Qk\\E", "\u{212a}", false),
            ("(?i)[k]", "K", true),
            ("(?i)[k]", "\u{212a}", false),
            ("(?i)[^k]", "\u{212a}", true),
            ("(?i)[^k]", "K", false),
            ("(?i)[a-s]", "\u{17f}", false),
            ("(?i)[a-s]", "Q", true),
            ("(?i)[a-s]", "T", false),
            ("(?i)[X-c]", "x", true),
            ("(?i)[X-c]", "C", true),
            ("(?i)[X-c]", "d", false),
            ("(?i)[X-c]", "W", false),
            ("(?i)[!-\u{e9}]", "\u{c9}", true),
            ("(?i)[\u{e0}-\u{e9}]", "\u{c9}", false),
            ("(?i)[^-m]", "C", true),
            ("(?i)[]a]", "A", true),
            ("(?i)[a\\-c]", "B", false),
            ("(?i)[a\\-c]", "C", true),
            ("(?i)[\\x61-\\x63]", "B", true),
            ("(?i)[a-z&&[^k]]", "K", false),
            ("(?i)[a-z&&[^k]]", "J", true),
            ("(?i:k)k", "Kk", true),
            ("(?i:k)k", "KK", false),
            ("(?i:k)", "\u{212a}", false),
            ("((?i)k)k", "KK", false),
            ("(?i)k(?-i)k", "Kk", true),
            ("(?i)k(?-i)k", "KK", false),
            ("(?i)k(?-i:k)k", "KkK", true),
            ("a(?i)b|c", "C", true),
            ("(?is)k.", "K\n", true),
            ("(?i)(?<name>k)", "K", true),
            ("(?i)(?<=k)s|ks+", "KSS", true),
            ("(?i)(?!k)[a-z]", "K", false),
            ("(?i)k(?-i)(s)\\1", "Kss", true),
        ] {
            let regex = JavaRegex::new(pattern).unwrap();
            assert_eq!(regex.matches(text), Ok(is_match), "{pattern} {text}");
        }
        let table = JavaRegex::case_insensitive("public\\.k[s]\u{e9}").unwrap();
        assert_eq!(table.matches("PUBLIC.KS\u{e9}"), Ok(true));
        for text in [
            "public.\u{212a}s\u{e9}",
            "public.k\u{17f}\u{e9}",
            "public.ks\u{c9}",
        ] {
            assert_eq!(table.matches(text), Ok(false), "{text}");
        }
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
            ("(?i)(k)\\1", "the back reference \\1 where case is ignored"),
            ("(?i)(?<a>k)\\k<a>", "the back reference \\k"),
            ("(?i)\\p{Lower}", "\\p{Lower} where case is ignored"),
            ("(?i)[\\p{gc=Lu}]", "\\p{gc=Lu} where case is ignored"),
        ] {
            let error = JavaRegex::new(pattern).unwrap_err().to_string();
            assert!(error.contains(names), "{pattern}: {error}");
        }
    }

    proptest! {
        /// The engine's own folding is Java's where text and pattern are of ASCII without k and s.
        #[test]
        fn the_spelled_out_case_agrees_with_the_engine_in_ascii(
            pattern in "[a-dA-D.*+?|()\\[\\]^<>:=!&-]{0,12}",
            text in "[a-dA-D-]{0,6}",
        ) {
            let engine = Regex::new(&format!("(?i)\\A(?:{pattern})\\z"));
            if let (Ok(engine), Ok(regex)) = (engine, JavaRegex::new(&format!("(?i){pattern}")))
                && let (Ok(expected), Ok(is_match)) = (engine.is_match(&text), regex.matches(&text))
            {
                prop_assert_eq!(is_match, expected);
            }
        }

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
