use std::path::Path;

use bulkhead_ipc::Identities;

use super::*;

fn checked_in() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd")
}

fn lines<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(&format!("{key}="))).collect()
}

#[test]
fn what_is_checked_in_is_what_the_access_file_says() {
    let mut found = read(&checked_in());
    for by_hand in ["README.md", "config.yaml"] {
        assert!(found.remove(by_hand).is_some(), "deploy/systemd/{by_hand} is gone");
    }
    let made = files();
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    let remedy = "run: cargo run -p bulkhead -- units --out deploy/systemd";
    assert_eq!(names(&found), names(&made), "{remedy}");
    for (name, text) in made {
        assert_eq!(found[&name], text, "{name}: {remedy}");
    }
}

#[test]
fn a_unit_grants_its_row_and_nothing_more() {
    for (name, row) in &ACCESS.process {
        let text = service::process(name, row);
        let capabilities: Vec<_> = row.capabilities.iter().map(|c| c.name.as_str()).collect();
        let capabilities = capabilities.join(" ");
        assert_eq!(lines(&text, "CapabilityBoundingSet"), [capabilities.as_str()], "{name}");
        assert_eq!(lines(&text, "AmbientCapabilities"), [capabilities.as_str()], "{name}");
        assert_eq!(lines(&text, "User"), [row.user.as_str()], "{name}");
        assert_eq!(lines(&text, "SupplementaryGroups"), [row.groups.join(" ").as_str()], "{name}");
        assert_eq!(lines(&text, "NoNewPrivileges"), ["yes"], "{name}");
        assert_eq!(text.contains("AF_INET"), row.network.is_some(), "{name}");
        for key in ["Requires", "BindsTo", "Requisite"] {
            assert!(lines(&text, key).is_empty(), "{name}: {key} would stop it with a peer");
        }
        let writable = lines(&text, "ReadWritePaths").join(" ");
        for folder in writable.split_whitespace() {
            assert!(
                !["/", "/var/lib/kubelet", "/var/lib/bulkhead", "/etc"].contains(&folder),
                "{name}: {folder}"
            );
        }
    }
}

#[test]
fn who_mounts_stays_in_the_hosts_mount_namespace() {
    let volumed = service::process("volumed", &ACCESS.process["volumed"]);
    // Every setting of systemd.exec(5) that gives a unit a mount namespace of its own begins with one of these.
    let settings = volumed.lines().filter(|line| !line.starts_with('#'));
    for setting in settings {
        for own in [
            "Protect",
            "Private",
            "ReadOnlyPaths",
            "ReadWritePaths",
            "Inaccessible",
            "Mount",
            "Bind",
            "Temporary",
            "Root",
            "DynamicUser",
            "RuntimeDirectory",
            "StateDirectory",
            "NoExecPaths",
            "ExecPaths",
        ] {
            assert!(!setting.starts_with(own), "{setting}");
        }
    }
}

#[test]
fn folders_are_those_of_the_launcher() {
    use crate::up::{Layout, folder_plan};
    let layout = Layout::new("/s".into()).unwrap();
    let identities = Identities::from_base(64_200);
    let launcher: BTreeMap<_, _> = folder_plan(&layout, &identities)
        .unwrap()
        .into_iter()
        .map(|folder| (folder.path.display().to_string(), (folder.owner, folder.mode)))
        .collect();
    let pairs = [
        ("/run/bulkhead", "/s/run"),
        ("/var/lib/kubelet", "/s/root"),
        ("/var/log/pods", "/s/logs/pods"),
        ("/var/log/containers", "/s/logs/containers"),
        ("/var/lib/bulkhead", "/s/state"),
    ];
    let uid = |user: &str| identities.process.get(user).map_or(0, |identity| identity.uid);
    let gid = |group: &str| {
        let own = identities.process.get(group).map(|identity| identity.gid);
        own.or(identities.groups.get(group).copied()).unwrap_or(0)
    };
    for (path, mode, user, group) in places::folders() {
        let (from, to) = pairs.iter().find(|(from, _)| path.starts_with(from)).unwrap();
        let (owner, launchers_mode) = launcher[&path.replacen(from, to, 1)];
        assert_eq!(u32::from_str_radix(mode, 8).unwrap(), launchers_mode, "{path}");
        assert_eq!((owner.uid, owner.gid), (uid(&user), gid(&group)), "{path}");
    }
}

#[test]
fn the_sample_configuration_is_one() {
    let file = checked_in().join("config.yaml");
    let loaded = bulkhead_config::load(Some(&file), None, &[]).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert_eq!(loaded.config.pod_logs_dir, places::path("{logs}"));
}
