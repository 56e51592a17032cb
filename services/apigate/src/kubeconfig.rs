//! A kubeconfig file: where the API server is and as whom it is spoken to. Pure: files that it names stay names.
//!
//! What this release does not do (proxies, exec plug-ins, impersonation, passwords) is refused by name: a credential that
//! silently means something else would be worse than none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::base64;
use crate::secret::Secret;

/// What the current context of a kubeconfig says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// `https://HOST[:PORT][/PATH]`, as it stands there.
    pub server: String,
    /// Name in the server's certificate when it is not the host's.
    pub tls_server_name: Option<String>,
    /// Whose certificates the server's may be signed by.
    pub trust: Trust,
    /// The client certificate and its key; both or none.
    pub identity: Option<(Material, Material)>,
    /// A bearer token.
    pub token: Option<Material>,
}

/// Who may sign the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// These.
    Authorities(Material),
    /// Whoever the machine trusts.
    Machine,
    /// Anybody: `insecure-skip-tls-verify`.
    Anybody,
}

/// Content, or the file that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Material {
    /// In the kubeconfig itself.
    Inline(Secret),
    /// In this file.
    File(PathBuf),
}

/// Why a kubeconfig cannot be used. Never shows what stands in it but names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// It is no YAML of this shape.
    #[error("it is not a kubeconfig{0}")]
    Syntax(String),
    /// A name leads nowhere.
    #[error("{0}")]
    Missing(String),
    /// It wants what is not there.
    #[error("{field} is not supported: {remedy}")]
    Unsupported {
        /// The field.
        field: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A value cannot be used.
    #[error("{field} {reason}")]
    Value {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default, rename = "current-context")]
    current: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Default, Deserialize)]
struct Context {
    #[serde(default)]
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    tls_server_name: String,
    insecure_skip_tls_verify: bool,
    certificate_authority: String,
    certificate_authority_data: String,
    proxy_url: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    password: String,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    #[serde(rename = "as")]
    impersonate: String,
    as_uid: String,
    as_groups: Vec<IgnoredAny>,
    as_user_extra: BTreeMap<String, IgnoredAny>,
}

impl Kubeconfig {
    /// Reads the text of a file in `folder`: relative names in it are meant from there.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn parse(text: &[u8], folder: &Path) -> Result<Self, KubeconfigError> {
        let file: File = serde_saphyr::from_slice_with_options(text, options()).map_err(|error| {
            // The parser's own words may repeat a secret.
            let at = error.location().map(|at| format!(": see line {}, column {}", at.line(), at.column()));
            KubeconfigError::Syntax(at.unwrap_or_default())
        })?;
        let File { clusters, users, contexts, current } = file;
        if current.is_empty() {
            return Err(KubeconfigError::Missing("it has no current-context".to_owned()));
        }
        let missing = |what: &str, name: &str| {
            KubeconfigError::Missing(format!("there is no {what} named {name:?} in it"))
        };
        let context = contexts.into_iter().find(|context| context.name == current);
        let Context { cluster, user } = context.ok_or_else(|| missing("context", &current))?.context;
        let found = clusters.into_iter().find(|named| named.name == cluster);
        let cluster = found.ok_or_else(|| missing("cluster", &cluster))?.cluster;
        let found = users.into_iter().find(|named| named.name == user);
        let user = match found {
            Some(named) => named.user,
            None if user.is_empty() => User::default(),
            None => return Err(missing("user", &user)),
        };
        refuse(&cluster, &user)?;
        let trust = match (cluster.insecure_skip_tls_verify, cluster.authorities(folder)?) {
            (true, Some(_)) => {
                let reason = "and certificate-authority exclude each other: remove one of them";
                return Err(KubeconfigError::Value { field: "insecure-skip-tls-verify", reason });
            }
            (true, None) => Trust::Anybody,
            (false, Some(authorities)) => Trust::Authorities(authorities),
            (false, None) => Trust::Machine,
        };
        Ok(Self {
            server: cluster.server,
            tls_server_name: Some(cluster.tls_server_name).filter(|name| !name.is_empty()),
            trust,
            identity: user.identity(folder)?,
            token: user.token(folder),
        })
    }

    /// As a text that names `pair`, a file with certificate and key, in place of whatever it named. As the kubelet writes it
    /// after it got its first certificate: with these names in it.
    pub fn with_certificate(&self, pair: &Path) -> String {
        self.write(&json!({"client-certificate": pair, "client-key": pair}))
    }

    /// As a text with this user.
    fn write(&self, user: &Value) -> String {
        let mut cluster = Map::from_iter([("server".to_owned(), json!(self.server))]);
        let mut set = |field: &str, value: Value| drop(cluster.insert(field.to_owned(), value));
        match &self.trust {
            Trust::Authorities(Material::Inline(data)) => {
                set("certificate-authority-data", json!(base64::encode(data.reveal())));
            }
            Trust::Authorities(Material::File(path)) => set("certificate-authority", json!(path)),
            Trust::Machine => {}
            Trust::Anybody => set("insecure-skip-tls-verify", json!(true)),
        }
        if let Some(name) = &self.tls_server_name {
            set("tls-server-name", json!(name));
        }
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "default-cluster", "cluster": cluster}],
            "users": [{"name": "default-auth", "user": user}],
            "contexts": [{
                "name": "default-context",
                "context": {"cluster": "default-cluster", "user": "default-auth", "namespace": "default"},
            }],
            "current-context": "default-context",
        });
        // JSON is YAML.
        format!("{text:#}\n")
    }

    /// As a text that names no other file: `read` brings what is in them.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn flatten<E>(mut self, read: impl Fn(&Path) -> Result<Vec<u8>, E>) -> Result<String, E> {
        let take = |material: &mut Material| -> Result<String, E> {
            if let Material::File(path) = material {
                *material = Material::Inline(Secret::new(read(path)?));
            }
            Ok(match material {
                Material::Inline(secret) => base64::encode(secret.reveal()),
                Material::File(_) => String::new(),
            })
        };
        if let Trust::Authorities(material) = &mut self.trust {
            take(material)?;
        }
        let mut user = Map::new();
        let mut set = |field: &str, value: Value| drop(user.insert(field.to_owned(), value));
        if let Some((certificate, key)) = &mut self.identity {
            set("client-certificate-data", json!(take(certificate)?));
            set("client-key-data", json!(take(key)?));
        }
        if let Some(token) = &mut self.token {
            take(token)?;
            if let Material::Inline(secret) = token {
                set("token", json!(String::from_utf8_lossy(secret.reveal()).trim()));
            }
        }
        Ok(self.write(&Value::Object(user)))
    }

    /// Files that it names.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let authorities = match &self.trust {
            Trust::Authorities(material) => Some(material),
            Trust::Machine | Trust::Anybody => None,
        };
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        authorities.into_iter().chain(identity).chain(&self.token).filter_map(|material| match material {
            Material::File(path) => Some(path.as_path()),
            Material::Inline(_) => None,
        })
    }
}

