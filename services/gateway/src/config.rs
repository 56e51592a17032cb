//! What gateway takes from the configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkhead_config::KubeletConfiguration;

/// Where to listen, who may come, and where logs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Of `/healthz`: `healthzBindAddress` and `healthzPort`; `None` when that port is 0.
    pub healthz: Option<SocketAddr>,
    /// Of the read-only port: `address` and `readOnlyPort`; `None` when that port is 0.
    pub read_only: Option<SocketAddr>,
    /// Of the secured port: `address` and `port`; `None` when `enableServer` is false or that port is 0.
    pub secured: Option<SocketAddr>,
    /// `podLogsDir`.
    pub pod_logs_dir: PathBuf,
    /// How the secured port is secured.
    pub tls: TlsSettings,
    /// Who may come there.
    pub access: AccessSettings,
    /// What is offered there.
    pub offers: Offers,
    /// `streamingConnectionIdleTimeout`.
    pub idle: Duration,
}

/// TLS of the secured port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// File of the certificate and what it was signed by.
    pub certificate: PathBuf,
    /// File of its key; may be the same.
    pub key: PathBuf,
    /// Whether TLS 1.2 is refused: `tlsMinVersion` is `VersionTLS13`.
    pub only_13: bool,
    /// `tlsCipherSuites`; empty: all.
    pub cipher_suites: Vec<String>,
    /// `authentication.x509.clientCAFile`; `None`: client certificates are not asked for.
    pub client_ca: Option<PathBuf>,
}

/// Who may come to the secured port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// The node's name, which is what is asked for.
    pub node: String,
    /// How long an answer about a token holds; `None`: no tokens.
    pub tokens: Option<Duration>,
    /// Whether whoever shows nothing is let in as `system:anonymous`.
    pub anonymous: bool,
    /// How long a yes and a no about rights hold; `None`: everybody who is somebody may do everything (`AlwaysAllow`).
    pub rights: Option<(Duration, Duration)>,
}

/// What is offered on the secured port beside what is always there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the configuration")]
pub struct Offers {
    /// `enableDebuggingHandlers`: logs, exec, attach, port-forward, running pods.
    pub debugging: bool,
    /// `enableProfilingHandler`.
    pub profiling: bool,
    /// `enableDebugFlagsHandler`.
    pub debug_flags: bool,
    /// `enableSystemLogHandler`: whether the folder of the system's logs is shown.
    pub system_logs: bool,
    /// That folder.
    pub system_logs_dir: PathBuf,
}

impl Settings {
    /// Reads them; `node` is the node's name, `cert_dir` the folder of its certificates.
    pub fn new(config: &KubeletConfiguration, node: &str, cert_dir: &Path) -> Self {
        let listen = |address, port| (port != 0).then(|| SocketAddr::new(address, port));
        Self {
            healthz: listen(config.healthz_bind_address, config.healthz_port),
            read_only: listen(config.address, config.read_only_port),
            secured: listen(config.address, config.port).filter(|_| config.enable_server),
            pod_logs_dir: PathBuf::from(&config.pod_logs_dir),
            tls: TlsSettings::new(config, cert_dir),
            access: AccessSettings::new(config, node),
            offers: Offers {
                debugging: config.enable_debugging_handlers,
                profiling: config.enable_profiling_handler,
                debug_flags: config.enable_debug_flags_handler,
                system_logs: config.enable_system_log_handler,
                system_logs_dir: PathBuf::from("/var/log"),
            },
            idle: config.streaming_connection_idle_timeout.to_std(),
        }
    }
}

impl TlsSettings {
    fn new(config: &KubeletConfiguration, cert_dir: &Path) -> Self {
        let (certificate, key) = if config.server_tls_bootstrap {
            // What apigate was given by the cluster; never a certificate that nobody signed.
            let both = cert_dir.join("kubelet-server-current.pem");
            (both.clone(), both)
        } else if config.tls_cert_file.is_empty() {
            (cert_dir.join("kubelet.crt"), cert_dir.join("kubelet.key"))
        } else {
            (PathBuf::from(&config.tls_cert_file), PathBuf::from(&config.tls_private_key_file))
        };
        let client_ca = &config.authentication.x509.client_ca_file;
        Self {
            certificate,
            key,
            only_13: config.tls_min_version == "VersionTLS13",
            cipher_suites: config.tls_cipher_suites.clone(),
            client_ca: (!client_ca.is_empty()).then(|| PathBuf::from(client_ca)),
        }
    }
}

impl AccessSettings {
    fn new(config: &KubeletConfiguration, node: &str) -> Self {
        let (who, what) = (&config.authentication, &config.authorization);
        let rights =
            (what.webhook.cache_authorized_ttl.to_std(), what.webhook.cache_unauthorized_ttl.to_std());
        Self {
            node: node.to_owned(),
            tokens: who.webhook.enabled.then(|| who.webhook.cache_ttl.to_std()),
            anonymous: who.anonymous.enabled,
            rights: (what.mode != "AlwaysAllow").then_some(rights),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(config: &KubeletConfiguration) -> Settings {
        Settings::new(config, "node-a", Path::new("/pki"))
    }

    #[test]
    fn port_zero_means_no_server() {
        let mut config = KubeletConfiguration::default();
        assert_eq!(settings(&config).healthz, Some("127.0.0.1:10248".parse().unwrap()));
        assert_eq!(settings(&config).read_only, None, "off by default");
        assert_eq!(settings(&config).secured, Some("0.0.0.0:10250".parse().unwrap()));
        config.healthz_port = 0;
        config.read_only_port = 10255;
        config.enable_server = false;
        assert_eq!(settings(&config).healthz, None);
        assert_eq!(settings(&config).read_only, Some("0.0.0.0:10255".parse().unwrap()));
        assert_eq!(settings(&config).secured, None);
        config.enable_server = true;
        config.port = 0;
        assert_eq!(settings(&config).secured, None);
    }

    #[test]
    fn the_certificate_is_the_given_one_or_the_clusters_or_the_nodes_own() {
        let mut config = KubeletConfiguration::default();
        let places = |config: &KubeletConfiguration| {
            let tls = settings(config).tls;
            [tls.certificate, tls.key].map(|path| path.display().to_string())
        };
        assert_eq!(places(&config), ["/pki/kubelet.crt", "/pki/kubelet.key"]);
        config.tls_cert_file = "/c".into();
        config.tls_private_key_file = "/k".into();
        assert_eq!(places(&config), ["/c", "/k"]);
        config.server_tls_bootstrap = true;
        assert_eq!(places(&config), ["/pki/kubelet-server-current.pem"; 2]);
    }

    #[test]
    fn by_default_nobody_may_come_without_showing_who_he_is() {
        let access = settings(&KubeletConfiguration::default()).access;
        assert!(!access.anonymous && access.rights.is_some());
        let mut config = KubeletConfiguration::default();
        config.authorization.mode = "AlwaysAllow".to_owned();
        config.authentication.webhook.enabled = false;
        let access = settings(&config).access;
        assert_eq!((access.rights, access.tokens), (None, None));
    }
}
