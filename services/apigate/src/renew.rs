//! Gets client certificates: the first one with the bootstrap kubeconfig, and each next one before the present one is over.
//!
//! One request at a time. Its key is kept until its certificate is there, so that a restart asks for no second one. What
//! goes wrong is said and tried again, for ever: nothing else on the node waits for it.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::process::v1::MetricFamily;
use bulkhead_base::{Backoff, Clock, chain};
use bulkhead_reconcile::Waker;
use bulkhead_service::{Counter, Desc, Metrics};
use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::choose::{renew_at, wait};
use crate::credential::{self, Credential};
use crate::csr::{self, Answer, Csr, CsrError};
use crate::dial::dial;
use crate::error::{Cause, CredentialError};
use crate::held::{Held, Holder};
use crate::keeper::{Places, Wanted};
use crate::kubeconfig::Kubeconfig;
use crate::pem::Pair;
use crate::store::{self, Store};
use crate::{limits, own};

/// The loop.
pub struct Renewal {
    /// Where everything is.
    pub places: Places,
    /// The node's name.
    pub node: Arc<str>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The present credential.
    pub holder: Holder,
    /// What must be asked for.
    pub wanted: watch::Receiver<Wanted>,
    /// Lets the keeper look again.
    pub keeper: Waker,
    /// Failures.
    pub failures: Counter,
}

