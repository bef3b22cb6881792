//! What librdkafka tells us, put where the publishing thread finds it: deliveries, the state of the brokers, its log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::error::{Failure, PublishError};

/// The receiving end of librdkafka's events. All of them are served by the thread that polls, so the locks are
/// never waited for; they are there because the interface may be called from any thread.
#[derive(Debug)]
pub(crate) struct Context {
    outcomes: Mutex<Vec<Outcome>>,
    /// Events served so far: tells the poller whether one more poll brought anything.
    events: AtomicU64,
    brokers_up: AtomicBool,
    /// Whether it is sure that nobody answers; at the start it is not.
    silent: AtomicBool,
    trouble: Mutex<Option<PublishError>>,
    /// Whether a broker has ever not let this client in, or none could be reached.
    refused: AtomicBool,
    /// When a token for the brokers could last not be had.
    token_failed: Mutex<Option<Instant>>,
    /// When a Kerberos ticket could last not be had, and in which words.
    ticket_failed: Mutex<Option<(Instant, Box<str>)>>,
    log_limit: Mutex<LogLimit>,
}

/// What became of one message.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) opaque: usize,
    pub(crate) failure: Option<Box<Failure>>,
}

impl Context {
    pub(crate) fn new() -> Self {
        Self {
            outcomes: Mutex::new(Vec::new()),
            events: AtomicU64::new(0),
            brokers_up: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            trouble: Mutex::new(None),
            refused: AtomicBool::new(false),
            token_failed: Mutex::new(None),
            ticket_failed: Mutex::new(None),
            log_limit: Mutex::new(LogLimit::default()),
        }
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Exchanges the outcomes collected so far for an empty list, so that both keep their memory.
    pub(crate) fn swap_outcomes(&self, empty: &mut Vec<Outcome>) {
        debug_assert!(empty.is_empty());
        std::mem::swap(&mut *lock(&self.outcomes), empty);
    }

    pub(crate) fn brokers_up(&self) -> bool {
        self.brokers_up.load(Ordering::Relaxed)
    }

    /// A broker answered.
    pub(crate) fn note_contact(&self) {
        if !self.brokers_up() {
            self.brokers_up.store(true, Ordering::Relaxed);
            self.silent.store(false, Ordering::Relaxed);
            *lock(&self.trouble) = None;
        }
    }

    /// No broker answered.
    pub(crate) fn note_silence(&self, trouble: PublishError) {
        self.brokers_up.store(false, Ordering::Relaxed);
        self.silent.store(true, Ordering::Relaxed);
        self.refused.store(true, Ordering::Relaxed);
        lock(&self.trouble).get_or_insert(trouble);
    }

    /// The broker named the authorities it trusts, and none of them issued our certificate. Where it demands one, it hangs up;
    /// where it does not, it goes on, and contact ends the trouble.
    fn note_certificate_withheld(&self) {
        let mut failure = Failure::new(Code::SSL);
        failure.detail = Some(WITHHELD_DETAIL.into());
        *lock(&self.trouble) = Some(PublishError::classify(failure));
        self.refused.store(true, Ordering::Relaxed);
    }

    fn is_certificate_withheld(&self) -> bool {
        let trouble = lock(&self.trouble);
        trouble
            .as_ref()
            .is_some_and(|error| error.failure().detail.as_deref() == Some(WITHHELD_DETAIL))
    }

    /// Whether no token can be had at present, and that is told: then it is the reason for whatever brokers say. They find
    /// the old token out of date, or the connection in a wrong state.
    fn is_without_token(&self, now: Instant) -> bool {
        let failed = *lock(&self.token_failed);
        let trouble = lock(&self.trouble);
        failed.is_some_and(|at| now.duration_since(at) < TOKEN_RETRY_MAX)
            && trouble.as_ref().is_some_and(|error| {
                let detail = error.failure().detail.as_deref();
                detail.is_some_and(|detail| detail.starts_with(NO_TOKEN))
            })
    }

    /// What became of the last attempt to have a ticket, where that was not long ago and failed.
    fn ticket_failure(&self, now: Instant) -> Option<Box<str>> {
        let failed = lock(&self.ticket_failed);
        let (at, words) = failed.as_ref()?;
        (now.duration_since(*at) < TICKET_RETRY_MAX).then(|| words.clone())
    }

    /// Lines of the log that say why a broker will not let us in, or soon will not any more.
    fn note_login(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if message.contains(CERTIFICATE_WITHHELD) {
            self.note_certificate_withheld();
        }
        if level as i32 > RDKafkaLogLevel::Error as i32 {
            return;
        }
        let now = Instant::now();
        match facility {
            // Each attempt writes such a line; an error comes only with the first, and when the reason is another one.
            TOKEN_FACILITY => *lock(&self.token_failed) = Some(now),
            TICKET_FACILITY => {
                // It begins with the name of a thread.
                let words = message
                    .split_once("]: ")
                    .map_or(message, |(_, words)| words);
                *lock(&self.ticket_failed) = Some((now, told(words)));
            }
            _ => {}
        }
    }

    /// Whether a broker has ever not let this client in, or none could be reached: what it signs in with may be out of date.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Why no broker is connected.
    pub(crate) fn trouble(&self) -> Option<PublishError> {
        if self.brokers_up() {
            return None;
        }
        lock(&self.trouble).clone()
    }

    /// The same, once it is sure that none is: every known one refused, or none answered a question.
    pub(crate) fn settled_trouble(&self) -> Option<PublishError> {
        self.silent
            .load(Ordering::Relaxed)
            .then(|| self.trouble())
            .flatten()
    }

    fn count_event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        self.count_event();
        let failure = match result {
            Ok(_) => {
                self.note_contact();
                None
            }
            Err((error, message)) => Some(Box::new(describe(error, message, opaque))),
        };
        lock(&self.outcomes).push(Outcome { opaque, failure });
    }
}

