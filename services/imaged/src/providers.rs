//! Credential providers: programs of the node's administrator that know credentials of registries (KEP 2133).
//!
//! Owns which of them is asked for an image, and what they said for as long as they said it is good. Must never pass a
//! program's words on: they may be secret.

mod config;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_model::image::ImageRef;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::keyring::{Auth, Keyring, Pattern};

pub use config::ConfigError;

/// How long a program may take (the kubelet's).
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an answer.
const ANSWER: u64 = 1 << 20;
/// Answers of one provider that are remembered.
const REMEMBERED: usize = 512;
/// The one version of the protocol that is spoken.
const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

/// All of them, in the order of the configuration. Clones share what they said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Providers(Vec<Arc<Provider>>);

pub(crate) struct Provider {
    name: String,
    program: PathBuf,
    images: Vec<Pattern>,
    default_duration: Duration,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// What it said. Whoever has this asks it: one at a time.
    said: Mutex<HashMap<CacheKey, Said>>,
}

struct Said {
    keyring: Keyring,
    until: Instant,
}

/// What an answer is good for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CacheKey {
    Image(String),
    Registry(String),
    Global,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    api_version: &'a str,
    kind: &'a str,
    image: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    api_version: String,
    kind: String,
    #[serde(default)]
    cache_key_type: String,
    cache_duration: Option<String>,
    auth: Option<BTreeMap<String, Pair>>,
}

#[derive(Deserialize)]
struct Pair {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

impl Providers {
    /// Of this configuration, with programs in `programs`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn load(config: &Path, programs: &Path) -> Result<Self, ConfigError> {
        config::load(config, programs).map(|all| Self(all.into_iter().map(Arc::new).collect()))
    }

    /// What those say that know something of such images; the text is why one said nothing.
    pub(crate) async fn ask(&self, image: &ImageRef) -> Vec<Result<Keyring, String>> {
        let mut answers = Vec::new();
        for provider in &self.0 {
            if !provider.images.iter().any(|pattern| pattern.matches(image)) {
                continue;
            }
            let (asked, image) = (provider.clone(), image.clone());
            // In a task of its own: who asks may give up, and the next one who asks needs the answer.
            let answer = tokio::spawn(async move { asked.answer(&image).await }).await;
            let answer = answer.unwrap_or_else(|_| Err("it broke off".to_owned()));
            answers.push(answer.map_err(|why| format!("credential provider {}: {why}", provider.name)));
        }
        answers
    }
}

impl Provider {
    async fn answer(&self, image: &ImageRef) -> Result<Keyring, String> {
        let name = format!("{}/{}", image.registry, image.repository);
        let keys =
            [CacheKey::Image(name.clone()), CacheKey::Registry(image.registry.clone()), CacheKey::Global];
        let mut said = self.said.lock().await;
        let now = Instant::now();
        said.retain(|_, said| now < said.until);
        if let Some(known) = keys.iter().find_map(|key| said.get(key)) {
            return Ok(known.keyring.clone());
        }
        let answer = tokio::time::timeout(PATIENCE, self.run(&name)).await;
        let answer = answer.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))?;
        let (keyring, key, duration) = self.read(&answer, keys)?;
        if !duration.is_zero() && said.len() < REMEMBERED {
            said.insert(key, Said { keyring: keyring.clone(), until: Instant::now() + duration });
        }
        Ok(keyring)
    }

    async fn run(&self, image: &str) -> Result<Vec<u8>, String> {
        let request = Request { api_version: VERSION, kind: "CredentialProviderRequest", image };
        let request = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("it cannot be run: {error}"))?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("it has no pipes".to_owned());
        };
        let tell = async move {
            // One that does not read its request may know the answer all the same.
            let _ = input.write_all(&request).await;
        };
        let ((), answer) = tokio::join!(tell, read_all(output));
        let answer = answer?;
        match child.wait().await {
            Ok(status) if status.success() => Ok(answer),
            Ok(status) => Err(format!("it failed: {status}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The keyring, what it is good for, and for how long.
    fn read(&self, answer: &[u8], keys: [CacheKey; 3]) -> Result<(Keyring, CacheKey, Duration), String> {
        let broken = || "its answer is no CredentialProviderResponse".to_owned();
        let response: Response = serde_json::from_slice(answer).map_err(|_| broken())?;
        if response.kind != "CredentialProviderResponse" || response.api_version != VERSION {
            return Err(broken());
        }
        let [image, registry, global] = keys;
        let key = match response.cache_key_type.as_str() {
            "Image" => image,
            "Registry" => registry,
            "Global" => global,
            _ => {
                return Err(
                    "its answer has a cacheKeyType that is none of Image, Registry, Global".to_owned()
                );
            }
        };
        let duration = match response.cache_duration.as_deref() {
            Some(text) => config::duration(text).ok_or("its answer has a cacheDuration that is none")?,
            None => self.default_duration,
        };
        let entry = |(pattern, pair): (String, Pair)| {
            Some((Pattern::parse(&pattern)?, Auth::password(pair.username, pair.password)))
        };
        let entries = response.auth.into_iter().flatten().filter_map(entry);
        Ok((Keyring::new(entries.collect()), key, duration))
    }
}

async fn read_all(output: ChildStdout) -> Result<Vec<u8>, String> {
    let mut answer = Vec::new();
    let read = output.take(ANSWER + 1).read_to_end(&mut answer).await;
    read.map_err(|error| error.to_string())?;
    if u64::try_from(answer.len()).unwrap_or(u64::MAX) > ANSWER {
        return Err("its answer is longer than 1 MiB".to_owned());
    }
    Ok(answer)
}

#[cfg(test)]
mod tests;
