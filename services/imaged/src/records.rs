//! Who may use an image that is on the node (KEP 2535): a pod that could not have pulled it must not run it because another
//! pod could.
//!
//! Owns what is remembered of pulls, kept in `pulled.json` in the process' own folder: salted fingerprints of credentials and
//! names of Secrets, never a credential. Must never forget a pull that has begun: what it brings would pass for an image that
//! was there before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bulkhead_base::chain;
use bulkhead_config::KubeletConfiguration;
use bulkhead_model::image::ImageRef;
use bulkhead_service::StateFile;
use serde::{Deserialize, Serialize};

use crate::credentials::{Access, Source};
use crate::keyring::Auth;

const FILE: &str = "pulled.json";
const VERSION: u32 = 1;
/// Images that are remembered before those that are gone are looked for.
const CROWDED: usize = 512;

/// `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Whoever comes may have what is there.
    Never,
    /// What was there without a pull of ours is everybody's.
    Preloaded,
    /// The same of these alone: names without tag, perhaps ending in `/*`.
    Allowlisted(Vec<String>),
    /// Nothing is.
    Always,
}

/// What is remembered. Clones share it.
#[derive(Clone)]
pub(crate) struct Records(Arc<Inner>);

struct Inner {
    policy: Policy,
    file: Option<StateFile<Kept>>,
    kept: Mutex<Kept>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Makes fingerprints of one node useless on another.
    salt: String,
    /// Names of images whose pulls have begun and not ended.
    pulling: BTreeSet<String>,
    /// By id, then by name without tag.
    images: BTreeMap<String, BTreeMap<String, Grant>>,
}

/// Who may use an image under one of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Grant {
    /// It was pulled without credentials, or with those of the node.
    anyone: bool,
    /// Secrets that it was pulled with, also with another content by now.
    secrets: BTreeSet<String>,
    /// Fingerprints of what it was pulled with, in whatever Secret that is.
    credentials: BTreeSet<String>,
}

impl Policy {
    /// Of the node's configuration.
    pub(crate) fn from_configuration(config: &KubeletConfiguration) -> Self {
        match config.image_pull_credentials_verification_policy.as_str() {
            "NeverVerify" => Self::Never,
            "NeverVerifyAllowlistedImages" => {
                Self::Allowlisted(config.preloaded_images_verification_allowlist.clone())
            }
            "AlwaysVerify" => Self::Always,
            _ => Self::Preloaded,
        }
    }

    /// Whether an image that was there without a pull of ours is everybody's.
    fn opens_preloaded(&self, name: &str) -> bool {
        match self {
            Self::Never | Self::Preloaded => true,
            Self::Allowlisted(names) => names.iter().any(|listed| match listed.strip_suffix("/*") {
                Some(folder) => name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')),
                None => listed == name,
            }),
            Self::Always => false,
        }
    }
}

impl Records {
    /// What an earlier life remembered in `dir`.
    pub(crate) fn open(dir: &Path, policy: Policy) -> Self {
        let file: StateFile<Kept> = StateFile::new(dir, FILE, VERSION);
        let cost =
            "images that were pulled with a pod's credentials are any pod's until they are pulled again";
        let mut kept = file.load_or_log(cost).unwrap_or_default();
        if kept.salt.is_empty() {
            kept.salt = uuid::Uuid::new_v4().to_string();
        }
        Self(Arc::new(Inner { policy, file: Some(file), kept: Mutex::new(kept) }))
    }

    /// That keeps nothing on disk.
    #[cfg(test)]
    pub(crate) fn forgetful(policy: Policy) -> Self {
        Self(Arc::new(Inner { policy, file: None, kept: Mutex::default() }))
    }

