//! `posthaste debezium takeover`: where to go on from a Debezium connector on its own slot, said and, with `--yes`, written down.
//!
//! It never makes or moves a slot, and never writes to Kafka. Its only effect is the take-over file, which `run` uses.

use std::io::Write;

use debezium::offset::{self, Plan, Repeats, StoredOffset, Variant, Waiting};
use debezium::{Format, NativeConfig};
use pgoutput::Lsn;
use router::connect::ConnectRouter;

use crate::cli_connect::{TakeoverArgs, VariantArgument};
use crate::codes::{Code, Problem};
use crate::commands::printing::{as_problem, line, write};
use crate::config::{self, Config, Pipeline};
use crate::handover::{Handover, HandoverFile};
use crate::preconditions::{self, CheckError, Checked, Wanted};
use crate::routing::Routing;
use crate::source::Opened;
use crate::takeover_offset::{self, Key};
use crate::{connector_words, explain, settings, takeover_scan};

/// Compares slot and stored offset, tells what would be done, and does it if asked.
///
/// # Errors
///
/// A configuration that `run` would not start with, an offset that cannot be read, a slot that is not fit to be taken over, a
/// gap that is possible.
pub async fn run(arguments: &TakeoverArgs, out: &mut dyn Write) -> Result<(), Problem> {
    let reading = arguments.files().read()?;
    let config = config::load(&arguments.request(&reading))?;
    let (Some(native), Some(pipeline)) = (&reading.native, config.pipelines.first()) else {
        return Err(Problem::new(
            Code::Unexpected,
            "a configuration that is neither followed nor refused",
        ));
    };
    let given = Given {
        arguments,
        config: &config,
        // Debezium Server stores under the name of its sink.
        connector: match (&arguments.connector, reading.format) {
            (Some(name), _) => name,
            (None, Format::Server) => "kafka",
            (None, _) => &native.name,
        },
        native,
        pipeline,
    };
    // The slot first: while it is read, the offset is not the last one.
    let told = |problem| connector_words::told_to(pipeline, problem);
    let found = given.look_at_slot().await.map_err(told)?;
    let stored = takeover_offset::read(&arguments.offsets, given.key(), native, pipeline)?;
    let options = given.weigh(found, &stored).await.map_err(told)?;
    let mut text = String::new();
    given.report(&mut text, &stored, &options);
    let outcome = options
        .chosen(arguments.variant)
        .and_then(|plan| match arguments.yes {
            true => given.hand_over(&stored, &options, plan),
            false => Ok(given.hand_over_later(&options, plan)),
        });
    if let Ok(last) = &outcome {
        line(&mut text, last);
    }
    write(&text, out)?;
    outcome.map(|_| ())
}

/// What the person gave.
struct Given<'a> {
    arguments: &'a TakeoverArgs,
    config: &'a Config,
    connector: &'a str,
    native: &'a NativeConfig,
    pipeline: &'a Pipeline,
}

/// The slot and its server, and a connection on which it can be read.
struct Found {
    opened: Opened,
    wanted: Wanted,
    restart: Option<String>,
    wal_end: Lsn,
}

/// Both variants on the server that was found.
struct Options {
    checked: Checked,
    restart: Option<String>,
    wal_end: Lsn,
    waiting: Waiting,
    counted_whole: bool,
    at_least_once: Plan,
    skip: Result<Plan, offset::Refusal>,
}