impl ClientContext for Context {
    /// Problems of connections. Each broker repeats them for as long as they last, so they make a state, not a line
    /// in the log: the pipeline says once that the brokers are lost, and why.
    fn error(&self, error: KafkaError, reason: &str) {
        self.count_event();
        let Some(code) = error.rdkafka_error_code() else {
            return;
        };
        tracing::debug!(target: "kafka", code = ?code, "{reason}");
        let now = Instant::now();
        let mut detail = told(reason);
        // Cyrus SASL says that there are no credentials, or that they are over, and not why.
        if code == Code::Authentication
            && let Some(words) = self.ticket_failure(now)
        {
            detail = format!("{detail}; {words}").into();
        }
        let mut failure = Failure::new(code);
        failure.detail = Some(detail);
        let trouble = PublishError::classify(failure);
        if matches!(code, Code::Authentication | Code::SSL) {
            self.refused.store(true, Ordering::Relaxed);
        }
        let token_failed = code == Code::Authentication && reason.starts_with(NO_TOKEN);
        if token_failed {
            *lock(&self.token_failed) = Some(now);
        }
        match code {
            // Told by `fatal_error`, with the true code.
            Code::Fatal => {}
            // The sum of troubles told before, which say more.
            Code::AllBrokersDown => self.note_silence(trouble),
            // A broker that did not get the certificate it wants hangs up, and that is all it says.
            Code::BrokerTransportFailure if self.is_certificate_withheld() => {}
            _ if !token_failed && self.is_without_token(now) => {}
            _ => *lock(&self.trouble) = Some(trouble),
        }
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.count_event();
        self.note_login(level, facility, message);
        if is_notable(level, message)
            && let Some(suppressed) = lock(&self.log_limit).admit(Instant::now())
        {
            tracing::warn!(target: "kafka", facility, suppressed, "{message}");
        } else {
            tracing::debug!(target: "kafka", facility, "{message}");
        }
    }

    /// Off by default; passed on unread for those who switch them on.
    fn stats_raw(&self, statistics: &[u8]) {
        self.count_event();
        tracing::debug!(target: "kafka", "{}", String::from_utf8_lossy(statistics));
    }
}

/// One warning a minute, whatever the number of brokers and attempts; the others are still there at debug level.
#[derive(Debug, Default)]
struct LogLimit {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// The number of lines held back since the last one, if this one may pass.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let passes = self
            .last
            .is_none_or(|last| now.duration_since(last) >= WARNING_GAP);
        if passes {
            self.last = Some(now);
            Some(std::mem::take(&mut self.suppressed))
        } else {
            self.suppressed += 1;
            None
        }
    }
}

fn describe(error: &KafkaError, message: &BorrowedMessage<'_>, opaque: usize) -> Failure {
    let mut failure = Failure::new(error.rdkafka_error_code().unwrap_or(Code::Fail));
    failure.ticket = Some(opaque as u64);
    failure.topic = Some(message.topic().into());
    let headers = message.headers();
    let header_bytes: usize = headers
        .iter()
        .flat_map(|headers| headers.iter())
        .map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len))
        .sum();
    failure.size_bytes = Some((message.key_len() + message.payload_len() + header_bytes) as u64);
    failure.event_id = headers
        .iter()
        .flat_map(|headers| headers.iter())
        .find(|header| header.key == ID_HEADER)
        .and_then(|header| header.value)
        .map(event_id_text);
    failure
}

