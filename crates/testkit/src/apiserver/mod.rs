//! A fake API server: objects as JSON, lists, watches with bookmarks, patches, certificate requests, over TLS with client
//! certificates. It knows nothing of kinds, admission or authorization: what it shall refuse it is told.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a harness: what fails here fails the test that uses it; indexing is that of JSON"
)]

mod serve;
mod world;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bulkhead_base::{Clock, SystemClock};
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::certificates::{Authority, Pem};
use world::World;

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// `METHOD PATH[?QUERY]`.
    pub line: String,
    /// Common name of the client's certificate, or the name behind its token; empty: anonymous.
    pub user: String,
    /// Its headers.
    pub headers: HeaderMap,
}

/// What it does about requests for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// Nothing.
    Away,
    /// Signs for this long, from an hour ago.
    Signs(Duration),
    /// Refuses.
    Denies,
}

/// The server. Its world outlives stops and starts.
pub struct FakeApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Mutex<CancellationToken>,
}

struct Shared {
    authority: Authority,
    world: Mutex<World>,
    changed: tokio::sync::watch::Sender<u64>,
    /// One more for each watch that is open.
    watches: Arc<()>,
    state: Mutex<State>,
}

struct State {
    certificate: Pem,
    signer: Signer,
    arrived: Vec<Arrived>,
    /// Prefix of a request line, and what it gets; `None`: no answer at all.
    faults: Vec<(String, Option<(u16, String)>)>,
    tokens: Vec<(String, String)>,
    /// Tokens of service accounts that were given out.
    tokens_given: u64,
    /// User, verb and subresource of nodes that reviews allow.
    rights: Vec<(String, String, String)>,
    connections: usize,
}

impl Shared {
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let version = self.world().version();
        self.changed.send_if_modified(|known| {
            let changed = *known != version;
            *known = version;
            changed
        });
    }
}

impl FakeApiServer {
    /// An empty one on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn start() -> Self {
        let authority = Authority::new();
        let certificate = authority.server(&["127.0.0.1", "localhost"]);
        let state = State {
            certificate,
            signer: Signer::Away,
            arrived: Vec::new(),
            faults: Vec::new(),
            tokens: Vec::new(),
            tokens_given: 0,
            rights: Vec::new(),
            connections: 0,
        };
        let shared = Arc::new(Shared {
            authority,
            world: Mutex::default(),
            changed: tokio::sync::watch::channel(0).0,
            watches: Arc::new(()),
            state: Mutex::new(state),
        });
        let stop = CancellationToken::new();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = serve::serve(any, shared.clone(), stop.clone()).await.expect("a port");
        Self { address, shared, stop: Mutex::new(stop) }
    }

    /// Ends it and all of its connections, in the middle of whatever is on them.
    pub fn stop(&self) {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }

    /// Starts it again on the same port.
    ///
    /// # Panics
    /// When the port is not free within 10 s.
    pub async fn start_again(&self) {
        let stop = CancellationToken::new();
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = stop.clone();
        for _ in 0..200 {
            if serve::serve(self.address, self.shared.clone(), stop.clone()).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the port of the fake API server is not free again");
    }

    /// `https://ADDRESS`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Who signs here.
    pub fn authority(&self) -> &Authority {
        &self.shared.authority
    }

    /// A kubeconfig with a client certificate of `user` in it, as text.
    pub fn kubeconfig(&self, user: &str, from: Timestamp, until: Timestamp) -> String {
        let pem = self.authority().client(user, "system:nodes", from, until);
        let fields = format!(
            "client-certificate-data: {}, client-key-data: {}",
            base64(pem.certificate.as_bytes()),
            base64(pem.key.as_bytes())
        );
        self.kubeconfig_with(&fields)
    }

    /// A kubeconfig with these fields of its user.
    pub fn kubeconfig_with(&self, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{}', certificate-authority-data: {}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n",
            self.url(),
            base64(self.authority().pem().as_bytes())
        )
    }

    /// Writes a kubeconfig of `system:node:node-a`, good from yesterday until tomorrow, into `folder`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_kubeconfig(&self, folder: &Path) -> PathBuf {
        let now = SystemClock.now();
        let day = Duration::from_secs(86_400);
        let path = folder.join("kubeconfig");
        let text = self.kubeconfig("system:node:node-a", now - day, now + day);
        std::fs::write(&path, text).expect("a kubeconfig");
        path
    }

    /// Lets `token` be `user`.
    pub fn add_token(&self, token: &str, user: &str) {
        self.shared.state().tokens.push((token.to_owned(), user.to_owned()));
    }

    /// Lets subject access reviews allow `user` this `verb` on this subresource of nodes; `*`: any.
    pub fn allow(&self, user: &str, verb: &str, subresource: &str) {
        let right = [user, verb, subresource].map(ToOwned::to_owned);
        self.shared.state().rights.push(right.into());
    }

    /// Takes away everything that [`FakeApiServer::allow`] gave.
    pub fn forbid_all(&self) {
        self.shared.state().rights.clear();
    }

    /// Serves on this socket too, without TLS and to anybody: in place of apigate.
    ///
    /// # Panics
    /// When the socket cannot be bound.
    pub fn serve_at(&self, socket: &Path) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone();
        serve::serve_at(socket, self.shared.clone(), stop);
    }

    /// What it does about requests for certificates from now on; those that wait are looked at again.
    pub fn set_signer(&self, signer: Signer) {
        self.shared.state().signer = signer;
        serve::sign_all(&self.shared);
        self.shared.tell();
    }

    /// Requests whose line begins with `prefix` get this from now on; `None`: no answer at all.
    pub fn fail(&self, prefix: &str, answer: Option<(u16, &str)>) {
        let answer = answer.map(|(code, body)| (code, body.to_owned()));
        self.shared.state().faults.push((prefix.to_owned(), answer));
    }

    /// Forgets all faults.
    pub fn heal(&self) {
        self.shared.state().faults.clear();
    }

    /// Makes or replaces the object at `path` (`/api/v1/namespaces/a/pods/b`).
    pub fn put(&self, path: &str, object: Value) {
        self.shared.world().put(path, object);
        self.shared.tell();
    }

    /// Removes it.
    pub fn remove(&self, path: &str) {
        self.shared.world().remove(path);
        self.shared.tell();
    }

    /// The object at `path`.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.shared.world().get(path)
    }

    /// Forgets old changes: a watch from before now is answered with 410.
    pub fn compact(&self) {
        self.shared.world().compact();
    }

    /// Requests that arrived since the start.
    pub fn arrived(&self) -> Vec<Arrived> {
        self.shared.state().arrived.clone()
    }

    /// Those whose line begins with `prefix`.
    pub fn count(&self, prefix: &str) -> usize {
        self.shared.state().arrived.iter().filter(|arrived| arrived.line.starts_with(prefix)).count()
    }

    /// Watches that are open now.
    pub fn watches(&self) -> usize {
        Arc::strong_count(&self.shared.watches) - 1
    }

    /// Connections that were taken since the start.
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }
}

impl Drop for FakeApiServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// As kubeconfigs have it.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or_default());
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        for place in 0..4 {
            let letter = usize::try_from((bits >> (18 - 6 * place)) & 0x3f).unwrap_or_default();
            let shown = usize::try_from(place).is_ok_and(|place| place <= group.len());
            text.push(ALPHABET.get(letter).filter(|_| shown).map_or('=', |letter| char::from(*letter)));
        }
    }
    text
}
