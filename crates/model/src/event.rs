//! What happened on the node, in the words of the kubelet (as 1.37 writes them): tools and people look for them.
//!
//! Owns reasons and texts of Events. A text may hold what a pod's spec says and what a runtime or a probe answered, never a
//! value out of a Secret.

use std::borrow::Cow;
use std::time::Duration;

use crate::eviction::Signal;
use crate::spec::ContainerKind;

/// Longest text kept, in bytes: what the API takes of a note.
pub const TEXT_BYTES: usize = 1024;

/// Whether somebody should look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Not as it should be.
    Warning,
}

/// What happened. To what, and when, is up to who tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// Whether somebody should look at it.
    pub severity: Severity,
    /// One word for programs.
    pub reason: Cow<'static, str>,
    /// For people, at most [`TEXT_BYTES`].
    pub message: String,
}

impl Severity {
    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Event {
    /// All is well.
    pub fn normal(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Severity::Normal, reason.into(), message.into())
    }

    /// Something is not.
    pub fn warning(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, reason.into(), message.into())
    }

    fn new(severity: Severity, reason: Cow<'static, str>, mut message: String) -> Self {
        message.truncate(message.floor_char_boundary(TEXT_BYTES));
        Self { severity, reason, message }
    }
}

/// Path of a container in its pod, as an Event's `fieldPath` has it.
pub fn field_path(kind: ContainerKind, name: &str) -> String {
    let list = match kind {
        ContainerKind::App => "containers",
        ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
        ContainerKind::Ephemeral => "ephemeralContainers",
    };
    format!("spec.{list}{{{name}}}")
}

/// A container was made.
pub fn created() -> Event {
    Event::normal("Created", "Container created")
}

/// It runs.
pub fn started() -> Event {
    Event::normal("Started", "Container started")
}

/// It could not be configured, made or started; `reason` is that of its state, `cause` what the runtime said or `reason`
/// again.
pub fn failed(cause: &str) -> Event {
    Event::warning("Failed", format!("Error: {cause}"))
}

/// It is stopped with its pod.
pub fn stopping(container: &str) -> Event {
    Event::normal("Killing", format!("Stopping container {container}"))
}

/// It is stopped for a reason of its own, such as its probe.
pub fn killing(message: impl Into<String>) -> Event {
    Event::normal("Killing", message)
}

/// It ended and has to wait before it is started again. `pod` is `NAME_NAMESPACE(UID)`.
pub fn back_off(container: &str, pod: &str) -> Event {
    Event::warning("BackOff", format!("Back-off restarting failed container {container} in pod {pod}"))
}

/// A pull begins.
pub fn pulling(image: &str) -> Event {
    Event::normal("Pulling", format!("Pulling image {image:?}"))
}

/// It ended well. `took` is what the pull took, `waited` that and what came before it.
pub fn pulled(image: &str, took: Duration, waited: Duration, bytes: u64) -> Event {
    let (took, waited) = (millis(took), millis(waited));
    let message = format!(
        "Successfully pulled image {image:?} in {took} ({waited} including waiting). Image size: {bytes} bytes."
    );
    Event::normal("Pulled", message)
}

/// There was nothing to pull.
pub fn already_present(image: &str) -> Event {
    let message =
        format!("Container image {image:?} already present on machine and can be accessed by the pod");
    Event::normal("Pulled", message)
}

/// A pull failed.
pub fn pull_failed(image: &str, cause: &str) -> Event {
    Event::warning("Failed", format!("Failed to pull image {image:?}: {cause}"))
}

/// The time for another pull has not come.
pub fn pull_back_off(image: &str) -> Event {
    Event::normal("BackOff", format!("Back-off pulling image {image:?}"))
}

/// The image is not there and must not be pulled; `message` says so.
pub fn never_pulled(message: &str) -> Event {
    Event::warning("ErrImageNeverPull", message)
}

/// Its name cannot be read, or the runtime cannot tell about it.
pub fn not_inspected(message: &str) -> Event {
    Event::warning("InspectFailed", message)
}

/// The pod's sandbox cannot be made.
pub fn no_sandbox(cause: &str) -> Event {
    Event::warning("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {cause}"))
}

