//! `posthaste debezium check` and `convert`: what a Connect configuration comes to here.

use std::io::Write;

use debezium::{NativeConfig, Reading};

use crate::cli_connect::ConvertArgs;
use crate::codes::{Code, Problem};
use crate::commands::printing::{line, write};
use crate::config;
use crate::config_connect::remarks;
use crate::connect_file::counted;
use crate::explain;
use crate::settings;

/// Prints what becomes of every key, and whether `run` would start; returns the exit status.
///
/// # Errors
///
/// A file that cannot be read at all, or `out` that cannot be written.
pub fn check(arguments: &ConvertArgs, out: &mut dyn Write) -> Result<u8, Problem> {
    let reading = arguments.files().read()?;
    let verdict = judge(arguments, &reading);
    write(&report(&reading, &verdict), out)?;
    Ok(match verdict {
        Ok(_) => EXIT_CLEAN,
        Err(problem) => problem.exit_code(),
    })
}

/// Prints the native configuration that does the same, with what should be looked at as comments.
///
/// # Errors
///
/// A file that cannot be read, keys that cannot be followed, or `out` that cannot be written.
pub fn convert(arguments: &ConvertArgs, out: &mut dyn Write) -> Result<(), Problem> {
    let reading = arguments.files().read()?;
    let native = judge(arguments, &reading)?;
    let mut text = String::new();
    for remark in remarks(&reading) {
        line(&mut text, &format!("# warning: {remark}"));
    }
    text.push_str(&native.to_toml());
    write(&text, out)
}

/// What `run` would start with, or what keeps it from starting: its own way of reading is gone through to the end.
fn judge<'a>(arguments: &ConvertArgs, reading: &'a Reading) -> Result<&'a NativeConfig, Problem> {
    let config = config::load(&arguments.request())?;
    for pipeline in &config.pipelines {
        let kafka = settings::kafka_config(pipeline);
        kafka.check().map_err(explain::kafka_config)?;
    }
    reading.native.as_ref().ok_or_else(|| {
        Problem::new(
            Code::Unexpected,
            "a configuration that is neither followed nor refused",
        )
    })
}

fn report(reading: &Reading, verdict: &Result<&NativeConfig, Problem>) -> String {
    let mut text = String::new();
    line(&mut text, &format!("format   {}", reading.format));
    for finding in &reading.findings {
        line(&mut text, &finding.to_string());
    }
    for used in &reading.defaults_used {
        let (key, value) = (&used.key, &used.value);
        line(
            &mut text,
            &format!("default  {key} = {value}: {}", used.text),
        );
    }
    let keys: Vec<&str> = reading
        .refused()
        .map(|finding| finding.key.as_str())
        .collect();
    let last = match verdict {
        Ok(native) => format!("run would start{}", first_start(native)),
        Err(_) if !keys.is_empty() => format!(
            "run would not start: {} refused: {}",
            counted(keys.len()),
            keys.join(", ")
        ),
        Err(problem) => format!("run would not start: {problem}"),
    };
    line(&mut text, &last);
    text
}

/// What a start does where there is no slot yet.
fn first_start(native: &NativeConfig) -> String {
    let slot = &native.source.slot;
    match native.source.first_start {
        debezium::FirstStart::NoData => format!(
            ": from where slot {slot} stands; without one only with --create, from that moment on"
        ),
        debezium::FirstStart::Snapshot => format!(
            ": from where slot {slot} stands; without one it would refuse, as snapshot.mode asks for a snapshot: write no_data"
        ),
    }
}

/// Exit status where `run` would start.
const EXIT_CLEAN: u8 = 0;
