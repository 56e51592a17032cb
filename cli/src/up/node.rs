//! One node: decided by [`Node::plan`], made ready by [`Node::prepare`], started by [`Node::start`].

use std::ffi::OsString;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bulkhead_api::access::ACCESS;
use bulkhead_base::SystemClock;
use bulkhead_cgroup::{CgroupPath, Mounts, Owner};
use bulkhead_config::{Files, Given, KubeletConfiguration};
use bulkhead_ipc::{Channels, Identities, PeerBoard, PeerChannel};
use futures::future::join_all;

use super::containerd::{self, Peers};
use super::jail::{Jail, User};
use super::layout::Layout;
use super::overlay::NodeConfig;
use super::pods::Runtime;
use super::program::Program;
use super::supervisor::{Probe, READY, Supervised};
use super::{Containerd, Flags, Network, command, folders, netns};
use crate::commands::peer::{missing, serving};
use crate::{output, processes};

/// Everything that is decided about a node before it is made.
pub struct Node {
    /// Where it is.
    pub layout: Layout,
    /// Who is who.
    pub identities: Arc<Identities>,
    /// Its container runtime.
    pub runtime: RuntimeChoice,
    /// Whether it has a network namespace of its own.
    pub own_network: bool,
    /// Its name.
    pub name: String,
    node_ips: Vec<IpAddr>,
    config: NodeConfig,
    policy: Option<String>,
    cluster: Cluster,
    labels: Option<String>,
    log: Option<String>,
}

/// The way to the API server: texts of kubeconfigs that need no other file.
enum Cluster {
    None,
    Known(String),
    Bootstrap(String),
}

/// The container runtime of a node.
pub enum RuntimeChoice {
    /// Ours.
    Private(Peers),
    /// One that runs already, on this socket, which this group may use.
    Running(PathBuf, u32),
}

/// What runs.
#[derive(Default)]
pub struct Programs {
    /// The private containerd.
    pub containerd: Option<Supervised>,
    /// The processes, in the order in which they were started.
    pub processes: Vec<Supervised>,
}

impl Node {
    /// Decides, and finds out what is missing. Makes nothing.
    pub fn plan(flags: &Flags, kubelets: &[Given], layout: Layout) -> anyhow::Result<Self> {
        let identities = Arc::new(Identities::from_base(flags.uid_base));
        folders::check(&layout, &identities)?;
        let (runtime, socket) = match &flags.containerd {
            Containerd::Private => {
                (RuntimeChoice::Private(Peers::find(flags.peers.as_deref())?), containerd::socket(&layout))
            }
            Containerd::Running(socket) => {
                let group = containerd::foreign_group(socket)?;
                (RuntimeChoice::Running(socket.clone(), group), socket.clone())
            }
        };
        let private = matches!(runtime, RuntimeChoice::Private(_));
        let own_network = match flags.network {
            Some(Network::Own) if !private => bail!(
                "--network own needs --containerd private: pods of a running containerd are in its own network"
            ),
            Some(network) => network == Network::Own,
            None => private,
        };
        // Bridges need it too.
        netns::check()?;
        if own_network && !flags.node_ip.is_empty() {
            bail!("--node-ip needs --network host: a network of the node's own has its own address");
        }
        let files = Files::read(flags.config.as_deref(), flags.config_dir.as_deref())?;
        let config = NodeConfig::new(files, kubelets, &layout, &socket)?;
        let policy = flags.policy.as_deref().map(policy_text).transpose()?;
        if !own_network {
            ports(&config.config)?;
        }
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = flags.node_name.clone().unwrap_or_else(host).trim().to_lowercase();
        let node_ips = if own_network { vec![netns::NODE_IP] } else { flags.node_ip.clone() };
        let cluster = match (&flags.kubeconfig, &flags.bootstrap_kubeconfig) {
            (Some(file), _) => Cluster::Known(apigate::flatten(file).context("--kubeconfig")?),
            (None, Some(file)) => {
                Cluster::Bootstrap(apigate::flatten(file).context("--bootstrap-kubeconfig")?)
            }
            (None, None) => Cluster::None,
        };
        let (labels, log) = (flags.node_labels.clone(), flags.log.clone());
        let node = Self {
            layout,
            identities,
            runtime,
            own_network,
            name,
            node_ips,
            config,
            policy,
            cluster,
            labels,
            log,
        };
        Ok(node)
    }

