//! The container runtime: a containerd of the node's own, or one that is there already.
//!
//! Owns the private one's files and configuration. Must never change anything of a containerd that is not ours.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bulkhead_imagetar::{ImageBuilder, standard};
use serde_json::json;

use super::command::{self, SYSTEM_PATH};
use super::layout::Layout;

/// The sandbox image's name: what the private containerd is told to use.
pub const PAUSE: &str = "registry.k8s.io/pause:3.10.2";

/// Programs of the private runtime.
#[derive(Clone, Debug)]
pub struct Peers {
    /// containerd itself; its shim is beside it or in PATH.
    pub containerd: PathBuf,
    /// Folder of the shim.
    pub shim: PathBuf,
    /// The OCI runtime.
    pub runc: PathBuf,
    /// Imports images.
    pub ctr: Option<PathBuf>,
    /// Program of the sandbox image.
    pub pause: Option<PathBuf>,
    /// Folder of CNI plug-ins.
    pub cni: PathBuf,
}

impl Peers {
    /// Finds them in `folder`, or in PATH.
    pub fn find(folder: Option<&Path>) -> anyhow::Result<Self> {
        let place = folder.map_or("PATH".to_owned(), |folder| folder.display().to_string());
        let need = |program: &str| {
            command::find(program, folder).with_context(|| {
                format!(
                    "there is no {program} in {place}: build it with tests/peers/build and pass --peers with the folder \
                     that it prints, or use a running one with --containerd SOCKET"
                )
            })
        };
        let containerd = need("containerd")?;
        let shim = need("containerd-shim-runc-v2")?;
        let cni = ["/usr/lib/cni", "/opt/cni/bin"]
            .map(Path::new)
            .into_iter()
            .find(|dir| dir.join("bridge").is_file());
        Ok(Self {
            containerd,
            shim: shim.parent().unwrap_or(Path::new("/")).to_owned(),
            runc: need("runc")?,
            ctr: command::find("ctr", folder),
            pause: command::find("pause", folder),
            cni: cni
                .context(
                    "there are no CNI plug-ins in /usr/lib/cni: apt-get install containernetworking-plugins",
                )?
                .to_owned(),
        })
    }

    /// PATH of containerd: it looks for its shim there.
    pub fn path(&self) -> String {
        format!("{}:{SYSTEM_PATH}", self.shim.display())
    }
}

/// Socket of the private containerd.
pub fn socket(layout: &Layout) -> PathBuf {
    layout.volatile().join("containerd.sock")
}

/// Its configuration file.
pub fn config_file(layout: &Layout) -> PathBuf {
    layout.containerd().join("config.toml")
}

/// Makes the private containerd's folders and configuration. `gid` is the group that may use its socket: crigate's.
pub fn prepare(layout: &Layout, peers: &Peers, gid: u32) -> anyhow::Result<()> {
    let volatile = layout.volatile();
    let cni = layout.containerd().join("cni");
    for (path, group, mode) in [
        // crigate has to reach the socket; nobody else has anything to do here.
        (volatile.clone(), gid, 0o710),
        (layout.containerd(), 0, 0o711),
        (cni.clone(), 0, 0o755),
    ] {
        let name = || format!("cannot prepare {}", path.display());
        fs::create_dir_all(&path).with_context(name)?;
        chown(&path, Some(0), Some(group)).with_context(name)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(name)?;
    }
    super::folders::write(&config_file(layout), config(layout, peers, gid).as_bytes())?;
    super::folders::write(&cni.join("10-bulkhead.conflist"), network(layout).as_bytes())
}

fn config(layout: &Layout, peers: &Peers, gid: u32) -> String {
    let volatile = layout.volatile();
    let (volatile, state) = (volatile.display(), layout.containerd());
    let state = state.display();
    let (cni, runc) = (peers.cni.display(), peers.runc.display());
    format!(
        r#"version = 3
imports = []
root = "{state}/root"
state = "{volatile}/state"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = "{volatile}/s"
[grpc]
  address = "{volatile}/containerd.sock"
  uid = 0
  gid = {gid}
[ttrpc]
  address = "{volatile}/containerd.sock.ttrpc"
# Where streams of exec, attach and port-forward are: for gateway alone, which is in the same network.
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  enable_tls_streaming = false
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  enable_selinux = false
  restrict_oom_score_adj = true
  stats_collect_period = "10s"
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = []
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{state}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{volatile}/runc"
      BinaryName = "{runc}"
"#
    )
}

