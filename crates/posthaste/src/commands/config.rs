//! `posthaste config`: prints the effective configuration.

use std::io::Write;

use crate::cli::ConfigArgs;
use crate::codes::{Code, Problem};
use crate::config::effective;

/// Writes the effective configuration as TOML to `out`. Secrets are redacted, and files with secrets are not read.
///
/// # Errors
/// The configuration is wrong, or `out` cannot be written.
pub fn run(arguments: &ConfigArgs, out: &mut dyn Write) -> Result<(), Problem> {
    let text = effective(&arguments.config.request(&arguments.log))?;
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| {
        Problem::new(Code::Unexpected, "standard output")
            .found(error.kind().to_string())
            .caused_by(error)
    })
}
