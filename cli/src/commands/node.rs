//! Finding the node's sockets, and asking its gateway.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bulkhead_api::gateway::v1 as wire;
use bulkhead_base::SystemClock;
use bulkhead_ipc::status::with_deadline;
use bulkhead_ipc::{Channels, Identities, PeerBoard, PeerChannel};
use k8s_openapi::api::core::v1::Pod;
use tonic::{Code, Status};
use wire::gateway_client::GatewayClient;
use wire::pod_item::Item;

/// The launcher's default, then that of the systemd units.
const STATE: &str = "/var/lib/bulkhead";
const RUN: &str = "/run/bulkhead";
/// Deadline of a list of pods.
const LIST: Duration = Duration::from_secs(10);

/// Which node.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeFlags {
    /// State folder that `bulkhead up` was given.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Folder of the processes' sockets. Without either: /var/lib/bulkhead/run, then /run/bulkhead.
    #[arg(long, value_name = "DIR", conflicts_with = "state")]
    run_dir: Option<PathBuf>,
}

/// A node's sockets.
pub struct Node {
    channels: Channels,
}

/// What the node has.
pub struct Pods {
    /// By namespace and name.
    pub pods: Vec<Pod>,
    /// Manifests that are not run.
    pub refused: Vec<wire::RefusedPod>,
}

impl Node {
    /// Finds it.
    pub fn find(flags: &NodeFlags) -> anyhow::Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            bail!("only root may ask the node: run this with sudo");
        }
        let run = match (&flags.run_dir, &flags.state) {
            (Some(run), _) => vec![run.clone()],
            (None, Some(state)) => vec![state.join("run")],
            (None, None) => vec![PathBuf::from(STATE).join("run"), RUN.into()],
        };
        let Some(found) = run.iter().find(|folder| folder.is_dir()) else {
            let looked: Vec<_> = run.iter().map(|folder| folder.display().to_string()).collect();
            bail!("no node runs here: there is no {}; start one with `bulkhead up`", looked.join(" and no "));
        };
        let file = found.parent().map(|state| state.join("identities.json")).filter(|file| file.is_file());
        let identities = match file {
            Some(file) => Identities::read(&file)?,
            None => {
                let read = |path| std::fs::read_to_string(path).unwrap_or_default();
                Identities::from_accounts(&read("/etc/passwd"), &read("/etc/group"))?
            }
        };
        let board = PeerBoard::new(Arc::new(SystemClock));
        Ok(Self::new(Channels::new(found, Arc::new(identities), board)))
    }

    /// Over these channels.
    pub fn new(channels: Channels) -> Self {
        Self { channels }
    }

    /// A channel to a process.
    pub fn peer(&self, name: &str) -> PeerChannel {
        self.channels.peer(name)
    }

    /// A client of the gateway.
    pub fn gateway(&self) -> GatewayClient<PeerChannel> {
        GatewayClient::new(self.peer("gateway"))
    }

    /// All pods.
    pub async fn pods(&self) -> anyhow::Result<Pods> {
        let request = with_deadline(wire::ListPodsRequest {}, LIST);
        let mut stream = self.gateway().list_pods(request).await.map_err(explain)?.into_inner();
        let mut all = Pods { pods: Vec::new(), refused: Vec::new() };
        while let Some(item) = stream.message().await.map_err(explain)? {
            match item.item {
                Some(Item::PodJson(json)) => {
                    all.pods.push(
                        serde_json::from_slice(&json).context("the gateway sent a pod that is no pod")?,
                    );
                }
                Some(Item::Refused(refused)) => all.refused.push(refused),
                None => {}
            }
        }
        Ok(all)
    }

    /// The pod that people mean by `name`: with or without the node's name at its end, in `namespace` if that is given.
    pub async fn pod(&self, name: &str, namespace: Option<&str>) -> anyhow::Result<Pod> {
        let all = self.pods().await?;
        choose(all.pods, name, namespace)
    }
}

fn choose(pods: Vec<Pod>, name: &str, namespace: Option<&str>) -> anyhow::Result<Pod> {
    let wanted = |pod: &&Pod| {
        let own = pod.metadata.name.as_deref().unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let short = own.strip_suffix(node).and_then(|rest| rest.strip_suffix('-'));
        (own == name || short == Some(name))
            && namespace.is_none_or(|wanted| pod.metadata.namespace.as_deref() == Some(wanted))
    };
    let found: Vec<&Pod> = pods.iter().filter(wanted).collect();
    match found.as_slice() {
        [] => Err(anyhow!("there is no pod {name}: see `bulkhead get pods`")),
        [pod] => Ok((*pod).clone()),
        [first, ..] => {
            let namespaces: Vec<_> =
                found.iter().filter_map(|pod| pod.metadata.namespace.as_deref()).collect();
            // In one namespace, the full name is the one that counts.
            let full = found.iter().find(|pod| pod.metadata.name.as_deref() == Some(name));
            match full {
                Some(pod)
                    if namespaces
                        .iter()
                        .all(|namespace| Some(*namespace) == first.metadata.namespace.as_deref()) =>
                {
                    Ok((*pod).clone())
                }
                _ => Err(anyhow!("there are pods {name} in {}: say which with -n", namespaces.join(" and "))),
            }
        }
    }
}

/// A failed call of the gateway for people: what to do about it.
pub fn explain(status: Status) -> anyhow::Error {
    explain_of("gateway", status)
}

/// As [`explain`], of any process.
pub fn explain_of(process: &str, status: Status) -> anyhow::Error {
    if std::error::Error::source(&status).is_some() {
        return anyhow!(
            "{process} does not answer ({}): is the node up? `bulkhead up` starts one, `bulkhead status` shows who is missing",
            super::peer::why(&status)
        );
    }
    let message = status.message();
    match status.code() {
        Code::Unavailable => anyhow!("not now: {message} (`bulkhead status` shows who is missing)"),
        Code::DeadlineExceeded => anyhow!("the node takes too long to answer: see `bulkhead status`"),
        _ => anyhow!("{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = Some(namespace.to_owned());
        pod.spec.get_or_insert_default().node_name = Some("n".to_owned());
        pod
    }

    #[test]
    fn a_static_pod_is_found_by_its_short_name() {
        let pods = || {
            vec![
                pod("default", "web-n"),
                pod("kube-system", "dns-n"),
                pod("default", "dns-n"),
                pod("default", "dns-n-n"),
            ]
        };
        let name = |name, namespace| choose(pods(), name, namespace).map(|pod| pod.metadata.name.unwrap());
        assert_eq!(name("web", None).unwrap(), "web-n");
        assert_eq!(name("web-n", None).unwrap(), "web-n");
        assert_eq!(name("dns", Some("kube-system")).unwrap(), "dns-n");
        assert_eq!(name("dns-n", Some("default")).unwrap(), "dns-n", "the full name counts");
        assert!(name("dns", None).unwrap_err().to_string().contains("say which with -n"));
        assert!(name("we", None).unwrap_err().to_string().contains("there is no pod we"));
        assert!(name("web", Some("other")).is_err());
    }
}
