//! The fake runtime, driven by the generated clients over its socket; what takes time, in process on a paused clock.

mod faults;
mod images;
mod state;
mod time;

use std::collections::HashMap;

use bulkhead_api::cri::v1;
use bulkhead_base::FakeClock;
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Status};
use v1::image_service_client::ImageServiceClient;
use v1::runtime_service_client::RuntimeServiceClient;

use super::*;

const IMAGE: &str = "local/bb:1";

/// A runtime with one image, a clock, and a client on its socket.
struct Bench {
    fake: FakeRuntime,
    clock: FakeClock,
    client: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    _directory: TempDir,
}

async fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let clock = FakeClock::new("2026-01-01T00:00:00Z".parse().unwrap());
    let fake = FakeRuntime::start_with_clock(directory.path(), clock.clone()).await.unwrap();
    fake.add_image(IMAGE);
    let channel = fake.connect().await.unwrap();
    let client = RuntimeServiceClient::new(channel.clone());
    Bench { fake, clock, client, images: ImageServiceClient::new(channel), _directory: directory }
}

impl Bench {
    async fn sandbox(&mut self, uid: &str, attempt: u32) -> Result<String, Status> {
        let answer = self.client.run_pod_sandbox(sandbox_request(uid, attempt)).await?;
        Ok(answer.into_inner().pod_sandbox_id)
    }

    async fn create(&mut self, sandbox: &str, name: &str, attempt: u32) -> Result<String, Status> {
        let answer = self.client.create_container(container_request(sandbox, name, attempt)).await?;
        Ok(answer.into_inner().container_id)
    }

    async fn start(&mut self, id: &str) -> Result<(), Status> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        self.client.start_container(request).await.map(|_| ())
    }

    /// A started container in a new sandbox of pod `uid`: their ids.
    async fn running(&mut self, uid: &str, name: &str) -> (String, String) {
        let sandbox = self.sandbox(uid, 0).await.unwrap();
        let container = self.create(&sandbox, name, 0).await.unwrap();
        self.start(&container).await.unwrap();
        (sandbox, container)
    }

    async fn status(&mut self, id: &str) -> Result<v1::ContainerStatus, Status> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = self.client.container_status(request).await?;
        Ok(answer.into_inner().status.expect("a status"))
    }

    async fn listed(&mut self, filter: v1::ContainerFilter) -> Vec<String> {
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let answer = self.client.list_containers(request).await.unwrap();
        let mut names: Vec<_> = answer
            .into_inner()
            .containers
            .into_iter()
            .map(|container| container.metadata.unwrap_or_default().name)
            .collect();
        names.sort();
        names
    }
}

fn sandbox_request(uid: &str, attempt: u32) -> v1::RunPodSandboxRequest {
    v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("pod-{uid}"),
                uid: uid.to_owned(),
                namespace: "default".to_owned(),
                attempt,
            }),
            log_directory: format!("/var/log/pods/default_pod-{uid}_{uid}"),
            labels: HashMap::from([("pod".to_owned(), uid.to_owned())]),
            ..Default::default()
        }),
        runtime_handler: String::new(),
    }
}

fn container_request(sandbox: &str, name: &str, attempt: u32) -> v1::CreateContainerRequest {
    v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.to_owned(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt }),
            image: Some(v1::ImageSpec { image: IMAGE.to_owned(), ..Default::default() }),
            command: vec!["run".to_owned(), name.to_owned()],
            log_path: format!("{name}/{attempt}.log"),
            labels: HashMap::from([("name".to_owned(), name.to_owned())]),
            ..Default::default()
        }),
        sandbox_config: None,
    }
}

fn code<T>(result: Result<T, Status>) -> Code {
    result.map_or_else(|status| status.code(), |_| Code::Ok)
}
