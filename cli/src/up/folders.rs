//! The state folder: what is in it, whose it is, who may enter. Made anew at each start, so that a changed mode or a socket
//! of an earlier life does no harm.
//!
//! Must never follow a link below the state folder, nor change anything that the processes wrote.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bulkhead_api::access::{ACCESS, GROUP, LOG_GROUP};
use bulkhead_ipc::{Identities, Identity};

use super::layout::Layout;
use crate::processes;

const ROOT: Identity = Identity { uid: 0, gid: 0 };

/// A folder, whose it is and its mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    pub path: PathBuf,
    pub owner: Identity,
    pub mode: u32,
}

/// Every folder of the node but the runtime's, parents first. Pure.
pub fn plan(layout: &Layout, identities: &Identities) -> anyhow::Result<Vec<Folder>> {
    let of = |process: &str| {
        let found = identities.process.get(process).copied();
        found.with_context(|| format!("{process} has no uid"))
    };
    let group =
        |name: &str| identities.groups.get(name).copied().with_context(|| format!("{name} has no gid"));
    let (bulkhead, logs) = (group(GROUP)?, group(LOG_GROUP)?);
    let shared = |owner: Identity, gid: u32| Identity { uid: owner.uid, gid };
    let folder = |path: PathBuf, owner: Identity, mode: u32| Folder { path, owner, mode };
    let syncd = of("syncd")?;
    let mut folders = vec![
        folder(layout.state().to_owned(), ROOT, 0o755),
        // Sticky: each process makes its own socket and cannot remove another's.
        folder(layout.run(), shared(ROOT, bulkhead), 0o1770),
        folder(layout.cri(), shared(of("crigate")?, bulkhead), 0o2750),
        folder(layout.api(), shared(of("apigate")?, bulkhead), 0o2750),
        folder(layout.root(), ROOT, 0o755),
        folder(layout.pods(), shared(syncd, bulkhead), 0o750),
        // Setgid: the key of the serving certificate is 0640, and this gives it gateway's group. All others are 0600.
        folder(layout.certificates(), shared(of("apigate")?, of("gateway")?.gid), 0o2755),
        folder(layout.logs(), ROOT, 0o755),
        // Setgid: the runtime makes log files 0640, and this gives them the group of those who read logs.
        folder(layout.pod_logs(), shared(syncd, logs), 0o2750),
        folder(layout.log_links(), shared(syncd, logs), 0o755),
        folder(layout.manifests(), ROOT, 0o755),
        folder(layout.states(), ROOT, 0o755),
        folder(layout.config_dir(), ROOT, 0o755),
        folder(layout.bin(), ROOT, 0o755),
    ];
    for (name, row) in &ACCESS.process {
        if row.writable.iter().any(|path| *path == format!("{{state}}/{name}")) {
            folders.push(folder(layout.states().join(name), of(name)?, 0o700));
        }
    }
    Ok(folders)
}

/// Makes the folders and removes sockets of earlier lives. The launcher's lock must be held: nobody listens then.
pub fn make(layout: &Layout, identities: &Identities) -> anyhow::Result<()> {
    for folder in plan(layout, identities)? {
        apply(&folder).with_context(|| format!("cannot prepare {}", folder.path.display()))?;
    }
    for folder in [layout.cri(), layout.api(), layout.run()] {
        remove_sockets(&folder)?;
    }
    Ok(())
}

/// Whether the state folder can be used: by other users, and with these uids. A folder that was made with others holds
/// files that these could not read.
pub fn check(layout: &Layout, identities: &Identities) -> anyhow::Result<()> {
    reachable(layout.state())?;
    let path = layout.identities();
    if path.exists() && Identities::read(&path).ok().as_ref() != Some(identities) {
        bail!(
            "{} was made with another --uid-base or another release: use that one, or remove the folder",
            layout.state().display()
        );
    }
    Ok(())
}

/// Writes down who is who.
pub fn write_identities(layout: &Layout, identities: &Identities) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(identities).context("cannot print the identities")?;
    write(&layout.identities(), text.as_bytes())
}

/// This program under each process' name: `ps` tells them apart, any user can run them, and a build that replaces the
/// program changes nothing for a running node.
pub fn install_programs(layout: &Layout) -> anyhow::Result<PathBuf> {
    let own = layout.bin().join("bulkhead");
    let new = layout.bin().join(".new");
    let name = || format!("cannot copy this program to {}", own.display());
    fs::copy("/proc/self/exe", &new).with_context(name)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).with_context(name)?;
    fs::rename(&new, &own).with_context(name)?;
    for process in processes::NAMES {
        let link = layout.bin().join(process);
        let _ = fs::remove_file(&link);
        fs::hard_link(&own, &link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    Ok(own)
}

/// Writes a file that everyone may read, whole or not at all.
pub fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let name = || format!("cannot write {}", path.display());
    let new = path.with_extension("new");
    fs::write(&new, content).with_context(name)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).with_context(name)?;
    fs::rename(&new, path).with_context(name)
}

