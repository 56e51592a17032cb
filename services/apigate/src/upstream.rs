//! The connections to the API server that all processes share: one as a rule, further ones when it is full.
//!
//! A connection is made at a request and with the credential of that moment. When the credential changes, requests go to new
//! connections; those on old ones end by themselves.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::Backoff;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::body::RequestBody;
use crate::credential::Credential;
use crate::dial::dial;
use crate::error::{Cause, Unavailable};
use crate::held::Holder;
use crate::limits;

/// The connections.
pub struct Upstream {
    holder: Holder,
    pool: Mutex<Pool>,
}

struct Pool {
    links: Vec<Link>,
    backoff: Backoff,
    /// The last failure, and until when it is the answer to further requests with the same credential.
    failed: Option<Failure>,
}

struct Failure {
    until: Instant,
    credential: Arc<Credential>,
    error: Unavailable,
}

/// One connection.
#[derive(Clone)]
struct Link {
    sender: SendRequest<RequestBody>,
    places: Arc<Semaphore>,
    credential: Arc<Credential>,
}

/// A request's place on a connection, which stays as long as it is held.
pub struct Lease {
    _place: OwnedSemaphorePermit,
    _sender: SendRequest<RequestBody>,
    credential: Arc<Credential>,
}

impl Lease {
    fn new(link: Link, place: OwnedSemaphorePermit) -> Self {
        Self { _place: place, _sender: link.sender, credential: link.credential }
    }

    /// The API server that it is on.
    pub fn server(&self) -> &str {
        self.credential.server.authority.as_str()
    }
}

impl Upstream {
    /// With what `holder` holds; not connected yet.
    pub fn new(holder: Holder) -> Self {
        let backoff = Backoff::new(limits::RECONNECT.0, limits::RECONNECT.1);
        Self { holder, pool: Mutex::new(Pool { links: Vec::new(), backoff, failed: None }) }
    }

    /// Sends what `request` makes for the credential of the connection; returns when the head of the answer is there. An API
    /// server that is away is an error at once; one that takes the request and says nothing is waited for, since only the
    /// caller knows for how long: dropping the future resets the request.
    ///
    /// # Errors
    /// When the API server cannot be reached, or the request broke off before there was an answer.
    pub async fn send(
        &self,
        request: impl FnOnce(&Credential) -> Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Lease), Unavailable> {
        let (link, place) = self.link().await?;
        let request = request(&link.credential);
        let mut error = match link.sender.clone().try_send_request(request).await {
            Ok(response) => return Ok((response, Lease::new(link, place))),
            Err(error) => error,
        };
        // The connection ended before the request was on it, as after a restart of the API server: a new one may be had.
        let Some(unsent) = error.take_message() else { return Err(away(&link.credential, broken(error))) };
        drop(place);
        let (again, place) = self.link().await?;
        if !Arc::ptr_eq(&again.credential, &link.credential) {
            // It was made for another server or token; the caller asks again.
            return Err(away(&link.credential, broken(error)));
        }
        match again.sender.clone().try_send_request(unsent).await {
            Ok(response) => Ok((response, Lease::new(again, place))),
            Err(error) => Err(away(&again.credential, broken(error))),
        }
    }

    /// A connection with a place on it.
    async fn link(&self) -> Result<(Link, OwnedSemaphorePermit), Unavailable> {
        // Held while connecting, at most `limits::CONNECT_ALL`: the others want the same connection.
        let mut pool = self.pool.lock().await;
        let credential = self.holder.borrow().credential()?;
        pool.tidy(&credential);
        if let Some(found) = pool.free() {
            return Ok(found);
        }
        if pool.links.len() >= limits::CONNECTIONS {
            return Err(Unavailable::Full);
        }
        if let Some(failure) = &pool.failed
            && Instant::now() < failure.until
        {
            return Err(failure.error.clone());
        }
        match dial(&credential).await {
            Ok(sender) => {
                pool.backoff.reset();
                pool.failed = None;
                let places = Arc::new(Semaphore::new(limits::STREAMS));
                pool.links.push(Link { sender, places, credential });
                pool.free().ok_or(Unavailable::Full)
            }
            Err(cause) => {
                let error = away(&credential, cause);
                let wait = shorten(pool.backoff.next_delay(), RandomState::new().hash_one(()));
                pool.failed =
                    Some(Failure { until: Instant::now() + wait, credential, error: error.clone() });
                Err(error)
            }
        }
    }
}

impl Pool {
    /// Lets go of connections that are over, were made with another credential, or are needed no more. A failure with
    /// another credential counts no more either.
    fn tidy(&mut self, credential: &Arc<Credential>) {
        let mut idle = 0;
        self.links.retain(|link| {
            let unused = link.places.available_permits() == limits::STREAMS;
            idle += usize::from(unused);
            let surplus = unused && idle > 1;
            !link.sender.is_closed() && Arc::ptr_eq(&link.credential, credential) && !surplus
        });
        self.failed.take_if(|failure| !Arc::ptr_eq(&failure.credential, credential));
    }

    /// The first connection that has a place: so the later ones become idle.
    fn free(&self) -> Option<(Link, OwnedSemaphorePermit)> {
        self.links.iter().find_map(|link| {
            let place = link.places.clone().try_acquire_owned().ok()?;
            Some((link.clone(), place))
        })
    }
}

/// The wait, with up to half of it taken off by `random`.
fn shorten(wait: Duration, random: u64) -> Duration {
    let part = u32::try_from(random % 512).unwrap_or_default();
    wait.saturating_sub(wait.saturating_mul(part) / 1024)
}

fn broken(error: hyper::client::conn::TrySendError<Request<RequestBody>>) -> Cause {
    Cause::Broken(error.into_error())
}

fn away(credential: &Credential, cause: Cause) -> Unavailable {
    Unavailable::Away { server: credential.server.authority.as_str().into(), cause: Arc::new(cause) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_shortened_by_up_to_half() {
        let wait = Duration::from_secs(4);
        assert_eq!(shorten(wait, 0), wait);
        assert_eq!(shorten(wait, 256), Duration::from_secs(3));
        for random in 0..2000 {
            let shorter = shorten(wait, random);
            assert!(shorter <= wait && shorter > wait / 2, "{shorter:?}");
        }
    }
}
