//! The real thing: `bulkhead up` with a private containerd, in a network namespace of its own, driven as a person would by
//! files and the command line.
//!
//! A test that panics must leave nothing behind either, so dropping the node stops it like Ctrl-C, and ends pods that it was
//! told to keep.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a harness: what fails here fails the test that uses it"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::disk::Disk;
use crate::wait;

/// The processes of a node.
pub const PROCESSES: [&str; 10] =
    ["apigate", "crigate", "evictd", "gateway", "imaged", "pleg", "prober", "statusd", "syncd", "volumed"];

/// The launcher's flag that leaves pods running.
const KEEP_PODS: &str = "--keep-pods";

/// A node under its launcher.
pub struct RealNode {
    state: tempfile::TempDir,
    launcher: Option<Child>,
    /// What `--containerd` says.
    runtime: String,
    flags: Vec<String>,
    /// Network namespace that the launcher is started in; `None`: the test's own.
    inside: Option<String>,
    /// Nothing of it is left outside its state folder.
    clean: bool,
    /// Go after all that is on them, before the state folder.
    disks: Vec<Disk>,
}

fn state_folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("bh").tempdir().expect("a state folder")
}

impl RealNode {
    /// A node with every process up and healthy. It holds the images `local/busybox:1` and `local/busybox:2`.
    pub async fn up(flags: &[&str]) -> Self {
        let node = Self::start("private", flags).await;
        node.import_images();
        node
    }

    /// As [`RealNode::up`] on a runtime that listens already. Its group must own the socket, and its images are its own.
    pub async fn up_on(socket: &Path, flags: &[&str]) -> Self {
        Self::start(&socket.to_string_lossy(), flags).await
    }

    /// As [`RealNode::up`] with these folders of the state folder, such as `root` and `state`, on small disks of their own.
    pub async fn up_on_disks(disks: &[&str], flags: &[&str]) -> Self {
        let state = state_folder();
        let disks = disks.iter().map(|place| Disk::mount(&state.path().join(place))).collect();
        let node = Self::start_in(state, disks, "private", flags).await;
        node.import_images();
        node
    }

    /// The disk at this place of the state folder.
    pub fn disk(&self, place: &str) -> &Disk {
        let at = self.state().join(place);
        self.disks.iter().find(|disk| disk.at == at).expect("a disk at this place")
    }

    /// As [`RealNode::up`], as `node-a` of a cluster.
    pub async fn up_in(cluster: &Cluster, flags: &[&str]) -> Self {
        let kubeconfig = cluster.kubeconfig();
        let kubeconfig = kubeconfig.to_string_lossy();
        let node = Self::joined(cluster, &[&["--kubeconfig", &kubeconfig], flags].concat()).await;
        node.healthy().await;
        node
    }

    /// A node in reach of this cluster, with flags that say who it is there. Whether the cluster takes it is not waited for.
    pub async fn joined(cluster: &Cluster, flags: &[&str]) -> Self {
        let node = Self::launched(state_folder(), Vec::new(), "private", flags, None);
        let overlay = node.state().join("config.d/50-launcher.conf");
        wait::until("the launcher has a configuration", async || overlay.exists().then_some(())).await;
        let network = Path::new("/run/netns").join(node.id());
        wait::until("the node has a network", async || network.exists().then_some(())).await;
        cluster.connect(&node.id());
        wait::until("all processes are up", async || (node.processes().len() >= 10).then_some(())).await;
        node.import_images();
        node
    }

    /// As [`RealNode::up_in`], in the cluster's own network: the API server and the node's pods reach each other.
    pub async fn up_within(cluster: &Cluster, flags: &[&str]) -> Self {
        let (kubeconfig, config) = (cluster.kubeconfig(), cluster.node_configuration());
        let (kubeconfig, config) = (kubeconfig.to_string_lossy(), config.to_string_lossy());
        let own = ["--kubeconfig", &kubeconfig, "--config", &config, "--network", "host"];
        let flags = [&own[..], &["--node-ip", "203.0.113.10"], flags].concat();
        let inside = Some(format!("/run/netns/{}", cluster.namespace()));
        let node = Self::launched(state_folder(), Vec::new(), "private", &flags, inside);
        node.healthy().await;
        node.import_images();
        node
    }

