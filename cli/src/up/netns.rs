//! The node's network namespace: made with iproute2, as people would make it, so that `ip netns exec` works on it.
//!
//! Nothing leaves the machine from it: its address is of the documentation range (RFC 5737), and its default route leads
//! into a virtual cable whose other end nobody holds.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use nix::sched::{CloneFlags, setns};

use super::command::{output, require};

/// Address of the node in its own namespace.
pub const NODE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
const FOLDER: &str = "/run/netns";

/// File of the namespace `name`.
pub fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Says so when iproute2 is not there.
pub fn check() -> anyhow::Result<()> {
    require("ip", "apt-get install iproute2")
}

/// Makes the namespace, or completes one that an earlier life left.
pub async fn make(name: &str) -> anyhow::Result<()> {
    let context = || format!("cannot make the network namespace {name}");
    if !file(name).exists() {
        ip(&["netns", "add", name]).await.with_context(context)?;
    }
    let address = format!("{NODE_IP}/24");
    if ip(&["-n", name, "link", "show", "eth0"]).await.is_err() {
        let cable = ["-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "peer0"];
        ip(&cable).await.with_context(context)?;
    }
    let steps: [&[&str]; 5] = [
        &["link", "set", "lo", "up"],
        &["link", "set", "peer0", "up"],
        &["addr", "replace", &address, "dev", "eth0"],
        &["link", "set", "eth0", "up"],
        &["route", "replace", "default", "dev", "eth0"],
    ];
    for step in steps {
        ip(&[&["-n", name], step].concat()).await.with_context(context)?;
    }
    forward(file(name)).with_context(context)
}

/// Removes the namespace and the cables in it.
pub async fn remove(name: &str) -> anyhow::Result<()> {
    if !file(name).exists() {
        return Ok(());
    }
    ip(&["netns", "del", name]).await.with_context(|| format!("cannot remove the network namespace {name}"))
}

/// Removes a bridge of the host's network, when it is there.
pub async fn remove_bridge(name: &str) -> anyhow::Result<()> {
    if !Path::new("/sys/class/net").join(name).exists() {
        return Ok(());
    }
    ip(&["link", "del", name]).await.with_context(|| format!("cannot remove the bridge {name}"))
}

async fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    output("ip", arguments).await.map(drop)
}

/// Lets packets pass between pods. The file shows the namespace of the thread that opens it, hence a thread of its own.
fn forward(namespace: PathBuf) -> anyhow::Result<()> {
    let thread = std::thread::spawn(move || -> anyhow::Result<()> {
        setns(std::fs::File::open(namespace)?, CloneFlags::CLONE_NEWNET)?;
        Ok(std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?)
    });
    thread.join().map_err(|_| anyhow!("the helper thread failed"))?.context("cannot switch forwarding on")
}
