//! The calls that are measured.

use bulkhead_api::cri::v1;

use crate::Client;

/// An image of the fake runtime.
pub const IMAGE: &str = "local/busybox:1";

/// A kind of call.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// The smallest there is.
    Version,
    /// A list.
    ListContainers,
    /// The one that a policy looks at most.
    CreateContainer,
}

/// A request at hand.
pub enum Prepared {
    Version,
    List,
    Create(Box<v1::CreateContainerRequest>),
}

/// What a call left behind.
pub struct Made(Option<String>);

/// What a call needs: the sandbox, and how many containers were asked for.
#[derive(Default)]
pub struct Ready {
    sandbox: String,
    config: v1::PodSandboxConfig,
    asked: u32,
}

impl Call {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Version, Self::ListContainers, Self::CreateContainer];
    /// Those that change nothing.
    pub const READING: [Self; 2] = [Self::Version, Self::ListContainers];

    /// The process that makes it: the gate passes it on no other's socket.
    pub fn process(self) -> &'static str {
        match self {
            Self::ListContainers => "pleg",
            Self::Version | Self::CreateContainer => "syncd",
        }
    }

    /// Makes what the calls need.
    pub async fn prepare(self, client: &mut Client) -> anyhow::Result<Ready> {
        if !matches!(self, Self::CreateContainer) {
            return Ok(Ready::default());
        }
        let metadata = v1::PodSandboxMetadata {
            name: "p".into(),
            uid: "u".into(),
            namespace: "default".into(),
            attempt: 0,
        };
        let config = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
        let request = v1::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let made = client.run_pod_sandbox(request).await;
        let sandbox = match made {
            Ok(made) => made.into_inner().pod_sandbox_id,
            // The second round has the sandbox of the first.
            Err(_) => {
                let all = client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.into_inner();
                all.items.into_iter().next().map(|sandbox| sandbox.id).unwrap_or_default()
            }
        };
        Ok(Ready { sandbox, config, asked: 0 })
    }

    /// The next request.
    pub fn request(self, ready: &mut Ready) -> Prepared {
        ready.asked += 1;
        match self {
            Self::Version => Prepared::Version,
            Self::ListContainers => Prepared::List,
            Self::CreateContainer => Prepared::Create(Box::new(container(ready))),
        }
    }
}

/// With as much in it as a container commonly has.
fn container(ready: &Ready) -> v1::CreateContainerRequest {
    let mount = |n: usize| v1::Mount {
        container_path: format!("/m{n}"),
        host_path: format!("/srv/volumes/{n}"),
        ..Default::default()
    };
    let env = |n: usize| v1::KeyValue { key: format!("NAME_{n}"), value: "value".repeat(8).into_bytes() };
    v1::CreateContainerRequest {
        pod_sandbox_id: ready.sandbox.clone(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: ready.asked }),
            image: Some(v1::ImageSpec { image: IMAGE.into(), ..Default::default() }),
            envs: (0..30).map(env).collect(),
            mounts: (0..6).map(mount).collect(),
            ..Default::default()
        }),
        sandbox_config: Some(ready.config.clone()),
    }
}

impl Prepared {
    /// Makes the call.
    pub async fn send(self, client: &mut Client) -> anyhow::Result<Made> {
        match self {
            Self::Version => drop(client.version(v1::VersionRequest::default()).await?),
            Self::List => drop(client.list_containers(v1::ListContainersRequest::default()).await?),
            Self::Create(request) => {
                let made = client.create_container(*request).await?.into_inner();
                return Ok(Made(Some(made.container_id)));
            }
        }
        Ok(Made(None))
    }
}

impl Made {
    /// Removes what was made.
    pub async fn undo(self, client: &mut Client) -> anyhow::Result<()> {
        if let Some(container_id) = self.0 {
            client.remove_container(v1::RemoveContainerRequest { container_id }).await?;
        }
        Ok(())
    }
}
