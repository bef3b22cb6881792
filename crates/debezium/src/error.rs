//! What is wrong with a file before its keys can be looked at: its syntax, or what kind of file it is.

/// A text that is not the configuration it should be. No values stand in it: they may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The text breaks a rule of its format.
    #[error("{file}, line {line}: {what}; {fix}")]
    Syntax {
        /// The file's name.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What was found.
        what: String,
        /// What to do.
        fix: String,
    },
    /// The text is in order but is no connector configuration.
    #[error("{file}: {what}; {fix}")]
    NotAConnector {
        /// The file's name.
        file: String,
        /// What was found.
        what: String,
        /// What to do.
        fix: String,
    },
    /// A version, a format or a position that does not exist.
    #[error("`{value}`: {what}; {fix}")]
    Argument {
        /// What was given.
        value: String,
        /// Why it is wrong.
        what: String,
        /// What to do.
        fix: String,
    },
}

impl ReadError {
    pub(crate) fn syntax(line: usize, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Syntax {
            file: String::new(),
            line,
            what: what.into(),
            fix: fix.into(),
        }
    }

    pub(crate) fn not_a_connector(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::NotAConnector {
            file: String::new(),
            what: what.into(),
            fix: fix.into(),
        }
    }

    pub(crate) fn argument(value: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Argument {
            value: value.chars().take(80).collect(),
            what: what.into(),
            fix: fix.into(),
        }
    }

    /// The parsers do not know the file's name; whoever called them does.
    pub(crate) fn in_file(self, name: &str) -> Self {
        match self {
            Self::Syntax {
                line, what, fix, ..
            } => Self::Syntax {
                file: name.to_owned(),
                line,
                what,
                fix,
            },
            Self::NotAConnector { what, fix, .. } => Self::NotAConnector {
                file: name.to_owned(),
                what,
                fix,
            },
            other @ Self::Argument { .. } => other,
        }
    }
}
