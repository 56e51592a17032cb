//! What a test does to the fake runtime beside calling it.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::cri::v1;
use tonic::Status;

use super::FakeRuntime;
use super::behaviour::{ExecAnswer, OnStart, OnStop, Who};
use super::log::{BOUND, CallLog, Method, NotSeen};
use super::script::{Gate, Moment};
use super::world::{Container, Exit, Sandbox, Usage, World};

impl FakeRuntime {
    /// Every call so far.
    pub fn log(&self) -> &CallLog {
        self.service.log()
    }

    /// Looks at the state. Holds its lock: no call goes on meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        self.service.read(look)
    }

    /// A copy of every sandbox, ordered by id (which grows with age).
    pub fn sandboxes(&self) -> Vec<Sandbox> {
        self.read(|world| world.sandboxes.values().cloned().collect())
    }

    /// A copy of every container, ordered by id (which grows with age).
    pub fn containers(&self) -> Vec<Container> {
        self.read(|world| world.containers.values().cloned().collect())
    }

    /// Waits until the state satisfies `wanted`, at most [`BOUND`].
    ///
    /// # Errors
    /// [`NotSeen`] when the time is over.
    pub async fn wait_until(&self, wanted: impl FnMut(&World) -> bool) -> Result<(), NotSeen> {
        self.service.until_within(BOUND, wanted).await
    }

    /// Changes the state itself, without an event and without a call: conditions, handlers, anything that is public.
    pub fn set(&self, change: impl FnOnce(&mut World)) {
        self.service.change_silently(change);
    }

    // Faults and pauses. Each call of a method takes the first pause and the first fault of its queues.

    /// The next `times` calls of `method` fail with `status` and change nothing.
    pub fn fail(&self, method: Method, status: Status, times: usize) {
        self.service.script().fault(method, Moment::BeforeEffect, status, times);
    }

    /// The next `times` calls of `method` do their work, but answer `status`: the answer was lost.
    pub fn fail_after_effect(&self, method: Method, status: Status, times: usize) {
        self.service.script().fault(method, Moment::BeforeAnswer, status, times);
    }

    /// The next call of `method` waits this long, on tokio's clock, before it does anything.
    pub fn delay(&self, method: Method, time: Duration) {
        self.service.script().delay(method, Moment::BeforeEffect, time);
    }

    /// The next call of `method` waits at the gate before it does anything. It is in the log while it waits.
    pub fn hold(&self, method: Method) -> Gate {
        self.service.script().hold(method, Moment::BeforeEffect)
    }

    /// The next call of `method` does its work, then waits at the gate with its answer.
    pub fn hold_answer(&self, method: Method) -> Gate {
        self.service.script().hold(method, Moment::BeforeAnswer)
    }

    /// Drops all faults and pauses that no call has taken yet.
    pub fn clear_script(&self) {
        self.service.script().clear();
    }

    // Processes.

    /// From now on `who` does this when it is started. Of the rules that fit a container the newest counts,
    /// `Who::Everyone`'s last.
    pub fn on_start(&self, who: Who, on_start: OnStart) {
        self.service.change_silently(|world| world.behave(who, |behaviour| behaviour.on_start = on_start));
    }

    /// From now on `who` does this at its stop signal; what it does at the start stays.
    pub fn on_stop(&self, who: Who, on_stop: OnStop) {
        self.service.change_silently(|world| world.behave(who, |behaviour| behaviour.on_stop = on_stop));
    }

    /// A running container's process ends with this code.
    pub fn exit_container(&self, id: &str, code: i32) {
        self.exit_container_with(id, Exit::code(code));
    }

    /// A running container's process ends like this, such as [`Exit::oom`].
    pub fn exit_container_with(&self, id: &str, exit: Exit) {
        self.service.change(|world, now| world.exit(id, exit, now));
    }

    /// A sandbox's own process dies: it is not ready any more. Its containers run on.
    pub fn lose_sandbox(&self, id: &str) {
        self.service.change(|world, now| world.lose_sandbox(id, now));
    }

    /// Another tool removes a sandbox (with its containers), a container or an image: no call, no event.
    pub fn remove_behind_back(&self, id: &str) {
        self.service.change_silently(|world| {
            if world.sandboxes.remove(id).is_some() {
                world.containers.retain(|_, container| container.sandbox_id != id);
            }
            world.containers.remove(id);
            world.images.remove(id);
        });
    }

    /// The machine restarts: no sandbox is ready, what ran has exited with 255, records and images stay. Together
    /// with [`FakeRuntime::go_away`] and [`FakeRuntime::come_back`] it is a whole reboot.
    pub fn reboot(&self) {
        self.service.change(|world, now| world.reboot(now));
    }

    /// What a container's statistics say from now on.
    pub fn set_usage(&self, id: &str, usage: Usage) {
        self.service.change_silently(|world| {
            if let Some(container) = world.containers.get_mut(id) {
                container.usage = usage;
            }
        });
    }

    /// Answers every command from now on. It gets the container and the command; without an answerer each command
    /// succeeds at once. An error is one of the runtime, such as a command that does not exist.
    pub fn answer_exec(
        &self,
        answerer: impl Fn(&Container, &[String]) -> Result<ExecAnswer, Status> + Send + Sync + 'static,
    ) {
        self.service.answer_exec(Arc::new(answerer));
    }

    /// Where exec, attach and port-forward lead from now on: `BASE/exec/token` and the like, of a server of the test's own.
    pub fn stream_at(&self, base: &str) {
        self.service.stream_at(base.to_owned());
    }

    /// Ends every stream of events without an error; clients can open new ones. What happened between is lost.
    pub fn cut_event_streams(&self) {
        self.service.cut_events();
    }

    // Images. A registry that has everything is assumed.

    /// Makes an image present under a reference; returns its id.
    pub fn add_image(&self, reference: &str) -> String {
        self.service.change_silently(|world| world.images.add(reference))
    }

    /// Makes exactly this image present: for tests of sizes, users and pinned images.
    pub fn put_image(&self, image: v1::Image) {
        self.service.change_silently(|world| world.images.put(image));
    }

    /// Pulls of this reference fail with `status` until [`FakeRuntime::allow_pulls`].
    pub fn refuse_pulls(&self, reference: &str, status: Status) {
        self.service.change_silently(|world| world.images.refuse(reference, status));
    }

    /// Pulls of this reference succeed again.
    pub fn allow_pulls(&self, reference: &str) {
        self.service.change_silently(|world| world.images.allow(reference));
    }

    /// The registry's tag moves to another image: the next pull brings a new id.
    pub fn move_tag(&self, reference: &str) {
        self.service.change_silently(|world| world.images.move_tag(reference));
    }
}
