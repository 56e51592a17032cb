//! Methods that take time: stopping a container and running a command in it. On tokio's clock.

use std::time::Duration;

use bulkhead_api::cri::v1;
use tonic::Status;
use v1::ContainerState;

use super::behaviour::OnStop;
use super::server::Service;
use super::world::{Exit, World};

impl Service {
    /// Asks the process to stop, waits as long as it may take, then kills it. A container that does not run, and one
    /// that is unknown, is stopped already.
    pub(super) async fn stop(&self, id: &str, timeout: Duration) {
        let Some(on_stop) = self.read(|world| {
            let container = world.running(id).ok()?;
            Some(world.behaviour_of(container).on_stop)
        }) else {
            return;
        };
        let (grace, exit) = match on_stop {
            // No time for the signal: SIGKILL at once.
            _ if timeout.is_zero() => (Duration::ZERO, Exit::killed()),
            OnStop::Exit(code) => (Duration::ZERO, Exit::code(code)),
            OnStop::ExitAfter(after, code) if after <= timeout => (after, Exit::code(code)),
            OnStop::ExitAfter(..) | OnStop::Ignore => (timeout, Exit::killed()),
        };
        // Its process may end in the meantime for another reason.
        let _ = tokio::time::timeout(grace, self.until(|world| !runs(world, id))).await;
        self.change(|world, now| world.exit(id, exit, now));
    }

    /// Runs a command as the test's answerer says; `timeout` zero: no limit.
    pub(super) async fn exec(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, Status> {
        let container = self.read(|world| world.running(id).cloned())?;
        let answer = self.exec_answer(&container, command)?;
        let limit = if timeout.is_zero() { answer.takes } else { timeout.min(answer.takes) };
        let ended = tokio::time::timeout(limit, self.until(|world| !runs(world, id))).await.is_ok();
        if ended && !answer.takes.is_zero() {
            // The container took the command with it.
            return Ok(v1::ExecSyncResponse { exit_code: 137, ..Default::default() });
        }
        if answer.takes > limit {
            return Err(Status::deadline_exceeded(format!(
                "command timed out: timeout {timeout:?} exceeded"
            )));
        }
        Ok(v1::ExecSyncResponse { stdout: answer.stdout, stderr: answer.stderr, exit_code: answer.exit_code })
    }
}

/// Whole seconds as CRI counts them; a negative time is none.
pub(super) fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

/// New limits over old ones: what the update leaves zero or empty stays.
pub(super) fn merge(old: &mut v1::LinuxContainerResources, new: &v1::LinuxContainerResources) {
    let number = |old: &mut i64, new: i64| {
        if new != 0 {
            *old = new;
        }
    };
    number(&mut old.cpu_period, new.cpu_period);
    number(&mut old.cpu_quota, new.cpu_quota);
    number(&mut old.cpu_shares, new.cpu_shares);
    number(&mut old.memory_limit_in_bytes, new.memory_limit_in_bytes);
    number(&mut old.memory_swap_limit_in_bytes, new.memory_swap_limit_in_bytes);
    number(&mut old.oom_score_adj, new.oom_score_adj);
    for (old, new) in [(&mut old.cpuset_cpus, &new.cpuset_cpus), (&mut old.cpuset_mems, &new.cpuset_mems)] {
        if !new.is_empty() {
            old.clone_from(new);
        }
    }
    for limit in &new.hugepage_limits {
        old.hugepage_limits.retain(|known| known.page_size != limit.page_size);
        old.hugepage_limits.push(limit.clone());
    }
    old.unified.extend(new.unified.clone());
}

fn runs(world: &World, id: &str) -> bool {
    world.containers.get(id).is_some_and(|container| container.state == ContainerState::ContainerRunning)
}
