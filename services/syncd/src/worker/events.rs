//! What a worker tells the cluster of its pod, as Events. It never waits for that, and nothing depends on it.

use bulkhead_base::chain;
use bulkhead_ipc::status::{Reaction, reaction};
use bulkhead_model::admission::Rejection;
use bulkhead_model::event::{self, Event};
use bulkhead_model::spec::{self, ContainerKind};
use bulkhead_service::Subject;
use k8s_openapi::api::core::v1::Pod;
use tonic::Code;

use super::Worker;
use crate::error::PodError;
use crate::peers::ImageAnswer;

/// What a step that makes a sandbox calls itself.
pub(super) const MAKING_SANDBOX: &str = "making the sandbox";

impl Worker {
    /// Something happened to the pod.
    pub(super) fn tell(&self, event: Event) {
        self.deps.events.pod(&subject(&self.pod, None), event);
    }

    /// Something happened to one of its containers.
    pub(super) fn tell_of(&self, container: &str, event: Event) {
        self.deps.events.pod(&subject(&self.pod, Some(container)), event);
    }

    /// What imaged said of a container's image, when that is news.
    pub(super) fn tell_of_image(&self, container: &str, image: &str, answer: &ImageAnswer) {
        let ImageAnswer::Waiting { reason, message, .. } = answer else { return };
        let before = self.decision.waiting.get(container).map(|waiting| waiting.reason.as_str());
        if before == Some(reason) {
            return;
        }
        for event in image_events(reason, message, image) {
            self.tell_of(container, event);
        }
    }

    /// Why a pass failed, as far as it concerns the pod.
    pub(super) fn tell_trouble(&self, error: &PodError) {
        if let Some(event) = trouble(error) {
            self.tell(event);
        }
    }

    /// What was not as the pod asked for in its `resolv.conf`.
    pub(super) fn tell_dns(&self, note: &str) {
        let reason = if note.contains("clusterDNS") { "MissingClusterDNS" } else { "DNSConfigForming" };
        self.tell(Event::warning(reason, note));
    }

    /// `NAME_NAMESPACE(UID)`.
    pub(super) fn full_name(&self) -> String {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        format!("{}_{namespace}({})", self.name(), self.uid)
    }
}

/// The node does not take a pod.
pub fn rejected(Rejection { reason, message }: &Rejection) -> Event {
    let message = message.strip_prefix("Pod was rejected: ").unwrap_or(message);
    Event::warning(reason.clone(), message)
}

/// A pod, or one of its containers.
pub fn subject(pod: &Pod, container: Option<&str>) -> Subject {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    let field_path = container.map(|name| event::field_path(kind_of(pod, name), name)).unwrap_or_default();
    Subject { uid: text(&meta.uid), namespace: text(&meta.namespace), name: text(&meta.name), field_path }
}

fn kind_of(pod: &Pod, name: &str) -> ContainerKind {
    let lasting =
        spec::containers(pod).into_iter().find(|found| found.name() == name).map(|found| found.kind);
    let passing = || spec::ephemeral(pod).iter().any(|found| found.container.name == name);
    lasting.unwrap_or_else(|| if passing() { ContainerKind::Ephemeral } else { ContainerKind::App })
}

fn image_events(reason: &str, message: &str, image: &str) -> Vec<Event> {
    let what = match reason {
        // Nothing is wrong yet.
        "ContainerCreating" => return vec![event::pulling(image)],
        "ImagePullBackOff" => event::pull_back_off(image),
        "ErrImageNeverPull" => event::never_pulled(message),
        "InvalidImageName" | "ImageInspectError" => event::not_inspected(message),
        _ => event::pull_failed(image, message),
    };
    vec![what, event::failed(reason)]
}

/// Of a text that names its volume first, as volumed's and those here do.
fn no_mount(text: &str) -> Event {
    let named = text.strip_prefix("volume `").and_then(|rest| rest.split_once("`: "));
    match named {
        Some((volume, cause)) => event::no_mount(volume, cause),
        None => Event::warning("FailedMount", text),
    }
}