/// Why there is no new certificate yet.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// There is no credential.
    #[error("nothing to ask with")]
    NoCredential(#[source] CredentialError),
    /// The API server is away.
    #[error("the API server at {server} does not answer")]
    Away {
        /// Where it is.
        server: String,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// It takes too long.
    #[error("the API server at {server} says nothing for {:?}", limits::PROBE)]
    Silent {
        /// Where it is.
        server: String,
    },
    /// It refuses.
    #[error("the API server answers {status} to {what}")]
    Answer {
        /// With what.
        status: StatusCode,
        /// What it was asked.
        what: String,
    },
    /// It says something that cannot be read.
    #[error("the API server answers {what} with something else")]
    Nonsense {
        /// What it was asked.
        what: String,
    },
    /// Somebody decided against it.
    #[error("request {name} was refused: {reason}")]
    Refused {
        /// The request.
        name: String,
        /// What was said.
        reason: String,
    },
    /// There is no request.
    #[error(transparent)]
    Csr(#[from] CsrError),
    /// What was issued is none.
    #[error("the certificate of request {name} cannot be used: {reason}")]
    Unusable {
        /// The request.
        name: String,
        /// Why.
        reason: String,
    },
    /// The disk does not do it.
    #[error("cannot write to {place}")]
    Disk {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The counter of failures, under the kubelet's name.
pub fn failures(metrics: &Metrics) -> Counter {
    metrics.counter(Desc {
        name: "kubelet_certificate_manager_client_expiration_renew_errors",
        help: "Failures to get the next client certificate.",
        labels: &[],
    })
}

/// How long the client certificate is still good, under the kubelet's name: infinite without one.
pub fn time_left(holder: &Holder, clock: &dyn Clock) -> MetricFamily {
    let desc = Desc {
        name: "kubelet_certificate_manager_client_ttl_seconds",
        help: "Time until the client certificate is over, in seconds; negative: it is over.",
        labels: &[],
    };
    let validity = match &*holder.borrow() {
        Held::Usable(credential) => credential.validity,
        Held::Standalone | Held::Missing(_) => None,
    };
    let left = validity.map(|validity| validity.until.duration_since(clock.now()).as_secs_f64());
    desc.gauge([(Vec::new(), left.unwrap_or(f64::INFINITY))])
}

impl Renewal {
    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut backoff = Backoff::new(limits::RENEW.0, limits::RENEW.1);
        let random = RandomState::new().hash_one(());
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let pause = match wanted {
                Wanted::Nothing => None,
                Wanted::First => Some(Duration::ZERO),
                Wanted::Next(validity) => {
                    Some(wait(self.clock.now(), renew_at(validity, random), limits::CLOCK))
                }
            };
            match pause {
                Some(Duration::ZERO) => {}
                pause => {
                    let pause = async {
                        match pause {
                            Some(pause) => sleep(pause).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        changed = self.wanted.changed() => if changed.is_err() { return },
                        () = pause => {}
                    }
                    continue;
                }
            }
            match self.get(&wanted).await {
                Ok(()) => {
                    backoff.reset();
                    self.keeper.wake();
                    // The keeper sees the new files and wants something else from then on.
                    let _ = timeout(limits::CLOCK, self.wanted.changed()).await;
                }
                Err(error) => {
                    self.failures.add_one(&[]);
                    tracing::warn!(error = %chain(&error), "no new client certificate yet");
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    /// Gets a certificate and keeps it.
    async fn get(&self, wanted: &Wanted) -> Result<(), RenewError> {
        let store = &self.places.store;
        let key = match store.pending_key().filter(|key| Csr::new(&self.node, key).is_ok()) {
            Some(key) => key,
            None => {
                let key = csr::new_key()?;
                store.save_pending_key(&key).map_err(|source| disk(&store.current(), source))?;
                key
            }
        };
        let csr = Csr::new(&self.node, &key)?;
        let certificate = match self.ask(&csr, wanted).await {
            // The same key again would only find the same answer.
            Err(error @ RenewError::Refused { .. }) => {
                store.forget_pending_key();
                return Err(error);
            }
            asked => asked?,
        };
        if let Err(reason) = Pair::from_pem(&certificate, key.reveal()) {
            store.forget_pending_key();
            return Err(RenewError::Unusable { name: csr.name, reason });
        }
        store.save(&certificate, &key, self.clock.now()).map_err(|source| disk(&store.current(), source))?;
        // One that is there already finds the pair in the folder.
        if *wanted == Wanted::First && !self.places.kubeconfig.exists() {
            self.write_kubeconfig(store)?;
        }
        store.forget_pending_key();
        tracing::info!(request = csr.name, "a new client certificate");
        Ok(())
    }

    /// Sends the request, and waits for its certificate.
    async fn ask(&self, csr: &Csr, wanted: &Wanted) -> Result<Vec<u8>, RenewError> {
        let at = format!("{}/{}", csr::PATH, csr.name);
        let mut backoff = Backoff::new(limits::POLL.0, limits::POLL.1);
        let mut told = false;
        loop {
            let credential = self.credential(wanted)?;
            let (status, object) = send(&credential, &Method::GET, &at, Bytes::new()).await?;
            let (status, object) = match status {
                StatusCode::NOT_FOUND => {
                    send(&credential, &Method::POST, csr::PATH, csr.object.clone()).await?
                }
                _ => (status, object),
            };
            match status {
                StatusCode::OK | StatusCode::CREATED => {}
                // Made by somebody else at the same moment: read it.
                StatusCode::CONFLICT => continue,
                status => return Err(RenewError::Answer { status, what: format!("request {}", csr.name) }),
            }
            let nonsense = || RenewError::Nonsense { what: format!("request {}", csr.name) };
            match csr::read(&object).ok_or_else(nonsense)? {
                Answer::Issued(certificate) => return Ok(certificate),
                Answer::Refused(reason) => {
                    return Err(RenewError::Refused { name: csr.name.clone(), reason });
                }
                Answer::Pending => {}
            }
            if !told {
                tracing::info!(
                    request = csr.name,
                    "a client certificate is asked for; it waits for approval"
                );
                told = true;
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// With what to ask: for a first certificate the bootstrap kubeconfig, else what is held as long as it is good.
    fn credential(&self, wanted: &Wanted) -> Result<Arc<Credential>, RenewError> {
        let held = match &*self.holder.borrow() {
            Held::Usable(credential) => Some(credential.clone()),
            Held::Standalone | Held::Missing(_) => None,
        };
        let over = |credential: &Credential| {
            credential.validity.is_some_and(|validity| validity.is_over(self.clock.now()))
        };
        let good = held.clone().filter(|credential| !over(credential));
        match (wanted, good, &self.places.bootstrap) {
            (Wanted::Next(_), Some(credential), _) => Ok(credential),
            (_, _, Some(bootstrap)) => {
                let kubeconfig = bootstrap_of(bootstrap).map_err(RenewError::NoCredential)?;
                let made = Credential::new(&kubeconfig, None).map_err(RenewError::NoCredential)?;
                Ok(Arc::new(made))
            }
            // It is over by our clock. The API server has its own.
            (_, _, None) => held.ok_or_else(|| {
                RenewError::NoCredential(CredentialError::Material {
                    what: "client certificate",
                    place: format!("in {}", self.places.store.current().display()),
                    reason: "there is none".to_owned(),
                })
            }),
        }
    }

    /// The kubeconfig that goes with the certificates, as the kubelet writes it.
    fn write_kubeconfig(&self, store: &Store) -> Result<(), RenewError> {
        let Some(bootstrap) = &self.places.bootstrap else { return Ok(()) };
        let kubeconfig = bootstrap_of(bootstrap).map_err(RenewError::NoCredential)?;
        let text = kubeconfig.with_certificate(&store.current());
        let path = &self.places.kubeconfig;
        store::write(path, text.as_bytes(), store::PRIVATE).map_err(|source| disk(path, source))
    }
}

fn bootstrap_of(path: &Path) -> Result<Kubeconfig, CredentialError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let parsed = Kubeconfig::parse(&credential::read(path)?, folder);
    parsed.map_err(|source| CredentialError::Kubeconfig { path: path.to_owned(), source })
}

/// The disk's fault.
pub fn disk(place: &Path, source: std::io::Error) -> RenewError {
    RenewError::Disk { place: place.display().to_string(), source }
}

/// One request on a connection of its own: they are seconds apart, or months.
///
/// # Errors
/// When there is no answer.
pub async fn send(
    credential: &Credential,
    method: &Method,
    path: &str,
    body: Bytes,
) -> Result<(StatusCode, Bytes), RenewError> {
    let server = credential.server.authority.to_string();
    let away = |cause| RenewError::Away { server: server.clone(), cause };
    let mut sender = dial(credential).await.map_err(away)?;
    let request = own::request(credential, method, path, body);
    let what = format!("{method} {path}");
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| away(Cause::Broken(error)))?;
        let status = response.status();
        let body = own::collect(response).await.ok_or(RenewError::Nonsense { what })?;
        Ok((status, body))
    };
    timeout(limits::PROBE, exchange)
        .await
        .unwrap_or_else(|_| Err(RenewError::Silent { server: server.clone() }))
}
