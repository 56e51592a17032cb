//! What every method goes through: call log, script of faults and pauses, the lock on the state, the runtime's end.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::cri::v1;
use bulkhead_base::Clock;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status};

use super::behaviour::ExecAnswer;
use super::log::{Call, CallLog, Method, NotSeen};
use super::script::{Fate, Moment, Script};
use super::world::{Container, Exit, LaterExit, World};

/// Events that a reader may be behind before its stream breaks.
const EVENTS: usize = 4096;

/// Answers commands: gets the container and the command.
pub(super) type ExecAnswerer = Arc<dyn Fn(&Container, &[String]) -> Result<ExecAnswer, Status> + Send + Sync>;

/// The fake's gRPC services; clones share everything.
#[derive(Clone)]
pub struct Service(Arc<Shared>);

struct Shared {
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    world: Mutex<World>,
    changed: watch::Sender<()>,
    log: CallLog,
    script: Mutex<Script>,
    exec: Mutex<ExecAnswerer>,
    /// Where the streaming server of a test is; empty: this runtime has none.
    streaming: Mutex<String>,
    events: Mutex<broadcast::Sender<v1::ContainerEventResponse>>,
    /// Cancelled when the runtime goes away: calls that run end with UNAVAILABLE.
    life: Mutex<CancellationToken>,
}

