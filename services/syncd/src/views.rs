//! What syncd publishes: each consumer's own view of every pod. Must never put into a view what its consumer does not need.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_api::convert::{ProbeItem, StatusItem};
use bulkhead_api::syncd::v1::{MirrorPod, StatsContainer, StatsView, StatsVolume};
use bulkhead_cgroup::{Layout, PodCgroup};
use bulkhead_ipc::Publisher;
use bulkhead_model::decision::{Decision, Stage};
use bulkhead_model::eviction::{self, LocalLimits};
use bulkhead_model::probe_view::ProbeView;
use bulkhead_model::qos::QosClass;
use bulkhead_model::quantity::Quantity;
use bulkhead_model::resources;
use bulkhead_model::spec::{self, ContainerKind};
use bulkhead_model::status_view::StatusView;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio_util::sync::CancellationToken;

/// The node's disk, as pods ask for it.
const EPHEMERAL: &str = "ephemeral-storage";

/// All views. Clones share them.
#[derive(Clone, Debug)]
pub struct Views {
    /// For statusd.
    pub status: Publisher<String, StatusItem>,
    /// For prober.
    pub probes: Publisher<String, ProbeItem>,
    /// For evictd.
    pub stats: Publisher<String, StatsView>,
    /// For statusd: mirror pods in the API server. Opened by its source, not with the others.
    pub mirrors: Publisher<String, MirrorPod>,
    /// Whole pods: they stay in this process, except for the gateway's `/pods`.
    pods: Arc<Mutex<BTreeMap<String, Arc<Pod>>>>,
    layout: Layout,
}

/// A pod as its worker publishes it.
#[derive(Clone, Copy, Debug)]
pub struct Published<'a> {
    /// The pod.
    pub pod: &'a Arc<Pod>,
    /// Its cgroup.
    pub cgroup: &'a PodCgroup,
    /// What its worker decided.
    pub decision: &'a Decision,
    /// Trace context of its present start.
    pub traceparent: &'a str,
}

impl Views {
    /// Empty, and silent until [`Views::open`].
    pub fn new(layout: Layout, shutdown: CancellationToken) -> Self {
        Self {
            status: Publisher::new(shutdown.clone()),
            probes: Publisher::new(shutdown.clone()),
            stats: Publisher::new(shutdown.clone()),
            mirrors: Publisher::new(shutdown),
            pods: Arc::default(),
            layout,
        }
    }

    /// Every pod that has a worker.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The pod of this UID that has a worker.
    pub fn pod(&self, uid: &str) -> Option<Arc<Pod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    /// All sources were read and every pod has been published once.
    pub fn open(&self) {
        self.status.open();
        self.probes.open();
        self.stats.open();
    }

    /// Publishes a pod's present state.
    pub fn publish(&self, published: Published<'_>) {
        let Published { pod, cgroup, decision, traceparent } = published;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.clone(), pod.clone());
        let qos = QosClass::of(pod).as_str();
        self.status.upsert(
            uid.clone(),
            StatusItem {
                view: StatusView::new(pod, qos),
                decision: decision.clone(),
                traceparent: traceparent.to_owned(),
            },
        );
        let probes = ProbeItem {
            view: ProbeView::new(pod),
            stage: decision.stage,
            in_post_start: decision.in_post_start.clone(),
            traceparent: traceparent.to_owned(),
        };
        self.probes.upsert(uid.clone(), probes);
        let over = decision.failed.is_some() || decision.stage != Stage::Syncing;
        self.stats.upsert(uid, StatsView { over, ..self.stats_view(pod, cgroup) });
    }

    /// A pod is no more.
    pub fn remove(&self, uid: &str) {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        let uid = uid.to_owned();
        self.status.remove(&uid);
        self.probes.remove(&uid);
        self.stats.remove(&uid);
    }

    fn stats_view(&self, pod: &Pod, cgroup: &PodCgroup) -> StatsView {
        let requests = resources::pod(pod).requests;
        let amount = |value: Option<i64>| value.and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
        let limits = LocalLimits::of(pod);
        let text = |limit: Option<&Quantity>| limit.map(ToString::to_string).unwrap_or_default();
        let apps = spec::containers(pod).into_iter().filter(|found| found.kind == ContainerKind::App);
        let containers = apps.map(|found| {
            let memory = resources::container(found.container).requests.memory;
            StatsContainer {
                name: found.name().to_owned(),
                memory_request_bytes: amount(memory.map(|q| q.value())),
                ephemeral_request_bytes: amount(ephemeral_request(found.container).map(|q| q.value())),
                ephemeral_limit: text(limits.containers.get(found.name())),
            }
        });
        StatsView {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            qos_class: QosClass::of(pod).as_str().to_owned(),
            priority: pod.spec.as_ref().and_then(|spec| spec.priority),
            cpu_request_milli: amount(requests.cpu.map(|q| q.milli_value())),
            memory_request_bytes: amount(requests.memory.map(|q| q.value())),
            cgroup: self.layout.cgroup_parent(cgroup),
            critical: eviction::is_critical(pod),
            over: false,
            ephemeral_request_bytes: amount(Some(resources::pod_other(pod, EPHEMERAL).value())),
            ephemeral_limit: text(limits.pod.as_ref()),
            containers: containers.collect(),
            limited_volumes: limits
                .empty_dirs
                .iter()
                .map(|(name, limit)| StatsVolume { name: name.clone(), size_limit: limit.to_string() })
                .collect(),
        }
    }
}

/// A request that is missing is the limit, as the API server defaults it.
fn ephemeral_request(container: &Container) -> Option<Quantity> {
    let own = container.resources.as_ref()?;
    let amount = |list| resources::amount(list, EPHEMERAL);
    amount(own.requests.as_ref()).or(amount(own.limits.as_ref()))
}
