//! Reads the serving certificate and the clients' authorities when their files change. What is in use stays until something
//! usable is there: files are changed one after the other.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_service::Check;
use tokio::time::sleep;

use super::clients::Authorities;
use super::serving::{self, Serving};
use crate::config::TlsSettings;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);
/// The same while something is missing.
const SOON: Duration = Duration::from_millis(250);
/// Largest file taken, in bytes.
const FILE: u64 = 1024 * 1024;

/// The loop.
pub(super) struct Keeper {
    settings: TlsSettings,
    serving: Arc<Serving>,
    authorities: Arc<Authorities>,
    check: Check,
    seen: Vec<Option<Stamp>>,
}

/// A file's state; another one means that it may hold something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Keeper {
    pub(super) fn new(
        settings: TlsSettings,
        serving: Arc<Serving>,
        authorities: Arc<Authorities>,
        check: Check,
    ) -> Self {
        Self { settings, serving, authorities, check, seen: Vec::new() }
    }

    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let pause = self.look().await;
            sleep(pause).await;
        }
    }

    /// Looks at the files, and reads them when they are others; how long until the next look.
    pub(super) async fn look(&mut self) -> Duration {
        // A few looks at files that are in memory: no thread is needed for them.
        let stamps = stamps(&self.files());
        if self.seen == stamps {
            return LOOK;
        }
        let (settings, serving, authorities) =
            (self.settings.clone(), self.serving.clone(), self.authorities.clone());
        let read = tokio::task::spawn_blocking(move || read(&settings, &serving, &authorities)).await;
        let Ok(problems) = read else { return LOOK };
        if problems.is_empty() {
            self.seen = stamps;
            self.check.good();
            tracing::info!("the certificates of the secured port were read");
            return LOOK;
        }
        // What could not be read is read again, even if no file changes.
        let problems = problems.join("; ");
        if self.check.newly_bad(problems.clone()) {
            tracing::warn!(problems, "the certificates of the secured port");
        }
        let whole = self.serving.is_set() && (self.settings.client_ca.is_none() || self.authorities.is_set());
        if whole { LOOK } else { SOON }
    }

    fn files(&self) -> Vec<PathBuf> {
        let TlsSettings { certificate, key, client_ca, .. } = &self.settings;
        [Some(certificate), Some(key), client_ca.as_ref()].into_iter().flatten().cloned().collect()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        Some(Stamp { inode: found.ino(), size: found.size(), modified: (found.mtime(), found.mtime_nsec()) })
    };
    files.iter().map(stamp).collect()
}

/// Reads everything; returns what is wrong.
fn read(settings: &TlsSettings, serving: &Serving, authorities: &Authorities) -> Vec<String> {
    let mut problems = Vec::new();
    let pair = text(&settings.certificate).and_then(|certificate| {
        let key = text(&settings.key)?;
        let place = settings.certificate.display();
        serving::pair(&certificate, &key).map_err(|reason| format!("{place} cannot be used: {reason}"))
    });
    match pair {
        Ok(pair) => serving.set(pair),
        Err(problem) => problems.push(format!("no serving certificate: {problem}")),
    }
    if let Some(file) = &settings.client_ca {
        let set = text(file).and_then(|bundle| {
            authorities.set(&bundle).map_err(|reason| format!("{} cannot be used: {reason}", file.display()))
        });
        if let Err(problem) = set {
            problems.push(format!("no authorities for clients: {problem}"));
        }
    }
    problems
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE + 1).read_to_end(&mut text));
    match read {
        Ok(_) if u64::try_from(text.len()).is_ok_and(|length| length <= FILE) => Ok(text),
        Ok(_) => Err(format!("{} is larger than {FILE} bytes", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(format!("cannot read {}: it must be open to gateway's user or group", path.display()))
        }
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}
