use super::*;
use crate::probe::Health;
use crate::runtime::ContainerState::{self, Created, Exited, Running, Unknown};
use crate::runtime::Sandbox;
use crate::spec::RestartPolicy;
use crate::status_view::{ContainerView, MountView, ProbePresence, ResourceView};

mod ephemeral;
mod facts;
mod fixed_point;
mod readiness;
mod resize;
mod states;

/// Seconds since a fixed start.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// `i` init container, `s*` sidecar, `debug` ephemeral; others are app containers. No probes.
fn view(policy: RestartPolicy, names: &[&str]) -> StatusView {
    let container = |text: &&str| {
        let name = text.trim_end_matches('*');
        let kind = match name {
            "i" | "j" => ContainerKind::Init,
            "debug" => ContainerKind::Ephemeral,
            _ if name.len() < text.len() => ContainerKind::Sidecar,
            _ => ContainerKind::App,
        };
        let restart_policy = match kind {
            ContainerKind::Sidecar => RestartPolicy::Always,
            ContainerKind::Init if policy == RestartPolicy::Always => RestartPolicy::OnFailure,
            ContainerKind::Ephemeral => RestartPolicy::Never,
            ContainerKind::Init | ContainerKind::App => policy,
        };
        ContainerView { name: name.into(), image: "bb:1".into(), kind, restart_policy, ..Default::default() }
    };
    let containers = names.iter().map(container).collect();
    StatusView {
        uid: "u".into(),
        restart_policy: policy,
        qos_class: "BestEffort".into(),
        containers,
        ..Default::default()
    }
}

/// Container `NAME-ATTEMPT`; created, started and ended at fixed seconds of its attempt.
fn container(name: &str, attempt: u32, state: ContainerState, exit_code: i32) -> Container {
    let created_at = at(i64::from(attempt) * 100);
    Container {
        id: format!("{name}-{attempt}"),
        name: name.into(),
        sandbox_id: "sandbox".into(),
        attempt,
        state,
        created_at,
        started_at: (state != Created).then_some(created_at),
        finished_at: (state == Exited).then(|| at(i64::from(attempt) * 100 + 50)),
        exit_code,
        reason: String::new(),
        message: String::new(),
        image: "bb:1".into(),
        image_id: "sha256:1".into(),
        log_path: String::new(),
        hash: None,
        user: None,
        stop_signal: String::new(),
        annotations: BTreeMap::new(),
    }
}

fn sandbox() -> Sandbox {
    Sandbox {
        id: "sandbox".into(),
        attempt: 0,
        ready: true,
        created_at: at(0),
        ips: vec!["10.1.0.5".into()],
        traceparent: String::new(),
    }
}

/// Everything that a status is computed from; `step` publishes.
#[derive(Debug)]
struct World {
    pod: StatusView,
    decision: Decision,
    runtime: Option<RuntimePod>,
    probes: BTreeMap<String, ProbeResults>,
    previous: Option<PodStatus>,
    node: NodeFacts,
    now: Timestamp,
}

impl World {
    fn new(pod: StatusView, containers: Vec<Container>) -> Self {
        let mut runtime = RuntimePod { sandboxes: vec![sandbox()], containers, ..Default::default() };
        runtime.sort();
        Self {
            pod,
            decision: Decision { started_at: Some(at(0)), ..Default::default() },
            runtime: Some(runtime),
            probes: BTreeMap::new(),
            previous: None,
            node: NodeFacts {
                host_ips: vec!["192.0.2.10".into()],
                runtime_name: "containerd".into(),
                recursive_read_only: Some(true),
            },
            now: at(1000),
        }
    }

    fn status(&self) -> PodStatus {
        compute_pod_status(&StatusInput {
            pod: &self.pod,
            decision: &self.decision,
            runtime: self.runtime.as_ref(),
            probes: &self.probes,
            previous: self.previous.as_ref(),
            node: &self.node,
            now: self.now,
        })
    }

    /// Computes, publishes, and lets a minute go by.
    fn step(&mut self) -> PodStatus {
        let status = self.status();
        self.previous = Some(status.clone());
        self.now += jiff::SignedDuration::from_secs(60);
        status
    }

    fn set_containers(&mut self, containers: Vec<Container>) {
        let runtime = self.runtime.get_or_insert_default();
        runtime.containers = containers;
        runtime.sort();
    }

    fn forget(&mut self) {
        self.runtime = Some(RuntimePod::default());
    }

    fn wait(&mut self, name: &str, reason: &str) {
        self.decision.waiting.insert(name.into(), Waiting { reason: reason.into(), message: "told".into() });
    }
}

fn phase_of(status: &PodStatus) -> &str {
    status.phase.as_deref().unwrap()
}

fn of<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let lists =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|c| c.name == name).unwrap()
}

/// `running`, `waiting REASON` or `REASON CODE` of a state; empty for none.
fn text(state: &Option<k8s_openapi::api::core::v1::ContainerState>) -> String {
    let state = state.clone().unwrap_or_default();
    if state.running.is_some() {
        "running".into()
    } else if let Some(waiting) = state.waiting {
        format!("waiting {}", waiting.reason.unwrap_or_default())
    } else if let Some(ended) = state.terminated {
        format!("{} {}", ended.reason.unwrap_or_default(), ended.exit_code)
    } else {
        String::new()
    }
}

/// `(status, reason, message)` of a condition.
fn condition(status: &PodStatus, type_: &str) -> (String, String, String) {
    let found = status.conditions.iter().flatten().find(|c| c.type_ == type_).unwrap().clone();
    (found.status, found.reason.unwrap_or_default(), found.message.unwrap_or_default())
}

fn since(status: &PodStatus, type_: &str) -> Timestamp {
    let found = status.conditions.iter().flatten().find(|c| c.type_ == type_).unwrap();
    found.last_transition_time.clone().unwrap().0
}
