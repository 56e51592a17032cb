//! What gateway takes from the configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use bulkhead_config::KubeletConfiguration;

/// Where to listen and where logs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Of `/healthz`: `healthzBindAddress` and `healthzPort`; `None` when that port is 0.
    pub healthz: Option<SocketAddr>,
    /// Of the read-only port: `address` and `readOnlyPort`; `None` when that port is 0.
    pub read_only: Option<SocketAddr>,
    /// `podLogsDir`.
    pub pod_logs_dir: PathBuf,
}

impl Settings {
    /// Reads them.
    pub fn from_configuration(config: &KubeletConfiguration) -> Self {
        let listen = |address, port| (port != 0).then(|| SocketAddr::new(address, port));
        Self {
            healthz: listen(config.healthz_bind_address, config.healthz_port),
            read_only: listen(config.address, config.read_only_port),
            pod_logs_dir: PathBuf::from(&config.pod_logs_dir),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_zero_means_no_server() {
        let mut config = KubeletConfiguration::default();
        let settings = Settings::from_configuration(&config);
        assert_eq!(settings.healthz, Some("127.0.0.1:10248".parse().unwrap()));
        assert_eq!(settings.read_only, None, "off by default");
        config.healthz_port = 0;
        config.read_only_port = 10255;
        let settings = Settings::from_configuration(&config);
        assert_eq!(settings.healthz, None);
        assert_eq!(settings.read_only, Some("0.0.0.0:10255".parse().unwrap()));
    }
}
