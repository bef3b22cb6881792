//! What the commands say to their user: one line at a time, on standard output.

use std::io::Write;

/// Prints a line. A reader that has gone (`| head`) is no reason to stop.
pub(crate) fn line(text: &str) {
    writeln!(std::io::stdout(), "{text}").ok();
}
