//! The unit of one process.

use std::fmt::Write;

use bulkhead_api::access::Process;

use super::MADE;
use super::places::{CONFIG, CONFIG_DIR, PROGRAM, path};

/// A process' unit.
pub fn process(name: &str, row: &Process) -> String {
    let mut text = format!("{MADE}[Unit]\nDescription=bulkhead {name}\n");
    text += "Documentation=file:/usr/share/doc/bulkhead/operations.md\nPartOf=bulkhead.target\n";
    text += order(name, row);
    text += "\
# A process that dies at once again and again is given up after some minutes; `systemctl reset-failed` and a start bring
# it back. A node's process that dies now and then is always started again.
StartLimitIntervalSec=300
StartLimitBurst=100

[Service]
Type=notify
NotifyAccess=main
# Some are ready only when the container runtime answers, whenever that is: until then they say what is missing.
TimeoutStartSec=infinity
# Calls in flight have 5 s.
TimeoutStopSec=15
WatchdogSec=30
Restart=always
RestartSec=2
# A wrong command line or configuration: a restart changes nothing.
RestartPreventExitStatus=2 3
";
    // FLAGS may add flags, such as crigate's --policy; it may be missing.
    let _ = write!(
        text,
        "EnvironmentFile=-/etc/bulkhead/{name}.env\n\
         ExecStart=@{PROGRAM} {name} --config {CONFIG} --config-dir {CONFIG_DIR} $FLAGS\n\
         # One slice for all of them: its cgroup is what statistics name `kubelet`.\n\
         Slice=bulkhead.slice\n\
         User={0}\nGroup={0}\nSupplementaryGroups={1}\n",
        row.user,
        row.groups.join(" ")
    );
    text += &capabilities(row);
    text += "NoNewPrivileges=yes\n";
    text += &families(row);
    text += &writable(row);
    text += "\n[Install]\nWantedBy=bulkhead.target\n";
    text
}

/// What it is started after. Wants and After, never Requires or BindsTo: a peer that stops or restarts takes away only what
/// it gives, and must stop nobody.
fn order(name: &str, row: &Process) -> &'static str {
    match name {
        "crigate" => {
            "# Wants, not Requires: without the runtime it serves on and says so; its restart must not stop this.\n\
             Wants=containerd.service\nAfter=containerd.service\n"
        }
        "syncd" => {
            "# Wants, not Requires: a peer that restarts must not stop this.\n\
             Wants=bulkhead-cgroups.service bulkhead-crigate.service\n\
             After=bulkhead-cgroups.service bulkhead-crigate.service\n"
        }
        _ if row.cri.is_empty() => "# Needs no order: it waits for its peers by itself.\n",
        _ => {
            "# Wants, not Requires: a peer that restarts must not stop this.\n\
             Wants=bulkhead-crigate.service\nAfter=bulkhead-crigate.service\n"
        }
    }
}

fn capabilities(row: &Process) -> String {
    let names: Vec<&str> = row.capabilities.iter().map(|capability| capability.name.as_str()).collect();
    let mut text = String::new();
    for capability in &row.capabilities {
        let _ = writeln!(text, "# {}: {}", capability.name, capability.reason);
    }
    let _ = writeln!(text, "CapabilityBoundingSet={0}\nAmbientCapabilities={0}", names.join(" "));
    text
}

fn families(row: &Process) -> String {
    match &row.network {
        Some(why) => format!("# IP: {why}\nRestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n"),
        None => "RestrictAddressFamilies=AF_UNIX\n".to_owned(),
    }
}

/// Whose work is mounting must be in the host's mount namespace: what it mounts in one of its own does not reach the
/// runtime. Nothing that would give it one may stand in its unit.
fn mounts(row: &Process) -> bool {
    row.capabilities.iter().any(|capability| capability.name == "CAP_SYS_ADMIN")
}

fn writable(row: &Process) -> String {
    if mounts(row) {
        return "# In the host's mount namespace, or its mounts would not reach the container runtime: no ProtectSystem, and\n\
                # nothing else that implies PrivateMounts. What it writes is bounded by its user and capabilities.\n"
            .to_owned();
    }
    // A socket is made in its folder, where nobody can remove another's.
    let folder = |pattern: &String| {
        let path = path(pattern);
        match path.strip_suffix(".sock").and_then(|path| path.rsplit_once('/')) {
            Some((folder, _)) => folder.to_owned(),
            None => path,
        }
    };
    let mut folders: Vec<String> = row.writable.iter().map(folder).collect();
    folders.dedup();
    let own_cgroups = row.writable.iter().any(|pattern| pattern == "{cgroups}");
    let cgroups = if own_cgroups { "" } else { "ProtectControlGroups=yes\n" };
    format!("ProtectSystem=strict\nReadWritePaths={}\n{cgroups}", folders.join(" "))
}

/// The one step that takes root: giving the pods' cgroups to syncd.
pub fn cgroups() -> String {
    format!(
        "{MADE}\
[Unit]
Description=bulkhead: the cgroups of pods
Documentation=file:/usr/share/doc/bulkhead/operations.md
PartOf=bulkhead.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={PROGRAM} prepare-cgroups --config {CONFIG} --config-dir {CONFIG_DIR}
# CAP_CHOWN: give `kubepods` to syncd. CAP_DAC_OVERRIDE: what is syncd's already is looked through at the next start.
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE
NoNewPrivileges=yes
RestrictAddressFamilies=AF_UNIX
ProtectSystem=strict
ReadWritePaths=/sys/fs/cgroup
"
    )
}
