//! The folder of certificates, with the kubelet's names: a file for each client certificate that was ever got, and a link to
//! the newest. Blocks for files.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::credential;
use crate::error::CredentialError;
use crate::pem::Pair;
use crate::secret::Secret;

/// Old pairs that are kept.
const KEPT: usize = 4;
/// Mode of what this process' user alone may read.
pub const PRIVATE: u32 = 0o600;
/// Mode of what the folder's group may read, too: the gateway's, which shows the node's serving certificate.
pub const SHOWN: u32 = 0o640;

/// Pairs of one kind in the folder.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    /// What these pairs are for, as the kubelet names them.
    kind: &'static str,
    mode: u32,
}

impl Store {
    /// Of client certificates in `folder`, which is made when it is needed.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, kind: "client", mode: PRIVATE }
    }

    /// Of serving certificates, which the folder's group may read.
    pub fn serving(folder: PathBuf) -> Self {
        Self { folder, kind: "server", mode: SHOWN }
    }

    fn prefix(&self) -> String {
        format!("kubelet-{}-", self.kind)
    }

    /// The link to the newest pair.
    pub fn current(&self) -> PathBuf {
        self.folder.join(format!("{}current.pem", self.prefix()))
    }

    /// The newest pair; `None`: there was never one.
    ///
    /// # Errors
    /// When it cannot be read or used.
    pub fn load(&self) -> Result<Option<Pair>, CredentialError> {
        let path = self.current();
        let text = match credential::read(&path) {
            Ok(text) => text,
            Err(CredentialError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let unusable = |reason| CredentialError::Material {
            what: "certificate",
            place: format!("in {}", path.display()),
            reason,
        };
        Pair::from_pem(&text, &text).map(Some).map_err(unusable)
    }

    /// Keeps a pair as the newest one: the file first, whole and synced, then the link.
    ///
    /// # Errors
    /// When the disk does not do it; the newest pair then stays what it was.
    pub fn save(&self, certificate: &[u8], key: &Secret, now: Timestamp) -> io::Result<()> {
        let date = now.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H-%M-%S").to_string();
        let name = format!("{}{date}.pem", self.prefix());
        let newline: &[u8] = if certificate.ends_with(b"\n") { b"" } else { b"\n" };
        let text = [certificate, newline, key.reveal()].concat();
        write(&self.folder.join(&name), &text, self.mode)?;
        let link = self.folder.join(format!("{}current.pem.new", self.prefix()));
        remove(&link)?;
        symlink(&name, &link)?;
        fs::rename(&link, self.current())?;
        File::open(&self.folder)?.sync_all()?;
        self.prune();
        Ok(())
    }

    /// The key of a request that waits for its certificate.
    pub fn pending_key(&self) -> Option<Secret> {
        credential::read(&self.key_path()).ok().map(Secret::new)
    }

    /// Keeps the key of a request: its certificate may come after a restart.
    ///
    /// # Errors
    /// When the disk does not do it.
    pub fn save_pending_key(&self, key: &Secret) -> io::Result<()> {
        write(&self.key_path(), key.reveal(), PRIVATE)
    }

    /// Forgets it.
    pub fn forget_pending_key(&self) {
        if let Err(error) = remove(&self.key_path()) {
            tracing::warn!(%error, path = %self.key_path().display(), "cannot remove an old key");
        }
    }

    /// As the kubelet names it.
    fn key_path(&self) -> PathBuf {
        self.folder.join(format!("kubelet-{}.key.tmp", self.kind))
    }

    /// Removes all pairs but the newest few.
    fn prune(&self) {
        let prefix = self.prefix();
        let dated = |name: &String| {
            let date = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".pem"));
            date.is_some_and(|date| date.len() == 19 && date.bytes().all(|b| b.is_ascii_digit() || b == b'-'))
        };
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(dated).collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        let current = fs::read_link(self.current()).ok();
        for name in names.into_iter().skip(KEPT) {
            if current.as_deref() != Some(Path::new(&name)) {
                let _ = fs::remove_file(self.folder.join(name));
            }
        }
    }
}

/// Writes a file with this mode, whole or not at all. Makes its folder when it is missing.
///
/// # Errors
/// When the disk does not do it.
pub fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = folder.join(name);
    remove(&part)?;
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&part)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    File::open(folder)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Issued;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_newest_pair_is_behind_a_link_as_the_kubelet_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("pki"));
        assert!(store.load().unwrap().is_none());
        for year in 2026..2034 {
            let issued =
                Issued::client(&format!("{year}-01-01T00:00:00Z"), &format!("{}-01-01T00:00:00Z", year + 1));
            let key = Secret::new(issued.key_pem().into_bytes());
            store
                .save(issued.certificate_pem().as_bytes(), &key, at(&format!("{year}-10-02T03:04:05Z")))
                .unwrap();
            let pair = store.load().unwrap().unwrap();
            assert_eq!(pair.validity.from, at(&format!("{year}-01-01T00:00:00Z")));
        }
        let mut names: Vec<_> = fs::read_dir(dir.path().join("pki"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let dated = |year| format!("kubelet-client-{year}-10-02-03-04-05.pem");
        let kept = [dated(2030), dated(2031), dated(2032), dated(2033), "kubelet-client-current.pem".into()];
        assert_eq!(names, kept);
        assert_eq!(fs::read_link(store.current()).unwrap().to_str().unwrap(), dated(2033));
        let mode = fs::metadata(store.current()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().to_owned());
        fs::write(store.current(), "-----BEGIN CERTIF").unwrap();
        let error = store.load().unwrap_err().to_string();
        assert!(error.contains("kubelet-client-current.pem cannot be used"), "{error}");
    }

    #[test]
    fn a_pending_key_outlives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().to_owned());
        assert_eq!(store.pending_key(), None);
        store.save_pending_key(&Secret::new(b"k".to_vec())).unwrap();
        assert_eq!(store.pending_key(), Some(Secret::new(b"k".to_vec())));
        store.forget_pending_key();
        store.forget_pending_key();
        assert_eq!(store.pending_key(), None);
    }

    #[test]
    fn a_full_disk_keeps_the_old_pair() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().to_owned());
        let issued = Issued::client("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        let key = Secret::new(issued.key_pem().into_bytes());
        store.save(issued.certificate_pem().as_bytes(), &key, at("2026-01-01T00:00:00Z")).unwrap();
        // A folder in place of the file to be written.
        fs::create_dir_all(dir.path().join("kubelet-client-2026-02-02-00-00-00.pem.part/x")).unwrap();
        assert!(store.save(b"x", &key, at("2026-02-02T00:00:00Z")).is_err());
        assert!(store.load().unwrap().is_some());
    }
}
