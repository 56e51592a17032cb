//! The fake runtime's state and the rules by which it changes. Pure: time comes in as `now`, events go out through
//! [`World::take_events`].
//!
//! Error codes are containerd 2.4's: NOT_FOUND for an unknown id, FAILED_PRECONDITION for a name in use, UNKNOWN for
//! most else.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_api::cri::v1;
use tonic::Status;
use v1::{ContainerEventType as Event, ContainerState, PodSandboxState};

use super::behaviour::{Behaviour, OnStart, Who};
use super::images::Images;

/// Everything that the fake runtime knows.
#[derive(Clone, Debug)]
pub struct World {
    /// By id.
    pub sandboxes: BTreeMap<String, Sandbox>,
    /// By id.
    pub containers: BTreeMap<String, Container>,
    /// What is on the node, and what registries would refuse.
    pub images: Images,
    /// The answer of `Status`.
    pub conditions: Vec<v1::RuntimeCondition>,
    /// Runtime handlers that sandboxes may name; the empty name is the default.
    pub handlers: Vec<String>,
    /// What the runtime and each of its handlers can do.
    pub can: Abilities,
    /// The answer of `RuntimeConfig`.
    pub cgroup_driver: v1::CgroupDriver,
    behaviours: Vec<(Who, Behaviour)>,
    events: Vec<v1::ContainerEventResponse>,
    sandboxes_made: u16,
    containers_made: u32,
}

/// What not every runtime can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Every handler makes mounts read-only in all their depth.
    pub recursive_read_only: bool,
    /// It knows the policy `Strict` of supplemental groups.
    pub supplemental_groups_policy: bool,
}

impl Default for Abilities {
    /// All that containerd can.
    fn default() -> Self {
        Self { recursive_read_only: true, supplemental_groups_policy: true }
    }
}

/// A sandbox. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// 64 hexadecimal digits.
    pub id: String,
    /// As it was asked for.
    pub config: v1::PodSandboxConfig,
    /// Empty: the default.
    pub runtime_handler: String,
    /// Ready until stopped or lost.
    pub state: PodSandboxState,
    /// When it was made.
    pub created_at: i64,
    /// Empty in the host's network and after a stop.
    pub ip: String,
}

/// A container. Times are nanoseconds since the Unix epoch, 0 when the moment has not come.
#[derive(Clone, Debug)]
pub struct Container {
    /// 64 hexadecimal digits.
    pub id: String,
    /// The sandbox that it is in.
    pub sandbox_id: String,
    /// As it was asked for.
    pub config: v1::ContainerConfig,
    /// Id of its image.
    pub image_id: String,
    /// Digest reference of its image, or its id when it has none.
    pub image_ref: String,
    /// Where it is in its life.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: i64,
    /// When its process started.
    pub started_at: i64,
    /// When its process ended.
    pub finished_at: i64,
    /// How its process ended; reason and message may be empty.
    pub exit: Exit,
    /// Limits in force.
    pub resources: Option<v1::LinuxContainerResources>,
    /// Absolute path of its log. Nothing writes there.
    pub log_path: String,
    /// How often its log was opened again.
    pub log_reopened: u32,
    /// What its statistics say.
    pub usage: Usage,
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, 128 + n for signal n.
    pub code: i32,
    /// One word. Empty: Completed or Error, by the code.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl Exit {
    /// With a code and the usual reason.
    pub fn code(code: i32) -> Self {
        Self { code, ..Self::default() }
    }

    /// By SIGKILL.
    pub fn killed() -> Self {
        Self::code(137)
    }

    /// By the kernel's out-of-memory killer.
    pub fn oom() -> Self {
        Self { code: 137, reason: "OOMKilled".to_owned(), message: String::new() }
    }
}

/// What a container uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time since the start, in nanoseconds of one core.
    pub cpu_core_nanoseconds: u64,
    /// Memory in use, in bytes, without inactive file cache.
    pub memory_working_set_bytes: u64,
    /// Bytes of the writable layer.
    pub writable_layer_bytes: u64,
    /// Inodes of the writable layer.
    pub writable_layer_inodes: u64,
}