    /// Whether what is known says that a pod may use the image without asking its registry.
    pub(crate) fn allows(&self, id: &str, image: &ImageRef, access: &Access) -> bool {
        let kept = self.kept();
        match self.grant(&kept, id, &name(image)) {
            None => true,
            Some(grant) => {
                grant.anyone
                    || access.all().any(|(auth, source)| match source {
                        Source::Secret(secret) => {
                            grant.secrets.contains(secret)
                                || grant.credentials.contains(&kept.fingerprint(auth))
                        }
                        Source::Node => false,
                    })
            }
        }
    }

    /// Whether it is everybody's, so that nobody's credentials need be looked at.
    pub(crate) fn is_open(&self, id: &str, image: &ImageRef) -> bool {
        let kept = self.kept();
        self.grant(&kept, id, &name(image)).is_none_or(|grant| grant.anyone)
    }

    /// `None`: everybody may use it, without any record.
    fn grant(&self, kept: &Kept, id: &str, name: &str) -> Option<Grant> {
        if self.0.policy == Policy::Never {
            return None;
        }
        match kept.images.get(id) {
            // What everybody can have under one name is no secret under another.
            Some(names) if names.values().any(|grant| grant.anyone) => None,
            // Under another name it is somebody else's.
            Some(names) => Some(names.get(name).cloned().unwrap_or_default()),
            None if kept.pulling.contains(name) => Some(Grant::default()),
            None if self.0.policy.opens_preloaded(name) => None,
            None => Some(Grant::default()),
        }
    }

    /// A pull with a pod's credentials is about to begin.
    ///
    /// # Errors
    /// When that cannot be kept; then it must not begin.
    pub(crate) async fn begin(&self, image: &ImageRef) -> Result<(), String> {
        let name = name(image);
        if !self.kept().pulling.insert(name) {
            return Ok(());
        }
        self.save().await
    }

    /// It ended; `pulled`: with this id, and with which credentials.
    pub(crate) async fn end(&self, image: &ImageRef, pulled: Option<(&str, Option<(&Auth, &Source)>)>) {
        let name = name(image);
        let changed = {
            let mut kept = self.kept();
            let before = kept.clone();
            kept.pulling.remove(&name);
            if let Some((id, with)) = pulled {
                let fingerprint = with.map(|(auth, _)| kept.fingerprint(auth));
                let grant = kept.images.entry(id.to_owned()).or_default().entry(name).or_default();
                match (with, fingerprint) {
                    (Some((_, Source::Secret(secret))), Some(fingerprint)) => {
                        grant.secrets.insert(secret.clone());
                        grant.credentials.insert(fingerprint);
                    }
                    _ => grant.anyone = true,
                }
            }
            *kept != before
        };
        if changed && let Err(error) = self.save().await {
            tracing::warn!(error, "who may use an image is not kept; a restart would forget it");
        }
    }

    /// Whether so much is remembered that it is worth looking for images that are gone.
    pub(crate) fn is_crowded(&self) -> bool {
        self.kept().images.len() > CROWDED
    }

    /// Forgets images that are gone.
    pub(crate) fn keep(&self, ids: &BTreeSet<String>) {
        self.kept().images.retain(|id, _| ids.contains(id));
    }

