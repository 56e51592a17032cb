//! The loop that collects: every ten seconds while somebody asks for statistics, else every minute, and when they are asked for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bulkhead_api::evictd::v1::Summary;
use bulkhead_api::syncd::v1::StatsView;
use bulkhead_base::chain;
use bulkhead_ipc::Mirror;
use bulkhead_model::runtime::RuntimePod;
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::Settings;
use crate::error::CollectError;
use crate::machine::Figures;
use crate::plan::Plan;
use crate::problems::Problems;
use crate::summary::{Input, Samples};

/// Longest time between two collections while statistics are asked for: the kubelet's housekeeping interval.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// The same while nobody wants them: the first who asks then still gets rates.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
/// How long after a call more are expected.
const WANTED: Duration = Duration::from_secs(120);
/// Shortest time between two collections: figures this young need no others, however many ask.
pub(crate) const FRESH: Duration = Duration::from_secs(1);
/// How long the first collection waits for peers, so that it has pods after a restart in the middle of a life.
const PEERS: Duration = Duration::from_secs(2);

/// What is known of the pods of this node.
#[derive(Clone)]
pub(crate) struct Pods {
    /// Who they are and where their cgroups are, from syncd.
    pub(crate) views: Mirror<String, StatsView>,
    /// What runs of them, from pleg.
    pub(crate) running: Mirror<String, RuntimePod>,
}

/// When somebody asked for statistics last. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Arc<Mutex<Option<Instant>>>);

/// One finished collection.
#[derive(Debug)]
pub(crate) struct Collection {
    /// When it began.
    pub(crate) at: Instant,
    /// Its figures.
    pub(crate) summary: Summary,
    /// What they are about.
    pub(crate) plan: Arc<Plan>,
    /// Bytes of memory and of swap of the machine.
    pub(crate) memory: (u64, u64),
    /// What is missing from them.
    pub(crate) problems: Problems,
}

/// The newest collection, if there was one.
pub(crate) type Latest = Option<Arc<Collection>>;

/// The loop's body.
pub(crate) struct Collector<F> {
    figures: Arc<F>,
    pods: Pods,
    settings: Settings,
    samples: Samples,
    asked: Asked,
    latest: watch::Sender<Latest>,
}

impl Asked {
    /// Somebody asks now.
    pub(crate) fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn interval(&self) -> Duration {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|at| at.elapsed() < WANTED) { INTERVAL } else { IDLE }
    }
}

impl Pods {
    /// Waits until both peers told everything once.
    pub(crate) async fn synced(&self) {
        self.views.wait_until(|status, _| status.synced).await;
        self.running.wait_until(|status, _| status.synced).await;
    }
}

impl<F: Figures> Collector<F> {
    /// Tells `latest` what it collects.
    pub(crate) fn new(
        figures: Arc<F>,
        pods: Pods,
        settings: Settings,
        latest: watch::Sender<Latest>,
    ) -> Self {
        Self { figures, pods, settings, samples: Samples::default(), asked: Asked::default(), latest }
    }

    /// When somebody asked, as the loop sees it.
    pub(crate) fn asked(&self) -> Asked {
        self.asked.clone()
    }

    async fn collect(&mut self) -> Result<Collection, CollectError> {
        let at = Instant::now();
        let plan =
            Plan::new(&self.settings.layout, self.pods.views.snapshot(), &self.pods.running.snapshot());
        let (figures, kubepods, cgroups) = (self.figures.clone(), plan.kubepods.clone(), plan.cgroups());
        // One thread for the whole batch: hundreds of tiny reads are cheaper in a row than handed over one by one.
        let read = tokio::task::spawn_blocking(move || figures.read(&kubepods, &cgroups));
        let readings = read.await.map_err(CollectError::CutOff)??;
        let input = Input {
            node_name: &self.settings.node_name,
            plan: &plan,
            readings: &readings,
            before: &self.samples,
        };
        let summary = input.summary();
        self.samples = Samples::of(&readings);
        let problems = plan.problems.clone().join(&readings.problems);
        let memory = (readings.proc.memory_total, readings.proc.swap_total);
        Ok(Collection { at, summary, plan: Arc::new(plan), memory, problems })
    }

    /// How long until the next collection may be; `None` when it may be now.
    fn too_soon(&self) -> Option<Duration> {
        let age = self.latest.borrow().as_ref()?.at.elapsed();
        FRESH.checked_sub(age).filter(|left| !left.is_zero())
    }
}

impl<F: Figures> Reconciler for Collector<F> {
    const NAME: &'static str = "statistics";

    fn interval(&self) -> Duration {
        self.asked.interval()
    }

    async fn reconcile(&mut self, trigger: Trigger) -> Next {
        match trigger {
            Trigger::Start => {
                let _ = tokio::time::timeout(PEERS, self.pods.synced()).await;
            }
            Trigger::Woken => {
                if let Some(left) = self.too_soon() {
                    return Next::After(left);
                }
            }
            Trigger::Interval | Trigger::Retry => {}
        }
        match self.collect().await {
            Ok(collection) => {
                self.latest.send_replace(Some(Arc::new(collection)));
                Next::Wait
            }
            Err(error) => Next::Failed(chain(&error).to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