impl Cluster {
    fn authorities(&self, folder: &Path) -> Result<Option<Material>, KubeconfigError> {
        let field = "certificate-authority-data";
        material(field, &self.certificate_authority_data, &self.certificate_authority, folder)
    }
}

impl User {
    fn identity(&self, folder: &Path) -> Result<Option<(Material, Material)>, KubeconfigError> {
        let (data, file) = (&self.client_certificate_data, &self.client_certificate);
        let certificate = material("client-certificate-data", data, file, folder)?;
        let key = material("client-key-data", &self.client_key_data, &self.client_key, folder)?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => {
                Err(KubeconfigError::Value { field: "client-certificate", reason: "has no client-key" })
            }
            (None, Some(_)) => {
                Err(KubeconfigError::Value { field: "client-key", reason: "has no client-certificate" })
            }
        }
    }

    /// A token's file wins, as it does for the kubelet: it may have a newer one.
    fn token(&self, folder: &Path) -> Option<Material> {
        if !self.token_file.is_empty() {
            return Some(Material::File(folder.join(&self.token_file)));
        }
        Some(&self.token)
            .filter(|token| !token.is_empty())
            .map(|token| Material::Inline(Secret::new(token.clone().into_bytes())))
    }
}

/// Data wins over a file, as it does for the kubelet.
fn material(
    field: &'static str,
    data: &str,
    file: &str,
    folder: &Path,
) -> Result<Option<Material>, KubeconfigError> {
    if !data.is_empty() {
        let reason = "is not base64";
        let bytes = base64::decode(data).ok_or(KubeconfigError::Value { field, reason })?;
        return Ok(Some(Material::Inline(Secret::new(bytes))));
    }
    Ok(Some(file).filter(|file| !file.is_empty()).map(|file| Material::File(folder.join(file))))
}

fn refuse(cluster: &Cluster, user: &User) -> Result<(), KubeconfigError> {
    let impersonates = !user.impersonate.is_empty()
        || !user.as_uid.is_empty()
        || !user.as_groups.is_empty()
        || !user.as_user_extra.is_empty();
    let checks = [
        (!cluster.proxy_url.is_empty(), "proxy-url", "let the node reach the API server itself"),
        (
            user.exec.is_some(),
            "exec",
            "write a client certificate or tokenFile, and let a program renew that",
        ),
        (user.auth_provider.is_some(), "auth-provider", "write a client certificate or tokenFile"),
        (impersonates, "as", "a node is itself"),
        (
            !user.username.is_empty() || !user.password.is_empty(),
            "username",
            "the API server knows no passwords any more: write a client certificate or tokenFile",
        ),
    ];
    match checks.into_iter().find(|(wanted, _, _)| *wanted) {
        Some((_, field, remedy)) => Err(KubeconfigError::Unsupported { field, remedy }),
        None => Ok(()),
    }
}

fn options() -> serde_saphyr::options::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(1024 * 1024),
            max_documents: 1,
            max_depth: 32,
            flow_nesting_limit: 32,
            max_nodes: 5_000,
            max_events: 15_000,
            max_aliases: 0,
            max_anchors: 100,
            max_merge_keys: 0,
        },
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests;
