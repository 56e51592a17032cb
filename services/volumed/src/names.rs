//! Names that become parts of paths, checked before any path is made of them. Pure.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Folder of a pod's volumes in the pod's directory. The kubelet's layout.
pub(crate) const VOLUMES: &str = "volumes";
/// Folder of emptyDir volumes in [`VOLUMES`].
pub(crate) const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
/// Folder of downwardAPI volumes in [`VOLUMES`].
pub(crate) const DOWNWARD_API: &str = "kubernetes.io~downward-api";
/// Folder of configMap volumes in [`VOLUMES`].
pub(crate) const CONFIG_MAP: &str = "kubernetes.io~configmap";
/// Folder of secret volumes in [`VOLUMES`].
pub(crate) const SECRET: &str = "kubernetes.io~secret";
/// Folder of projected volumes in [`VOLUMES`].
pub(crate) const PROJECTED: &str = "kubernetes.io~projected";
/// Folder in the pod's directory for what its volumes follow, see [`crate::wanted`].
pub(crate) const WANTED: &str = "volumes-wanted";
/// Folder of the places that sub-paths are bound to, in the pod's directory: VOLUME/CONTAINER/INDEX in it. The kubelet's
/// layout.
pub(crate) const SUB_PATHS: &str = "volume-subpaths";
/// Plug-ins whose volumes are in folders of ours.
pub(crate) const PLUGINS: [&str; 5] = [EMPTY_DIR, DOWNWARD_API, CONFIG_MAP, SECRET, PROJECTED];
/// The plug-in of hostPath, as it is published.
pub(crate) const HOST_PATH_PLUGIN: &str = "kubernetes.io/host-path";
/// Longest pod UID, and longest file name of ours but for the prefixes of this process.
const UID_BYTES: usize = 253;
/// Longest DNS label (RFC 1123).
const LABEL_BYTES: usize = 63;

/// `metadata.uid`, safe as a file name: letters, digits, `-`, `_`, `.`; no leading dot, no `..`; at most 253 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodUid(String);

/// `spec.volumes[].name`, a DNS label, safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VolumeName(String);

impl PodUid {
    /// Checks a UID.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let good = (1..=UID_BYTES).contains(&text.len())
            && text.bytes().all(allowed)
            && !text.starts_with('.')
            && !text.contains("..");
        let what = "letters, digits, `-`, `_` and `.`, without `..`, at most 253 bytes";
        if good { Ok(Self(text.to_owned())) } else { Err(refused("pod UID", text, what)) }
    }

    /// As text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl VolumeName {
    /// Checks a name.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let good = (1..=LABEL_BYTES).contains(&text.len())
            && text.bytes().all(allowed)
            && !text.starts_with('-')
            && !text.ends_with('-');
        let what = "lower-case letters, digits and `-`, beginning and ending with a letter or digit, at most 63 bytes";
        if good { Ok(Self(text.to_owned())) } else { Err(refused("volume name", text, what)) }
    }

    /// As text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why the root folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    /// There is no current folder.
    #[error("{0} cannot be made absolute")]
    NotAbsolute(PathBuf, #[source] std::io::Error),
    /// Paths travel as text.
    #[error("{0} is not UTF-8")]
    NotText(PathBuf),
}

/// `{root}/pods`, absolute: other processes and the runtime have other current folders.
pub(crate) fn pods_directory(root: &Path) -> Result<String, RootError> {
    let pods = std::path::absolute(root).map_err(|error| RootError::NotAbsolute(root.to_owned(), error))?;
    pods.join("pods").into_os_string().into_string().map_err(|path| RootError::NotText(path.into()))
}

/// Where a volume is on the node. `folder` is its plug-in's.
pub(crate) fn volume_path(pods: &str, uid: &PodUid, folder: &str, name: &str) -> String {
    format!("{pods}/{uid}/{VOLUMES}/{folder}/{name}")
}

/// Where a sub-path is bound to.
pub(crate) fn sub_path_place(
    pods: &str,
    uid: &PodUid,
    volume: &VolumeName,
    container: &VolumeName,
    index: u32,
) -> String {
    format!("{pods}/{uid}/{SUB_PATHS}/{volume}/{container}/{index}")
}

/// A plug-in's name by its folder: `kubernetes.io/empty-dir`.
pub(crate) fn plugin_name(folder: &str) -> String {
    folder.replacen('~', "/", 1)
}

/// The text itself is shown escaped and cut: it may hold anything.
fn refused(what: &str, text: &str, allowed: &str) -> Error {
    let shown: String = text.chars().take(80).collect();
    Error::Invalid(format!("{what} {shown:?} is refused: {allowed}"))
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pod_uids() {
        let long = "a".repeat(253);
        let too_long = "a".repeat(254);
        for good in
            ["0e2bfa6e-1c2c-4d8e-8a2f-0d9a4f1f8a10", "1a79a4d60de6718e8e5b326e338ae533", "A_b.c", &long]
        {
            assert_eq!(PodUid::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a..b", ".a", "a/b", "/", "a\0", "a\n", "ä", "a b", &too_long] {
            assert!(PodUid::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn volume_names() {
        let long = "a".repeat(63);
        let too_long = "a".repeat(64);
        for good in ["a", "0", "data", "kube-api-access-x1", &long] {
            assert_eq!(VolumeName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "-a", "a-", "A", "a.b", "a/b", "a\0", "a_b", ".gone-0", &too_long] {
            assert!(VolumeName::parse(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_passes_is_one_plain_path_component(text in "[-_.a-zA-Z0-9/\\\\\0 ]{0,12}|\\PC{0,300}") {
            let names = [PodUid::parse(&text).map(|uid| uid.0), VolumeName::parse(&text).map(|name| name.0)];
            for name in names.into_iter().flatten() {
                let path = Path::new(&name);
                let components: Vec<_> = path.components().collect();
                prop_assert_eq!(components, vec![Component::Normal(path.as_os_str())]);
                prop_assert!(name.len() <= 253 && !name.starts_with('.') && !name.contains('\0'));
            }
        }

        #[test]
        fn a_label_passes(text in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?") {
            prop_assert!(VolumeName::parse(&text).is_ok());
            prop_assert!(PodUid::parse(&text).is_ok());
        }
    }
}
