//! Flags that every process has. Those that the kubelet has too carry its names and defaults.

use std::net::IpAddr;
use std::path::PathBuf;

/// Common to all processes.
#[derive(Clone, Debug, clap::Args)]
pub struct CommonFlags {
    /// KubeletConfiguration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of *.conf files that are laid over the configuration file in the order of their names.
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// Folder of the processes' sockets.
    #[arg(long, value_name = "DIR", default_value = "/run/bulkhead")]
    pub run_dir: PathBuf,
    /// The kubelet's folder: pods, volumes, plug-ins.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// Folder above each process' own state.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/bulkhead")]
    pub state_dir: PathBuf,
    /// File that says which uid is which process. Without it, system accounts with the processes' names are used.
    #[arg(long, value_name = "FILE")]
    pub identities: Option<PathBuf>,
    /// Name of the node instead of the host's name.
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// Addresses of the node, primary one first; found out when not given.
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// CRI socket to use instead of the process' own one at crigate (for crigate: instead of the configuration's).
    #[arg(long, value_name = "SOCKET")]
    pub cri_endpoint: Option<PathBuf>,
    /// `text` or `json`.
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// What to log, as tracing's filter: `info`, `debug`, `syncd=debug,info`.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
}

/// Form of log lines on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl CommonFlags {
    /// The node's name: the override, or the host's name, in lower case.
    pub fn node_name(&self) -> String {
        let name = self
            .hostname_override
            .clone()
            .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
        name.unwrap_or_default().trim().to_lowercase()
    }

    /// The node's addresses, the primary one first: what `--node-ip` says, or the address by which this machine would
    /// reach others, or the loopback address when it could not reach any.
    pub fn node_ips(&self) -> Vec<IpAddr> {
        if !self.node_ip.is_empty() {
            return self.node_ip.clone();
        }
        // Connecting a datagram socket sends nothing: the kernel only chooses the route and the source address. The
        // target is a documentation address (RFC 5737).
        let routed = std::net::UdpSocket::bind("0.0.0.0:0")
            .and_then(|socket| socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()))
            .map(|address| address.ip());
        vec![routed.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST))]
    }
}
