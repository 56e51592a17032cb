//! Files that follow objects of the API: one task for each pod that has such volumes.
//!
//! Owns when files are written again: when an object changes, and when a token is due. Must never make a volume: what does not
//! stand is the caller's to set up. An API server that is away changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bulkhead_base::{Backoff, chain};
use bulkhead_ipc::said::Said;
use futures::future::select_all;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::error::Error;
use crate::names::PodUid;
use crate::objects::{Held, Key, Known, PodTokens, Seen, Token, render};
use crate::spec::{FilesSpec, Part, PodSpec, Source, TokenKey, VolumeFile};
use crate::volumes::{Of, Volumes};

/// How long a call waits for an object that nobody followed before.
const FIRST_ANSWER: Duration = Duration::from_secs(3);
/// At least so often a pod's tokens are looked at: the clock may be set.
const LOOK: Duration = Duration::from_secs(300);
/// First and longest wait after files that could not be written.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// After a restart pods get their turn within this time.
const SPREAD: Duration = Duration::from_secs(5);
/// How often the same trouble is said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// The pods whose files follow objects. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Followed(Arc<Mutex<HashMap<PodUid, Arc<PodObjects>>>>);

/// What one pod's volumes need.
pub(crate) struct PodObjects {
    /// Those of its volumes that follow objects.
    pod: Mutex<PodSpec>,
    held: Mutex<BTreeMap<Key, Held>>,
    tokens: tokio::sync::Mutex<PodTokens>,
    /// Something of the above is another now.
    changed: Arc<Notify>,
    task: Mutex<Option<AbortHandle>>,
}

/// What is known at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    objects: BTreeMap<Key, Seen>,
    tokens: BTreeMap<TokenKey, Token>,
    token_problem: Option<String>,
}

/// Whether a token that is expired is worth writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expired {
    /// It is better than none: its container may hold on until the next one.
    Stays,
    /// No container starts with it.
    Fails,
}

impl Drop for PodObjects {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

impl Followed {
    fn get(&self, uid: &PodUid) -> Option<Arc<PodObjects>> {
        lock(&self.0).get(uid).cloned()
    }

    /// The pod needs nothing any more.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let gone = lock(&self.0).remove(uid);
        drop(gone);
    }
}

impl Snapshot {
    /// The files of a volume.
    pub(crate) fn files(&self, spec: &FilesSpec) -> Result<Vec<VolumeFile>, Error> {
        let (objects, tokens) = (&self.objects, &self.tokens);
        render(&spec.parts, &Known { objects, tokens, token_problem: self.token_problem.as_deref() })
    }
}

impl Volumes {
    /// Follows what the pod's volumes need from now on, and nothing else for it; waits a little for what is new. The caller has
    /// the pod.
    pub(crate) async fn known_for(&self, pod: &PodSpec) -> Result<Snapshot, Error> {
        let pod = pod.following();
        if pod.volumes.is_empty() {
            self.followed().forget(&pod.uid);
            return Ok(Snapshot::default());
        }
        let objects = self.follow(pod, Duration::ZERO)?;
        let until = Instant::now() + FIRST_ANSWER;
        let held: Vec<Held> = lock(&objects.held).values().cloned().collect();
        for held in held {
            // One whose trouble is known already gives its answer at once.
            if matches!(held.seen(), Seen::Nothing(None)) {
                held.wait(until).await;
            }
        }
        self.bring_tokens(&objects).await?;
        let known = self.snapshot(&objects, Expired::Fails).await;
        objects.changed.notify_one();
        Ok(known)
    }

    /// Goes on with what a pod of an earlier life follows. The pod gets its turn within a few seconds.
    pub(crate) fn follow_again(&self, pod: PodSpec) {
        let spread = u32::try_from(hash(pod.uid.as_str()) % 1000).unwrap_or_default();
        let (uid, following) = (pod.uid.clone(), pod.following());
        if self.followed().get(&uid).is_some() || following.volumes.is_empty() {
            return;
        }
        if let Err(error) = self.follow(following, SPREAD / 1000 * spread) {
            tracing::warn!(pod.uid = %uid, error = %chain(&error), "files of a pod do not follow their objects");
        }
    }

    fn follow(&self, pod: PodSpec, delay: Duration) -> Result<Arc<PodObjects>, Error> {
        let uid = pod.uid.clone();
        let (keys, _) = needs(&pod);
        let before = self.followed().get(&uid);
        let kept = before.as_ref().map(|before| lock(&before.held).clone()).unwrap_or_default();
        let mut held = BTreeMap::new();
        // Even without objects: a token needs the API server too.
        self.objects().client()?;
        for key in keys {
            let one = match kept.get(&key) {
                Some(one) => one.clone(),
                None => self.objects().hold(&key)?,
            };
            held.insert(key, one);
        }
        if let Some(before) = before {
            *lock(&before.pod) = pod;
            // What is let go here ends its watch; not under the lock.
            let gone = std::mem::replace(&mut *lock(&before.held), held);
            drop((gone, kept));
            before.changed.notify_one();
            return Ok(before);
        }
        let objects = Arc::new(PodObjects {
            pod: Mutex::new(pod),
            held: Mutex::new(held),
            tokens: tokio::sync::Mutex::default(),
            changed: Arc::default(),
            task: Mutex::new(None),
        });
        let work = keep(self.clone(), uid.clone(), Arc::downgrade(&objects), delay);
        let task = tokio::spawn(self.shutdown().run_until_cancelled_owned(work));
        *lock(&objects.task) = Some(task.abort_handle());
        lock(&self.followed().0).insert(uid, objects.clone());
        Ok(objects)
    }

