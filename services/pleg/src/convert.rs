//! From CRI's messages to the model. Pure. What pods can make long is cut here.

use std::collections::{BTreeMap, HashMap};

use bulkhead_api::convert::signal_from_cri;
use bulkhead_cri::wire;
use bulkhead_model::names;
use bulkhead_model::runtime::{Container, ContainerState, Sandbox, User};
use jiff::Timestamp;

/// Longest reason and message kept.
const TEXT_BYTES: usize = 1024;
/// Longest annotation kept; longer ones are left out, for half a value means something else.
const ANNOTATION_BYTES: usize = 16 * 1024;
/// Annotations of these prefixes are ours or a kubelet's.
const OURS: [&str; 2] = ["io.kubernetes.", "bulkhead.dev/"];

/// What a sandbox's status says about its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// Whether the sandbox stands.
    pub(crate) ready: bool,
    /// Its addresses, primary one first.
    pub(crate) ips: Vec<String>,
    /// It stands, needs an address and has none yet.
    pub(crate) awaits_ip: bool,
}

/// Whether the sandbox stands, by the list.
pub(crate) fn is_ready(sandbox: &wire::PodSandbox) -> bool {
    sandbox.state() == wire::PodSandboxState::SandboxReady
}

/// A container's state, by list or status.
pub(crate) fn state(state: wire::ContainerState) -> ContainerState {
    match state {
        wire::ContainerState::ContainerCreated => ContainerState::Created,
        wire::ContainerState::ContainerRunning => ContainerState::Running,
        wire::ContainerState::ContainerExited => ContainerState::Exited,
        wire::ContainerState::ContainerUnknown => ContainerState::Unknown,
    }
}

/// What the list says about a sandbox: all but its addresses.
pub(crate) fn sandbox(listed: &wire::PodSandbox) -> Sandbox {
    Sandbox {
        id: listed.id.clone(),
        attempt: listed.metadata.as_ref().map(|metadata| metadata.attempt).unwrap_or_default(),
        ready: is_ready(listed),
        created_at: Timestamp::from_nanosecond(listed.created_at.into()).unwrap_or_default(),
        ips: Vec::new(),
        traceparent: listed.annotations.get(names::TRACEPARENT).cloned().unwrap_or_default(),
    }
}

/// The network of a sandbox.
pub(crate) fn network(status: &wire::PodSandboxStatus) -> Network {
    let ready = status.state() == wire::PodSandboxState::SandboxReady;
    let options = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref()?.options.as_ref());
    let in_host_network = options.is_some_and(|options| options.network() == wire::NamespaceMode::Node);
    let mut ips = Vec::new();
    if let (true, false, Some(network)) = (ready, in_host_network, &status.network) {
        let all =
            std::iter::once(&network.ip).chain(network.additional_ips.iter().map(|further| &further.ip));
        ips.extend(all.filter(|ip| !ip.is_empty()).cloned());
    }
    Network { ready, awaits_ip: ready && !in_host_network && ips.is_empty(), ips }
}

/// A container from its place in the list and its status, which is newer.
pub(crate) fn container(listed: wire::Container, status: wire::ContainerStatus) -> Container {
    let annotation = |name: &str| status.annotations.get(name).map(|value| value.trim());
    let attempt = listed.metadata.as_ref().map(|metadata| metadata.attempt).unwrap_or_default();
    let image = status.image.as_ref().or(listed.image.as_ref());
    let image = image.map(|image| first(&image.user_specified_image, &image.image)).unwrap_or_default();
    let stop_signal = signal_from_cri(status.stop_signal());
    Container {
        name: listed.labels.get(names::CONTAINER_NAME).cloned().unwrap_or_default(),
        sandbox_id: listed.pod_sandbox_id,
        attempt: annotation(names::RESTART_COUNT).and_then(|count| count.parse().ok()).unwrap_or(attempt),
        state: state(status.state()),
        created_at: time(status.created_at).or_else(|| time(listed.created_at)).unwrap_or_default(),
        started_at: time(status.started_at),
        finished_at: time(status.finished_at),
        exit_code: status.exit_code,
        image,
        image_id: first(&status.image_ref, &status.image_id),
        hash: annotation(names::CONTAINER_HASH).and_then(|hash| u32::from_str_radix(hash, 16).ok()),
        annotations: ours(&status.annotations),
        user: status.user.and_then(|user| user.linux).map(|user| User {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: user.supplemental_groups,
        }),
        stop_signal: stop_signal.unwrap_or_default(),
        reason: bounded(status.reason),
        message: bounded(status.message),
        log_path: status.log_path,
        id: listed.id,
    }
}

/// Nanoseconds since 1970, of which 0 says "not yet".
fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds == 0 { None } else { Timestamp::from_nanosecond(nanoseconds.into()).ok() }
}

fn first(one: &str, other: &str) -> String {
    if one.is_empty() { other.to_owned() } else { one.to_owned() }
}

fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES));
    text
}