    async fn start(runtime: &str, flags: &[&str]) -> Self {
        Self::start_in(state_folder(), Vec::new(), runtime, flags).await
    }

    async fn start_in(state: tempfile::TempDir, disks: Vec<Disk>, runtime: &str, flags: &[&str]) -> Self {
        let node = Self::launched(state, disks, runtime, flags, None);
        node.healthy().await;
        node
    }

    fn launched(
        state: tempfile::TempDir,
        disks: Vec<Disk>,
        runtime: &str,
        flags: &[&str],
        inside: Option<String>,
    ) -> Self {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let runtime = runtime.to_owned();
        let mut node = Self { state, launcher: None, runtime, flags, inside, clean: true, disks };
        node.launch();
        node
    }

    /// Starts the launcher on the node's state folder.
    pub fn launch(&mut self) {
        let log = File::options().create(true).append(true).open(self.launcher_log()).expect("a log");
        let mut command = match &self.inside {
            Some(network) => {
                let mut enter = Command::new("nsenter");
                enter.arg(format!("--net={network}")).arg("--").arg(binary());
                enter
            }
            None => Command::new(binary()),
        };
        let child = command
            .arg("up")
            .arg("--state")
            .arg(self.state())
            .args(["--containerd", &self.runtime, "--node-name", "node-a", "--peers"])
            .arg(peers())
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log twice"))
            .stderr(log)
            .spawn()
            .expect("the launcher");
        self.launcher = Some(child);
        self.clean = !self.flags.iter().any(|flag| flag == KEEP_PODS);
    }

