//! Keeps the credential: reads the kubeconfig and what it names, and again whenever a file changed, chooses the certificate,
//! and says when one must be asked for.
//!
//! A credential that is used is not given up for one that cannot be read: files are changed one after the other.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, chain};
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use bulkhead_service::Check;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::choose::{Choice, Known, Pick, choose};
use crate::credential::{self, Credential};
use crate::error::CredentialError;
use crate::held::Held;
use crate::kubeconfig::Kubeconfig;
use crate::limits;
use crate::pem::{Pair, Validity};
use crate::store::Store;

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Places {
    /// `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap: Option<PathBuf>,
    /// `--cert-dir`.
    pub store: Store,
    /// Whether certificates that run out are asked for anew (`rotateCertificates`).
    pub rotates: bool,
}

/// What must be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Nothing,
    /// A first certificate, or one in place of one that is over: with the bootstrap kubeconfig.
    First,
    /// The next one after this.
    Next(Validity),
}

/// The loop.
pub struct Keeper {
    /// Where everything is.
    pub places: Places,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Where the credential is told.
    pub held: watch::Sender<Held>,
    /// Where is told what must be asked for.
    pub wanted: watch::Sender<Wanted>,
    /// Whether there is one.
    pub check: Check,
    /// What the present state was made of.
    pub seen: Option<Seen>,
}

/// Files and their states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    files: Vec<(PathBuf, Option<Stamp>)>,
    /// When the answer changes although no file does.
    turns: Option<Timestamp>,
}

/// A file's state; another one means that it may hold something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// What a look found.
#[derive(Debug)]
pub struct Found {
    /// What can be used.
    pub held: Result<Credential, String>,
    /// What is wrong, although there may be something to use.
    pub problem: Option<String>,
    /// What must be asked for.
    pub wanted: Wanted,
    seen: Seen,
}

impl Reconciler for Keeper {
    const NAME: &'static str = "credential";

    fn interval(&self) -> Duration {
        limits::LOOK
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let now = self.clock.now();
        if self.seen.as_ref().is_some_and(|seen| !seen.is_outdated(now)) {
            return Next::Wait;
        }
        let places = self.places.clone();
        match tokio::task::spawn_blocking(move || look(&places, now)).await {
            Ok(found) => self.tell(found),
            // The runtime stops.
            Err(_) => Next::Wait,
        }
    }
}

impl Keeper {
    fn tell(&mut self, found: Found) -> Next {
        let Found { held, problem, wanted, seen } = found;
        // What could not be read is read again, even if no file changes.
        self.seen = held.is_ok().then_some(seen);
        match held {
            Ok(credential) => {
                let until = credential.validity.map(|validity| validity.until.to_string());
                tracing::info!(server = %credential.server.authority, until, "credential for the API server");
                self.held.send_replace(Held::Usable(Arc::new(credential)));
                match problem {
                    None => self.check.good(),
                    Some(problem) => self.complain(problem),
                }
            }
            Err(reason) => {
                // Keeps what is in use: it may well be good for longer.
                if !matches!(&*self.held.borrow(), Held::Usable(_)) {
                    self.held.send_replace(Held::Missing(reason.as_str().into()));
                }
                self.complain(reason);
            }
        }
        self.wanted.send_if_modified(|before| {
            let changed = *before != wanted;
            *before = wanted;
            changed
        });
        Next::Wait
    }

    fn complain(&self, reason: String) {
        if self.check.newly_bad(reason.clone()) {
            tracing::warn!(reason, "the credential for the API server");
        }
    }
}

/// Reads everything. Blocks for files.
pub fn look(places: &Places, now: Timestamp) -> Found {
    let mut seen = Seen::default();
    // Their states come first: a change while they are read is seen at the next look.
    seen.add(&places.kubeconfig);
    let text = match credential::read(&places.kubeconfig) {
        Ok(text) => text,
        Err(error) => return without_kubeconfig(places, &error, seen),
    };
    let folder = places.kubeconfig.parent().unwrap_or(Path::new("/"));
    let kubeconfig = match Kubeconfig::parse(&text, folder) {
        Ok(kubeconfig) => kubeconfig,
        Err(source) => {
            let error = CredentialError::Kubeconfig { path: places.kubeconfig.clone(), source };
            return Found {
                held: Err(chain(&error).to_string()),
                problem: None,
                wanted: Wanted::Nothing,
                seen,
            };
        }
    };
    kubeconfig.files().for_each(|file| seen.add(file));
    if places.manages() {
        seen.add(&places.store.current());
    }
    with_kubeconfig(places, &kubeconfig, seen, now)
}

