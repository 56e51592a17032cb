//! Where a node under systemd is, and the folders that must be there before its processes.

use std::fmt::Write;

use bulkhead_api::access::{ACCESS, GROUP, LOG_GROUP};

/// The node's configuration, which the administrator writes.
pub const CONFIG: &str = "/etc/bulkhead/config.yaml";
/// Folder of what is laid over it.
pub const CONFIG_DIR: &str = "/etc/bulkhead/config.d";
/// The program.
pub const PROGRAM: &str = "/usr/bin/bulkhead";

/// What the names of access.toml's paths stand for: the kubelet's folders, and the defaults of the processes' flags.
const NAMES: [(&str, &str); 6] = [
    ("{run}", "/run/bulkhead"),
    ("{root}", "/var/lib/kubelet"),
    ("{state}", "/var/lib/bulkhead"),
    ("{logs}", "/var/log/pods"),
    ("{links}", "/var/log/containers"),
    ("{cgroups}", "/sys/fs/cgroup"),
];

/// A folder: path, mode, user, group.
pub type Folder = (String, &'static str, String, String);

/// The path that a pattern of access.toml stands for.
pub fn path(pattern: &str) -> String {
    NAMES.iter().fold(pattern.to_owned(), |path, (name, place)| path.replace(name, place))
}

/// Every folder, parents first. Modes and owners are those that `bulkhead up` gives.
pub fn folders() -> Vec<Folder> {
    let folder = |pattern: &str, mode, user: &str, group: &str| {
        (path(pattern), mode, user.to_owned(), group.to_owned())
    };
    let mut folders = vec![
        // Sticky: each process makes its own socket and cannot remove another's.
        folder("{run}", "1770", "root", GROUP),
        folder("{run}/cri", "2750", "crigate", GROUP),
        folder("{run}/api", "2750", "apigate", GROUP),
        folder("{root}", "0755", "root", "root"),
        folder("{root}/pods", "0750", "syncd", GROUP),
        // Setgid: the key of the serving certificate is 0640, and this gives it gateway's group. All others are 0600.
        folder("{root}/pki", "2755", "apigate", "gateway"),
        // Setgid: log files that the runtime makes get the group of those who read logs.
        folder("{logs}", "2750", "syncd", LOG_GROUP),
        folder("{links}", "0755", "syncd", LOG_GROUP),
        folder("{state}", "0755", "root", "root"),
    ];
    for (name, row) in &ACCESS.process {
        let own = format!("{{state}}/{name}");
        if row.writable.contains(&own) {
            folders.push(folder(&own, "0700", &row.user, &row.user));
        }
    }
    folders
}

/// The tmpfiles.d(5) file.
pub fn tmpfiles() -> String {
    let mut text = super::MADE.to_owned();
    for (path, mode, user, group) in folders() {
        let _ = writeln!(text, "d {path} {mode} {user} {group} -");
    }
    text
}
