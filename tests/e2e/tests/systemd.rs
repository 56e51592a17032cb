//! deploy/systemd installed on a machine as its README says: everything comes up confined, comes back alone, runs a pod, and
//! stops.
#![cfg(test)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bulkhead_e2e::machine::Machine;
use bulkhead_e2e::real_node::PROCESSES;
use bulkhead_e2e::{pods, wait};
use serde_json::Value;

const TARGET: &str = "bulkhead.target";
const PAUSE: &str = "registry.k8s.io/pause:3.10";

fn unit(process: &str) -> String {
    format!("bulkhead-{process}.service")
}

/// Files of deploy/systemd, by their path beneath it.
fn deployed() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd");
    let mut files = BTreeMap::new();
    for sub in ["", "sysusers.d", "tmpfiles.d"] {
        for entry in std::fs::read_dir(folder.join(sub)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                let name = entry.path().strip_prefix(&folder).unwrap().display().to_string();
                files.insert(name, std::fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    files
}

/// What README.md says to do, on a machine whose container runtime is one of the peers.
fn install(machine: &Machine) {
    for (name, text) in deployed() {
        match name.as_str() {
            "README.md" => {}
            "config.yaml" => {
                // This machine's cgroups are the host's, beside which the pods get a place of their own; so is its disk, and
                // how full that is.
                let own = format!(
                    "cgroupRoot: {}\nfailCgroupV1: false\nfailSwapOn: false\nevictionHard: {{memory.available: 100Mi}}\n\
                     imageGCHighThresholdPercent: 100\n",
                    machine.cgroup()
                );
                machine.write("/etc/bulkhead/config.yaml", &format!("{text}{own}"));
            }
            name if name.contains('/') => machine.write(&format!("/etc/{name}"), &text),
            name => machine.write(&format!("/etc/systemd/system/{name}"), &text),
        }
    }
    machine.text(&["mkdir", "-p", "/etc/bulkhead/config.d", "/etc/kubernetes/manifests"]);
    machine.text(&["systemd-sysusers"]);
    // Of all that is installed here, only ours: others' users are not on this machine.
    machine.text(&["systemd-tmpfiles", "--create", "bulkhead.conf"]);
    start_containerd(machine);
    machine.text(&["systemctl", "daemon-reload"]);
    machine.text(&["systemctl", "enable", "--now", TARGET]);
}

fn start_containerd(machine: &Machine) {
    let groups = std::fs::read_to_string(machine.path("/etc/group")).unwrap();
    let line = groups.lines().find(|line| line.starts_with("crigate:")).expect("sysusers made the group");
    let gid = line.split(':').nth(2).unwrap();
    let config = format!(
        r#"version = 3
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[grpc]
  address = "/run/containerd/containerd.sock"
  gid = {gid}
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "{}"
"#,
        machine.peer("runc")
    );
    machine.write("/etc/containerd/config.toml", &config);
    machine.write(
        "/etc/cni/net.d/10-test.conflist",
        r#"{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "bridge", "bridge": "test0", "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]]}}]}"#,
    );
    let peers = machine.peer("");
    machine.write(
        "/etc/systemd/system/containerd.service",
        &format!(
            "[Service]\nType=notify\nEnvironment=PATH={peers}:/usr/sbin:/usr/bin:/sbin:/bin\n\
             ExecStart={}\nDelegate=yes\nKillMode=process\n",
            machine.peer("containerd")
        ),
    );
    machine.text(&["systemctl", "daemon-reload"]);
    machine.text(&["systemctl", "start", "containerd.service"]);
    for (name, image) in images(machine) {
        let tar = format!("/root/{name}.tar");
        std::fs::write(machine.path(&tar), image).unwrap();
        machine.text(&[&machine.peer("ctr"), "--namespace", "k8s.io", "images", "import", &tar]);
    }
}

fn images(machine: &Machine) -> Vec<(&'static str, Vec<u8>)> {
    use bulkhead_imagetar::standard;
    let pause = bulkhead_e2e::real_node::peers().join("pause");
    let pause = standard::pause([PAUSE], &pause).map_err(|error| error.to_string()).unwrap();
    let applets = ["sh", "sleep", "cat", "echo"];
    let busybox = standard::busybox(["local/busybox:1"], Path::new("/bin/busybox"), applets);
    let busybox = busybox.map_err(|error| error.to_string()).unwrap();
    let _ = machine;
    [("pause", pause), ("busybox", busybox)]
        .into_iter()
        .map(|(name, image)| {
            let mut bytes = Vec::new();
            image.write_to(&mut bytes).unwrap();
            (name, bytes)
        })
        .collect()
}

/// `bulkhead status -o json`.
fn status(machine: &Machine) -> Option<Value> {
    serde_json::from_str(&machine.try_text(&[
        "bulkhead",
        "status",
        "-o",
        "json",
        "--run-dir",
        "/run/bulkhead",
    ])?)
    .ok()
}

async fn healthy(machine: &Machine, what: &str) {
    wait::within(Duration::from_secs(120), what, async || {
        let all_active =
            PROCESSES.iter().all(|name| machine.property(&unit(name), "ActiveState") == "active");
        (all_active && status(machine)?["health"]["healthy"] == true).then_some(())
    })
    .await;
}

fn main_pids(machine: &Machine) -> BTreeMap<&'static str, String> {
    PROCESSES.iter().map(|name| (*name, machine.property(&unit(name), "MainPID"))).collect()
}

/// What a running process really has.
fn credentials(machine: &Machine, pid: &str) -> BTreeMap<String, String> {
    let status = machine.text(&["cat", &format!("/proc/{pid}/status")]);
    let line =
        |line: &str| line.split_once(':').map(|(key, value)| (key.to_owned(), value.trim().to_owned()));
    status.lines().filter_map(line).collect()
}

#[tokio::test]
async fn the_units_come_up_confined_come_back_alone_and_stop() {
    let machine = Machine::boot().await;
    install(&machine);
    healthy(&machine, "every unit is active and healthy").await;
    assert_eq!(machine.property(TARGET, "ActiveState"), "active");
    assert_eq!(machine.text(&["systemctl", "list-units", "--failed", "--plain", "--no-legend"]), "");

    // Each has its own user, no capability but volumed's, and no way to get one.
    let before = main_pids(&machine);
    let accounts = std::fs::read_to_string(machine.path("/etc/passwd")).unwrap();
    for (name, pid) in &before {
        let has = credentials(&machine, pid);
        let uid = has["Uid"].split_whitespace().next().unwrap_or_default().to_owned();
        assert!(
            accounts.lines().any(|line| line.starts_with(&format!("{name}:x:{uid}:"))),
            "{name} has uid {uid}"
        );
        assert_eq!(has["NoNewPrivs"], "1", "{name}");
        assert_eq!(
            has["CapEff"].trim_matches('0').is_empty(),
            *name != "volumed",
            "{name}: {}",
            has["CapEff"]
        );
        assert_eq!(has["CapBnd"], has["CapEff"], "{name}");
        assert_eq!(machine.property(&unit(name), "NRestarts"), "0", "{name}");
    }

    // A pod runs, in the cgroups that syncd was given.
    machine.write("/etc/kubernetes/manifests/a.yaml", &pods::simple("a").to_string());
    let running = || {
        let list = machine.try_text(&["bulkhead", "get", "pods", "--run-dir", "/run/bulkhead"])?;
        list.lines().any(|line| line.contains("a-bulkhead-test") && line.contains("Running")).then_some(())
    };
    wait::until("the pod runs", async || running()).await;

    // Whoever is killed comes back alone.
    for killed in ["pleg", "crigate", "syncd"] {
        let before = main_pids(&machine);
        machine.text(&["kill", "-KILL", &before[killed]]);
        wait::until(&format!("{killed} is back"), async || {
            let pid = machine.property(&unit(killed), "MainPID");
            (pid != "0" && pid != before[killed]).then_some(())
        })
        .await;
        healthy(&machine, &format!("all is healthy after {killed} was killed")).await;
        for (name, pid) in main_pids(&machine) {
            assert_eq!(pid == before[name], name != killed, "{name} after {killed} was killed");
        }
        assert_eq!(machine.property(&unit(killed), "NRestarts"), "1");
    }
    running().expect("the pod runs on");

    machine.text(&["systemctl", "stop", TARGET]);
    for name in PROCESSES {
        wait::until(&format!("{name} stops"), async || {
            (machine.property(&unit(name), "ActiveState") == "inactive").then_some(())
        })
        .await;
        assert_eq!(machine.property(&unit(name), "Result"), "success", "{name}");
    }
    assert_eq!(machine.text(&["systemctl", "list-units", "--failed", "--plain", "--no-legend"]), "");
    let tasks = machine.text(&[&machine.peer("ctr"), "--namespace", "k8s.io", "tasks", "list"]);
    assert_eq!(tasks.matches("RUNNING").count(), 2, "the pod outlives the node agent: {tasks}");
}
