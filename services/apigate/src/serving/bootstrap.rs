//! The serving certificate that the cluster signs (`serverTLSBootstrap`): asked for once the node has an address, one request at
//! a time, again when the addresses are others or the certificate comes to its end. Until it is there the node shows none.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Backoff, Clock, chain};
use bulkhead_service::{Check, Counter, Desc, Metrics};
use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::time::sleep;

use super::names::Names;
use crate::choose::renew_at;
use crate::credential::Credential;
use crate::csr::{self, Answer, Csr};
use crate::held::{Held, Holder};
use crate::limits;
use crate::pem::Pair;
use crate::renew::{RenewError, disk, send};
use crate::secret::Secret;
use crate::store::Store;

/// The loop.
pub struct Bootstrap {
    /// The node's name.
    pub node: Arc<str>,
    /// Where certificates are kept.
    pub store: Store,
    /// The node's credential.
    pub holder: Holder,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Whether there is one.
    pub check: Check,
    /// Failures.
    pub failures: Counter,
}

/// What became of a look.
enum Step {
    /// Nothing is to be done for so long.
    Wait(Duration),
    /// A new one is there.
    Renewed,
}

/// The counter of failures, under the kubelet's name.
pub fn failures(metrics: &Metrics) -> Counter {
    metrics.counter(Desc {
        name: "kubelet_server_expiration_renew_errors",
        help: "Failures to get the next serving certificate.",
        labels: &[],
    })
}