/// Writes a file that one process alone may read, into a folder that may be that process' own: whatever it left there under
/// this name is replaced and never followed.
pub fn hand_over(layout: &Layout, path: &Path, content: &[u8], owner: Identity) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, fchown};
    let name = || format!("cannot write {}", path.display());
    let new = layout.state().join(".hand-over");
    let _ = fs::remove_file(&new);
    let file = fs::File::options().write(true).create_new(true).mode(0o600).open(&new);
    let mut file = file.with_context(name)?;
    file.write_all(content).with_context(name)?;
    fchown(&file, Some(owner.uid), Some(owner.gid)).with_context(name)?;
    fs::rename(&new, path).with_context(name)
}

/// The processes are other users: they must get as far as the state folder.
fn reachable(state: &Path) -> anyhow::Result<()> {
    for parent in state.ancestors().skip(1) {
        let mode =
            fs::metadata(parent).with_context(|| format!("cannot look at {}", parent.display()))?.mode();
        if mode & 0o001 == 0 {
            bail!(
                "--state {} is inside {}, which other users cannot enter: choose another folder, such as /var/lib/bulkhead",
                state.display(),
                parent.display()
            );
        }
    }
    Ok(())
}

fn apply(folder: &Folder) -> std::io::Result<()> {
    let Folder { path, owner, mode } = folder;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !fs::symlink_metadata(path)?.is_dir() {
        return Err(std::io::Error::other("it is not a folder: remove it"));
    }
    chown(path, Some(owner.uid), Some(owner.gid))?;
    // After chown, which clears setgid.
    fs::set_permissions(path, fs::Permissions::from_mode(*mode))
}

/// Removes what is left of sockets in `folder`.
pub fn remove_sockets(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let name = || format!("cannot remove old sockets in {}", folder.display());
    for entry in fs::read_dir(folder).with_context(name)? {
        let entry = entry.with_context(name)?;
        if entry.file_type().with_context(name)?.is_socket() {
            fs::remove_file(entry.path()).with_context(name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_gets_what_the_access_file_lets_it_write_and_nothing_of_others() {
        let layout = Layout::new("/s".into()).unwrap();
        let identities = Identities::from_base(64_200);
        let plan = plan(&layout, &identities).unwrap();
        let find = |path: PathBuf| plan.iter().find(|folder| folder.path == path).unwrap();
        let ids = |process: &str| identities.process[process];
        assert_eq!((find(layout.run()).mode, find(layout.run()).owner.uid), (0o1770, 0));
        assert_eq!(find(layout.cri()).owner.uid, ids("crigate").uid);
        assert_eq!(find(layout.api()).owner.uid, ids("apigate").uid);
        let certificates = find(layout.certificates());
        assert_eq!(
            (certificates.owner.uid, certificates.owner.gid),
            (ids("apigate").uid, ids("gateway").gid)
        );
        assert_eq!(certificates.mode, 0o2755);
        assert_eq!(find(layout.pods()).owner.uid, ids("syncd").uid);
        let logs = find(layout.pod_logs());
        assert_eq!((logs.mode, logs.owner.gid), (0o2750, identities.groups[LOG_GROUP]));
        assert_eq!(
            find(layout.states().join("syncd")),
            &Folder { path: "/s/state/syncd".into(), owner: ids("syncd"), mode: 0o700 }
        );
        assert!(
            !plan.iter().any(|folder| folder.path == layout.states().join("pleg")),
            "pleg writes nothing"
        );
        for (index, folder) in plan.iter().enumerate() {
            let parent = folder.path.parent().unwrap();
            let made = plan.iter().take(index).any(|earlier| earlier.path == parent);
            assert!(made || folder.path == layout.state(), "{parent:?} comes before {:?}", folder.path);
            // Users who are neither owner nor in the group get no further than the folders that hold no secrets.
            assert!(folder.mode & 0o002 == 0, "{folder:?} can be written by everyone");
        }
    }

    #[test]
    fn a_folder_of_other_uids_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let layout = Layout::new(dir.path().join("s")).unwrap();
        fs::create_dir(layout.state()).unwrap();
        check(&layout, &Identities::from_base(1000)).unwrap();
        write_identities(&layout, &Identities::from_base(1000)).unwrap();
        check(&layout, &Identities::from_base(1000)).unwrap();
        let error = check(&layout, &Identities::from_base(2000)).unwrap_err();
        assert!(error.to_string().contains("--uid-base"), "{error}");
    }

    #[test]
    fn a_folder_that_others_cannot_reach_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let error = reachable(&dir.path().join("s")).unwrap_err();
        assert!(error.to_string().contains("choose another folder"), "{error}");
    }
}
