//! What all commands have in common: lines on standard output, and errors that end a command.

use std::io::Write;

use pgoutput::Lsn;

use crate::codes::{Code, Problem};
use crate::policy::{self, RunError, Verdict};

/// Appends one line, whatever the text holds; tabs separate columns.
pub(crate) fn line(out: &mut String, text: &str) {
    for character in text.chars() {
        if character.is_control() && character != '\t' {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out.push('\n');
}

/// Writes the text at once.
///
/// # Errors
///
/// Nobody reads it any more.
pub(crate) fn write(text: &str, out: &mut dyn Write) -> Result<(), Problem> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(unwritten)
}

/// Standard output that takes nothing.
pub(crate) fn unwritten(error: std::io::Error) -> Problem {
    Problem::new(Code::Unexpected, "standard output")
        .found(error.kind().to_string())
        .caused_by(error)
}

/// For a command, what would be tried again is as much an end as what would stop.
pub(crate) fn as_problem(error: RunError) -> Problem {
    match policy::decide(error, Lsn::ZERO, true) {
        Verdict::Halt(problem) => *problem,
        Verdict::Retry(retry) => *retry.problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line() {
        let mut out = String::new();
        line(&mut out, "a\nb\u{1b}[31m\té");
        assert_eq!(out, "a\\nb\\u{1b}[31m\té\n");
    }
}
