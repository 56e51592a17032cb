//! The blocks inside the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::is_zero;
use crate::duration::{self, Duration};

/// Who a caller of the server is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Authentication {
    /// By client certificate.
    pub x509: X509,
    /// By bearer token, asked from the API server.
    pub webhook: Webhook,
    /// Without any proof.
    pub anonymous: Anonymous,
}

/// Authentication by client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct X509 {
    /// CA bundle that client certificates are checked against, PEM; absolute. Empty: none are accepted.
    #[serde(rename = "clientCAFile", skip_serializing_if = "is_zero")]
    pub client_ca_file: String,
}

/// Authentication by bearer token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Webhook {
    /// Whether tokens are accepted. Default: true.
    pub enabled: bool,
    /// How long an answer of the API server holds. Default: 2m.
    #[serde(rename = "cacheTTL")]
    pub cache_ttl: Duration,
}

impl Default for Webhook {
    fn default() -> Self {
        Self { enabled: true, cache_ttl: Duration::from_secs(120) }
    }
}

/// Callers without any proof of who they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Anonymous {
    /// Whether they are let in. Default: false.
    pub enabled: bool,
}

/// What a caller of the server may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Authorization {
    /// `Webhook` (the API server is asked) or `AlwaysAllow`. Default: `Webhook`.
    #[serde(skip_serializing_if = "is_zero")]
    pub mode: String,
    /// Settings of the mode `Webhook`.
    pub webhook: AuthorizationWebhook,
}

impl Default for Authorization {
    fn default() -> Self {
        Self { mode: "Webhook".into(), webhook: AuthorizationWebhook::default() }
    }
}

/// Authorization by the API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthorizationWebhook {
    /// How long a yes holds. Default: 5m.
    #[serde(rename = "cacheAuthorizedTTL")]
    pub cache_authorized_ttl: Duration,
    /// How long a no holds. Default: 30s.
    #[serde(rename = "cacheUnauthorizedTTL")]
    pub cache_unauthorized_ttl: Duration,
}

impl Default for AuthorizationWebhook {
    fn default() -> Self {
        Self {
            cache_authorized_ttl: Duration::from_secs(300),
            cache_unauthorized_ttl: Duration::from_secs(30),
        }
    }
}

/// Use of swap by containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemorySwap {
    /// `NoSwap` or `LimitedSwap`. Empty: `NoSwap`.
    #[serde(skip_serializing_if = "is_zero")]
    pub swap_behavior: String,
}

/// Restarts of containers that end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CrashLoopBackOff {
    /// Longest wait between restarts, 1s to 5m. Default: 5m.
    pub max_container_restart_period: Duration,
}

impl Default for CrashLoopBackOff {
    fn default() -> Self {
        Self { max_container_restart_period: Duration::from_secs(300) }
    }
}

/// How the processes log (`LoggingConfiguration`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Logging {
    /// `text` or `json`. Default: `text`.
    #[serde(skip_serializing_if = "is_zero")]
    pub format: String,
    /// How long a log line may be buffered. Default: 5s.
    #[serde(deserialize_with = "duration::or_nanos")]
    pub flush_frequency: Duration,
    /// How much is logged; 0 is the least. Default: 2.
    pub verbosity: u32,
    /// Verbosity of single files, for the format `text`.
    #[serde(skip_serializing_if = "is_zero")]
    pub vmodule: Vec<VModuleItem>,
    /// Settings of the formats.
    pub options: LogOptions,
}

impl Default for Logging {
    fn default() -> Self {
        Self {
            format: "text".into(),
            flush_frequency: Duration::from_secs(5),
            verbosity: 2,
            vmodule: Vec::new(),
            options: LogOptions::default(),
        }
    }
}

/// Verbosity of the source files that match a pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VModuleItem {
    /// File name without its ending, or a pattern of names.
    pub file_pattern: String,
    /// Verbosity of these files.
    pub verbosity: u32,
}

/// Settings of the log formats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LogOptions {
    /// Of the format `text`.
    pub text: LogFormatOptions,
    /// Of the format `json`.
    pub json: LogFormatOptions,
}

/// Settings of one log format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LogFormatOptions {
    /// Whether errors go to the standard error and the rest, buffered, to the standard output.
    #[serde(skip_serializing_if = "is_zero")]
    pub split_stream: bool,
    /// Size of the buffer, as a quantity. Default: `0`.
    pub info_buffer_size: String,
}

impl Default for LogFormatOptions {
    fn default() -> Self {
        Self { split_stream: false, info_buffer_size: "0".into() }
    }
}

/// How long a shutdown of the node waits for pods of a priority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ShutdownByPriority {
    /// Lowest priority that this is for.
    pub priority: i32,
    /// The wait in seconds.
    pub shutdown_grace_period_seconds: i64,
}

/// Memory of one NUMA node that is kept for the system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemoryReservation {
    /// The NUMA node.
    pub numa_node: i32,
    /// Quantity by kind of memory.
    pub limits: BTreeMap<String, String>,
}

/// A taint of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value; may be empty.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added, RFC 3339; for `NoExecute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// Where spans are sent (`TracingConfiguration`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Tracing {
    /// Address of the OTLP collector. None: `localhost:4317`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Traces out of a million that are kept, 0 to 1000000. None: what the caller decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_rate_per_million: Option<i32>,
}

/// Id ranges of pods with a user namespace (KEP-127).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserNamespaces {
    /// Ids of one pod, a multiple of 65536. None: 65536.
    #[serde(rename = "idsPerPod", skip_serializing_if = "Option::is_none")]
    pub ids_per_pod: Option<i64>,
}

/// Reads an address with a message that says what to write.
pub(super) fn ip_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| de::Error::custom("is not an IP address: write one such as 127.0.0.1 or ::1"))
}

/// HTTP headers by name. Their values may be secrets, so `Debug` shows the names alone.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headers(pub BTreeMap<String, Vec<String>>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
