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
const PREFIX: &str = "kubelet-client-";

/// The folder.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// In `folder`, which is made when it is needed.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The link to the newest pair.
    pub fn current(&self) -> PathBuf {
        self.folder.join("kubelet-client-current.pem")
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
            what: "client certificate",
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
        let name = format!("{PREFIX}{date}.pem");
        let newline: &[u8] = if certificate.ends_with(b"\n") { b"" } else { b"\n" };
        let text = [certificate, newline, key.reveal()].concat();
        write_private(&self.folder.join(&name), &text)?;
        let link = self.folder.join("kubelet-client-current.pem.new");
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
        write_private(&self.key_path(), key.reveal())
    }

    /// Forgets it.
    pub fn forget_pending_key(&self) {
        if let Err(error) = remove(&self.key_path()) {
            tracing::warn!(%error, path = %self.key_path().display(), "cannot remove an old key");
        }
    }

    /// As the kubelet names it.
    fn key_path(&self) -> PathBuf {
        self.folder.join("kubelet-client.key.tmp")
    }

    /// Removes all pairs but the newest few.
    fn prune(&self) {
        let dated = |name: &String| {
            let date = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(".pem"));
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

/// Writes a file that its owner alone may read, whole or not at all. Makes its folder when it is missing.
///
/// # Errors
/// When the disk does not do it.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = folder.join(name);
    remove(&part)?;
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
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
