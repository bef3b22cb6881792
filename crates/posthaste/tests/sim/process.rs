//! One process of the product: its supervisor, and all that it drives, in the surroundings of a world.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use posthaste::codes::Problem;
use posthaste::config::{self, Pipeline as Settings, Request};
use posthaste::health::Health;
use posthaste::memory::Memory;
use posthaste::pipeline::Drained;
use posthaste::policy::OnPoison;
use posthaste::shutdown::{Shutdown, ShutdownTrigger};
use posthaste::supervisor::{Conduct, Supervisor, Watched};

use crate::broker::DEAD_LETTERS;
use crate::stage::{Stage, StateFile};
use crate::surroundings::SimSystem;

/// What its command line says, and where its work goes.
pub(crate) struct Process {
    run: Pin<Box<dyn Future<Output = Result<Drained, Problem>>>>,
    trigger: ShutdownTrigger,
    stage: Rc<Stage>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

impl Process {
    pub(crate) fn start(stage: &Rc<Stage>, fail_fast: bool, accept_slot_position: bool) -> Self {
        stage.pace.borrow_mut().begin_process();
        let (trigger, shutdown) = Shutdown::channel();
        let state_file = StateFile(Arc::clone(&stage.disk));
        let memory = if stage.has_state_file {
            Memory::new(stage.disk.read(), Some(Box::new(state_file)))
        } else {
            Memory::new(None, None)
        };
        let watched = Watched {
            metrics: stage.metrics.clone(),
            health: Health::new(),
        };
        let conduct = Conduct {
            fail_fast,
            accept_slot_position,
            recreate_lost_slot: false,
        };
        let system = SimSystem::new(Rc::clone(stage));
        let settings = settings(stage.action, stage.once.is_some());
        let supervisor = Supervisor::amid(system, memory, settings, watched, shutdown, &conduct);
        let supervisor = supervisor.expect("legal settings");
        Self {
            run: Box::pin(supervisor.run()),
            trigger,
            stage: Rc::clone(stage),
        }
    }

    /// It does what it can do now: the publishing thread has its turn, then the loop. Something if it has ended.
    pub(crate) fn turn(&mut self) -> Option<Result<Drained, Problem>> {
        if let Some(worker) = self.stage.worker.borrow_mut().as_mut() {
            worker.turn();
        }
        match self
            .run
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        }
    }

    /// SIGTERM.
    pub(crate) fn stop(&self) {
        self.stage.pace.borrow_mut().stop();
        self.trigger.request();
    }
}

fn settings(action: OnPoison, is_once: bool) -> &'static Settings {
    static SETTINGS: [OnceLock<Settings>; 8] = [const { OnceLock::new() }; 8];
    let (place, name) = match action {
        OnPoison::Halt => (0, "halt"),
        OnPoison::Park => (1, "park"),
        OnPoison::DeadLetterTopic => (2, "dead-letter-topic"),
        OnPoison::Skip => (3, "skip"),
    };
    SETTINGS[place + if is_once { 4 } else { 0 }].get_or_init(|| {
        let delivery = if is_once { ONCE_TEXT } else { "" };
        let text = SETTINGS_TEXT.replace("[kafka]\n", &format!("[kafka]\n{delivery}"));
        let dead_letters = match action {
            OnPoison::DeadLetterTopic => format!("dead_letter_topic = \"{DEAD_LETTERS}\""),
            OnPoison::Halt | OnPoison::Park | OnPoison::Skip => String::new(),
        };
        let text = format!("{text}\n[poison]\non_poison = \"{name}\"\n{dead_letters}\n");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("posthaste.toml");
        std::fs::write(&file, text).expect("a file");
        let request = Request {
            file,
            ..Request::default()
        };
        let config = config::load(&request).expect("a legal configuration");
        config.pipelines.into_iter().next().expect("one pipeline")
    })
}

const SETTINGS_TEXT: &str = r#"
[source]
url = "postgres://app@db/orders"
slot = "outbox"
publication = "outbox"
tables = ["public.outbox"]

[router]
timestamp = { column = "at" }

[kafka]
brokers = "a:9092"
in_flight_records_max = 60
drain_timeout = "5s"

[retry]
backoff_initial = "50ms"
backoff_max = "800ms"
"#;

const ONCE_TEXT: &str = r#"
delivery = "exactly-once"
transaction_interval = "100ms"
transaction_records_max = 16
"#;