/// The id of an event as it may stand in a message: text, and not much of it.
pub(crate) fn event_id_text(id: &[u8]) -> Box<str> {
    let shown = id.get(..EVENT_ID_BYTES_MAX).unwrap_or(id);
    String::from_utf8_lossy(shown).into()
}

/// Words of others as they may stand in a message: a provider of tokens may answer with a whole page.
fn told(reason: &str) -> Box<str> {
    let words: Vec<&str> = reason.split_whitespace().collect();
    let mut text = words.join(" ");
    if let Some((end, _)) = text.char_indices().nth(REASON_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text.into()
}

/// A panic while one of these is held leaves nothing half-done, so a poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a line is for everybody's eyes. Of the warnings one is about what we set ourselves, and comes with every client;
/// and one comes with the first producer of a cluster that has just started, which tries again by itself.
fn is_notable(level: RDKafkaLogLevel, message: &str) -> bool {
    level as i32 <= RDKafkaLogLevel::Warning as i32
        && !message.contains(GAPLESS_GUARANTEE)
        && !message.contains(COORDINATOR_LOADING)
}

/// librdkafka calls this property experimental.
const GAPLESS_GUARANTEE: &str = "property enable.gapless.guarantee is experimental";

/// Kafka's words while it reads what is needed to give a producer its number.
const COORDINATOR_LOADING: &str = "Coordinator load in progress";

/// librdkafka's words when it keeps our certificate to itself: a line in its log, and no error.
const CERTIFICATE_WITHHELD: &str = "not sending any client certificates";

/// What that means.
const WITHHELD_DETAIL: &str = "the broker trusts no issuer of our client certificate (ssl.certificate.location), so that it \
    was not sent, and the broker ended the connection";

/// The header in which every event carries its id.
pub(crate) const ID_HEADER: &str = "id";

/// How librdkafka begins when no token can be had.
const NO_TOKEN: &str = "Failed to acquire SASL OAUTHBEARER token";

/// Where it logs that.
const TOKEN_FACILITY: &str = "OIDC";

/// It tries again after ten seconds; one attempt lasts up to two and a half minutes at a provider that hangs.
const TOKEN_RETRY_MAX: Duration = Duration::from_secs(180);

/// Where it logs that `kinit` failed.
const TICKET_FACILITY: &str = "SASLREFRESH";

/// Longer than `sasl.kerberos.min.time.before.relogin` is by default.
const TICKET_RETRY_MAX: Duration = Duration::from_secs(180);

const REASON_CHARS_MAX: usize = 500;

const EVENT_ID_BYTES_MAX: usize = 128;

const WARNING_GAP: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn global(code: Code) -> KafkaError {
        KafkaError::Global(code)
    }

    #[test]
    fn warnings_pass_once_a_minute_and_are_counted() {
        let mut limit = LogLimit::default();
        let start = Instant::now();
        assert_eq!(limit.admit(start), Some(0));
        assert_eq!(limit.admit(start + Duration::from_secs(1)), None);
        assert_eq!(limit.admit(start + Duration::from_secs(59)), None);
        assert_eq!(limit.admit(start + WARNING_GAP), Some(2));
        assert_eq!(limit.admit(start + WARNING_GAP * 2), Some(0));
    }

    #[test]
    fn what_every_start_brings_is_no_warning() {
        let warning = RDKafkaLogLevel::Warning;
        for line in [
            "Configuration property enable.gapless.guarantee is experimental: …",
            "Failed to acquire idempotence PID from broker a/1: Broker: Coordinator load in progress: retrying",
        ] {
            assert!(!is_notable(warning, line), "{line}");
        }
        let line = "Failed to acquire idempotence PID from broker a/1: Broker: Not authorized";
        assert!(is_notable(warning, line));
        assert!(!is_notable(RDKafkaLogLevel::Notice, line));
    }

    #[test]
    fn brokers_are_down_before_the_first_contact() {
        let context = Context::new();
        assert!(!context.brokers_up());
        assert!(context.trouble().is_none());
        context.note_contact();
        assert!(context.brokers_up());
    }

    #[test]
    fn the_reason_for_an_outage_is_the_trouble_before_it() {
        let context = Context::new();
        context.note_contact();
        context.error(global(Code::Authentication), "no such user");
        assert!(context.brokers_up(), "one broker's trouble is no outage");
        context.error(global(Code::AllBrokersDown), "1/1 brokers are down");
        assert!(!context.brokers_up());
        let trouble = context.trouble().expect("known");
        assert!(matches!(trouble, PublishError::Permanent(_)));
        assert_eq!(
            trouble.failure().to_string(),
            "_AUTHENTICATION: no such user"
        );
    }

    #[test]
    fn a_certificate_that_was_not_sent_is_the_trouble_whatever_comes_of_it() {
        let context = Context::new();
        let line = "No matching issuer found in server trusted certificate authorities, \
                    not sending any client certificates";
        context.log(RDKafkaLogLevel::Warning, "SSL", line);
        context.error(global(Code::BrokerTransportFailure), "Disconnected");
        context.error(global(Code::AllBrokersDown), "1/1 brokers are down");
        let trouble = context.settled_trouble().expect("known");
        assert_eq!(trouble.failure().code(), "_SSL");
        assert!(context.is_refused());
        context.note_contact();
        context.error(global(Code::BrokerTransportFailure), "Disconnected");
        context.error(global(Code::AllBrokersDown), "1/1 brokers are down");
        let trouble = context.settled_trouble().expect("known");
        assert_eq!(trouble.failure().code(), "_TRANSPORT");
    }

    #[test]
    fn a_token_that_cannot_be_had_is_the_trouble_whatever_brokers_say_of_the_old_one() {
        let context = Context::new();
        let refusal = format!("{NO_TOKEN}: {{\"error\":\"invalid_client\"}}");
        context.note_contact();
        context.error(global(Code::Authentication), &refusal);
        assert!(context.brokers_up(), "the old token has some time left");
        let state = "mechanism handshake failed: Request not valid in current SASL state";
        context.error(global(Code::Authentication), state);
        context.error(global(Code::AllBrokersDown), "1/1 brokers are down");
        let detail = |context: &Context| {
            let trouble = context.settled_trouble().expect("known");
            trouble.failure().detail.clone().expect("known").to_string()
        };
        assert_eq!(detail(&context), refusal);
        // That is long over, and another attempt has failed just now.
        let long_ago = Instant::now().checked_sub(TOKEN_RETRY_MAX);
        *lock(&context.token_failed) = long_ago;
        context.log(RDKafkaLogLevel::Error, TOKEN_FACILITY, "Failed to retrieve");
        context.error(global(Code::Authentication), state);
        assert_eq!(detail(&context), refusal);
        *lock(&context.token_failed) = long_ago;
        context.error(global(Code::Authentication), state);
        assert_eq!(detail(&context), state);
    }

    #[test]
    fn a_ticket_that_could_not_be_had_is_told_beside_a_refusal() {
        let context = Context::new();
        let line =
            "[thrd:main]: Kerberos ticket refresh failed: kinit -k relay: exited with code 1";
        context.log(RDKafkaLogLevel::Error, TICKET_FACILITY, line);
        context.error(global(Code::BrokerTransportFailure), "refused");
        context.error(global(Code::AllBrokersDown), "1/1 brokers are down");
        let detail = |context: &Context| {
            let trouble = context.settled_trouble().expect("known");
            trouble.failure().detail.clone().expect("known").to_string()
        };
        assert_eq!(detail(&context), "refused", "no matter of tickets");
        context.error(global(Code::Authentication), "no credentials");
        assert_eq!(
            detail(&context),
            "no credentials; Kerberos ticket refresh failed: kinit -k relay: exited with code 1"
        );
        if let Some((at, _)) = lock(&context.ticket_failed).as_mut() {
            *at -= TICKET_RETRY_MAX;
        }
        context.error(global(Code::Authentication), "no credentials");
        assert_eq!(detail(&context), "no credentials");
    }

    #[test]
    fn what_others_say_is_one_line_and_not_too_long() {
        assert_eq!(&*told("<html>\n  <p>no\r\n"), "<html> <p>no");
        let cut = told(&"ü".repeat(REASON_CHARS_MAX + 1));
        assert_eq!(cut.chars().count(), REASON_CHARS_MAX + 1);
        assert!(cut.ends_with('…'));
        assert_eq!(
            told(&"ü".repeat(REASON_CHARS_MAX)).chars().count(),
            REASON_CHARS_MAX
        );
    }

    #[test]
    fn contact_ends_the_trouble() {
        let context = Context::new();
        context.error(global(Code::AllBrokersDown), "1/1 brokers are down");
        assert!(context.trouble().is_some());
        context.note_contact();
        assert!(context.trouble().is_none());
        context.error(global(Code::AllBrokersDown), "again");
        assert_eq!(
            context
                .trouble()
                .expect("known")
                .failure()
                .detail
                .as_deref(),
            Some("again")
        );
    }

    #[test]
    fn a_long_event_id_is_cut() {
        assert_eq!(&*event_id_text(b"77"), "77");
        assert_eq!(event_id_text(&[b'x'; 1_000]).len(), EVENT_ID_BYTES_MAX);
    }
}
