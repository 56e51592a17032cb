//! A machine with systemd as its first process, in a container of systemd-nspawn, made of this machine's own `/usr`: what is
//! installed on it is installed as on a real one. It boots in a second and needs no image.
//!
//! Whatever happens, it is gone when it is dropped, with its cgroups.
#![expect(clippy::expect_used, reason = "a harness: what fails here fails the test that uses it")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::real_node::{binary, peers, signal};
use crate::wait;

/// Where the machine has containerd and its helpers.
pub const PEERS: &str = "/opt/peers";
/// cgroup v1 hierarchies that pods are put in.
const HIERARCHIES: &str = "/sys/fs/cgroup";
/// systemd's "halt and power off" (systemd(1)): `SIGRTMIN+4`, which has no name in nix.
const POWER_OFF: i32 = 34 + 4;

/// A running machine.
pub struct Machine {
    folder: tempfile::TempDir,
    container: Child,
    /// Its systemd, as this machine sees it.
    leader: u32,
    /// `cgroupRoot` for its pods.
    cgroup: String,
}

impl Machine {
    /// Boots one with `bulkhead` in `/usr/bin` and the peers in [`PEERS`]; nothing is installed otherwise.
    pub async fn boot() -> Self {
        let folder = tempfile::Builder::new().prefix("bhm").tempdir().expect("a folder for the machine");
        let (root, usr) = (folder.path().join("root"), folder.path().join("usr"));
        lay_out(&root, &usr);
        let log = fs::File::create(folder.path().join("console.log")).expect("a log");
        let peers = fs::canonicalize(peers()).expect("the peers");
        let above = peers.parent().expect("a folder of peers").to_owned();
        let cgroup = format!("/bulkhead-test-{}", std::process::id());
        // Without systemd here, nobody else gives the container a cgroup of its own in systemd's hierarchies.
        let hosted = Path::new("/run/systemd/system").is_dir();
        let hierarchies = ["systemd", "unified"].map(|name| Path::new(HIERARCHIES).join(name));
        let hierarchies = hierarchies.into_iter().filter(|hierarchy| !hosted && hierarchy.is_dir());
        let own: Vec<_> =
            hierarchies.map(|hierarchy| hierarchy.join(cgroup.trim_start_matches('/'))).collect();
        own.iter().for_each(|own| fs::create_dir_all(own).expect("a cgroup for the machine"));
        let own: Vec<_> = own.iter().map(|own| own.display().to_string()).collect();
        let container = Command::new("sh")
            .args(["-c", "for own in $OWN; do echo $$ > \"$own/cgroup.procs\"; done; exec \"$@\"", "sh"])
            .env("OWN", own.join(" "))
            .args([
                "systemd-nspawn",
                "--quiet",
                "--register=no",
                "--boot",
                "--private-network",
                "--console=pipe",
            ])
            // Runtimes give containers a keyring each.
            .args(["--link-journal=no", "--hostname=bulkhead-test", "--system-call-filter=@keyring"])
            .args((!hosted).then_some("--keep-unit"))
            .arg("--machine")
            .arg(cgroup.trim_start_matches('/'))
            .arg("--directory")
            .arg(&root)
            .arg(format!("--overlay-ro=/usr:{}:/usr", usr.display()))
            .arg(format!("--bind-ro={}:{PEERS}", above.display()))
            .env("SYSTEMD_LOG_LEVEL", "warning")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log twice"))
            .stderr(log)
            .spawn()
            .expect("systemd-nspawn: see tools/ensure-packages");
        let mut machine = Self { folder, container, leader: 0, cgroup };
        machine.leader =
            wait::until("the machine has a first process", async || machine.first_process()).await;
        let what = format!(
            "the machine is up; its console: {}",
            machine.folder.path().join("console.log").display()
        );
        wait::until(&what, async || {
            let state = machine.try_text(&["systemctl", "is-system-running"]).unwrap_or_default();
            ["running", "degraded"].contains(&state.trim()).then_some(())
        })
        .await;
        machine.open_cgroups();
        machine
    }