/// What a started process does later, to be driven by whoever owns the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaterExit {
    pub(super) after: Duration,
    pub(super) code: i32,
}

impl Sandbox {
    /// The pod's UID.
    pub fn pod_uid(&self) -> &str {
        self.config.metadata.as_ref().map(|metadata| metadata.uid.as_str()).unwrap_or_default()
    }

    fn in_host_network(&self) -> bool {
        let context = self.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let namespaces = context.and_then(|context| context.namespace_options.as_ref());
        namespaces.is_some_and(|options| options.network() == v1::NamespaceMode::Node)
    }
}

impl Container {
    /// Its name in the pod.
    pub fn name(&self) -> &str {
        self.config.metadata.as_ref().map(|metadata| metadata.name.as_str()).unwrap_or_default()
    }

    /// Its attempt number.
    pub fn attempt(&self) -> u32 {
        self.config.metadata.as_ref().map(|metadata| metadata.attempt).unwrap_or_default()
    }
}

impl Default for World {
    fn default() -> Self {
        let ready =
            |kind: &str| v1::RuntimeCondition { r#type: kind.to_owned(), status: true, ..Default::default() };
        Self {
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            images: Images::default(),
            conditions: vec![ready("RuntimeReady"), ready("NetworkReady")],
            handlers: vec![String::new(), "runc".to_owned()],
            can: Abilities::default(),
            cgroup_driver: v1::CgroupDriver::Cgroupfs,
            behaviours: Vec::new(),
            events: Vec::new(),
            sandboxes_made: 0,
            containers_made: 0,
        }
    }
}

impl World {
    /// The containers of a sandbox, in no order that means anything.
    pub fn containers_of<'a>(&'a self, sandbox_id: &'a str) -> impl Iterator<Item = &'a Container> {
        self.containers.values().filter(move |container| container.sandbox_id == sandbox_id)
    }

    /// The newest container of this name.
    pub fn container_named(&self, name: &str) -> Option<&Container> {
        self.containers
            .values()
            .filter(|container| container.name() == name)
            .max_by_key(|c| (c.attempt(), &c.id))
    }

    pub(super) fn sandbox(&self, id: &str) -> Result<&Sandbox, Status> {
        self.sandboxes.get(id).ok_or_else(|| not_found("sandbox", id))
    }

    pub(super) fn container(&self, id: &str) -> Result<&Container, Status> {
        self.containers.get(id).ok_or_else(|| not_found("container", id))
    }

    /// The container, if it runs.
    pub(super) fn running(&self, id: &str) -> Result<&Container, Status> {
        let container = self.container(id)?;
        match container.state {
            ContainerState::ContainerRunning => Ok(container),
            state => Err(Status::unknown(format!("container {id} is in {} state", state.as_str_name()))),
        }
    }

    pub(super) fn run_sandbox(
        &mut self,
        request: v1::RunPodSandboxRequest,
        now: i64,
    ) -> Result<String, Status> {
        let config = request.config.unwrap_or_default();
        let Some(metadata) = &config.metadata else {
            return Err(Status::unknown("sandbox config must include metadata"));
        };
        if !self.handlers.contains(&request.runtime_handler) {
            return Err(Status::unknown(format!(
                "no runtime for {:?} is configured",
                request.runtime_handler
            )));
        }
        if let Some(owner) =
            self.sandboxes.values().find(|old| old.config.metadata.as_ref() == Some(metadata))
        {
            return Err(in_use("sandbox", &metadata.name, &owner.id));
        }
        self.sandboxes_made = self.sandboxes_made.wrapping_add(1);
        let id = format!("5b{:06x}{:0>56}", self.sandboxes_made, "");
        let mut sandbox = Sandbox {
            id: id.clone(),
            config,
            runtime_handler: request.runtime_handler,
            state: PodSandboxState::SandboxReady,
            created_at: now,
            ip: String::new(),
        };
        if !sandbox.in_host_network() {
            let [high, low] = self.sandboxes_made.to_be_bytes();
            sandbox.ip = format!("10.88.{high}.{low}");
        }
        self.sandboxes.insert(id.clone(), sandbox);
        self.emit(&id, &id, Event::ContainerCreatedEvent, now);
        self.emit(&id, &id, Event::ContainerStartedEvent, now);
        Ok(id)
    }

