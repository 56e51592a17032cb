//! Reads pods: lists, compares with what is known, asks for what changed, applies. All reads of the process come through
//! here, so their number is bounded here.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_cri::{CriError, Observe, wire};
use bulkhead_model::runtime::RuntimePod;
use tokio::sync::Semaphore;

use crate::cache::{Applied, Cache, Read};
use crate::error::ReadError;
use crate::inspect::inspect;
use crate::listing::{PodListing, by_pod, rows};
use crate::plan::{is_current, plan};
use crate::running;

/// Pods that are read at once because of the relist or of events.
const BACKGROUND: usize = 8;
/// Pods that are read at once because somebody asked. Of its own, so that a hanging container does not hold up answers.
const REQUESTS: usize = 16;
/// How often a pod is read again because it changed meanwhile.
const TRIES: usize = 4;
/// How long a request may take: a second less than the proto's deadline, so that the reason still arrives.
pub(crate) const DEADLINE: Duration = Duration::from_secs(9);

/// Reads into a cache. Clones share the bounds.
#[derive(Clone, Debug)]
pub(crate) struct Reader<O> {
    client: O,
    cache: Arc<Cache>,
    background: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

/// What a finished read leaves: the pod as it is known then, or that another read was faster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Known, and newer than the read's begin; `None`: the runtime holds nothing of it.
    Done(Option<Arc<RuntimePod>>),
    /// Read again.
    Overtaken,
}

impl<O: Observe> Reader<O> {
    /// Reads from `client` into `cache`.
    pub(crate) fn new(client: O, cache: Arc<Cache>) -> Self {
        let (background, requests) = (Semaphore::new(BACKGROUND), Semaphore::new(REQUESTS));
        Self { client, cache, background: Arc::new(background), requests: Arc::new(requests) }
    }

    /// The cache.
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The runtime's client.
    pub(crate) fn client(&self) -> &O {
        &self.client
    }

    /// Lists everything. Containers first: then no container is listed without the sandbox that it is made in.
    pub(crate) async fn list(&self) -> Result<(Vec<wire::PodSandbox>, Vec<wire::Container>), CriError> {
        let containers = self.client.containers(None).await?;
        Ok((self.client.pod_sandboxes(None).await?, containers))
    }

    /// The pod as it is now, for somebody who asks: the answer is newer than the call.
    pub(crate) async fn observe(&self, uid: &str) -> Result<Option<Arc<RuntimePod>>, ReadError> {
        let late = ReadError::Late { uid: uid.to_owned(), bound: DEADLINE };
        let read = async {
            // Never closed; if it were, reads would only lose their bound.
            let _permit = self.requests.acquire().await;
            self.read(uid).await
        };
        tokio::time::timeout(DEADLINE, read).await.unwrap_or(Err(late))
    }

    /// Brings one pod up to date without being asked.
    pub(crate) async fn refresh(&self, uid: &str) -> Result<(), ReadError> {
        let _permit = self.background.acquire().await;
        self.read(uid).await.map(drop)
    }

    /// Brings one pod up to date from its part of a list of everything.
    pub(crate) async fn refresh_from(&self, read: &Read, listing: PodListing) -> Result<Settled, ReadError> {
        let _permit = self.background.acquire().await;
        self.settle(read, listing).await
    }

    async fn read(&self, uid: &str) -> Result<Option<Arc<RuntimePod>>, ReadError> {
        for _ in 0..TRIES {
            let read = self.cache.begin();
            let containers = self.client.containers(Some(uid)).await?;
            let sandboxes = self.client.pod_sandboxes(Some(uid)).await?;
            let rows = rows(&sandboxes, &containers);
            let listed = by_pod(&rows).find(|pod| pod.first().is_some_and(|row| row.uid == uid));
            if let (Some(listed), Some(known)) = (listed, self.cache.known(uid))
                && is_current(listed, &known.pod, &known.awaiting_ip)
            {
                read.confirm(uid);
                return Ok(Some(known.pod));
            }
            let settled = match listed.and_then(PodListing::of) {
                Some(listing) => self.settle(&read, listing).await?,
                None => Settled::from(read.apply(uid, None)),
            };
            if let Settled::Done(pod) = settled {
                return Ok(pod);
            }
        }
        Err(ReadError::Overtaken { uid: uid.to_owned() })
    }

    async fn settle(&self, read: &Read, listing: PodListing) -> Result<Settled, ReadError> {
        let uid = listing.uid.clone();
        if read.is_overtaken(&uid) {
            return Ok(Settled::Overtaken);
        }
        let plan = plan(listing, self.cache.known(&uid).as_ref());
        let reading = inspect(&self.client, plan).await?;
        let applied = read.apply(&uid, reading);
        // At the start everything is new here, but not to the node.
        if let Applied::Yes { before, now: Some(now) } = &applied
            && self.cache.is_open()
        {
            running::trace(before.as_deref(), now);
        }
        Ok(applied.into())
    }
}

impl From<Applied> for Settled {
    fn from(applied: Applied) -> Self {
        match applied {
            Applied::Yes { now, .. } => Self::Done(now),
            Applied::Overtaken => Self::Overtaken,
        }
    }
}
