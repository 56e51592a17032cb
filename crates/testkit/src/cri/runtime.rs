//! The RuntimeService: each method reads its request, lets the rules in `world` decide, and answers.

use bulkhead_api::cri::v1;
use futures::StreamExt;
use tokio_stream::wrappers::BroadcastStream;
use tonic::{Request, Status};
use v1::runtime_service_server::RuntimeService;

use super::lifecycle::{merge, seconds};
use super::log::{Call, Detail, Method};
use super::server::Service;
use super::{Answer, Boxed, answer};

#[tonic::async_trait]
impl RuntimeService for Service {
    async fn version(&self, request: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        self.run(&request, Call::new(Method::Version), async |_| {
            answer(v1::VersionResponse {
                version: "0.1.0".to_owned(),
                runtime_name: "fake".to_owned(),
                runtime_version: "1.0.0".to_owned(),
                runtime_api_version: "v1".to_owned(),
            })
        })
        .await
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        self.run(&request, Call::new(Method::Status), async |_| {
            answer(self.read(|world| {
                let handler = |name: &String| v1::RuntimeHandler {
                    name: name.clone(),
                    features: Some(v1::RuntimeHandlerFeatures {
                        recursive_read_only_mounts: world.can.recursive_read_only,
                        ..Default::default()
                    }),
                };
                v1::StatusResponse {
                    status: Some(v1::RuntimeStatus { conditions: world.conditions.clone() }),
                    runtime_handlers: world.handlers.iter().map(handler).collect(),
                    features: Some(v1::RuntimeFeatures {
                        supplemental_groups_policy: world.can.supplemental_groups_policy,
                        ..Default::default()
                    }),
                    ..Default::default()
                }
            }))
        })
        .await
    }

    async fn runtime_config(
        &self,
        request: Request<v1::RuntimeConfigRequest>,
    ) -> Answer<v1::RuntimeConfigResponse> {
        self.run(&request, Call::new(Method::RuntimeConfig), async |_| {
            let cgroup_driver = self.read(|world| world.cgroup_driver).into();
            answer(v1::RuntimeConfigResponse { linux: Some(v1::LinuxRuntimeConfiguration { cgroup_driver }) })
        })
        .await
    }