    /// Makes folders, cgroups and the network, or completes what an earlier life left of them.
    pub async fn prepare(&self) -> anyhow::Result<()> {
        let layout = &self.layout;
        self.config.warnings.iter().for_each(|warning| output::event(&format!("warning: {warning}")));
        folders::write_identities(layout, &self.identities)?;
        folders::make(layout, &self.identities)?;
        folders::install_programs(layout)?;
        self.config.write(layout)?;
        if let Some(policy) = &self.policy {
            folders::write(&layout.policy(), policy.as_bytes())?;
        }
        let copy = match &self.cluster {
            Cluster::None => None,
            Cluster::Known(text) => Some((layout.kubeconfig(), text)),
            Cluster::Bootstrap(text) => Some((layout.bootstrap_kubeconfig(), text)),
        };
        if let Some((path, text)) = copy {
            let apigate = self.identities.process.get("apigate").context("apigate has no uid")?;
            folders::hand_over(layout, &path, text.as_bytes(), *apigate)?;
        }
        let syncd = self.identities.process.get("syncd").context("syncd has no uid")?;
        let owner = Owner { uid: syncd.uid, gid: syncd.gid };
        bulkhead_cgroup::prepare(&Mounts::detect()?, &CgroupPath::parse(&layout.cgroup())?, owner)
            .context("cannot prepare the cgroups of pods")?;
        if self.own_network {
            netns::make(&layout.netns()).await?;
        }
        if let RuntimeChoice::Private(peers) = &self.runtime {
            let crigate = self.identities.process.get("crigate").context("crigate has no uid")?;
            containerd::prepare(layout, peers, crigate.gid)?;
        }
        Ok(())
    }

    /// Starts the runtime, then crigate, then the rest. Returns when all serve, or have been given enough time to.
    pub async fn start(&self, programs: &mut Programs) -> anyhow::Result<()> {
        if let RuntimeChoice::Private(peers) = &self.runtime {
            self.start_containerd(peers, programs).await?;
        }
        let (gate, rest): (Vec<&str>, Vec<&str>) =
            processes::NAMES.iter().partition(|name| **name == "crigate");
        for names in [gate, rest] {
            let first = programs.processes.len();
            for name in names {
                let supervised = Supervised::start(self.process(name)?, self.process_probe(name));
                programs.processes.push(supervised);
            }
            join_all(programs.processes.iter().skip(first).map(Supervised::serves)).await;
        }
        Ok(())
    }

    async fn start_containerd(&self, peers: &Peers, programs: &mut Programs) -> anyhow::Result<()> {
        let runtime = self.cri();
        if runtime.answers().await.is_ok() {
            bail!(
                "{} is in use by another containerd: stop that one first",
                containerd::socket(&self.layout).display()
            );
        }
        let program = Program {
            name: "containerd".to_owned(),
            launcher: self.launcher(),
            file: peers.containerd.clone(),
            arguments: vec!["--config".into(), containerd::config_file(&self.layout).into()],
            environment: vec![("PATH".to_owned(), peers.path())],
            jail: Jail { parent: std::process::id(), netns: self.netns(), user: None },
            log: self.layout.logs().join("containerd.log"),
            show_errors: false,
        };
        let probe: Probe = Arc::new(move || {
            let runtime = runtime.clone();
            Box::pin(async move { runtime.answers().await })
        });
        let supervised = Supervised::start(program, probe);
        let serves = supervised.serves().await;
        programs.containerd = Some(supervised);
        if !serves {
            let log = self.layout.logs().join("containerd.log");
            bail!("containerd does not answer within {} s: see {}", READY.as_secs(), log.display());
        }
        containerd::import_pause(&self.layout, peers).await
    }