impl Bootstrap {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut backoff = Backoff::new(limits::RENEW.0, limits::RENEW.1);
        let random = RandomState::new().hash_one(());
        loop {
            let pause = match self.step(random).await {
                Ok(Step::Wait(pause)) => {
                    backoff.reset();
                    pause
                }
                Ok(Step::Renewed) => {
                    backoff.reset();
                    Duration::ZERO
                }
                Err(error) => {
                    self.failures.add_one(&[]);
                    self.complain(&chain(&error).to_string());
                    backoff.next_delay()
                }
            };
            sleep(pause).await;
        }
    }

    /// With a certificate that is good it is well, whatever went wrong with the next one.
    fn complain(&self, reason: &str) {
        let good = self.stored().is_some_and(|(pair, _)| !pair.validity.is_over(self.clock.now()));
        if good {
            self.check.good();
            tracing::warn!(reason, "no next serving certificate yet");
        } else if self.check.newly_bad(format!("no serving certificate: {reason}")) {
            tracing::warn!(reason, "no serving certificate yet");
        }
    }

    async fn step(&self, random: u64) -> Result<Step, RenewError> {
        let (often, soon) = limits::ADDRESSES;
        let stored = self.stored();
        let Some(credential) = self.credential() else {
            self.complain("there is no credential for the API server yet");
            return Ok(Step::Wait(soon));
        };
        let Some(names) = self.names(&credential).await? else {
            self.complain("the node has no address in the cluster yet");
            return Ok(Step::Wait(soon));
        };
        let fits = stored
            .is_some_and(|(pair, has)| has == names && self.clock.now() < renew_at(pair.validity, random));
        if fits {
            self.check.good();
            return Ok(Step::Wait(often));
        }
        self.get(&names).await
    }

    fn stored(&self) -> Option<(Pair, Names)> {
        let pair = self.store.load().ok().flatten()?;
        let names = Names::of_certificate(pair.chain.first()?)?;
        Some((pair, names))
    }

    fn credential(&self) -> Option<Arc<Credential>> {
        match &*self.holder.borrow() {
            Held::Usable(credential) => Some(credential.clone()),
            Held::Standalone | Held::Missing(_) => None,
        }
    }

    /// The node's names and addresses in the cluster; `None`: it has no address.
    async fn names(&self, credential: &Credential) -> Result<Option<Names>, RenewError> {
        let path = format!("/api/v1/nodes/{}", self.node);
        let what = || format!("node {}", self.node);
        match send(credential, &Method::GET, &path, Bytes::new()).await? {
            (StatusCode::OK, object) => {
                let names = Names::of_node(&object).ok_or_else(|| RenewError::Nonsense { what: what() })?;
                Ok(Some(names).filter(Names::has_address))
            }
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, _) => Err(RenewError::Answer { status, what: what() }),
        }
    }

    /// Asks for a certificate for `names` and keeps it. Ends early when the node's names are others.
    async fn get(&self, names: &Names) -> Result<Step, RenewError> {
        let usable = |key: &Secret| Csr::serving(&self.node, key, names).is_ok();
        let key = match self.store.pending_key().filter(usable) {
            Some(key) => key,
            None => {
                let key = csr::new_key()?;
                self.store.save_pending_key(&key).map_err(|source| disk(&self.store.current(), source))?;
                key
            }
        };
        let csr = Csr::serving(&self.node, &key, names)?;
        let certificate = match self.ask(&csr, names).await {
            // The same key again would only find the same answer.
            Err(error @ RenewError::Refused { .. }) => {
                self.store.forget_pending_key();
                return Err(error);
            }
            asked => asked?,
        };
        let Some(certificate) = certificate else { return Ok(Step::Wait(Duration::ZERO)) };
        if let Err(reason) = usable_for(names, &certificate, &key) {
            self.store.forget_pending_key();
            return Err(RenewError::Unusable { name: csr.name, reason });
        }
        let saved = self.store.save(&certificate, &key, self.clock.now());
        saved.map_err(|source| disk(&self.store.current(), source))?;
        self.store.forget_pending_key();
        tracing::info!(request = csr.name, names = %names, "a new serving certificate");
        Ok(Step::Renewed)
    }

    /// Sends the request, and waits for its certificate; `None`: the node's names are others by now.
    async fn ask(&self, csr: &Csr, names: &Names) -> Result<Option<Vec<u8>>, RenewError> {
        let at = format!("{}/{}", csr::PATH, csr.name);
        let mut backoff = Backoff::new(limits::POLL.0, limits::POLL.1);
        let mut told = false;
        loop {
            let Some(credential) = self.credential() else { return Ok(None) };
            let (status, object) = send(&credential, &Method::GET, &at, Bytes::new()).await?;
            let (status, object) = match status {
                StatusCode::NOT_FOUND => {
                    send(&credential, &Method::POST, csr::PATH, csr.object.clone()).await?
                }
                _ => (status, object),
            };
            let what = || format!("request {}", csr.name);
            match status {
                StatusCode::OK | StatusCode::CREATED => {}
                // Made by somebody else at the same moment: read it.
                StatusCode::CONFLICT => continue,
                status => return Err(RenewError::Answer { status, what: what() }),
            }
            match csr::read(&object).ok_or_else(|| RenewError::Nonsense { what: what() })? {
                Answer::Issued(certificate) => return Ok(Some(certificate)),
                Answer::Refused(reason) => {
                    return Err(RenewError::Refused { name: csr.name.clone(), reason });
                }
                Answer::Pending => {}
            }
            if !told {
                tracing::info!(request = csr.name, names = %names, "a serving certificate is asked for");
                told = true;
            }
            self.complain(&format!("request {} waits for approval", csr.name));
            sleep(backoff.next_delay()).await;
            // As long as it waits nothing else looks.
            if self.names(&credential).await?.as_ref() != Some(names) {
                return Ok(None);
            }
        }
    }
}

/// Whether this is what was asked for. A signer that leaves names out must not be asked again and again without a pause.
fn usable_for(names: &Names, certificate: &[u8], key: &Secret) -> Result<(), String> {
    let pair = Pair::from_pem(certificate, key.reveal())?;
    let has = pair.chain.first().and_then(Names::of_certificate);
    match has {
        Some(has) if has == *names => Ok(()),
        Some(has) => Err(format!("it is for {has:?}, not for {names}", has = has.to_string())),
        None => Err("its names cannot be read".to_owned()),
    }
}
