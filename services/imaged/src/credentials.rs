//! What an image may be pulled with: the pod's own Secrets, then what the node has.
//!
//! Owns reading them, each time that a pull is about to begin. Must never keep a Secret beyond its pull, nor hold a pull up for
//! long: what cannot be had in time is gone without, as many images need none.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_ipc::said::Said;
use bulkhead_kubeapi::quiet;
use bulkhead_model::image::ImageRef;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use crate::keyring::{Auth, Keyring};
use crate::providers::Providers;

/// How long all Secrets of a pod may take.
const SECRETS: Duration = Duration::from_secs(5);
/// Credentials that are tried for one pull.
const TRIES: usize = 16;
/// Bytes of a configuration: as many as a Secret may have.
const BYTES: u64 = 1 << 20;
/// How often the same trouble is said again.
const SAY_AGAIN: Duration = Duration::from_secs(300);

/// For whom an image is pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The pod's namespace.
    pub(crate) namespace: String,
    /// `imagePullSecrets`.
    pub(crate) secrets: Vec<String>,
}

/// Whose credentials they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A Secret of the pod's: NAMESPACE/NAME/UID.
    Secret(String),
    /// The node's: for every pod.
    Node,
}

/// Credentials to be tried one after another; none: the image is pulled without. Secret.
#[derive(Clone, Default)]
pub(crate) struct Access {
    auths: Arc<[(Auth, Source)]>,
    /// Differs where credentials differ, in this life.
    fingerprint: u64,
}

/// Finds credentials. Clones share everything.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<Inner>);

/// Where credentials come from.
#[derive(Default)]
pub(crate) struct Sources {
    /// To the API server, if there is one.
    pub(crate) client: Option<Client>,
    /// Docker configurations.
    pub(crate) files: Vec<PathBuf>,
    /// Programs.
    pub(crate) providers: Providers,
}

struct Inner {
    sources: Sources,
    hasher: RandomState,
    said: Said,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} credentials>", self.auths.len())
    }
}

impl Access {
    /// In their order.
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = (&Auth, &Source)> + ExactSizeIterator {
        self.auths.iter().map(|(auth, source)| (auth, source))
    }

    /// Whether any of them is a pod's own.
    pub(crate) fn has_own(&self) -> bool {
        self.all().any(|(_, source)| *source != Source::Node)
    }

    #[cfg(test)]
    pub(crate) fn new_for_test(auths: Vec<(Auth, Source)>) -> Self {
        Self { auths: auths.into(), fingerprint: 0 }
    }

    /// Under which name pulls of `image` with these credentials are one.
    pub(crate) fn key(&self, image: &str) -> String {
        if self.auths.is_empty() { image.to_owned() } else { format!("{image} {:016x}", self.fingerprint) }
    }
}

impl Credentials {
    /// From these.
    pub(crate) fn new(sources: Sources) -> Self {
        let (hasher, said) = (RandomState::new(), Said::every(SAY_AGAIN));
        Self(Arc::new(Inner { sources, hasher, said }))
    }

    /// What `image` may be pulled with for this pod.
    pub(crate) async fn find(&self, image: &ImageRef, owner: &Owner) -> Access {
        let secrets = tokio::time::timeout(SECRETS, self.secrets(owner)).await.unwrap_or_else(|_| {
            self.say("the API server does not answer: images are pulled without the pods' Secrets");
            Vec::new()
        });
        let files = self.files().await;
        let provided = self.provided(image).await;
        let own = secrets.iter().map(|(keyring, source)| (keyring, source.clone()));
        let nodes = files.iter().chain(&provided).map(|keyring| (keyring, Source::Node));
        let mut auths: Vec<(Auth, Source)> = Vec::new();
        for (keyring, source) in own.chain(nodes) {
            for auth in keyring.matching(image) {
                if auths.len() < TRIES && !auths.iter().any(|(known, _)| known == auth) {
                    auths.push((auth.clone(), source.clone()));
                }
            }
        }
        let fingerprint = self.0.hasher.hash_one(auths.iter().map(|(auth, _)| auth).collect::<Vec<_>>());
        Access { auths: auths.into(), fingerprint }
    }

    async fn secrets(&self, owner: &Owner) -> Vec<(Keyring, Source)> {
        let mut keyrings = Vec::new();
        let Some(client) = &self.0.sources.client else { return keyrings };
        for name in &owner.secrets {
            let of = format!("pull secret {}/{name}", owner.namespace);
            match quiet::get::<Secret>(client, &owner.namespace, name).await {
                Ok(Some(secret)) => match keyring(&secret) {
                    Some(keyring) => {
                        let uid = secret.metadata.uid.unwrap_or_default();
                        let source = Source::Secret(format!("{}/{name}/{uid}", owner.namespace));
                        keyrings.push((keyring, source));
                    }
                    None => self.say(&format!("{of} holds no docker configuration")),
                },
                Ok(None) => self.say(&format!("{of} does not exist")),
                Err(error) => self.say(&format!("{of} cannot be read: {}", quiet::reason(&error))),
            }
        }
        keyrings
    }

    async fn provided(&self, image: &ImageRef) -> Vec<Keyring> {
        let answers = self.0.sources.providers.ask(image).await.into_iter();
        answers.filter_map(|answer| answer.inspect_err(|reason| self.say(reason)).ok()).collect()
    }

    async fn files(&self) -> Vec<Keyring> {
        let mut keyrings = Vec::new();
        for path in &self.0.sources.files {
            match read(path).await {
                Ok(Some(bytes)) => {
                    let legacy = path.extension().is_none_or(|extension| extension != "json");
                    let keyring = if legacy { Keyring::legacy(&bytes) } else { Keyring::config(&bytes) };
                    match keyring {
                        Ok(keyring) => keyrings.push(keyring),
                        Err(error) => self.say(&format!("{}: {error}", path.display())),
                    }
                }
                Ok(None) => {}
                Err(error) => self.say(&format!("{} cannot be read: {error}", path.display())),
            }
        }
        keyrings
    }

    fn say(&self, text: &str) {
        if self.0.said.is_news(text, Instant::now()) {
            tracing::warn!(reason = text, "credentials for images");
        }
    }
}

/// Where the kubelet looks for docker configurations of the node, but for its working folder: that of a process among ten is
/// nobody's place for files.
pub(crate) fn places(root: &Path, home: Option<PathBuf>) -> Vec<PathBuf> {
    let hidden = |folder: &Path| folder.join(".docker");
    let home = home.filter(|home| home.is_absolute() && *home != Path::new("/"));
    let config = [Some(root.to_owned()), home.as_deref().map(hidden), Some(hidden(Path::new("/")))];
    let legacy = [Some(root.to_owned()), home.clone(), Some("/".into())];
    let config = config.into_iter().flatten().map(|folder| folder.join("config.json"));
    let legacy = legacy.into_iter().flatten().map(|folder| folder.join(".dockercfg"));
    config.chain(legacy).collect()
}

async fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    use std::io::ErrorKind;
    let file = match tokio::fs::File::open(path).await {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if !file.metadata().await?.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES).read_to_end(&mut bytes).await?;
    Ok(Some(bytes))
}

/// What a Secret of either kind holds.
fn keyring(secret: &Secret) -> Option<Keyring> {
    let value = |key: &str| secret.data.as_ref()?.get(key).map(|value| value.0.as_slice());
    match secret.type_.as_deref()? {
        "kubernetes.io/dockerconfigjson" => Keyring::config(value(".dockerconfigjson")?).ok(),
        "kubernetes.io/dockercfg" => Keyring::legacy(value(".dockercfg")?).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
