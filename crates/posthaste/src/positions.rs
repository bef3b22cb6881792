//! Exactly once: where the committed positions are kept. The position topic, or a model of it.

use std::fmt::Debug;
use std::future::Future;

use pgoutput::Lsn;
use sink::{Kept, PositionTopic, PositionTopicError, PublishError};
use tokio::sync::oneshot;

use crate::codes::{Code, Problem};
use crate::policy::RunError;

/// What keeps the positions, each under a key.
///
/// The binary has the position topic. The simulation drives the same supervisor with another.
pub trait Positions: Debug {
    /// As [`PositionTopic::read`].
    ///
    /// # Errors
    ///
    /// No broker answers in time, or one refuses; or the topic cannot be used for this.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    fn read(&self, key: &str) -> impl Future<Output = Result<Kept, RunError>>;

    /// As [`PositionTopic::note_beginning`].
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    ///
    /// # Cancel safety
    ///
    /// When dropped, the note may be written or not.
    fn note_beginning(&self, key: &str, at: Lsn) -> impl Future<Output = Result<(), RunError>>;
}

/// On threads, which give up at their next step when the future is dropped.
impl Positions for PositionTopic {
    async fn read(&self, key: &str) -> Result<Kept, RunError> {
        let (topic, key) = (self.clone(), key.to_owned());
        on_a_thread(move |is_wanted| topic.read(&key, is_wanted)).await
    }

    async fn note_beginning(&self, key: &str, at: Lsn) -> Result<(), RunError> {
        let (topic, key) = (self.clone(), key.to_owned());
        let value = at.to_string();
        on_a_thread(move |is_wanted| topic.note_beginning(&key, value.as_bytes(), is_wanted)).await
    }
}

/// On a thread of its own, which nobody waits for at the end of the process.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, PositionTopicError> + Send + 'static,
) -> Result<T, RunError> {
    let (sender, answer) = oneshot::channel();
    std::thread::Builder::new()
        .name("position".to_owned())
        .spawn(move || {
            let done = work(&|| !sender.is_closed());
            drop(sender.send(done));
        })
        .map_err(|source| RunError::System {
            what: "a thread",
            source,
        })?;
    match answer.await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(PositionTopicError::Kafka(error))) => Err(error.into()),
        Ok(Err(error)) => Err(unfit_topic(error).into()),
        Err(_) => Err(timed_out()),
    }
}

fn unfit_topic(error: PositionTopicError) -> Problem {
    let problem = match &error {
        PositionTopicError::Shape {
            topic,
            found,
            needed,
        } => Problem::new(Code::PositionTopic, format!("position topic {topic}"))
            .found(found.clone())
            .needed(needed.clone()),
        _ => Problem::new(Code::PositionTopic, "position topic").found(error.to_string()),
    };
    problem
        .fix("correct the topic, or name another one in kafka.position_topic")
        .caused_by(error)
}

/// The brokers do not answer.
pub(crate) fn timed_out() -> RunError {
    PublishError::from_code("_TIMED_OUT").map_or_else(
        || Problem::new(Code::KafkaUnreachable, "claiming the transactional id").into(),
        RunError::Publish,
    )
}
