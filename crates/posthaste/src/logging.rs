//! Log lines: text for people on a terminal, one JSON object per line otherwise; always on standard error.

use std::fmt;
use std::io::IsTerminal;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::codes::{Code, Problem};
use crate::config::{Log, LogFormat};

/// Starts logging for the whole process. Call it once, before anything is logged.
///
/// # Errors
/// The level is not one, or logging was started before.
pub fn init(log: &Log) -> Result<(), Problem> {
    let filter = filter(&log.level)?;
    let is_terminal = std::io::stderr().is_terminal();
    let text = match log.format {
        LogFormat::Auto => is_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that cannot be written (a full disk) is lost; telling of it on standard error would fail there too, and panic.
        .log_internal_errors(false);
    let started = if text {
        builder
            .with_ansi(is_terminal)
            .with_target(false)
            .compact()
            .finish()
            .try_init()
    } else {
        builder
            .fmt_fields(JsonFields::new())
            .event_format(JsonLines)
            .finish()
            .try_init()
    };
    started.map_err(|error| {
        Problem::new(Code::Unexpected, "logging")
            .found("that it was started before")
            .caused_by(error)
    })
}

/// The span in which everything of one pipeline runs, so that each of its lines carries the name.
#[must_use]
pub fn pipeline_span(name: &str) -> tracing::Span {
    // At the highest level, because a filter that drops the span would drop the name from the lines it lets through.
    tracing::error_span!("pipeline", pipeline = name)
}

/// Reads `log.level`.
///
/// # Errors
/// It is neither a level nor a list of directives.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, Problem> {
    let problem = |found: String| {
        Problem::new(Code::ConfigLogLevel, "log.level")
            .found(found)
            .needed("error, warn, info, debug, trace or off, or a list target=level,…")
            .fix("for example level = \"info\" or level = \"info,replication=debug\"")
    };
    // EnvFilter takes any single word for the name of a target, so that a mistyped level would log nothing at all.
    let words = level.split(',').map(str::trim);
    for word in words {
        let level = word.rsplit_once('=').map_or(word, |(_, level)| level);
        if level
            .parse::<tracing::level_filters::LevelFilter>()
            .is_err()
            || level.parse::<u8>().is_ok()
        {
            let hint = crate::config_suggest::nearest(
                level,
                ["error", "warn", "info", "debug", "trace", "off"],
            );
            let problem = problem(format!("\"{word}\""));
            return Err(match hint {
                Some(meant) => problem.fix(format!("did you mean {meant}?")),
                None => problem,
            });
        }
    }
    EnvFilter::try_new(level).map_err(|error| problem(format!("\"{level}\"")).caused_by(error))
}

/// One flat JSON object per line: time, level, message, fields, then the fields of the spans around it, such as `pipeline`.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> tracing_subscriber::fmt::FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        line.insert("timestamp".to_owned(), Value::String(time));
        line.insert(
            "level".to_owned(),
            Value::from(event.metadata().level().as_str()),
        );
        line.insert("target".to_owned(), Value::from(event.metadata().target()));
        event.record(&mut Fields(&mut line));
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let fields = extensions
                .get::<FormattedFields<N>>()
                .map_or("", |fields| fields.as_str());
            if let Ok(Value::Object(fields)) = serde_json::from_str(fields) {
                for (name, value) in fields {
                    // The nearest word wins: an event's own field over a span's, an inner span's over an outer one's.
                    line.entry(name).or_insert(value);
                }
            }
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// Collects the fields of an event.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Buffer {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    fn json_line(level: &str, log: impl FnOnce()) -> Value {
        let buffer = Buffer::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter(level).expect("legal"))
            .with_writer(buffer.clone())
            .fmt_fields(JsonFields::new())
            .event_format(JsonLines)
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = buffer.0.lock().expect("not poisoned").clone();
        serde_json::from_slice(&bytes).expect("one JSON object")
    }

    #[test]
    fn a_json_line_is_flat_and_names_the_pipeline() {
        let line = json_line("warn", || {
            let _entered = pipeline_span("orders").entered();
            tracing::warn!(count = 3_u64, slot = "outbox", ok = true, "lost \"it\"");
        });
        assert_eq!(line["message"], "lost \"it\"");
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["pipeline"], "orders");
        assert_eq!(line["count"], 3);
        assert_eq!(line["slot"], "outbox");
        assert_eq!(line["ok"], true);
        assert!(
            line["timestamp"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z')),
            "{line}"
        );
    }

    #[test]
    fn levels_are_checked() {
        for level in [
            "info",
            "INFO",
            "off",
            "info,replication=debug",
            "posthaste::pipeline=trace, warn",
        ] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for (level, part) in [
            ("inof", "did you mean info?"),
            ("loud", "\"loud\""),
            ("info,replication=loud", "\"replication=loud\""),
            ("3", "\"3\""),
        ] {
            let message = filter(level).expect_err(level).to_string();
            assert!(
                message.starts_with("PH0120: log.level: found ") && message.contains(part),
                "{message}"
            );
        }
    }
}