    /// The state folder.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// What the launcher has said so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.launcher_log()).unwrap_or_default()
    }

    fn launcher_log(&self) -> PathBuf {
        self.state().join("launcher.log")
    }

    /// The launcher's own process.
    pub fn launcher_pid(&self) -> u32 {
        self.launcher.as_ref().expect("a launcher").id()
    }

    /// Pid of the private containerd; `None` while it does not run.
    pub fn runtime_pid(&self) -> Option<u32> {
        let of_launcher = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent =
                stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
            stat.contains("(containerd)") && parent == Some(self.launcher_pid())
        };
        let names = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).find(of_launcher)
    }

    /// Waits until every process is ready and every check is good.
    pub async fn healthy(&self) {
        let what =
            format!("every process is healthy; the launcher's log is {}", self.launcher_log().display());
        wait::until(&what, async || {
            let status = self.status()?;
            (status["health"]["healthy"] == true).then_some(())
        })
        .await;
    }

    /// Runs the command line against this node.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        Command::new(binary())
            .args(arguments)
            .arg("--state")
            .arg(self.state())
            .stdin(Stdio::null())
            .output()
            .expect("the command line")
    }

    /// Standard output of a command that succeeds; `None` when it does not.
    pub fn text(&self, arguments: &[&str]) -> Option<String> {
        let output = self.cli(arguments);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `bulkhead status -o json`.
    pub fn status(&self) -> Option<Value> {
        serde_json::from_str(&self.text(&["status", "-o", "json"])?).ok()
    }

    /// Pid and uid of each process that is up.
    pub fn processes(&self) -> BTreeMap<String, (u32, u32)> {
        let status = self.status().unwrap_or_default();
        let number = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok());
        let all = status["processes"].as_array().cloned().unwrap_or_default();
        let each = all
            .iter()
            .filter_map(|p| Some((p["name"].as_str()?.to_owned(), (number(&p["pid"])?, number(&p["uid"])?))));
        each.collect()
    }

    /// Every pod, with status.
    pub fn pods(&self) -> BTreeMap<String, Pod> {
        let list: Value = self
            .text(&["get", "pods", "-o", "json"])
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let pods = items.into_iter().filter_map(|item| serde_json::from_value::<Pod>(item).ok());
        let name =
            |pod: &Pod| pod.metadata.name.clone().unwrap_or_default().trim_end_matches("-node-a").to_owned();
        pods.map(|pod| (name(&pod), pod)).collect()
    }

    /// Refused manifests: file name to reason.
    pub fn refused(&self) -> BTreeMap<String, String> {
        let list: Value = self
            .text(&["get", "pods", "-o", "json"])
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
        let refused = list["refused"].as_array().cloned().unwrap_or_default();
        refused.iter().map(|r| (name(text(&r["source"])), text(&r["reason"]))).collect()
    }

    /// Statuses of the containers of a pod; empty while there are none.
    pub fn containers(&self, pod: &str) -> Vec<ContainerStatus> {
        let pod = self.pods().remove(pod);
        pod.and_then(|pod| pod.status).and_then(|status| status.container_statuses).unwrap_or_default()
    }

    /// Ids of running containers, by `pod/container`.
    pub fn running(&self) -> BTreeMap<String, String> {
        let mut running = BTreeMap::new();
        for (name, pod) in self.pods() {
            let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
            for container in statuses {
                let runs = container.state.as_ref().is_some_and(|state| state.running.is_some());
                if let (true, Some(id)) = (runs, container.container_id) {
                    running.insert(format!("{name}/{}", container.name), id);
                }
            }
        }
        running
    }

    /// Waits until all containers of a pod are ready; returns its id by container name.
    pub async fn ready(&self, pod: &str) -> BTreeMap<String, String> {
        self.ready_within(wait::BOUND, pod).await
    }

    /// As [`RealNode::ready`] with a bound of the test's own.
    pub async fn ready_within(&self, bound: Duration, pod: &str) -> BTreeMap<String, String> {
        wait::within(bound, &format!("{pod} is ready: {}", self.said()), async || {
            let containers = self.containers(pod);
            let ready = !containers.is_empty() && containers.iter().all(|c| c.ready);
            ready.then(|| {
                containers.into_iter().map(|c| (c.name, c.container_id.unwrap_or_default())).collect()
            })
        })
        .await
    }

    /// Puts a manifest into the static pod directory, whole at once.
    pub fn put(&self, file: &str, manifest: &Value) {
        let part = self.state().join("part");
        std::fs::write(&part, manifest.to_string()).expect("a manifest");
        std::fs::rename(part, self.manifest(file)).expect("a manifest in its place");
    }

    /// Takes a manifest out again.
    pub fn take(&self, file: &str) {
        std::fs::remove_file(self.manifest(file)).expect("a manifest to remove");
    }

    /// Where a manifest is.
    pub fn manifest(&self, file: &str) -> PathBuf {
        self.state().join("manifests").join(file)
    }

    /// Kills a process of the node as `kill -9` does; returns its pid.
    pub fn kill(&self, process: &str) -> u32 {
        let (pid, _) = *self.processes().get(process).expect("the process is up");
        signal(pid, Signal::SIGKILL);
        pid
    }

    /// Waits until a process runs again under another pid and everything is healthy.
    pub async fn back(&self, process: &str, before: u32, bound: Duration) {
        wait::within(bound, &format!("{process} is back and all is healthy: {}", self.said()), async || {
            let (pid, _) = *self.processes().get(process)?;
            let healthy = self.status()?["health"]["healthy"] == true;
            (pid != before && healthy).then_some(())
        })
        .await;
    }

    /// Ends the node as Ctrl-C does; returns whether the launcher was content.
    pub async fn down(&mut self) -> bool {
        let Some(mut launcher) = self.launcher.take() else { return true };
        signal(launcher.id(), Signal::SIGINT);
        let done = wait::within(Duration::from_secs(120), "the launcher ends", async || {
            launcher.try_wait().expect("the launcher is ours")
        });
        let content = done.await.success();
        self.clean &= content;
        content
    }

    /// The name that everything of this node outside its state folder carries, such as `bulkhead-a1b2c3`.
    pub fn id(&self) -> String {
        self.configured("cgroupRoot").trim_start_matches('/').to_owned()
    }

    /// The private runtime's socket.
    pub fn runtime_socket(&self) -> PathBuf {
        self.configured("containerRuntimeEndpoint").trim_start_matches("unix://").into()
    }

    /// A value in what the launcher laid over the configuration.
    fn configured(&self, field: &str) -> String {
        let files = std::fs::read_dir(self.state().join("config.d")).into_iter().flatten().flatten();
        let texts: Vec<_> = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
        let value = |text: &String| {
            let (_, rest) = text.split_once(field)?;
            let rest = rest.trim_start_matches(['"', ' ', ':']);
            Some(rest.split(['"', '\n', ',', '}', '\'']).next()?.trim().to_owned())
        };
        texts.iter().find_map(value).expect("the launcher's configuration has the field")
    }

    fn import_images(&self) {
        let tar = self.state().join("images.tar");
        let applets = Command::new("/bin/busybox").arg("--list").output().expect("a static busybox in /bin");
        let applets = String::from_utf8_lossy(&applets.stdout).into_owned();
        for reference in ["local/busybox:1", "local/busybox:2"] {
            let applets = applets.lines().filter(|name| *name != "busybox");
            let image = bulkhead_imagetar::standard::busybox([reference], Path::new("/bin/busybox"), applets);
            let mut file = File::create(&tar).expect("an image file");
            let image = image.map_err(|error| error.to_string()).expect("a busybox image");
            image.write_to(&mut file).expect("an image");
            let imported = Command::new(peers().join("ctr"))
                .arg("--address")
                .arg(self.runtime_socket())
                .args(["--namespace", "k8s.io", "images", "import"])
                .arg(&tar)
                .output()
                .expect("ctr");
            assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
        }
        std::fs::remove_file(tar).expect("the image file goes");
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        self.disks.iter().for_each(Disk::mend);
        if let Some(launcher) = self.launcher.take() {
            self.clean &= end(launcher);
        }
        // Whoever keeps pods, or died before it could end them, leaves them to the next launcher on the same folder. It need
        // not get far: what a node left behind is found by names, not by asking it.
        self.flags.retain(|flag| flag != KEEP_PODS);
        if !self.clean {
            self.launch();
            self.clean = self.launcher.take().is_some_and(|launcher| {
                has_begun(self.state(), launcher.id());
                end(launcher)
            });
        }
        self.disks.clear();
        if !self.clean {
            let lines: Vec<_> = self.said().lines().rev().take(5).map(str::to_owned).collect();
            eprintln!("{} may have left something behind: {lines:?}", self.state().display());
        }
    }
}