impl Given<'_> {
    fn key(&self) -> Key<'_> {
        Key {
            connector: self.connector,
            prefix: &self.native.connect.topic_prefix,
        }
    }

    async fn look_at_slot(&self) -> Result<Found, Problem> {
        let mut wanted = settings::wanted(self.pipeline)?;
        wanted.create = false;
        // The ways of a first start do not apply: there was a Debezium.
        wanted.first_start.after_debezium = false;
        let options = settings::connect_options(self.pipeline).await;
        let options = options.map_err(as_problem)?;
        let opened = preconditions::open(&options, &wanted).await;
        let (sql, client, checked) = opened.map_err(|error| self.refused_slot(error))?;
        let row = sql
            .query_one(
                "SELECT s.restart_lsn::pg_catalog.text, pg_catalog.pg_current_wal_flush_lsn()::pg_catalog.text \
                 FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1::pg_catalog.text",
                &[&wanted.slot],
            )
            .await;
        let row = row.map_err(|error| as_problem(CheckError::from(error).into()))?;
        let wal_end: Option<String> = row.try_get(1).unwrap_or_default();
        let wal_end = wal_end.and_then(|text| text.parse().ok());
        Ok(Found {
            restart: row.try_get(0).unwrap_or_default(),
            wal_end: wal_end.unwrap_or(checked.server_wal_position),
            opened: Opened::new(client, checked),
            wanted,
        })
    }

    /// What is different about a slot that cannot be read when it was Debezium's.
    fn refused_slot(&self, error: CheckError) -> Problem {
        let name = self.key().connector;
        if let CheckError::Held { pid, .. } = &error {
            let pid = pid.map_or_else(String::new, |pid| format!(" (server process {pid})"));
            return Problem::new(
                Code::TakeoverConnectorRuns,
                format!("replication slot {:?}", self.native.source.slot),
            )
            .found(format!("somebody reads it{pid}; if that is Connect, its offset is not the last one"))
            .needed("a connector that is stopped")
            .fix(format!(
                "curl -X PUT http://CONNECT:8083/connectors/{name}/stop (Connect 3.5 and later; older: pause, wait longer than \
                 offset.flush.interval.ms and five seconds, then DELETE /connectors/{name}, which keeps the offset), wait until \
                 GET /connectors/{name}/status says STOPPED, and try again"
            ));
        }
        let problem = as_problem(error.into());
        match problem.code {
            Code::SlotMissing => problem
                .needed("the slot that Debezium read")
                .fix(
                    "check host, database and slot.name (and that slot.drop.on.stop was not true); if the slot is gone, events \
                     committed since are in no slot: compare the outbox table with the topics, then `run --create`",
                ),
            _ => problem,
        }
    }

    async fn weigh(&self, found: Found, stored: &StoredOffset) -> Result<Options, Problem> {
        let Found {
            opened,
            wanted,
            restart,
            wal_end,
        } = found;
        let checked = opened.checked().clone();
        let slot = offset::Slot {
            confirmed: checked.slot_confirmed,
            wal_end,
            may_lead: self.native.source.slot_may_lead,
        };
        let at_least_once = offset::plan(&slot, stored, Variant::AtLeastOnce);
        let at_least_once = at_least_once.map_err(|refusal| self.refuse(&refusal))?;
        let mut waiting = Waiting::new(&at_least_once);
        let routing = self.routing(&checked)?;
        let counted = async {
            let start = at_least_once.start;
            let source = opened.start(self.pipeline, &wanted, start).await?;
            takeover_scan::count(source, routing, wal_end, &mut waiting).await
        };
        let counted_whole = counted.await.map_err(as_problem)?;
        Ok(Options {
            checked,
            restart,
            wal_end,
            waiting,
            counted_whole,
            at_least_once,
            skip: offset::plan(&slot, stored, Variant::Skip),
        })
    }

    fn routing(&self, checked: &Checked) -> Result<Routing, Problem> {
        let config = self.native.connect.clone();
        let mut router = ConnectRouter::new(config, "").map_err(explain::connect_config)?;
        if let Some(catalog) = checked.catalog.clone() {
            router.set_catalog(catalog);
        }
        Ok(router.into())
    }

    fn refuse(&self, refusal: &offset::Refusal) -> Problem {
        Problem::new(
            Code::TakeoverRefused,
            format!("takeover of slot {:?}", self.native.source.slot),
        )
        .found(refusal.what.clone())
        .needed("a place before which everything is known to be published")
        .fix(refusal.fix.clone())
    }

    fn report(&self, text: &mut String, stored: &StoredOffset, options: &Options) {
        let Key { connector, prefix } = self.key();
        let checked = &options.checked;
        let mut put = |label: &str, what: String| line(text, &format!("{label:<14} {what}"));
        put("connector", format!("{connector} (topic.prefix {prefix})"));
        put(
            "stored offset",
            format!("{}, from {}", shown(stored), self.arguments.offsets),
        );
        put(
            "slot",
            format!(
                "{} of database {}: confirmed {}, restart {}, plugin pgoutput, not in use; publication {}",
                self.native.source.slot,
                checked.identity.database,
                checked.slot_confirmed,
                options.restart.as_deref().unwrap_or("unknown"),
                self.native.source.publication,
            ),
        );
        put("server", format!("its WAL ends at {}", options.wal_end));
        for warning in &checked.warnings {
            let text = connector_words::text_told_to(self.pipeline, &warning.text);
            put("warning", text);
        }
        put("start", options.at_least_once.start.to_string());
        for reason in &options.at_least_once.explanation {
            put("", format!("- {reason}"));
        }
        let more = if options.counted_whole {
            "events wait in the slot"
        } else {
            "events at least wait in the slot: counting was ended there"
        };
        put("waiting", format!("{} {more}", options.waiting.rows()));
        put("at-least-once", options.repeats(&options.at_least_once));
        match &options.skip {
            Ok(plan) => {
                let rule = plan.skip_resolved(&options.waiting);
                let rule =
                    rule.map_or_else(|| "nothing to skip".to_owned(), |rule| rule.to_string());
                put("skip", format!("{}; {rule}", options.repeats(plan)));
            }
            Err(refusal) => put("skip", format!("not possible: {refusal}")),
        }
    }

    /// Writes the decision, if there is one that `run` would not come to by itself.
    fn hand_over(
        &self,
        stored: &StoredOffset,
        options: &Options,
        plan: &Plan,
    ) -> Result<String, Problem> {
        let skip = plan.skip_resolved(&options.waiting);
        let trivial = plan.start == options.checked.slot_confirmed && skip.is_none();
        let slot = &self.native.source.slot;
        let Some(directory) = &self.config.state.directory else {
            if trivial {
                return Ok(
                    "done           nothing has to be written: `run` starts where the slot is"
                        .to_owned(),
                );
            }
            return Err(no_state_directory());
        };
        let file = HandoverFile::new(directory, slot);
        file.save(&Handover {
            identity: options.checked.identity.clone(),
            publication: self.native.source.publication.clone(),
            start: plan.start,
            until: options.wal_end,
            skip,
            remark: format!("connector {}: {}", self.key().connector, shown(stored)),
        })?;
        Ok(format!(
            "done           written to {}; start `posthaste run` with the same files and --set",
            file.path().display()
        ))
    }

    fn hand_over_later(&self, options: &Options, plan: &Plan) -> String {
        let skip = plan.skip_resolved(&options.waiting);
        let needs_state = plan.start > options.checked.slot_confirmed || skip.is_some();
        let state = match &self.config.state.directory {
            None if needs_state => {
                "; it needs a state directory as well: --set state.directory=FOLDER, here and for `run`"
            }
            _ => "",
        };
        format!(
            "dry run        nothing was written; choose with --variant at-least-once or skip, and add --yes{state}"
        )
    }
}

