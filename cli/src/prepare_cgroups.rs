//! `bulkhead prepare-cgroups`: the one thing that a node under systemd needs root for. Gives the pods' cgroups to syncd.

use std::path::PathBuf;

use anyhow::Context;
use bulkhead_cgroup::{CgroupPath, Mounts, Owner};
use bulkhead_ipc::Identities;

/// Which node.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// KubeletConfiguration file: `cgroupRoot` says where the pods' cgroups are.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of *.conf files that are laid over it.
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,
}

/// Prepares them; safe to repeat.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let loaded = bulkhead_config::load(flags.config.as_deref(), flags.config_dir.as_deref(), &[])?;
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let identities = Identities::from_accounts(&read("/etc/passwd"), &read("/etc/group"))?;
    let syncd = identities.process.get("syncd").context("there is no user `syncd`")?;
    let root = CgroupPath::parse(&loaded.config.cgroup_root).context("cgroupRoot")?;
    let owner = Owner { uid: syncd.uid, gid: syncd.gid };
    bulkhead_cgroup::prepare(&Mounts::detect()?, &root, owner).context("cannot prepare the cgroups of pods")
}