fn trouble(error: &PodError) -> Option<Event> {
    match error {
        // A process that is away for a moment is no fault of the pod's volumes.
        PodError::Peer { peer: "volumed", status, .. }
            if reaction(status) != Reaction::Retry || status.code() == Code::Internal =>
        {
            Some(no_mount(status.message()))
        }
        PodError::Volumes { source, .. } => Some(no_mount(&chain(source).to_string())),
        PodError::Runtime { doing: MAKING_SANDBOX, source, .. } => {
            Some(event::no_sandbox(&source.runtime_message()))
        }
        PodError::RuntimeClass { source, .. } => {
            let why = format!("failed to get sandbox runtime: {}", chain(source));
            Some(event::no_sandbox(&why))
        }
        PodError::Config { source, .. } => Some(event::failed(&chain(&**source).to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_is_named_by_its_place_in_the_pod() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u" },
            "spec": {
                "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }],
                "containers": [{ "name": "c" }],
                "ephemeralContainers": [{ "name": "e" }],
            },
        }))
        .unwrap();
        for (container, path) in [
            (None, ""),
            (Some("c"), "spec.containers{c}"),
            (Some("i"), "spec.initContainers{i}"),
            (Some("s"), "spec.initContainers{s}"),
            (Some("e"), "spec.ephemeralContainers{e}"),
        ] {
            let found = subject(&pod, container);
            assert_eq!(found.field_path, path);
            assert_eq!((found.uid.as_str(), found.namespace.as_str(), found.name.as_str()), ("u", "n", "p"));
        }
    }

    #[test]
    fn an_image_that_cannot_be_had_is_told_as_the_kubelet_does() {
        let told = |reason, message| {
            let events = image_events(reason, message, "r/i:1").into_iter();
            events.map(|event| format!("{}: {}", event.reason, event.message)).collect::<Vec<_>>()
        };
        assert_eq!(told("ContainerCreating", ""), ["Pulling: Pulling image \"r/i:1\""]);
        assert_eq!(
            told("ErrImagePull", "no such host"),
            ["Failed: Failed to pull image \"r/i:1\": no such host", "Failed: Error: ErrImagePull"]
        );
        assert_eq!(
            told("ImagePullBackOff", "..."),
            ["BackOff: Back-off pulling image \"r/i:1\"", "Failed: Error: ImagePullBackOff"]
        );
        let never = "Container image \"r/i:1\" is not present with pull policy of Never";
        assert_eq!(
            told("ErrImageNeverPull", never),
            [format!("ErrImageNeverPull: {never}"), "Failed: Error: ErrImageNeverPull".to_owned()]
        );
        assert_eq!(told("InvalidImageName", "no"), ["InspectFailed: no", "Failed: Error: InvalidImageName"]);
    }

    #[test]
    fn a_rejection_is_told_without_its_first_words() {
        let of = |message: &str| Rejection { reason: "OutOfcpu".into(), message: message.into() };
        for (message, told) in [("Pod was rejected: no room", "no room"), ("no room", "no room")] {
            let event = rejected(&of(message));
            assert_eq!(
                (event.severity.as_str(), &*event.reason, event.message.as_str()),
                ("Warning", "OutOfcpu", told)
            );
        }
    }

    #[test]
    fn only_what_is_the_pods_own_trouble_is_told() {
        let volumed = |status| PodError::Peer { peer: "volumed", uid: "u".into(), status };
        let told =
            trouble(&volumed(tonic::Status::failed_precondition("volume `v`: no such folder"))).unwrap();
        let text = "MountVolume.SetUp failed for volume \"v\" : no such folder";
        assert_eq!((&*told.reason, told.message.as_str()), ("FailedMount", text));
        assert_eq!(no_mount("something else").message, "something else");
        assert_eq!(trouble(&volumed(tonic::Status::unavailable("connect"))), None);
        let pleg = PodError::Peer {
            peer: "pleg",
            uid: "u".into(),
            status: tonic::Status::failed_precondition("no"),
        };
        assert_eq!(trouble(&pleg), None);
        assert_eq!(trouble(&PodError::StillRuns { uid: "u".into() }), None);
    }
}