impl Options {
    fn chosen(&self, variant: VariantArgument) -> Result<&Plan, Problem> {
        match variant {
            VariantArgument::AtLeastOnce => Ok(&self.at_least_once),
            VariantArgument::Skip => self.skip.as_ref().map_err(|refusal| {
                Problem::new(Code::TakeoverRefused, "--variant skip")
                    .found(refusal.what.clone())
                    .fix(refusal.fix.clone())
            }),
        }
    }

    fn repeats(&self, plan: &Plan) -> String {
        let Repeats {
            after_stop,
            after_kill,
        } = plan.repeats_max(&self.waiting);
        let bound = if self.counted_whole {
            "at most"
        } else {
            "at least"
        };
        format!(
            "at most {after_stop} events are sent again if Connect was stopped in order, {bound} {after_kill} if it was killed"
        )
    }
}

fn no_state_directory() -> Problem {
    Problem::new(Code::TakeoverState, "state.directory")
        .found("none")
        .needed("a folder in which what was decided is kept until `run` has passed it")
        .fix("give --set state.directory=FOLDER here and to `run`")
}

/// The offset in one line.
fn shown(stored: &StoredOffset) -> String {
    let kind = stored.message_type.as_deref().unwrap_or("an event");
    let place = |lsn: Option<Lsn>| lsn.map_or_else(|| "nowhere".to_owned(), |lsn| lsn.to_string());
    let transaction = stored.transaction.map_or_else(String::new, |transaction| {
        format!(" of transaction {transaction}")
    });
    let count = stored
        .events_processed
        .map_or_else(String::new, |count| format!(", event {count} there"));
    format!(
        "{kind} at {}{transaction}{count}, after the COMMIT that ends at {}",
        place(stored.lsn.or(stored.lsn_proc)),
        place(stored.lsn_commit),
    )
}
