//! How the state looks on the wire, and which of it a filter lets through. Pure.

use std::collections::HashMap;

use bulkhead_api::cri::v1;

use super::world::{Container, Sandbox};

impl Sandbox {
    /// The long form.
    pub(super) fn status(&self) -> v1::PodSandboxStatus {
        let namespaces = self.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        v1::PodSandboxStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state.into(),
            created_at: self.created_at,
            network: Some(v1::PodSandboxNetworkStatus { ip: self.ip.clone(), additional_ips: Vec::new() }),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace {
                    options: namespaces.and_then(|context| context.namespace_options.clone()),
                }),
            }),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.runtime_handler.clone(),
        }
    }

    /// The short form.
    pub(super) fn item(&self) -> v1::PodSandbox {
        v1::PodSandbox {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state.into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.runtime_handler.clone(),
        }
    }

    pub(super) fn attributes(&self) -> v1::PodSandboxAttributes {
        v1::PodSandboxAttributes {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
        }
    }

    pub(super) fn matches(&self, filter: Option<&v1::PodSandboxFilter>) -> bool {
        filter.is_none_or(|filter| {
            let state = filter.state.as_ref().is_none_or(|wanted| wanted.state() == self.state);
            names(&filter.id, &self.id) && state && selects(&filter.label_selector, &self.config.labels)
        })
    }

    pub(super) fn is_measured(&self, filter: Option<&v1::PodSandboxStatsFilter>) -> bool {
        filter.is_none_or(|filter| {
            names(&filter.id, &self.id) && selects(&filter.label_selector, &self.config.labels)
        })
    }
}

impl Container {
    /// The long form.
    pub(super) fn status(&self) -> v1::ContainerStatus {
        let exited = self.state == v1::ContainerState::ContainerExited;
        let reason = match (exited, self.exit.reason.as_str(), self.exit.code) {
            (true, "", 0) => "Completed",
            (true, "", _) => "Error",
            (_, reason, _) => reason,
        };
        let stop_signal = match self.config.stop_signal() {
            v1::Signal::RuntimeDefault => v1::Signal::Sigterm,
            named => named,
        };
        let resources = self.resources.clone();
        v1::ContainerStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state.into(),
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            exit_code: self.exit.code,
            image: self.config.image.clone(),
            image_ref: self.image_ref.clone(),
            reason: reason.to_owned(),
            message: self.exit.message.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self.log_path.clone(),
            resources: resources.map(|linux| v1::ContainerResources { linux: Some(linux), windows: None }),
            image_id: self.image_id.clone(),
            user: Some(v1::ContainerUser { linux: Some(self.user()) }),
            stop_signal: stop_signal.into(),
        }
    }

    /// Whom the pod asks for; nobody looks into images here, so root otherwise.
    fn user(&self) -> v1::LinuxContainerUser {
        let context = self.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let id = |value: Option<&v1::Int64Value>| value.map_or(0, |value| value.value);
        let gid = id(context.and_then(|context| context.run_as_group.as_ref()));
        let further = context.map(|context| context.supplemental_groups.clone()).unwrap_or_default();
        let uid = id(context.and_then(|context| context.run_as_user.as_ref()));
        v1::LinuxContainerUser { uid, gid, supplemental_groups: [gid].into_iter().chain(further).collect() }
    }

    /// The short form.
    pub(super) fn item(&self) -> v1::Container {
        v1::Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox_id.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: self.image_ref.clone(),
            state: self.state.into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id: self.image_id.clone(),
        }
    }

    pub(super) fn attributes(&self) -> v1::ContainerAttributes {
        v1::ContainerAttributes {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
        }
    }

    pub(super) fn matches(&self, filter: Option<&v1::ContainerFilter>) -> bool {
        filter.is_none_or(|filter| {
            let state = filter.state.as_ref().is_none_or(|wanted| wanted.state() == self.state);
            let sandbox = names(&filter.pod_sandbox_id, &self.sandbox_id);
            names(&filter.id, &self.id)
                && state
                && sandbox
                && selects(&filter.label_selector, &self.config.labels)
        })
    }

    pub(super) fn is_measured(&self, filter: Option<&v1::ContainerStatsFilter>) -> bool {
        let runs = self.state == v1::ContainerState::ContainerRunning;
        runs && filter.is_none_or(|filter| {
            let sandbox = names(&filter.pod_sandbox_id, &self.sandbox_id);
            names(&filter.id, &self.id) && sandbox && selects(&filter.label_selector, &self.config.labels)
        })
    }
}

/// An empty id names all; a prefix is enough.
fn names(wanted: &str, id: &str) -> bool {
    id.starts_with(wanted)
}

fn selects(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}