fn ours(annotations: &HashMap<String, String>) -> BTreeMap<String, String> {
    let ours = annotations.iter().filter(|(name, value)| {
        OURS.iter().any(|prefix| name.starts_with(prefix)) && name.len() + value.len() <= ANNOTATION_BYTES
    });
    ours.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    fn with(change: impl FnOnce(&mut wire::ContainerStatus)) -> Container {
        let listed = fake::container("u", "c1", "app");
        let mut status = fake::status(&listed);
        change(&mut status);
        container(listed, status)
    }

    fn annotated(name: &str, value: &str) -> Container {
        with(|status| {
            status.annotations.insert(name.to_owned(), value.to_owned());
        })
    }

    #[test]
    fn the_restart_count_is_the_annotations_or_the_attempt() {
        let mut listed = fake::container("u", "c1", "app");
        listed.metadata.as_mut().unwrap().attempt = 4;
        for (annotation, attempt) in
            [(None, 4), (Some("7"), 7), (Some(" 0 "), 0), (Some("-1"), 4), (Some("x"), 4)]
        {
            let mut status = fake::status(&listed);
            if let Some(value) = annotation {
                status.annotations.insert(names::RESTART_COUNT.to_owned(), value.to_owned());
            }
            assert_eq!(container(listed.clone(), status).attempt, attempt, "{annotation:?}");
        }
    }

    #[test]
    fn the_hash_is_hexadecimal() {
        for (value, hash) in
            [("ff", Some(255)), ("FFFFFFFF", Some(u32::MAX)), ("100000000", None), ("", None), ("xyz", None)]
        {
            assert_eq!(annotated(names::CONTAINER_HASH, value).hash, hash, "{value}");
        }
        assert_eq!(with(|_| {}).hash, None);
    }

    #[test]
    fn the_user_is_whom_the_runtime_names() {
        assert_eq!(with(|status| status.user = None).user, None);
        let linux = wire::LinuxContainerUser { uid: 7, gid: 8, supplemental_groups: vec![9] };
        let told = with(|status| status.user = Some(wire::ContainerUser { linux: Some(linux) })).user;
        assert_eq!(told, Some(User { uid: 7, gid: 8, supplemental_groups: vec![9] }));
    }

    #[test]
    fn the_stop_signal_has_the_apis_name() {
        let told = |signal| with(|status| status.set_stop_signal(signal)).stop_signal;
        assert_eq!(told(wire::Signal::Sigrtminplus1), "SIGRTMIN+1");
        assert_eq!(told(wire::Signal::RuntimeDefault), "", "not told");
        assert_eq!(with(|status| status.stop_signal = 4711).stop_signal, "", "none that is known");
    }

    #[test]
    fn zero_is_no_time() {
        let none = with(|status| (status.started_at, status.finished_at) = (0, 0));
        assert_eq!((none.started_at, none.finished_at), (None, None));
        let some = with(|status| (status.started_at, status.finished_at) = (1_500_000_000, -1));
        assert_eq!(some.started_at.unwrap().to_string(), "1970-01-01T00:00:01.5Z");
        assert_eq!(some.finished_at.unwrap().as_nanosecond(), -1);
    }

    #[test]
    fn the_image_is_the_pods_text_and_its_id_the_runtimes() {
        let image = |user: &str, reference: &str, id: &str| {
            let container = with(|status| {
                let user_specified_image = user.to_owned();
                status.image = Some(wire::ImageSpec {
                    image: "resolved".into(),
                    user_specified_image,
                    ..Default::default()
                });
                (status.image_ref, status.image_id) = (reference.to_owned(), id.to_owned());
            });
            (container.image, container.image_id)
        };
        assert_eq!(image("bb:1", "bb@sha256:1", "sha256:2"), ("bb:1".to_owned(), "bb@sha256:1".to_owned()));
        assert_eq!(image("", "", "sha256:2"), ("resolved".to_owned(), "sha256:2".to_owned()));
    }

    #[test]
    fn texts_are_cut_and_foreign_annotations_left_out() {
        let long = with(|status| (status.reason, status.message) = ("é".repeat(600), "x".repeat(5000)));
        assert_eq!((long.reason.len(), long.message.len()), (1024, 1024));
        let odd = with(|status| status.message = format!("x{}", "é".repeat(600)));
        assert_eq!(odd.message.len(), 1023, "cut between characters");
        assert!(annotated("example.com/a", "1").annotations.is_empty());
        assert!(annotated("io.kubernetes.pod.big", &"x".repeat(20_000)).annotations.is_empty());
        let kept = annotated(names::POD_GRACE, "30").annotations;
        assert_eq!(kept.get(names::POD_GRACE).map(String::as_str), Some("30"));
    }

    #[test]
    fn a_sandbox_has_addresses_while_it_stands_outside_the_hosts_network() {
        use wire::{NamespaceMode as Mode, PodSandboxState as State};
        type Row<'a> = (State, Mode, &'a [&'a str], &'a [&'a str], bool);
        let table: [Row<'_>; 6] = [
            (State::SandboxReady, Mode::Pod, &["10.0.0.1"], &["10.0.0.1"], false),
            (State::SandboxReady, Mode::Pod, &["10.0.0.1", "fd00::1"], &["10.0.0.1", "fd00::1"], false),
            (State::SandboxReady, Mode::Pod, &[""], &[], true),
            (State::SandboxReady, Mode::Pod, &[], &[], true),
            (State::SandboxReady, Mode::Node, &["192.0.2.1"], &[], false),
            (State::SandboxNotready, Mode::Pod, &["10.0.0.1"], &[], false),
        ];
        for (state, mode, given, ips, awaits_ip) in table {
            let mut status = fake::sandbox_status(&fake::sandbox("u", "s1"));
            status.set_state(state);
            let options = wire::NamespaceOption { network: mode.into(), ..Default::default() };
            let namespaces = Some(wire::Namespace { options: Some(options) });
            status.linux = Some(wire::LinuxPodSandboxStatus { namespaces });
            status.network = given.split_first().map(|(ip, more)| wire::PodSandboxNetworkStatus {
                ip: (*ip).to_owned(),
                additional_ips: more.iter().map(|ip| wire::PodIp { ip: (*ip).to_owned() }).collect(),
            });
            let seen = network(&status);
            assert_eq!(
                (seen.ips.iter().map(String::as_str).collect::<Vec<_>>(), seen.awaits_ip),
                (ips.to_vec(), awaits_ip)
            );
        }
    }
}
