//! Messages in the words of a connector's file: whoever wrote `table.include.list` has no `source.tables` to correct.
//!
//! All checks speak of the native keys; here, in one place, these get the names that stand in the file.

use crate::codes::Problem;
use crate::config::Pipeline;

/// The problem as it is told to whoever wrote this pipeline's configuration.
pub(crate) fn told_to(pipeline: &Pipeline, problem: Problem) -> Problem {
    if pipeline.first_start.after_debezium {
        in_connectors_words(problem)
    } else {
        problem
    }
}

/// The same of a text that has nothing to correct.
pub(crate) fn text_told_to(pipeline: &Pipeline, text: &str) -> String {
    let mut text = text.to_owned();
    if pipeline.first_start.after_debezium {
        replace(&mut text);
    }
    text
}

/// The problem with a connector's keys in place of ours.
pub(crate) fn in_connectors_words(mut problem: Problem) -> Problem {
    for part in [
        &mut problem.what,
        &mut problem.found,
        &mut problem.needed,
        &mut problem.fix,
    ] {
        replace(part);
    }
    let names_own = OWN_TABLES.iter().any(|table| {
        let names = |part: &String| {
            part.split([' ', '"', '('])
                .any(|word| word.starts_with(table))
        };
        names(&problem.fix) || names(&problem.needed)
    });
    if names_own && !problem.fix.contains("--set") {
        let separator = if problem.fix.is_empty() { "" } else { "; " };
        problem.fix.push_str(separator);
        problem.fix.push_str(OWN_KEYS);
    }
    problem
}

fn replace(text: &mut String) {
    for (ours, theirs) in WORDS {
        if text.contains(ours) {
            *text = text.replace(ours, theirs);
        }
    }
}

/// Keys that a connector's file has no name for.
const OWN_KEYS: &str =
    "beside a connector's file such keys are given with --set KEY=VALUE, or in the environment";

/// What is left of ours, after [`WORDS`].
const OWN_TABLES: [&str; 5] = ["source.", "kafka.", "poison.", "state.", "retry."];

/// Ours and theirs: whole phrases before single keys, longer keys before those they begin with.
const WORDS: &[(&str, &str)] = &[
    (
        "every column that [router] maps",
        "every column that the Event Router's options name",
    ),
    (
        "correct the name under [router]",
        "correct the name in the Event Router's option (transforms.….table.field.…)",
    ),
    (
        "map the name that this row has, in [router], and start again",
        "write the name that this row has into the Event Router's option (transforms.….table.field.…), and start again",
    ),
    (
        "change router.topic",
        "change route.topic.regex or route.topic.replacement",
    ),
    (
        "correct source.tables (upper-case names need double quotes inside)",
        "correct table.include.list (patterns of SCHEMA.TABLE)",
    ),
    ("set source.create = true", "give --create"),
    (
        "source.password or source.password_file",
        "database.password",
    ),
    ("source.dbname or the path of source.url", "database.dbname"),
    (
        "TLS as sslmode asks for",
        "TLS as database.sslmode asks for",
    ),
    (
        "check sslmode, sslrootcert",
        "check database.sslmode, database.sslrootcert",
    ),
    (
        "kafka.properties.\"message.max.bytes\"",
        "producer.override.max.request.size",
    ),
    (
        "the sasl.* entries of kafka.properties",
        "the sasl.* keys (producer.override.*, or producer.* of the worker)",
    ),
    (
        "kafka.delivery = \"exactly-once\"",
        "exactly.once.support=required",
    ),
    ("kafka.brokers", "bootstrap.servers"),
    ("source.tables", "table.include.list"),
    ("source.slot", "slot.name"),
    ("source.publication", "publication.name"),
    ("source.failover", "slot.failover"),
    ("source.user", "database.user"),
    ("source.host", "database.hostname"),
    ("source.port", "database.port"),
    ("source.dbname", "database.dbname"),
    ("source.sslmode", "database.sslmode"),
    ("source.sslrootcert", "database.sslrootcert"),
    ("source.sslcert", "database.sslcert"),
    ("source.sslkey", "database.sslkey"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::Code;

    fn told(fix: &str) -> String {
        let problem = Problem::new(Code::TableMissing, "table public.outbox")
            .found("no such table")
            .fix(fix);
        in_connectors_words(problem).fix
    }

    #[test]
    fn keys_that_the_file_has_are_named_as_it_names_them() {
        assert_eq!(
            told("name another slot in source.slot"),
            "name another slot in slot.name"
        );
        assert_eq!(
            told("name the table itself in source.tables"),
            "name the table itself in table.include.list"
        );
        assert_eq!(
            told("…; or set source.create = true"),
            "…; or give --create"
        );
    }

    #[test]
    fn keys_that_only_we_have_come_with_the_way_to_give_them() {
        let fix = told("raise source.frame_bytes_max, or pass over the row");
        assert!(fix.starts_with("raise source.frame_bytes_max,"), "{fix}");
        assert!(fix.ends_with("in the environment"), "{fix}");
        let fix = told("give --set state.directory=/var/lib/posthaste");
        assert_eq!(fix, "give --set state.directory=/var/lib/posthaste");
    }

    #[test]
    fn no_words_of_ours_hide_behind_others() {
        for (at, (ours, theirs)) in WORDS.iter().enumerate() {
            let rest = WORDS.iter().skip(at + 1);
            for (later, _) in rest {
                assert!(
                    !later.contains(ours),
                    "{later:?} is never reached, for {ours:?}"
                );
                assert!(!theirs.contains(later), "{theirs:?} would be changed again");
            }
        }
    }
}