/// The pod gets another sandbox, because the one it had ended or no longer fits.
pub fn sandbox_changed() -> Event {
    Event::normal("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
}

/// A volume cannot be had.
pub fn no_mount(volume: &str, cause: &str) -> Event {
    Event::warning("FailedMount", format!("MountVolume.SetUp failed for volume {volume:?} : {cause}"))
}

/// A hook failed; what it said is kept out, as it may be anything. `reason` is FailedPostStartHook or FailedPreStopHook.
pub fn hook_failed(reason: &'static str) -> Event {
    let hook = if reason == "FailedPreStopHook" { "PreStopHook" } else { "PostStartHook" };
    Event::warning(reason, format!("{hook} failed"))
}

/// A probe said no. `probe` is `Liveness`, `Readiness` or `Startup`.
pub fn unhealthy(probe: &str, output: &str) -> Event {
    Event::warning("Unhealthy", format!("{probe} probe failed: {output}"))
}

/// A probe said yes, with a reservation.
pub fn probe_warning(probe: &str, output: &str) -> Event {
    Event::warning("ProbeWarning", format!("{probe} probe warning: {output}"))
}

/// A probe could not be done.
pub fn probe_errored(probe: &str, cause: &str) -> Event {
    Event::warning("Unhealthy", format!("{probe} probe errored and resulted in unknown state: {cause}"))
}

/// What became of a change of the pod's resources: `Started`, `Completed`, `Deferred`, `Infeasible` or `Error`. `summary` is that of
/// [`crate::resize::summary`].
pub fn resize(step: &str, summary: &str) -> Event {
    let reason = format!("Resize{step}");
    match step {
        "Started" | "Completed" => {
            Event::normal(reason, format!("Pod resize {}: {summary}", step.to_ascii_lowercase()))
        }
        _ => Event::warning(reason, format!("Pod resize {step}: {summary}")),
    }
}

/// The node began its life.
pub fn node_starting() -> Event {
    Event::normal("Starting", "Starting kubelet.")
}

/// A condition of the node turned out or became what `reason` says, such as NodeReady.
pub fn node_status(node: &str, reason: &'static str) -> Event {
    Event::normal(reason, format!("Node {node} status is now: {reason}"))
}

/// The machine was started anew since the node was last seen.
pub fn rebooted(node: &str, boot_id: &str) -> Event {
    Event::warning("Rebooted", format!("Node {node} has been rebooted, boot id: {boot_id}"))
}

/// The node ran short of what `signal` tells.
pub fn threshold_met(signal: Signal) -> Event {
    let what = match signal {
        Signal::MemoryAvailable => "memory",
        Signal::NodefsAvailable | Signal::ImagefsAvailable | Signal::ContainerfsAvailable => {
            "ephemeral-storage"
        }
        Signal::NodefsInodesFree | Signal::ImagefsInodesFree | Signal::ContainerfsInodesFree => "inodes",
        Signal::PidAvailable => "pids",
    };
    Event::warning("EvictionThresholdMet", format!("Attempting to reclaim {what}"))
}

/// As Go prints a duration of whole milliseconds: `95ms`, `1.5s`, `2m3.004s`.
fn millis(time: Duration) -> String {
    let (minutes, seconds, millis) = (time.as_secs() / 60, time.as_secs() % 60, time.subsec_millis());
    if time.as_secs() == 0 {
        return format!("{millis}ms");
    }
    let fraction = format!(".{millis:03}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    if minutes == 0 { format!("{seconds}{fraction}s") } else { format!("{minutes}m{seconds}{fraction}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a kubelet 1.37.2 said them.
    #[test]
    fn the_words_are_the_kubelets() {
        let pod = "crash_default(71846f78-9db7-44d5-91fc-e326687a7fbe)";
        for (event, severity, reason, message) in [
            (created(), "Normal", "Created", "Container created"),
            (started(), "Normal", "Started", "Container started"),
            (failed("ErrImagePull"), "Warning", "Failed", "Error: ErrImagePull"),
            (stopping("c"), "Normal", "Killing", "Stopping container c"),
            (
                back_off("c", pod),
                "Warning",
                "BackOff",
                "Back-off restarting failed container c in pod crash_default(71846f78-9db7-44d5-91fc-e326687a7fbe)",
            ),
            (pulling("r.invalid/n:1"), "Normal", "Pulling", "Pulling image \"r.invalid/n:1\""),
            (
                already_present("r/n:1"),
                "Normal",
                "Pulled",
                "Container image \"r/n:1\" already present on machine and can be accessed by the pod",
            ),
            (pull_failed("r/n:1", "no"), "Warning", "Failed", "Failed to pull image \"r/n:1\": no"),
            (pull_back_off("r/n:1"), "Normal", "BackOff", "Back-off pulling image \"r/n:1\""),
            (
                no_sandbox("rpc error: code = Unknown desc = x"),
                "Warning",
                "FailedCreatePodSandBox",
                "Failed to create pod sandbox: rpc error: code = Unknown desc = x",
            ),
            (
                no_mount("v", "configmap \"missing\" not found"),
                "Warning",
                "FailedMount",
                "MountVolume.SetUp failed for volume \"v\" : configmap \"missing\" not found",
            ),
            (hook_failed("FailedPreStopHook"), "Warning", "FailedPreStopHook", "PreStopHook failed"),
            (hook_failed("FailedPostStartHook"), "Warning", "FailedPostStartHook", "PostStartHook failed"),
            (
                threshold_met(Signal::NodefsAvailable),
                "Warning",
                "EvictionThresholdMet",
                "Attempting to reclaim ephemeral-storage",
            ),
            (unhealthy("Liveness", "no\n"), "Warning", "Unhealthy", "Liveness probe failed: no\n"),
            (
                node_status("node-a", "NodeReady"),
                "Normal",
                "NodeReady",
                "Node node-a status is now: NodeReady",
            ),
        ] {
            assert_eq!(
                (event.severity.as_str(), &*event.reason, event.message.as_str()),
                (severity, reason, message)
            );
        }
    }

    #[test]
    fn a_pull_says_how_long_it_took_as_go_does() {
        let ms = Duration::from_millis;
        let event = pulled("r/n:1", ms(95), ms(123_004), 42);
        assert_eq!(
            event.message,
            "Successfully pulled image \"r/n:1\" in 95ms (2m3.004s including waiting). Image size: 42 bytes."
        );
        for (time, text) in
            [(0, "0ms"), (1_500, "1.5s"), (2_000, "2s"), (60_000, "1m0s"), (61_001, "1m1.001s")]
        {
            assert_eq!(millis(ms(time)), text);
        }
    }

    #[test]
    fn a_text_is_bounded_at_a_whole_letter() {
        let event = Event::warning("R", "ä".repeat(TEXT_BYTES));
        assert_eq!(event.message.len(), TEXT_BYTES);
        assert_eq!(Event::warning("R", format!("a{}", event.message)).message.len(), TEXT_BYTES - 1);
    }

    #[test]
    fn a_container_is_named_by_its_list() {
        for (kind, path) in [
            (ContainerKind::App, "spec.containers{c}"),
            (ContainerKind::Init, "spec.initContainers{c}"),
            (ContainerKind::Sidecar, "spec.initContainers{c}"),
        ] {
            assert_eq!(field_path(kind, "c"), path);
        }
    }
}