fn network(layout: &Layout) -> String {
    let network = json!({
        "cniVersion": "1.0.0",
        "name": layout.bridge(),
        "plugins": [
            {
                "type": "bridge", "bridge": layout.bridge(), "isGateway": true, "ipMasq": false, "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    // Addresses are given up with the network namespace, at the latest at a reboot.
                    "dataDir": layout.volatile().join("ipam"),
                    "ranges": [[{ "subnet": "10.88.0.0/16" }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    });
    format!("{network:#}\n")
}

/// Makes the sandbox image of the program `pause` and gives it to the private containerd, which can then start pods
/// without a registry.
pub async fn import_pause(layout: &Layout, peers: &Peers) -> anyhow::Result<()> {
    let Some(pause) = &peers.pause else { return Ok(()) };
    let image = standard::pause([PAUSE], pause).context("cannot make the sandbox image")?;
    import(layout, peers, &image, "pause").await
}

/// Gives an image to the private containerd.
pub async fn import(layout: &Layout, peers: &Peers, image: &ImageBuilder, name: &str) -> anyhow::Result<()> {
    let ctr = peers.ctr.as_ref().context("there is no ctr beside containerd: it imports images")?;
    let file = layout.containerd().join(format!("{name}.tar"));
    let mut archive = Vec::new();
    image.write_to(&mut archive).with_context(|| format!("cannot make the image {name}"))?;
    fs::write(&file, archive).with_context(|| format!("cannot write {}", file.display()))?;
    let socket = socket(layout);
    let arguments: [&std::ffi::OsStr; 7] = [
        "--address".as_ref(),
        socket.as_os_str(),
        "--namespace".as_ref(),
        "k8s.io".as_ref(),
        "images".as_ref(),
        "import".as_ref(),
        file.as_os_str(),
    ];
    let imported = command::output(ctr, &arguments).await;
    let _ = fs::remove_file(&file);
    imported.map(drop).with_context(|| format!("cannot import the image {name}"))
}

/// The group that crigate needs for a socket that is not ours; refuses one that only root can use.
pub fn foreign_group(socket: &Path) -> anyhow::Result<u32> {
    let metadata = fs::metadata(socket).with_context(|| {
        format!("there is no container runtime at {}: start it, or leave --containerd out", socket.display())
    })?;
    let (gid, mode) = (metadata.gid(), metadata.mode());
    if gid == 0 || mode & 0o060 != 0o060 {
        bail!(
            "{} can be used by root alone, and no process of the node is root: set `gid` in the [grpc] section of \
             containerd's config.toml to a group of its own, and restart it",
            socket.display()
        );
    }
    Ok(gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_of_the_private_runtime_is_in_its_folders() {
        let layout = Layout::new("/s".into()).unwrap();
        let peers = Peers {
            containerd: "/p/containerd".into(),
            shim: "/p".into(),
            runc: "/p/runc".into(),
            ctr: None,
            pause: None,
            cni: "/usr/lib/cni".into(),
        };
        let config = config(&layout, &peers, 4711);
        let inside = [layout.containerd(), layout.volatile()];
        for line in config.lines() {
            let Some((key, value)) = line.split_once(" = ") else { continue };
            let Some(path) = value.strip_prefix('"').filter(|value| value.starts_with('/')) else { continue };
            let ours = inside.iter().any(|folder| Path::new(path.trim_end_matches('"')).starts_with(folder));
            assert!(ours || key.trim() == "BinaryName", "{line}");
        }
        assert!(config.contains("gid = 4711"));
        let network: serde_json::Value = serde_json::from_str(&network(&layout)).unwrap();
        assert_eq!(network["plugins"][0]["bridge"], layout.bridge());
    }
}
