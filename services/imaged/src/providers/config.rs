//! `--image-credential-provider-config`: a `CredentialProviderConfig` of kubelet.config.k8s.io.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{Provider, VERSION};
use crate::keyring::Pattern;

/// Bytes of the file.
const BYTES: usize = 1 << 20;
/// The longest that an answer is remembered, whatever it says.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// Why credential providers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is no configuration.
    #[error("{}: {problem}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    api_version: String,
    kind: String,
    #[serde(default)]
    providers: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    default_cache_duration: Option<String>,
    api_version: String,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<Variable>>,
    token_attributes: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    value: String,
}

pub(super) fn load(path: &Path, programs: &Path) -> Result<Vec<Provider>, ConfigError> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    parse(&text, programs).map_err(|problem| ConfigError::Wrong { path: path.to_owned(), problem })
}

pub(super) fn parse(text: &str, programs: &Path) -> Result<Vec<Provider>, String> {
    if text.len() > BYTES {
        return Err("it is longer than 1 MiB".to_owned());
    }
    let config: Config = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let version = config.api_version.strip_prefix("kubelet.config.k8s.io/").unwrap_or_default();
    if config.kind != "CredentialProviderConfig" || !matches!(version, "v1" | "v1beta1" | "v1alpha1") {
        return Err("it is no CredentialProviderConfig of kubelet.config.k8s.io/v1".to_owned());
    }
    let mut names = BTreeSet::new();
    let mut providers = Vec::new();
    for entry in config.providers {
        let name = entry.name.clone();
        if !names.insert(name.clone()) {
            return Err(format!("two providers have the name {name:?}"));
        }
        providers.push(provider(entry, programs).map_err(|problem| format!("provider {name:?}: {problem}"))?);
    }
    if providers.is_empty() {
        return Err("it names no provider".to_owned());
    }
    Ok(providers)
}

fn provider(entry: Entry, programs: &Path) -> Result<Provider, String> {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
    let is_name = !entry.name.is_empty() && !matches!(entry.name.as_str(), "." | "..");
    if !is_name || !entry.name.chars().all(plain) {
        return Err("its name can be no program's".to_owned());
    }
    if entry.api_version != VERSION {
        return Err(format!("its apiVersion is not {VERSION}, the one that this version speaks"));
    }
    if entry.token_attributes.is_some() {
        return Err("tokenAttributes is not supported by this version".to_owned());
    }
    if entry.match_images.is_empty() {
        return Err("matchImages is empty: it would never be asked".to_owned());
    }
    let pattern =
        |text: &String| Pattern::parse(text).ok_or_else(|| format!("matchImages: {text:?} names no images"));
    let images = entry.match_images.iter().map(pattern).collect::<Result<_, _>>()?;
    let default = entry.default_cache_duration.as_deref().ok_or("defaultCacheDuration is missing")?;
    let default_duration =
        duration(default).ok_or_else(|| format!("defaultCacheDuration: {default:?} is no duration"))?;
    let program = programs.join(&entry.name);
    if !program.is_file() {
        return Err(format!("there is no program {}", program.display()));
    }
    let env = entry.env.into_iter().flatten().map(|variable| (variable.name, variable.value)).collect();
    Ok(Provider {
        name: entry.name,
        program,
        images,
        default_duration,
        args: entry.args.unwrap_or_default(),
        env,
        said: Default::default(),
    })
}

/// A duration as the API writes it: `12h`, `1h30m`, `500ms`, `0`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let number: f64 = number.parse().ok()?;
        let letters = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at_checked(letters)?;
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = next;
    }
    (!text.is_empty()).then_some(total.min(LONGEST))
}