    fn process(&self, name: &str) -> anyhow::Result<Program> {
        let layout = &self.layout;
        let flag = |name: &str, value: OsString| [OsString::from(name), value];
        let mut arguments: Vec<OsString> = [
            flag("--config", layout.config().into()),
            flag("--config-dir", layout.config_dir().into()),
            flag("--run-dir", layout.run().into()),
            flag("--root-dir", layout.root().into()),
            flag("--state-dir", layout.states().into()),
            flag("--identities", layout.identities().into()),
            flag("--hostname-override", self.name.clone().into()),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let Some(log) = &self.log {
            arguments.extend(flag("--log", log.into()));
        }
        if !self.node_ips.is_empty() {
            let ips: Vec<String> = self.node_ips.iter().map(IpAddr::to_string).collect();
            arguments.extend(flag("--node-ip", ips.join(",").into()));
        }
        if let Some(labels) = &self.labels {
            arguments.extend(flag("--node-labels", labels.into()));
        }
        if !matches!(self.cluster, Cluster::None) {
            arguments.extend(flag("--kubeconfig", layout.kubeconfig().into()));
        }
        if matches!(self.cluster, Cluster::Bootstrap(_)) {
            arguments.extend(flag("--bootstrap-kubeconfig", layout.bootstrap_kubeconfig().into()));
        }
        arguments.extend(self.config.flags().map(OsString::from));
        if name == "crigate" && self.policy.is_some() {
            arguments.extend(flag("--policy", layout.policy().into()));
        }
        Ok(Program {
            name: name.to_owned(),
            launcher: self.launcher(),
            file: layout.bin().join(name),
            arguments,
            environment: vec![("PATH".to_owned(), command::SYSTEM_PATH.to_owned())],
            jail: Jail {
                parent: std::process::id(),
                netns: self.netns(),
                user: Some(user(name, &self.identities, &self.runtime)?),
            },
            log: layout.logs().join(format!("{name}.log")),
            show_errors: true,
        })
    }

    fn process_probe(&self, name: &str) -> Probe {
        let channel = self.channels().peer(name);
        Arc::new(move || {
            let channel = channel.clone();
            Box::pin(async move {
                if serving(&channel).await {
                    return Ok(());
                }
                Err(missing(&channel).await)
            })
        })
    }

    /// Channels to the processes, as root.
    pub fn channels(&self) -> Channels {
        let board = PeerBoard::new(Arc::new(SystemClock));
        Channels::new(&self.layout.run(), self.identities.clone(), board)
    }

    /// The container runtime, with root's power over it.
    pub fn cri(&self) -> Runtime {
        let socket = match &self.runtime {
            RuntimeChoice::Private(_) => containerd::socket(&self.layout),
            RuntimeChoice::Running(socket, _) => socket.clone(),
        };
        let channel: PeerChannel = self.channels().socket("containerd", &socket, None);
        Runtime::new(channel)
    }

    /// One line for people: that it runs, and what to do with it.
    pub fn summary(&self, took: Duration) -> String {
        let state = self.layout.state().display();
        let flag = if state.to_string() == "/var/lib/bulkhead" {
            String::new()
        } else {
            format!(" --state {state}")
        };
        let network = if self.own_network {
            format!("; its network: ip netns exec {} ...", self.layout.netns())
        } else {
            String::new()
        };
        format!(
            "node {} started in {:.1} s; manifests go into {}; look with: bulkhead get pods{flag}{network}; Ctrl-C stops it",
            self.name,
            took.as_secs_f64(),
            self.layout.manifests().display(),
        )
    }

    fn launcher(&self) -> PathBuf {
        self.layout.bin().join("bulkhead")
    }

    fn netns(&self) -> Option<PathBuf> {
        self.own_network.then(|| netns::file(&self.layout.netns()))
    }
}

/// Whether the ports of the machine's own network are free.
fn ports(config: &KubeletConfiguration) -> anyhow::Result<()> {
    let secured = if config.enable_server { config.port } else { 0 };
    let ports = [
        (config.healthz_bind_address, config.healthz_port, "healthzPort"),
        (config.address, secured, "port"),
    ];
    for (address, port, field) in ports.into_iter().filter(|(_, port, _)| *port != 0) {
        TcpListener::bind((address, port)).with_context(|| {
            format!("port {port} ({field}) is in use, by a kubelet or another node: stop it, or set another in --config")
        })?;
    }
    Ok(())
}

/// A policy file's text, checked here so that a broken one starts nothing. crigate gets a copy: it may not be able to read
/// the file itself.
fn policy_text(file: &Path) -> anyhow::Result<String> {
    bulkhead_policy::Policy::read(file).context("--policy")?;
    std::fs::read_to_string(file).with_context(|| format!("cannot read --policy {}", file.display()))
}

/// The user of a process, as the access file says. Pure.
fn user(name: &str, identities: &Identities, runtime: &RuntimeChoice) -> anyhow::Result<User> {
    let row = ACCESS.process.get(name).with_context(|| format!("{name} is not in the access file"))?;
    let identity = identities.process.get(name).with_context(|| format!("{name} has no uid"))?;
    let groups = row.groups.iter().map(|group| {
        let gid = identities.groups.get(group).copied();
        gid.with_context(|| format!("group {group} of {name} has no gid"))
    });
    let mut groups = groups.collect::<anyhow::Result<Vec<u32>>>()?;
    if let RuntimeChoice::Running(_, group) = runtime
        && name == "crigate"
        && !groups.contains(group)
    {
        groups.push(*group);
    }
    let capabilities = row.capabilities.iter().map(|capability| capability.name.clone()).collect();
    Ok(User { uid: identity.uid, gid: identity.gid, groups, capabilities })
}

#[cfg(test)]
mod tests {
    use bulkhead_api::access::LOG_GROUP;

    use super::*;

    #[test]
    fn each_process_is_who_the_access_file_says() {
        let identities = Identities::from_base(64_200);
        let runtime = RuntimeChoice::Running("/run/c.sock".into(), 999);
        let mut seen = std::collections::BTreeSet::new();
        for (name, row) in &ACCESS.process {
            let user = user(name, &identities, &runtime).unwrap();
            assert!(seen.insert(user.uid), "{name} shares its uid");
            assert_eq!(user.capabilities.is_empty(), name != "volumed", "{name}");
            let logs = identities.groups[LOG_GROUP];
            assert_eq!(user.groups.contains(&logs), row.groups.contains(&LOG_GROUP.to_owned()), "{name}");
            assert_eq!(user.groups.contains(&999), name == "crigate", "only the gate reaches the runtime");
        }
    }
}
