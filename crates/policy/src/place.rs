//! Where a path of the node really leads. With reading the policy file, all that touches the file system here.
//!
//! What is found out is true at that moment: whoever may change folders on the way can change them afterwards.

use std::cell::OnceCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::mounts::Mounts;
use crate::values::is_plain;
use crate::wish::{Mount, Node, Places};

/// The node as the policy sees it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Folders as they are configured.
    named: Node,
    /// The same without links.
    real: Node,
}

/// One look at the node: what it reads, it reads once.
pub struct Look<'a> {
    host: &'a Host,
    mounts: OnceCell<Mounts>,
}

impl Host {
    /// With the kubelet's folder and `podLogsDir`. Links in their own names are followed once, now.
    pub fn new(root: &Path, logs: &Path) -> Self {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self {
            real: Node { root: real(root), logs: real(logs) },
            named: Node { root: root.to_owned(), logs: logs.to_owned() },
        }
    }

    /// The node's folders, as rules want them.
    pub fn node(&self) -> &Node {
        &self.real
    }

    /// Looks at the node, for one request.
    pub fn look(&self) -> Look<'_> {
        Look { host: self, mounts: OnceCell::new() }
    }
}

impl Look<'_> {
    /// Where a path leads that the pod with this UID wants.
    pub fn mount(&self, uid: &str, source: &str) -> Mount {
        let own = self.host.real.pod_folder(uid);
        Mount { source: source.to_owned(), places: self.places(own.as_deref(), Path::new(source)) }
    }

    /// Where the folder of logs leads.
    pub fn log_folder(&self, source: &str) -> Mount {
        let logs = &self.host.real.logs;
        let places = self.real_path(Some(logs), Path::new(source)).map(|place| vec![place]);
        Mount { source: source.to_owned(), places }
    }

    /// The seccomp profile that a pod names by `file`: a path beneath the kubelet's folder of profiles.
    pub fn seccomp_profile(&self, file: &str) -> String {
        self.host.real.seccomp_profile(file).display().to_string()
    }

    fn places(&self, own: Option<&Path>, source: &Path) -> Places {
        let place = self.real_path(own, source)?;
        let Some(own) = own.filter(|own| place.starts_with(own)) else { return Ok(vec![place]) };
        let names = self.mounts()?.names_outside(own, &place);
        Ok(if names.is_empty() { vec![place] } else { names })
    }

    /// The path without links. What does not exist yet is taken as it is written, beneath what does.
    ///
    /// Some of the folders in `kept` are closed to this user: they are the node's own, and what is in them is taken as it
    /// is written. Anywhere else a closed folder may hold a link to anything.
    fn real_path(&self, kept: Option<&Path>, source: &Path) -> Result<PathBuf, String> {
        if !is_plain(source) {
            return Err("it is not an absolute path without `..`".to_owned());
        }
        let source = self.host.renamed(source);
        let mut missing = PathBuf::new();
        for ancestor in source.ancestors() {
            match ancestor.canonicalize() {
                Ok(real) => {
                    return Ok(if missing.as_os_str().is_empty() { real } else { real.join(&missing) });
                }
                // The runtime makes a folder that is missing.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if ancestor.symlink_metadata().is_ok() {
                        return Err(format!("{} is a link to nothing", ancestor.display()));
                    }
                    let Some(name) = ancestor.file_name() else { break };
                    missing = if missing.as_os_str().is_empty() {
                        name.into()
                    } else {
                        Path::new(name).join(&missing)
                    };
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return match kept.filter(|kept| source != *kept && source.starts_with(kept)) {
                        Some(_) => Ok(source),
                        None => Err("one of its folders is closed to this user".to_owned()),
                    };
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("nothing of it exists".to_owned())
    }

    fn mounts(&self) -> Result<&Mounts, String> {
        if let Some(mounts) = self.mounts.get() {
            return Ok(mounts);
        }
        let read = std::fs::read("/proc/self/mountinfo");
        let text = read.map_err(|error| format!("cannot read /proc/self/mountinfo: {error}"))?;
        Ok(self.mounts.get_or_init(|| Mounts::parse(&text)))
    }
}

impl Host {
    /// A path in the node's folders, by their names without links.
    fn renamed(&self, path: &Path) -> PathBuf {
        let pairs = [(&self.named.root, &self.real.root), (&self.named.logs, &self.real.logs)];
        let found = pairs.iter().find_map(|(named, real)| Some(real.join(path.strip_prefix(named).ok()?)));
        found.unwrap_or_else(|| path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn places(mount: Mount) -> Vec<PathBuf> {
        mount.places.unwrap()
    }

    #[test]
    fn links_are_followed_to_their_end_and_missing_folders_taken_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let root = base.join("named");
        std::fs::create_dir_all(base.join("real/pods/u")).unwrap();
        std::fs::create_dir_all(base.join("secret")).unwrap();
        symlink(base.join("real"), &root).unwrap();
        symlink(base.join("secret"), base.join("real/pods/u/evil")).unwrap();
        symlink(base.join("nowhere"), base.join("real/pods/u/dangling")).unwrap();
        let host = Host::new(&root, &base.join("logs"));
        let look = host.look();
        let at = |path: PathBuf| look.mount("u", &path.to_string_lossy());
        assert_eq!(places(at(root.join("pods/u"))), [base.join("real/pods/u")]);
        assert_eq!(places(at(root.join("pods/u/new/er"))), [base.join("real/pods/u/new/er")]);
        assert_eq!(places(at(root.join("pods/u/evil"))), [base.join("secret")]);
        assert_eq!(places(at(root.join("pods/u/evil/x"))), [base.join("secret/x")]);
        assert!(at(root.join("pods/u/dangling")).places.is_err());
        for odd in ["relative", "", "/a/../b"] {
            assert!(look.mount("u", odd).places.is_err(), "{odd:?}");
        }
        assert_eq!(places(look.log_folder(&base.join("logs/x").to_string_lossy())), [base.join("logs/x")]);
    }
}