    /// `cgroupRoot` for its pods.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// A file of the machine, as this machine sees it.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path.trim_start_matches('/'))
    }

    /// Where a peer is, for the machine.
    pub fn peer(&self, program: &str) -> String {
        let peers = fs::canonicalize(peers()).expect("the peers");
        let name = peers.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        format!("{PEERS}/{name}/{program}")
    }

    /// Writes a file of the machine, and the folders above it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folders above");
        fs::write(path, text).expect("a file of the machine");
    }

    /// Runs a program on the machine, as root.
    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new("nsenter")
            .args(["--target", &self.leader.to_string()])
            .args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"])
            .arg("--")
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin")
            .stdin(Stdio::null())
            .output()
            .expect("nsenter")
    }

    /// What a program prints that succeeds.
    ///
    /// # Panics
    /// When it does not.
    pub fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        out.into_owned()
    }

    /// What a program prints, whether or not it succeeds; `None` when it could not be run.
    pub fn try_text(&self, arguments: &[&str]) -> Option<String> {
        let output = self.run(arguments);
        Some(String::from_utf8_lossy(&output.stdout).into_owned()).filter(|text| !text.is_empty())
    }

    /// A property of a unit.
    pub fn property(&self, unit: &str, name: &str) -> String {
        self.text(&["systemctl", "show", "--value", "--property", name, unit]).trim().to_owned()
    }

    /// The newest lines of the machine's journal, for the message of a failure.
    pub fn journal(&self) -> String {
        self.try_text(&["journalctl", "--no-pager", "--lines=60", "--output=cat"]).unwrap_or_default()
    }

    fn first_process(&self) -> Option<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.container.id());
        let children = fs::read_to_string(children).ok()?;
        let is_systemd = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "systemd")
        };
        // Helpers of systemd-nspawn come and go beside it.
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_systemd)
    }

    /// systemd-nspawn gives its machine cgroup v1 hierarchies that it may only read; a real machine may write them.
    fn open_cgroups(&self) {
        for mount in self
            .text(&["findmnt", "--list", "--noheadings", "--output", "TARGET", "--types", "cgroup"])
            .lines()
        {
            self.text(&["mount", "--options", "remount,rw,bind", mount]);
        }
    }
}

impl Drop for Machine {
    #[expect(clippy::disallowed_methods, reason = "a destructor cannot wait otherwise")]
    fn drop(&mut self) {
        if let Ok(leader) = i32::try_from(self.leader)
            && leader > 0
        {
            // nix knows no real-time signals.
            let _ = Command::new("kill").args([format!("-{POWER_OFF}"), leader.to_string()]).status();
        }
        let gone = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        for _ in 0..600 {
            if gone(&mut self.container) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if !gone(&mut self.container) {
            // Its first process takes all others with it.
            signal(self.leader, Signal::SIGKILL);
            let _ = kill(Pid::from_raw(i32::try_from(self.container.id()).unwrap_or(-1)), Signal::SIGKILL);
            let _ = self.container.wait();
        }
        for hierarchy in fs::read_dir(HIERARCHIES).into_iter().flatten().flatten() {
            remove_cgroups(&hierarchy.path(), self.cgroup.trim_start_matches('/'), 4);
        }
    }
}

/// Removes the machine's cgroups, which may be beneath that of this process, leaves first; what is not empty stays.
fn remove_cgroups(folder: &Path, name: &str, depth: usize) {
    for child in fs::read_dir(folder).into_iter().flatten().flatten() {
        let ours = child.file_name().to_str().is_some_and(|own| own == name);
        match child.file_type() {
            Ok(kind) if !kind.is_dir() => {}
            _ if ours => remove_whole(&child.path()),
            _ if depth > 0 => remove_cgroups(&child.path(), name, depth - 1),
            _ => {}
        }
    }
}

fn remove_whole(folder: &Path) {
    for child in fs::read_dir(folder).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_whole(&child.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

/// The files of a machine that nothing was installed on, and what is laid over its `/usr`: the program under test.
fn lay_out(root: &Path, usr: &Path) {
    for folder in
        ["usr", "etc/systemd/system", "var/log", "run", "tmp", "dev", "proc", "sys", "root", "opt/peers"]
    {
        fs::create_dir_all(root.join(folder)).expect("a folder of the machine");
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{link}"), root.join(link)).expect("a link of the machine");
    }
    fs::copy("/usr/lib/os-release", root.join("etc/os-release")).expect("os-release");
    for (file, text) in [
        // With an id, nothing is "first boot", where everything that has a unit would be switched on.
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        ("etc/hostname", "bulkhead-test\n"),
        ("etc/resolv.conf", "nameserver 127.0.0.1\n"),
        ("etc/hosts", "127.0.0.1 localhost\n"),
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"),
        ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ] {
        fs::write(root.join(file), text).expect("a file of the machine");
    }
    symlink("/lib/systemd/system/multi-user.target", root.join("etc/systemd/system/default.target"))
        .expect("the default target");
    let bin = usr.join("bin");
    fs::create_dir_all(&bin).expect("a folder of the machine");
    let program = bin.join("bulkhead");
    if fs::hard_link(binary(), &program).is_err() {
        fs::copy(binary(), &program).expect("the program under test");
    }
}
