//! A worker's part in volumes: it says what each holds, and volumed makes it so.

use std::sync::Arc;

use bulkhead_base::chain;
use bulkhead_cri::wire;
use bulkhead_model::decision::Stage;
use bulkhead_model::env::PodFacts;
use k8s_openapi::api::core::v1::Container;
use tracing::Instrument;

use super::Worker;
use crate::cri_config::sub_paths;
use crate::error::PodError;
use crate::volumes;

impl Worker {
    /// Makes all volumes of the pod ready.
    pub(super) async fn set_up_volumes(&mut self) -> Result<(), PodError> {
        let settings = &self.deps.settings;
        let facts = PodFacts {
            pod: &self.pod,
            node_name: &settings.node_name,
            // Files of volumes cannot name addresses.
            pod_ips: &[],
            host_ips: &settings.node_ips,
            allocatable_cpu: settings.cpus,
            allocatable_memory: settings.memory,
        };
        let request = volumes::request(&facts, &settings.cgroups)
            .map_err(|source| PodError::Volumes { uid: self.uid.clone(), source })?;
        let pod = self.pod.clone();
        if let Some(request) = request {
            let span = bulkhead_ipc::traced!("syncd volumes", pod.uid = self.uid);
            self.volumes = self.deps.peers.set_up_volumes(request).instrument(span).await?;
        }
        self.volumes_of = Some(pod);
        Ok(())
    }

    /// Brings what is in the volumes of a running pod to what the pod says by now.
    pub(super) async fn refresh_volumes(&mut self) -> Result<(), PodError> {
        let is_current = self.volumes_of.as_ref().is_some_and(|pod| Arc::ptr_eq(pod, &self.pod));
        let runs = self.decision.stage == Stage::Syncing && self.decision.failed.is_none() && !self.cleaned;
        if is_current || !runs || !volumes::follow_the_pod(&self.pod) {
            return Ok(());
        }
        self.set_up_volumes().await
    }

    /// Has the parts of volumes that a container mounts bound to places that nothing in the volume can redirect, and names
    /// those places in its mounts.
    pub(super) async fn bind_sub_paths(
        &self,
        container: &Container,
        request: &mut wire::CreateContainerRequest,
    ) -> Result<(), String> {
        let Some(config) = &mut request.config else { return Ok(()) };
        let parts = sub_paths(container, &config.envs).map_err(|error| chain(&error).to_string())?;
        if parts.is_empty() {
            return Ok(());
        }
        let bound = self.deps.peers.set_up_sub_paths(&self.uid, &container.name, &parts).await?;
        for part in &parts {
            let (Some(mount), Some(place)) = (config.mounts.get_mut(part.index), bound.get(&part.index))
            else {
                return Err(format!("volumed did not say where a part of volume {} is", part.volume));
            };
            mount.host_path.clone_from(place);
        }
        Ok(())
    }
}