    async fn update_runtime_config(
        &self,
        request: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        self.run(&request, Call::new(Method::UpdateRuntimeConfig), async |_| {
            answer(v1::UpdateRuntimeConfigResponse {})
        })
        .await
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> Answer<v1::RunPodSandboxResponse> {
        let wanted = request.get_ref().clone();
        let call = Call::new(Method::RunPodSandbox).detail(Detail::RunPodSandbox(Box::new(wanted.clone())));
        self.run(&request, call, async |number| {
            let pod_sandbox_id = self.change(|world, now| world.run_sandbox(wanted, now))?;
            self.log().amend(number, |call| call.sandbox_id.clone_from(&pod_sandbox_id));
            answer(v1::RunPodSandboxResponse { pod_sandbox_id })
        })
        .await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        let id = &request.get_ref().pod_sandbox_id;
        self.run(&request, Call::new(Method::StopPodSandbox).sandbox(id), async |_| {
            self.change(|world, now| world.stop_sandbox(id, now));
            answer(v1::StopPodSandboxResponse {})
        })
        .await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        let id = &request.get_ref().pod_sandbox_id;
        self.run(&request, Call::new(Method::RemovePodSandbox).sandbox(id), async |_| {
            self.change(|world, now| world.remove_sandbox(id, now));
            answer(v1::RemovePodSandboxResponse {})
        })
        .await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let id = &request.get_ref().pod_sandbox_id;
        self.run(&request, Call::new(Method::PodSandboxStatus).sandbox(id), async |_| {
            // Without containers_statuses and timestamp, as containerd has it.
            let status = Some(self.read(|world| world.sandbox(id).map(|sandbox| sandbox.status()))?);
            answer(v1::PodSandboxStatusResponse { status, ..Default::default() })
        })
        .await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        let filter = request.get_ref().filter.as_ref();
        self.run(&request, Call::new(Method::ListPodSandbox), async |_| {
            let items = self.read(|world| {
                let matching = world.sandboxes.values().filter(|sandbox| sandbox.matches(filter));
                matching.map(|sandbox| sandbox.item()).collect()
            });
            answer(v1::ListPodSandboxResponse { items })
        })
        .await
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        let wanted = request.get_ref().clone();
        let image = wanted.config.as_ref().and_then(|config| config.image.as_ref());
        let call = Call::new(Method::CreateContainer)
            .sandbox(&wanted.pod_sandbox_id)
            .image(image)
            .detail(Detail::CreateContainer(Box::new(wanted.clone())));
        self.run(&request, call, async |number| {
            let container_id = self.change(|world, now| world.create_container(wanted, now))?;
            self.log().amend(number, |call| call.container_id.clone_from(&container_id));
            answer(v1::CreateContainerResponse { container_id })
        })
        .await
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Answer<v1::StartContainerResponse> {
        let id = &request.get_ref().container_id;
        self.run(&request, Call::new(Method::StartContainer).container(id), async |_| {
            if let Some(later) = self.change(|world, now| world.start_container(id, now))? {
                self.exit_later(id, later);
            }
            answer(v1::StartContainerResponse {})
        })
        .await
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> Answer<v1::StopContainerResponse> {
        let v1::StopContainerRequest { container_id: id, timeout } = request.get_ref();
        let call = Call::new(Method::StopContainer).container(id);
        self.run(&request, call.detail(Detail::StopContainer { timeout: *timeout }), async |_| {
            self.stop(id, seconds(*timeout)).await;
            answer(v1::StopContainerResponse {})
        })
        .await
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        let id = &request.get_ref().container_id;
        self.run(&request, Call::new(Method::RemoveContainer).container(id), async |_| {
            self.change(|world, now| world.remove_container(id, now));
            answer(v1::RemoveContainerResponse {})
        })
        .await
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answer<v1::ListContainersResponse> {
        let filter = request.get_ref().filter.as_ref();
        self.run(&request, Call::new(Method::ListContainers), async |_| {
            let containers = self.read(|world| {
                let matching = world.containers.values().filter(|container| container.matches(filter));
                matching.map(|container| container.item()).collect()
            });
            answer(v1::ListContainersResponse { containers })
        })
        .await
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let id = &request.get_ref().container_id;
        self.run(&request, Call::new(Method::ContainerStatus).container(id), async |_| {
            let status = Some(self.read(|world| world.container(id).map(|container| container.status()))?);
            answer(v1::ContainerStatusResponse { status, ..Default::default() })
        })
        .await
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let wanted = request.get_ref();
        let call = Call::new(Method::UpdateContainerResources)
            .container(&wanted.container_id)
            .detail(Detail::UpdateContainerResources(Box::new(wanted.clone())));
        self.run(&request, call, async |_| {
            self.change(|world, _| {
                world.container(&wanted.container_id)?;
                let container = world.containers.get_mut(&wanted.container_id);
                if let (Some(container), Some(new)) = (container, &wanted.linux) {
                    merge(container.resources.get_or_insert_default(), new);
                }
                answer(v1::UpdateContainerResourcesResponse {})
            })
        })
        .await
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        let wanted = request.get_ref();
        let call = Call::new(Method::UpdatePodSandboxResources)
            .sandbox(&wanted.pod_sandbox_id)
            .detail(Detail::UpdatePodSandboxResources(Box::new(wanted.clone())));
        self.run(&request, call, async |_| {
            self.read(|world| world.sandbox(&wanted.pod_sandbox_id).map(|_| ()))?;
            answer(v1::UpdatePodSandboxResourcesResponse {})
        })
        .await
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        let id = &request.get_ref().container_id;
        self.run(&request, Call::new(Method::ReopenContainerLog).container(id), async |_| {
            self.change(|world, _| {
                world.running(id)?;
                if let Some(container) = world.containers.get_mut(id) {
                    container.log_reopened += 1;
                }
                answer(v1::ReopenContainerLogResponse {})
            })
        })
        .await
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answer<v1::ExecSyncResponse> {
        let v1::ExecSyncRequest { container_id: id, cmd, timeout } = request.get_ref();
        let detail = Detail::ExecSync { command: cmd.clone(), timeout: *timeout };
        self.run(&request, Call::new(Method::ExecSync).container(id).detail(detail), async |_| {
            answer(self.exec(id, cmd, seconds(*timeout)).await?)
        })
        .await
    }

    async fn container_stats(
        &self,
        request: Request<v1::ContainerStatsRequest>,
    ) -> Answer<v1::ContainerStatsResponse> {
        let id = &request.get_ref().container_id;
        self.run(&request, Call::new(Method::ContainerStats).container(id), async |_| {
            let now = self.now();
            let stats = Some(self.read(|world| world.running(id).map(|container| container.stats(now)))?);
            answer(v1::ContainerStatsResponse { stats })
        })
        .await
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<v1::ListContainerStatsResponse> {
        let filter = request.get_ref().filter.as_ref();
        self.run(&request, Call::new(Method::ListContainerStats), async |_| {
            let now = self.now();
            answer(v1::ListContainerStatsResponse {
                stats: self.read(|world| world.container_stats(filter, now)),
            })
        })
        .await
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> Answer<v1::PodSandboxStatsResponse> {
        let id = &request.get_ref().pod_sandbox_id;
        self.run(&request, Call::new(Method::PodSandboxStats).sandbox(id), async |_| {
            let now = self.now();
            let stats = self.read(|world| world.sandbox(id).map(|sandbox| world.stats_of(sandbox, now)))?;
            answer(v1::PodSandboxStatsResponse { stats: Some(stats) })
        })
        .await
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answer<v1::ListPodSandboxStatsResponse> {
        let filter = request.get_ref().filter.as_ref();
        self.run(&request, Call::new(Method::ListPodSandboxStats), async |_| {
            let now = self.now();
            answer(v1::ListPodSandboxStatsResponse {
                stats: self.read(|world| world.sandbox_stats(filter, now)),
            })
        })
        .await
    }

    type GetContainerEventsStream = Boxed<v1::ContainerEventResponse>;

    async fn get_container_events(
        &self,
        request: Request<v1::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        self.run(&request, Call::new(Method::GetContainerEvents), async |_| {
            let events = BroadcastStream::new(self.events());
            let events =
                events.map(|event| event.map_err(|error| Status::resource_exhausted(error.to_string())));
            answer::<Self::GetContainerEventsStream>(events.boxed())
        })
        .await
    }

    // What this runtime does not have.

    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        let asked = request.get_ref();
        let call = Call {
            container_id: asked.container_id.clone(),
            detail: Detail::Exec(Box::new(asked.clone())),
            ..Call::new(Method::Exec)
        };
        self.run(&request, call, async |_| answer(v1::ExecResponse { url: self.streaming("exec")? })).await
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        let asked = request.get_ref();
        let call = Call {
            container_id: asked.container_id.clone(),
            detail: Detail::Attach(Box::new(asked.clone())),
            ..Call::new(Method::Attach)
        };
        self.run(&request, call, async |_| answer(v1::AttachResponse { url: self.streaming("attach")? }))
            .await
    }

    async fn port_forward(
        &self,
        request: Request<v1::PortForwardRequest>,
    ) -> Answer<v1::PortForwardResponse> {
        let asked = request.get_ref();
        let call = Call {
            sandbox_id: asked.pod_sandbox_id.clone(),
            detail: Detail::PortForward(asked.clone()),
            ..Call::new(Method::PortForward)
        };
        self.run(&request, call, async |_| {
            answer(v1::PortForwardResponse { url: self.streaming("portforward")? })
        })
        .await
    }

    async fn checkpoint_container(
        &self,
        request: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        self.refuse(&request, Method::CheckpointContainer).await
    }

    async fn checkpoint_pod(
        &self,
        request: Request<v1::CheckpointPodRequest>,
    ) -> Answer<v1::CheckpointPodResponse> {
        self.refuse(&request, Method::CheckpointPod).await
    }

    async fn restore_pod(&self, request: Request<v1::RestorePodRequest>) -> Answer<v1::RestorePodResponse> {
        self.refuse(&request, Method::RestorePod).await
    }

    async fn list_metric_descriptors(
        &self,
        request: Request<v1::ListMetricDescriptorsRequest>,
    ) -> Answer<v1::ListMetricDescriptorsResponse> {
        self.refuse(&request, Method::ListMetricDescriptors).await
    }

    async fn list_pod_sandbox_metrics(
        &self,
        request: Request<v1::ListPodSandboxMetricsRequest>,
    ) -> Answer<v1::ListPodSandboxMetricsResponse> {
        self.refuse(&request, Method::ListPodSandboxMetrics).await
    }

    type StreamPodSandboxesStream = Boxed<v1::StreamPodSandboxesResponse>;

    async fn stream_pod_sandboxes(
        &self,
        request: Request<v1::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        self.refuse(&request, Method::StreamPodSandboxes).await
    }

    type StreamContainersStream = Boxed<v1::StreamContainersResponse>;

    async fn stream_containers(
        &self,
        request: Request<v1::StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        self.refuse(&request, Method::StreamContainers).await
    }

    type StreamContainerStatsStream = Boxed<v1::StreamContainerStatsResponse>;

    async fn stream_container_stats(
        &self,
        request: Request<v1::StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        self.refuse(&request, Method::StreamContainerStats).await
    }

    type StreamPodSandboxStatsStream = Boxed<v1::StreamPodSandboxStatsResponse>;

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<v1::StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        self.refuse(&request, Method::StreamPodSandboxStats).await
    }

    type StreamPodSandboxMetricsStream = Boxed<v1::StreamPodSandboxMetricsResponse>;

    async fn stream_pod_sandbox_metrics(
        &self,
        request: Request<v1::StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        self.refuse(&request, Method::StreamPodSandboxMetrics).await
    }
}
