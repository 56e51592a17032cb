//! Flags that every process has: its own, and all of the kubelet.
//!
//! Those of the kubelet that a process itself needs are fields here, with its names and defaults. The rest comes from the table of
//! [`bulkhead_config::FLAGS`]: they change the configuration, or are refused.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bulkhead_config::{About, FLAGS, Flag, Given, Kind};
use bulkhead_model::node_labels::{self, LabelError};
use clap::builder::{OsStringValueParser, TypedValueParser};

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
    /// How the API server is reached, and as whom: a kubeconfig file, which only apigate reads. Without it the node runs
    /// without a cluster.
    #[arg(long, value_name = "FILE", value_parser = maybe_empty())]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig with which apigate asks for a client certificate when there is none that is valid. The certificate goes
    /// into --cert-dir, and a kubeconfig that names it to --kubeconfig.
    #[arg(long, value_name = "FILE", value_parser = maybe_empty(), requires = "kubeconfig")]
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Folder of the node's certificates; `pki` beneath --root-dir when it is not given.
    #[arg(long, value_name = "DIR", value_parser = maybe_empty())]
    pub cert_dir: Option<PathBuf>,
    /// Labels of the node when it registers, beside its own.
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = labels, default_value = "", hide_default_value = true)]
    pub node_labels: NodeLabels,
    /// Credential providers for images: a CredentialProviderConfig of kubelet.config.k8s.io, which only imaged reads.
    #[arg(long, value_name = "FILE", value_parser = maybe_empty(), requires = "image_credential_provider_bin_dir")]
    pub image_credential_provider_config: Option<PathBuf>,
    /// Folder of the programs that --image-credential-provider-config names.
    #[arg(long, value_name = "DIR", value_parser = maybe_empty(), requires = "image_credential_provider_config")]
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// CRI socket to use instead of the process' own one at crigate (for crigate: instead of the configuration's).
    #[arg(long, value_name = "SOCKET")]
    pub cri_endpoint: Option<PathBuf>,
    /// Form of log lines; without it, `logging.format` of the configuration.
    #[arg(long, value_enum)]
    pub log_format: Option<LogFormat>,
    /// What to log, as tracing's filter: `info`, `debug`, `syncd=debug,info`; without it, `logging.verbosity` of the
    /// configuration.
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
}

/// Labels that a node may give itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabels(pub BTreeMap<String, String>);

fn labels(text: &str) -> Result<NodeLabels, LabelError> {
    node_labels::parse(text).map(NodeLabels)
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

/// For a file that the kubelet takes as not given when its name is empty.
fn maybe_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

fn given_path(path: Option<&PathBuf>) -> Option<&Path> {
    path.map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty())
}

/// The kubelet's flags that are no fields of [`CommonFlags`], for a command line.
pub fn kubelet_args() -> impl Iterator<Item = clap::Arg> {
    FLAGS.iter().filter(|flag| flag.about != About::Process).map(argument)
}

fn argument(flag: &'static Flag) -> clap::Arg {
    let help = match flag.about {
        About::Field(field) => format!("Sets {field} of the configuration"),
        About::Missing { .. } | About::Process => "Not in this release: only its default is taken".to_owned(),
    };
    let argument = clap::Arg::new(flag.name)
        .long(flag.name)
        .action(clap::ArgAction::Append)
        .allow_negative_numbers(true)
        .help(help)
        .help_heading("Flags of the kubelet")
        .hide_short_help(true);
    let argument = if flag.name == "v" { argument.short('v') } else { argument };
    if flag.kind == Kind::Switch {
        argument.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("true|false")
    } else {
        argument.value_name(value_name(flag.kind))
    }
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Switch => "true|false",
        Kind::Number => "NUMBER",
        Kind::Text => "TEXT",
        Kind::Time => "DURATION",
        Kind::Texts => "TEXT,...",
        Kind::Pairs => "KEY=VALUE,...",
        Kind::Thresholds => "SIGNAL<VALUE,...",
        Kind::Switches => "KEY=true,...",
        Kind::Headers => "NAME:VALUE,...",
        Kind::Taints => "KEY=VALUE:EFFECT,...",
        Kind::Reservations => "NODE:KIND=AMOUNT,...",
        Kind::Levels => "PATTERN=LEVEL,...",
    }
}

/// Those of [`kubelet_args`] that were given.
pub fn given(matches: &clap::ArgMatches) -> Vec<Given> {
    let given = |flag: &'static Flag| {
        // A command line without the flag is as one where it was not given.
        let values = matches.try_get_many::<String>(flag.name).ok()??;
        Some(Given { flag, values: values.cloned().collect() })
    };
    FLAGS.iter().filter(|flag| flag.about != About::Process).filter_map(given).collect()
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

    /// The kubeconfig; `None`: the node runs without a cluster.
    pub fn kubeconfig(&self) -> Option<&Path> {
        given_path(self.kubeconfig.as_ref())
    }

    /// The kubeconfig to ask for a certificate with.
    pub fn bootstrap_kubeconfig(&self) -> Option<&Path> {
        given_path(self.bootstrap_kubeconfig.as_ref())
    }

    /// Configuration and folder of credential providers for images, if there are any.
    pub fn image_credential_providers(&self) -> Option<(&Path, &Path)> {
        let config = given_path(self.image_credential_provider_config.as_ref());
        Some((config?, given_path(self.image_credential_provider_bin_dir.as_ref())?))
    }

    /// Folder of the node's certificates.
    pub fn cert_dir(&self) -> PathBuf {
        given_path(self.cert_dir.as_ref()).map_or_else(|| self.root_dir.join("pki"), Path::to_owned)
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