impl Service {
    pub(super) fn new(directory: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared {
            directory,
            clock,
            world: Mutex::default(),
            changed: watch::Sender::new(()),
            log: CallLog::default(),
            script: Mutex::default(),
            exec: Mutex::new(Arc::new(|_, _| Ok(ExecAnswer::default()))),
            streaming: Mutex::default(),
            events: Mutex::new(broadcast::Sender::new(EVENTS)),
            life: Mutex::default(),
        }))
    }

    pub(super) fn log(&self) -> &CallLog {
        &self.0.log
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.0.script)
    }

    /// Nanoseconds since the Unix epoch.
    pub(super) fn now(&self) -> i64 {
        i64::try_from(self.0.clock.now().as_nanosecond()).unwrap_or(i64::MAX)
    }

    pub(super) fn image_directory(&self) -> String {
        self.0.directory.join("images").display().to_string()
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&lock(&self.0.world))
    }

    /// Changes the state, tells the readers of events, wakes who waits for a state.
    pub(super) fn change<T>(&self, rule: impl FnOnce(&mut World, i64) -> T) -> T {
        let now = self.now();
        let mut world = lock(&self.0.world);
        let result = rule(&mut world, now);
        // Under the lock, so that events arrive in the order of the changes.
        let events = lock(&self.0.events);
        for event in world.take_events() {
            // Without a reader nobody needs it.
            let _ = events.send(event);
        }
        drop((events, world));
        self.0.changed.send_replace(());
        result
    }

    /// Changes the state without telling anybody but the waits of tests.
    pub(super) fn change_silently<T>(&self, rule: impl FnOnce(&mut World) -> T) -> T {
        let mut world = lock(&self.0.world);
        let result = rule(&mut world);
        world.take_events();
        drop(world);
        self.0.changed.send_replace(());
        result
    }

    /// Waits until the state satisfies `wanted`.
    pub(super) async fn until(&self, mut wanted: impl FnMut(&World) -> bool) {
        let mut changed = self.0.changed.subscribe();
        while !self.read(&mut wanted) {
            // Never closed: the sender lives as long as this service.
            let _ = changed.changed().await;
        }
    }

    pub(super) async fn until_within(
        &self,
        bound: std::time::Duration,
        wanted: impl FnMut(&World) -> bool,
    ) -> Result<(), NotSeen> {
        tokio::time::timeout(bound, self.until(wanted)).await.map_err(|_| {
            let seen = self.read(|world| {
                let sandboxes = world.sandboxes.values().map(|s| format!("{} {:?}", s.pod_uid(), s.state));
                let containers = world.containers.values().map(|c| format!("{} {:?}", c.name(), c.state));
                sandboxes.chain(containers).collect::<Vec<_>>().join(", ")
            });
            NotSeen { bound, seen }
        })
    }

    /// Lets a started process end by itself later. Ends with the state that it would change.
    pub(super) fn exit_later(&self, id: &str, later: LaterExit) {
        let (shared, id) = (Arc::downgrade(&self.0), id.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(later.after).await;
            if let Some(shared) = shared.upgrade() {
                Self(shared).change(|world, now| world.exit(&id, Exit::code(later.code), now));
            }
        });
    }

    pub(super) fn answer_exec(&self, answerer: ExecAnswerer) {
        *lock(&self.0.exec) = answerer;
    }

    pub(super) fn stream_at(&self, base: String) {
        *lock(&self.0.streaming) = base;
    }

    /// Address of a stream of this kind.
    pub(super) fn streaming(&self, kind: &str) -> Result<String, Status> {
        match lock(&self.0.streaming).as_str() {
            "" => Err(Status::unimplemented("there is no streaming server")),
            base => Ok(format!("{base}/{kind}/token")),
        }
    }

    pub(super) fn exec_answer(
        &self,
        container: &Container,
        command: &[String],
    ) -> Result<ExecAnswer, Status> {
        // Cloned, so that an answerer may take its time or look at the fake.
        let answerer = lock(&self.0.exec).clone();
        answerer(container, command)
    }

    pub(super) fn events(&self) -> broadcast::Receiver<v1::ContainerEventResponse> {
        lock(&self.0.events).subscribe()
    }

    /// Ends the streams of events; new ones can be opened.
    pub(super) fn cut_events(&self) {
        *lock(&self.0.events) = broadcast::Sender::new(EVENTS);
    }

    /// The present life; a new one when the last is over.
    pub(super) fn live(&self) -> CancellationToken {
        let mut life = lock(&self.0.life);
        if life.is_cancelled() {
            *life = CancellationToken::new();
        }
        life.clone()
    }

    /// Ends this life: what runs is cut off.
    pub(super) fn die(&self) {
        lock(&self.0.life).cancel();
        self.cut_events();
    }

    /// Runs one call: writes it down, waits and fails as scripted, else does `effect`, which gets the number of the
    /// entry.
    pub(super) async fn run<R, T>(
        &self,
        request: &Request<R>,
        call: Call,
        effect: impl AsyncFnOnce(usize) -> Result<Response<T>, Status>,
    ) -> Result<Response<T>, Status> {
        let method = call.method;
        let traceparent = request.metadata().get("traceparent").and_then(|value| value.to_str().ok());
        let number =
            self.0.log.begin(Call { at: self.now(), traceparent: traceparent.map(str::to_owned), ..call });
        let life = lock(&self.0.life).clone();
        let fate = self.script().take(method);
        let result = tokio::select! {
            biased;
            () = life.cancelled() => Err(Status::unavailable("the runtime went away")),
            result = scripted(fate, effect(number)) => result,
        };
        let code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
        self.0.log.amend(number, |call| call.outcome = Some(code));
        result
    }

    /// A method that this runtime does not have.
    pub(super) async fn refuse<R, T>(
        &self,
        request: &Request<R>,
        method: Method,
    ) -> Result<Response<T>, Status> {
        let text = format!("{method:?} is not implemented");
        self.run(request, Call::new(method), async |_| Err(Status::unimplemented(text))).await
    }
}

async fn scripted<T>(
    fate: Fate,
    effect: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Response<T>, Status> {
    let (early, late) = match fate.pause {
        Some((Moment::BeforeEffect, pause)) => (Some(pause), None),
        Some((Moment::BeforeAnswer, pause)) => (None, Some(pause)),
        None => (None, None),
    };
    if let Some(pause) = early {
        pause.wait().await;
    }
    let result = match fate.fault {
        Some((Moment::BeforeEffect, status)) => Err(status),
        Some((Moment::BeforeAnswer, status)) => effect.await.and(Err(status)),
        None => effect.await,
    };
    if let Some(pause) = late {
        pause.wait().await;
    }
    result
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