    async fn bring_tokens(&self, objects: &PodObjects) -> Result<(), Error> {
        let pod = lock(&objects.pod).clone();
        let (_, wanted) = needs(&pod);
        let client = self.objects().client()?.clone();
        let mut tokens = objects.tokens.lock().await;
        self.tokens().bring(&client, &pod.identity, pod.uid.as_str(), &wanted, &mut tokens).await;
        Ok(())
    }

    async fn snapshot(&self, objects: &PodObjects, expired: Expired) -> Snapshot {
        let seen = lock(&objects.held).iter().map(|(key, held)| (key.clone(), held.seen())).collect();
        let tokens = objects.tokens.lock().await;
        Snapshot {
            objects: seen,
            tokens: self.tokens().tokens(&tokens, expired == Expired::Fails),
            token_problem: tokens.problem(),
        }
    }

    /// Brings the files of the pod's standing volumes to what is known. A volume whose files cannot be told keeps what it has.
    async fn refresh(&self, uid: &PodUid, objects: &PodObjects) -> Result<(), Error> {
        self.bring_tokens(objects).await?;
        let lock_of_pod = Arc::new(self.lock(uid).await?);
        let pod = lock(&objects.pod).clone();
        let known = self.snapshot(objects, Expired::Stays).await;
        let mut failed = None;
        for volume in &pod.volumes {
            let Source::Files(spec) = &volume.source else { continue };
            let of = Of { uid: uid.clone(), name: volume.name.clone(), fs_group: pod.fs_group };
            let result = match known.files(spec) {
                Ok(files) => self.refresh_files(of, spec, files, &lock_of_pod).await,
                Err(error) => Err(error),
            };
            let problem = result.as_ref().err().map(|error| chain(error).to_string());
            let problem = problem.or_else(|| known.token_problem.clone().filter(|_| has_token(spec)));
            self.has_problem(uid, &volume.name, problem);
            if let Err(error) = result {
                failed = Some(Error::Volume { volume: volume.name.to_string(), source: Box::new(error) });
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Refreshes a pod's files until nobody follows anything for it.
async fn keep(volumes: Volumes, uid: PodUid, objects: std::sync::Weak<PodObjects>, delay: Duration) {
    let said = Said::every(SAY_AGAIN);
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    let mut begin = Some(Instant::now() + delay).filter(|_| !delay.is_zero());
    loop {
        let Some(now) = objects.upgrade() else { return };
        let mut seen: Vec<_> = lock(&now.held).values().map(Held::subscribe).collect();
        if begin.is_none() {
            match volumes.refresh(&uid, &now).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    let text = chain(&error).to_string();
                    if said.is_news(&text, Instant::now()) {
                        tracing::warn!(pod.uid = %uid, error = text, "files of a volume stay as they were");
                    }
                    begin = Some(Instant::now() + backoff.next_delay());
                }
            }
        }
        let due = volumes.tokens().next(&*now.tokens.lock().await);
        // Nothing of the pod is held while this waits: it may be let go, and then this task ends.
        let told = now.changed.clone();
        drop(now);
        let until = [due, begin.take()].into_iter().flatten().min();
        let until = until.unwrap_or_else(|| Instant::now() + LOOK).min(Instant::now() + LOOK);
        let changes = seen.iter_mut().map(|seen| Box::pin(seen.changed()));
        let changed = async {
            // `select_all` wants at least one.
            match changes.collect::<Vec<_>>() {
                none if none.is_empty() => std::future::pending().await,
                some => select_all(some).await.0.is_ok(),
            }
        };
        // All arms are cancel-safe, and each only asks for one more look.
        tokio::select! {
            _ = changed => {}
            () = told.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

/// The objects and tokens that a pod's volumes need.
fn needs(pod: &PodSpec) -> (BTreeSet<Key>, Vec<TokenKey>) {
    let parts = pod.volumes.iter().filter_map(|volume| match &volume.source {
        Source::Files(spec) => Some(&spec.parts),
        _ => None,
    });
    let (mut keys, mut tokens) = (BTreeSet::new(), BTreeSet::new());
    for part in parts.flatten() {
        keys.extend(part.key().cloned());
        if let Part::Token(file) = part {
            tokens.insert(file.token.clone());
        }
    }
    (keys, tokens.into_iter().collect())
}

fn has_token(spec: &FilesSpec) -> bool {
    spec.parts.iter().any(|part| matches!(part, Part::Token(_)))
}

fn hash(text: &str) -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(text)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