    async fn save(&self) -> Result<(), String> {
        let Some(file) = self.0.file.clone() else { return Ok(()) };
        let inner = self.0.clone();
        let save = move || {
            // What is written last must not be older than what was written before: the copy is made in the file's turn.
            let kept = inner.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
            file.save(&kept)
        };
        match tokio::task::spawn_blocking(save).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(chain(&error).to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn fingerprint(&self, auth: &Auth) -> String {
        auth.fingerprint(&self.salt)
    }
}

/// Without tag and digest.
fn name(image: &ImageRef) -> String {
    format!("{}/{}", image.registry, image.repository)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> ImageRef {
        ImageRef::parse(text).unwrap()
    }

    fn auth(password: &str) -> Auth {
        Auth::password("u".to_owned(), password.to_owned())
    }

    fn access(secret: Option<&str>, password: &str) -> Access {
        let source = secret.map_or(Source::Node, |name| Source::Secret(name.to_owned()));
        Access::new_for_test(vec![(auth(password), source)])
    }

    async fn pulled(records: &Records, text: &str, id: &str, with: Option<(&str, &str)>) {
        let (image, auth) = (image(text), with.map(|(_, password)| auth(password)));
        let source = with.map(|(secret, _)| Source::Secret(secret.to_owned()));
        records.begin(&image).await.unwrap();
        records.end(&image, Some((id, auth.as_ref().zip(source.as_ref())))).await;
    }

    #[tokio::test]
    async fn only_who_could_have_pulled_it_may_use_it() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path(), Policy::Preloaded);
        pulled(&records, "r.io/private:1", "id1", Some(("ns/s/1", "pw"))).await;
        pulled(&records, "r.io/public:1", "id2", None).await;
        for records in [records, Records::open(dir.path(), Policy::Preloaded)] {
            for (id, text, access, expected) in [
                ("id1", "r.io/private:2", access(Some("ns/s/1"), "pw"), true),
                ("id1", "r.io/private:1", access(Some("ns/s/1"), "rotated"), true),
                ("id1", "r.io/private:1", access(Some("other/t/2"), "pw"), true),
                ("id1", "r.io/private:1", access(Some("other/t/2"), "wrong"), false),
                ("id1", "r.io/private:1", access(None, "pw"), false),
                ("id1", "r.io/private:1", Access::default(), false),
                ("id1", "r.io/alias:1", access(Some("ns/s/1"), "pw"), false),
                ("id2", "r.io/public:1", Access::default(), true),
                ("id2", "r.io/alias:1", Access::default(), true),
                ("id3", "r.io/preloaded:1", Access::default(), true),
            ] {
                assert_eq!(records.allows(id, &image(text), &access), expected, "{id} {text} {access:?}");
            }
            assert!(
                records.is_open("id2", &image("r.io/public"))
                    && !records.is_open("id1", &image("r.io/private"))
            );
        }
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(text.contains("ns/s/1") && !text.contains("pw"), "{text}");
    }

    #[tokio::test]
    async fn a_pull_that_was_cut_off_leaves_no_image_that_is_everybodys() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path(), Policy::Preloaded);
        records.begin(&image("r.io/private:1")).await.unwrap();
        let next = Records::open(dir.path(), Policy::Preloaded);
        assert!(!next.allows("id1", &image("r.io/private:1"), &Access::default()));
        next.end(&image("r.io/private:1"), None).await;
        assert!(next.allows("id1", &image("r.io/private:1"), &Access::default()), "it never came");
    }

    #[tokio::test]
    async fn policies_differ_on_what_was_there_before() {
        let listed = || Policy::Allowlisted(vec!["r.io/base".to_owned(), "r.io/os/*".to_owned()]);
        for (policy, text, expected) in [
            (Policy::Never, "r.io/private", true),
            (Policy::Preloaded, "r.io/other", true),
            (Policy::Always, "r.io/other", false),
            (listed(), "r.io/base:1", true),
            (listed(), "r.io/os/a", true),
            (listed(), "r.io/os", false),
            (listed(), "r.io/osx/a", false),
            (listed(), "r.io/other", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let records = Records::open(dir.path(), policy.clone());
            pulled(&records, "r.io/private:1", "id1", Some(("ns/s/1", "pw"))).await;
            let id = if text == "r.io/private" { "id1" } else { "id9" };
            assert_eq!(records.allows(id, &image(text), &Access::default()), expected, "{policy:?} {text}");
        }
    }

    #[tokio::test]
    async fn what_is_gone_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path(), Policy::Preloaded);
        for number in 0..=CROWDED {
            pulled(&records, "r.io/a", &format!("id{number}"), None).await;
        }
        assert!(records.is_crowded());
        records.keep(&BTreeSet::from(["id1".to_owned()]));
        assert_eq!(records.kept().images.len(), 1);
    }
}
