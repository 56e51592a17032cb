//! What a node holds on the machine: everything that could be leaked by a fault.

#![expect(clippy::expect_used, reason = "a harness: what fails here fails the test that uses it")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bulkhead_base::SystemClock;
use bulkhead_cri::{Observe, ObserveClient};
use bulkhead_ipc::{Channels, Identities, PeerBoard};

use crate::real_node::RealNode;

/// Names of what there is, by kind. Two are equal when nothing came and nothing went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Ids of sandboxes in the runtime, running or not.
    pub sandboxes: BTreeSet<String>,
    /// Ids of containers in the runtime, running or not.
    pub containers: BTreeSet<String>,
    /// Cgroups beneath the node's.
    pub cgroups: BTreeSet<String>,
    /// Mount points in pods' folders.
    pub mounts: BTreeSet<String>,
    /// Pods' folders and pods' log folders.
    pub folders: BTreeSet<String>,
}

impl Footprint {
    /// Of a node; `None` while its runtime does not answer.
    pub async fn of(node: &RealNode) -> Option<Self> {
        let board = PeerBoard::new(Arc::new(SystemClock));
        // No process of access.toml is spoken to, so that no identity matters.
        let channels = Channels::new(Path::new("/"), Arc::new(Identities::from_base(1)), board);
        let runtime = ObserveClient::new(channels.socket("runtime", &node.runtime_socket(), None));
        let sandboxes = runtime.pod_sandboxes(None).await.ok()?;
        let containers = runtime.containers(None).await.ok()?;
        let mut this = Self {
            sandboxes: sandboxes.into_iter().map(|sandbox| sandbox.id).collect(),
            containers: containers.into_iter().map(|container| container.id).collect(),
            ..Self::default()
        };
        let id = node.id();
        let roots = std::fs::read_dir("/sys/fs/cgroup").expect("cgroups are mounted").flatten();
        roots.for_each(|root| below(&root.path().join(&id), &mut this.cgroups));
        below(&Path::new("/sys/fs/cgroup").join(&id), &mut this.cgroups);
        let pods = node.state().join("root/pods");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        this.mounts =
            points.filter(|point| Path::new(point).starts_with(&pods)).map(ToOwned::to_owned).collect();
        for folder in [pods, node.state().join("logs/pods")] {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            this.folders.extend(entries.map(|entry| entry.path().to_string_lossy().into_owned()));
        }
        Some(this)
    }
}

/// Every folder beneath one.
fn below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.insert(entry.path().to_string_lossy().into_owned());
            below(&entry.path(), found);
        }
    }
}