fn without_kubeconfig(places: &Places, error: &CredentialError, seen: Seen) -> Found {
    let missing =
        matches!(error, CredentialError::Read { source, .. } if source.kind() == ErrorKind::NotFound);
    let (reason, wanted) = if missing && places.bootstrap.is_some() {
        let path = places.kubeconfig.display();
        (format!("there is no {path} yet: a certificate is asked for"), Wanted::First)
    } else {
        (chain(error).to_string(), Wanted::Nothing)
    };
    Found { held: Err(reason), problem: None, wanted, seen }
}

fn with_kubeconfig(places: &Places, kubeconfig: &Kubeconfig, mut seen: Seen, now: Timestamp) -> Found {
    let mut problem = None;
    let mut noting = |pair: Result<Option<Pair>, CredentialError>| {
        pair.unwrap_or_else(|error| {
            problem = Some(chain(&error).to_string());
            None
        })
    };
    let own = noting(credential::pair_of(kubeconfig));
    let stored = if places.manages() { noting(places.store.load()) } else { None };
    let validity = |pair: &Option<Pair>| pair.as_ref().map(|pair| pair.validity);
    let known = Known { own: validity(&own), stored: validity(&stored) };
    let Choice { pick, over } = choose(known, now);
    let pair = match pick {
        Pick::Own => own,
        Pick::Stored => stored,
        Pick::None => None,
    };
    let chosen = validity(&pair);
    // A kubeconfig with a token alone is whole without a certificate.
    let certificate_less = kubeconfig.identity.is_none() && kubeconfig.token.is_some();
    let unusable = over || (pair.is_none() && !certificate_less);
    if unusable && places.bootstrap.is_some() {
        let reason = match (chosen, problem) {
            (Some(validity), _) => {
                format!("the client certificate is over since {}: a new one is asked for", validity.until)
            }
            (None, Some(problem)) => format!("{problem}: a new one is asked for"),
            (None, None) => "there is no client certificate: one is asked for".to_owned(),
        };
        return Found { held: Err(reason), problem: None, wanted: Wanted::First, seen };
    }
    // A usable pair makes the other one's faults unimportant.
    let problem = match chosen {
        Some(validity) if over => Some(format!(
            "the client certificate is over since {}: write a new one to where the kubeconfig says",
            validity.until
        )),
        Some(_) => None,
        None => problem,
    };
    seen.turns = chosen.filter(|_| !over).map(|validity| validity.until);
    let wanted = match chosen {
        Some(validity) if places.rotates => Wanted::Next(validity),
        _ => Wanted::Nothing,
    };
    let held = Credential::new(kubeconfig, pair).map_err(|error| chain(&error).to_string());
    Found { held, problem, wanted, seen }
}

impl Places {
    /// Whether certificates are got and kept here, and not only by others.
    pub fn manages(&self) -> bool {
        self.rotates || self.bootstrap.is_some()
    }
}

impl Seen {
    fn add(&mut self, path: &Path) {
        let known: BTreeSet<_> = self.files.iter().map(|(path, _)| path.as_path()).collect();
        if !known.contains(path) {
            self.files.push((path.to_owned(), Stamp::of(path)));
        }
    }

    fn is_outdated(&self, now: Timestamp) -> bool {
        self.turns.is_some_and(|turns| now >= turns)
            || self.files.iter().any(|(path, stamp)| Stamp::of(path) != *stamp)
    }
}

impl Stamp {
    /// `None`: it is not there, or not to be seen.
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        let modified = (found.mtime(), found.mtime_nsec());
        Some(Self { inode: found.ino(), size: found.size(), modified })
    }
}

#[cfg(test)]
mod tests;
