use k8s_openapi::api::core::v1::{
    Container as ApiContainer, ContainerState as ApiState, ContainerStateTerminated, PodSpec, PodStatus,
    Probe,
};

use super::*;
use crate::probe::Health;
use crate::runtime::ContainerState::{self, Created, Exited, Running, Unknown};

mod ephemeral;
mod rules;
mod simulation;
mod start_order;

/// Seconds since a fixed start.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// Init containers `i`, sidecars `s*`, sidecars with a startup probe `s?`; app containers `a`.
fn pod(policy: &str, init: &[&str], apps: &[&str]) -> Pod {
    let container = |text: &&str| {
        let name = text.trim_end_matches(['*', '?']);
        ApiContainer {
            name: name.into(),
            restart_policy: (name.len() < text.len()).then(|| "Always".into()),
            startup_probe: text.ends_with('?').then(Probe::default),
            ..Default::default()
        }
    };
    let spec = PodSpec {
        restart_policy: Some(policy.into()),
        init_containers: Some(init.iter().map(container).collect()),
        containers: apps.iter().map(container).collect(),
        ..Default::default()
    };
    Pod { spec: Some(spec), ..Default::default() }
}

fn sandbox(attempt: u32, ready: bool) -> Sandbox {
    Sandbox {
        id: format!("sandbox-{attempt}"),
        attempt,
        ready,
        created_at: at(i64::from(attempt) * 100),
        ips: vec!["10.0.0.7".into()],
        traceparent: String::new(),
    }
}

/// Container `NAME-ATTEMPT` in `sandbox-SANDBOX`; exited ones with `exit_code`.
fn container(name: &str, attempt: u32, sandbox: u32, state: ContainerState, exit_code: i32) -> Container {
    let created_at = at(i64::from(sandbox) * 100 + i64::from(attempt) * 10 + 1);
    let ran = state != Created;
    Container {
        id: format!("{name}-{attempt}"),
        name: name.into(),
        sandbox_id: format!("sandbox-{sandbox}"),
        attempt,
        state,
        created_at,
        started_at: ran.then_some(created_at),
        finished_at: (state == Exited).then(|| at(i64::from(sandbox) * 100 + i64::from(attempt) * 10 + 5)),
        exit_code,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_id: String::new(),
        log_path: String::new(),
        hash: Some(1),
        user: None,
        stop_signal: String::new(),
        annotations: BTreeMap::new(),
    }
}

/// A pod, what the runtime holds of it, and the rest at its quietest.
#[derive(Debug)]
struct World {
    pod: Pod,
    runtime: RuntimePod,
    stage: Stage,
    probes: BTreeMap<String, ProbeResults>,
    hashes: BTreeMap<String, u32>,
    ephemeral_ran: BTreeSet<String>,
    resized: BTreeSet<String>,
    now: Timestamp,
}

impl World {
    fn new(pod: Pod, sandboxes: Vec<Sandbox>, containers: Vec<Container>) -> Self {
        let mut runtime = RuntimePod { sandboxes, containers, ..Default::default() };
        runtime.sort();
        let hashes = spec::containers(&pod).iter().map(|c| (c.name().to_owned(), 1)).collect();
        Self {
            pod,
            runtime,
            stage: Stage::Syncing,
            probes: BTreeMap::new(),
            hashes,
            ephemeral_ran: BTreeSet::new(),
            resized: BTreeSet::new(),
            now: at(1000),
        }
    }

    /// With one ready sandbox, number 0.
    fn ready(pod: Pod, containers: Vec<Container>) -> Self {
        Self::new(pod, vec![sandbox(0, true)], containers)
    }

    /// With one sandbox, number 0, that is gone.
    fn lost(pod: Pod, containers: Vec<Container>) -> Self {
        Self::new(pod, vec![sandbox(0, false)], containers)
    }

    fn probe(mut self, id: &str, started: bool, health: Health) -> Self {
        self.probes.insert(id.into(), ProbeResults { started: Some(started), ready: None, health });
        self
    }

    fn actions(&self) -> PodActions {
        compute_pod_actions(&ActionInput {
            pod: &self.pod,
            runtime: &self.runtime,
            stage: self.stage,
            probes: &self.probes,
            hashes: &self.hashes,
            ephemeral_ran: &self.ephemeral_ran,
            resized: &self.resized,
            now: self.now,
        })
    }
}

/// `name#attempt` of the containers to start, with `!` for those that are resumed.
fn starts(actions: &PodActions) -> Vec<String> {
    let text =
        |s: &ContainerStart| format!("{}#{}{}", s.name, s.attempt, if s.resume.is_some() { "!" } else { "" });
    actions.containers_to_start.iter().map(text).collect()
}

/// Ids of the containers to kill with the reason and what follows.
fn kills(actions: &PodActions) -> Vec<(&str, KillReason, AfterKill)> {
    actions.containers_to_kill.iter().map(|k| (k.id.as_str(), k.reason, k.then)).collect()
}

/// A status that reports `name` as ended with `exit_code` after `restarts` restarts.
fn recorded(phase: &str, name: &str, exit_code: i32, restarts: i32) -> PodStatus {
    let ended = ContainerStateTerminated { exit_code, ..Default::default() };
    PodStatus {
        phase: Some(phase.into()),
        container_statuses: Some(vec![ContainerStatus {
            name: name.into(),
            restart_count: restarts,
            container_id: Some(format!("containerd://{name}-{restarts}")),
            state: Some(ApiState { terminated: Some(ended), ..Default::default() }),
            ..Default::default()
        }]),
        ..Default::default()
    }
}