/// Ends a launcher as Ctrl-C does, in time or not at all; returns whether it was content.
#[expect(clippy::disallowed_methods, reason = "a destructor cannot wait otherwise")]
fn end(mut launcher: Child) -> bool {
    signal(launcher.id(), Signal::SIGCONT);
    signal(launcher.id(), Signal::SIGINT);
    for _ in 0..1200 {
        match launcher.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(50)),
            ended => return ended.is_ok_and(|status| status.is_some_and(|status| status.success())),
        }
    }
    let _ = launcher.kill();
    let _ = launcher.wait();
    false
}

/// Waits until a launcher holds its state folder: only from then on it takes Ctrl-C for what it is.
#[expect(clippy::disallowed_methods, reason = "a destructor cannot wait otherwise")]
fn has_begun(state: &Path, launcher: u32) {
    let holder = || std::fs::read_to_string(state.join("lock")).unwrap_or_default();
    for _ in 0..200 {
        if holder().trim() == launcher.to_string() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends a signal; a process that is gone is fine.
pub fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// The program under test: cargo builds it beside programs like the benchmark, and one folder above tests.
pub fn binary() -> PathBuf {
    let own = std::env::current_exe().expect("the test's own path");
    let beside = own.ancestors().skip(1).take(2).map(|folder| folder.join("bulkhead"));
    beside.filter(|binary| binary.is_file()).last().expect("the program is built: cargo build -p bulkhead")
}

/// Folder of the real peers.
pub fn peers() -> PathBuf {
    if let Some(peers) = std::env::var_os("BULKHEAD_PEERS") {
        return peers.into();
    }
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/build");
    let output = Command::new(build).stderr(Stdio::inherit()).output().expect("tests/peers/build");
    assert!(output.status.success(), "tests/peers/build failed");
    String::from_utf8_lossy(&output.stdout).trim().into()
}