    /// Stops a sandbox and kills what runs in it; an unknown one is stopped already.
    pub(super) fn stop_sandbox(&mut self, id: &str, now: i64) {
        for container in self.ids_in(id) {
            self.exit(&container, Exit::killed(), now);
        }
        self.lose_sandbox(id, now);
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.ip.clear();
        }
    }

    /// A sandbox's own process ends; its containers go on.
    pub(super) fn lose_sandbox(&mut self, id: &str, now: i64) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        if sandbox.state == PodSandboxState::SandboxReady {
            sandbox.state = PodSandboxState::SandboxNotready;
            self.emit(id, id, Event::ContainerStoppedEvent, now);
        }
    }

    pub(super) fn remove_sandbox(&mut self, id: &str, now: i64) {
        self.stop_sandbox(id, now);
        for container in self.ids_in(id) {
            self.remove_container(&container, now);
        }
        if self.sandboxes.remove(id).is_some() {
            self.emit(id, id, Event::ContainerDeletedEvent, now);
        }
    }

    pub(super) fn create_container(
        &mut self,
        request: v1::CreateContainerRequest,
        now: i64,
    ) -> Result<String, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        if sandbox.state != PodSandboxState::SandboxReady {
            return Err(Status::unknown(format!("sandbox container {:?} is not running", sandbox.id)));
        }
        let config = request.config.unwrap_or_default();
        let Some(metadata) = config.metadata.as_ref().filter(|metadata| !metadata.name.is_empty()) else {
            return Err(Status::unknown("container config must include metadata"));
        };
        // Names are the pod's, not the sandbox's: a container of an earlier sandbox still holds its name.
        let pod = sandbox.pod_uid();
        let taken = self.containers.values().find(|old| {
            let of_pod = self.sandboxes.get(&old.sandbox_id).is_some_and(|sandbox| sandbox.pod_uid() == pod);
            of_pod && old.config.metadata.as_ref() == Some(metadata)
        });
        if let Some(owner) = taken {
            return Err(in_use("container", &metadata.name, &owner.id));
        }
        let wanted = config.image.as_ref().map(|spec| spec.image.as_str()).unwrap_or_default();
        let image = self.images.find(wanted).ok_or_else(|| not_found("image", wanted))?;
        let (image_id, image_ref) =
            (image.id.clone(), image.repo_digests.first().unwrap_or(&image.id).clone());
        let log_path = match (sandbox.config.log_directory.as_str(), config.log_path.as_str()) {
            ("", _) | (_, "") => String::new(),
            (directory, name) => format!("{directory}/{name}"),
        };
        self.containers_made = self.containers_made.wrapping_add(1);
        let id = format!("c0{:06x}{:0>56}", self.containers_made, "");
        let container = Container {
            id: id.clone(),
            sandbox_id: request.pod_sandbox_id.clone(),
            resources: config.linux.as_ref().and_then(|linux| linux.resources.clone()),
            config,
            image_id,
            image_ref,
            state: ContainerState::ContainerCreated,
            created_at: now,
            started_at: 0,
            finished_at: 0,
            exit: Exit::default(),
            log_path,
            log_reopened: 0,
            usage: Usage::default(),
        };
        self.containers.insert(id.clone(), container);
        self.emit(&id, &request.pod_sandbox_id, Event::ContainerCreatedEvent, now);
        Ok(id)
    }

    /// Starts a container; tells whether its process is to end by itself later.
    pub(super) fn start_container(&mut self, id: &str, now: i64) -> Result<Option<LaterExit>, Status> {
        let container = self.container(id)?;
        if container.state != ContainerState::ContainerCreated {
            let state = container.state.as_str_name();
            return Err(Status::unknown(format!("container {id} is in {state} state")));
        }
        let (sandbox_id, behaviour) = (container.sandbox_id.clone(), self.behaviour_of(container));
        if self.sandbox(&sandbox_id)?.state != PodSandboxState::SandboxReady {
            return Err(Status::unknown(format!("sandbox container {sandbox_id:?} is not running")));
        }
        if let Some(container) = self.containers.get_mut(id) {
            container.state = ContainerState::ContainerRunning;
            container.started_at = now;
        }
        if let OnStart::CannotRun(message) = behaviour.on_start {
            self.exit(id, Exit { code: 128, reason: "StartError".to_owned(), message: message.clone() }, now);
            return Err(Status::unknown(format!("failed to start container {id}: {message}")));
        }
        self.emit(id, &sandbox_id, Event::ContainerStartedEvent, now);
        match behaviour.on_start {
            OnStart::Exit(code) => self.exit(id, Exit::code(code), now),
            OnStart::ExitAfter(after, code) => return Ok(Some(LaterExit { after, code })),
            OnStart::Run | OnStart::CannotRun(_) => {}
        }
        Ok(None)
    }

    /// The process of a running container ends; nothing happens to one that does not run.
    pub(super) fn exit(&mut self, id: &str, exit: Exit, now: i64) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.state != ContainerState::ContainerRunning {
            return;
        }
        container.state = ContainerState::ContainerExited;
        container.finished_at = now;
        container.exit = exit;
        let sandbox_id = container.sandbox_id.clone();
        self.emit(id, &sandbox_id, Event::ContainerStoppedEvent, now);
    }

    /// Removes a container, killing it first if it runs; an unknown one is removed already.
    pub(super) fn remove_container(&mut self, id: &str, now: i64) {
        self.exit(id, Exit::killed(), now);
        if let Some(container) = self.containers.remove(id) {
            self.emit(id, &container.sandbox_id, Event::ContainerDeletedEvent, now);
        }
    }

    /// What survives a restart of the machine: no process, every record.
    pub(super) fn reboot(&mut self, now: i64) {
        for container in self.containers.keys().cloned().collect::<Vec<_>>() {
            let lost = Exit { code: 255, reason: "Unknown".to_owned(), message: String::new() };
            self.exit(&container, lost, now);
        }
        for sandbox in self.sandboxes.values_mut() {
            sandbox.state = PodSandboxState::SandboxNotready;
            sandbox.ip.clear();
        }
        // Whoever listened is gone too.
        self.events.clear();
    }

    /// Changes the behaviour of `who`, which becomes the newest.
    pub(super) fn behave(&mut self, who: Who, change: impl FnOnce(&mut Behaviour)) {
        let known = self.behaviours.iter().position(|(old, _)| *old == who);
        let mut behaviour = known.map(|at| self.behaviours.remove(at).1).unwrap_or_default();
        change(&mut behaviour);
        self.behaviours.push((who, behaviour));
    }

    /// The newest behaviour that names the container, else that of everyone.
    pub(super) fn behaviour_of(&self, container: &Container) -> Behaviour {
        let newest_first = || self.behaviours.iter().rev().filter(|(who, _)| who.is(container));
        let named = newest_first().find(|(who, _)| *who != Who::Everyone).or_else(|| newest_first().next());
        named.map(|(_, behaviour)| behaviour.clone()).unwrap_or_default()
    }

    /// What happened since the last time, each with the state right after it.
    pub(super) fn take_events(&mut self) -> Vec<v1::ContainerEventResponse> {
        std::mem::take(&mut self.events)
    }

    fn ids_in(&self, sandbox_id: &str) -> Vec<String> {
        self.containers_of(sandbox_id).map(|container| container.id.clone()).collect()
    }

    fn emit(&mut self, id: &str, sandbox_id: &str, kind: Event, now: i64) {
        let event = v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at: now,
            pod_sandbox_status: self.sandboxes.get(sandbox_id).map(Sandbox::status),
            containers_statuses: self.containers_of(sandbox_id).map(Container::status).collect(),
        };
        self.events.push(event);
    }
}

fn not_found(kind: &str, id: &str) -> Status {
    Status::not_found(format!("{kind} {id:?}: not found"))
}

fn in_use(kind: &str, name: &str, owner: &str) -> Status {
    Status::failed_precondition(format!(
        "failed to reserve {kind} name {name:?}: it is reserved for {owner:?}"
    ))
}
