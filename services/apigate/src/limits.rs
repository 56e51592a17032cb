//! Every bound of the gate, in one place. A process that misbehaves, or an API server that does, gets an error; what is on
//! its way here is bounded by a window for each request in flight, and no message is ever held whole.

use std::time::Duration;

/// Requests of one process in flight that are no watches; the next one gets 429.
pub const CALLS: usize = 128;
/// Watches of one process. volumed has one for each ConfigMap and Secret that the node's pods use.
pub const WATCHES: usize = 1024;
/// Connections of one process to its socket. A healthy one has one or two.
pub const CLIENTS: usize = 64;
/// Connections of others to that socket, which only get refusals: kept apart, so that they take no place from the owner.
pub const STRANGERS: usize = 4;
/// Requests on one connection to the API server. It takes 250 by default, and balancers in front of it 100; beyond that the
/// next connection is opened.
pub const STREAMS: usize = 100;
/// Connections to the API server. A node needs one until it has a hundred watches; there is room for all that all processes
/// may have in flight, so that none takes another's.
pub const CONNECTIONS: usize = 64;
/// Bytes of a path, and of a query: a list's `continue` is the longest thing in one.
pub const PATH: usize = 1024;
/// See [`PATH`].
pub const QUERY: usize = 8 * 1024;
/// Parameters of a query.
pub const PARAMETERS: usize = 32;
/// Bytes of a request's headers.
pub const REQUEST_HEADERS: u32 = 32 * 1024;
/// Bytes of an answer's headers.
pub const ANSWER_HEADERS: u32 = 64 * 1024;
/// Bytes of a request's body. The API server takes 3 MiB.
pub const REQUEST_BODY: u64 = 4 * 1024 * 1024;
/// Bytes of an answer that is no watch. Lists of a node's own things are far below.
pub const ANSWER_BODY: u64 = 64 * 1024 * 1024;
/// Bytes of an answer to a request of this process itself.
pub const OWN_ANSWER: usize = 256 * 1024;
/// Bytes of one answer that may be under way and not yet taken on.
pub const STREAM_WINDOW: u32 = 64 * 1024;
/// The same for all answers on one connection: room for each of them, so that an answer which is not read cannot hold up
/// one which is.
#[expect(clippy::cast_possible_truncation, reason = "6.4 MB")]
pub const ANSWER_WINDOW: u32 = STREAMS as u32 * STREAM_WINDOW;
/// The same for all requests of one connection of a process.
pub const REQUEST_WINDOW: u32 = 4 * STREAM_WINDOW;
/// Bytes of one stream that wait to be written.
pub const SEND_BUFFER: usize = 64 * 1024;
/// Bytes of a client's text (a path) that are repeated in answers and logs.
pub const TEXT: usize = 128;
/// Bytes of a kubeconfig, and of each file that it names.
pub const FILE: u64 = 1024 * 1024;

/// Longest time until a request's headers are there (HTTP/1.1).
pub const HEADERS: Duration = Duration::from_secs(30);
/// Longest time to find the API server's addresses, and to connect to one of them.
pub const CONNECT: Duration = Duration::from_secs(5);
/// Longest time for all of it: every address, TLS and the first bytes of HTTP/2.
pub const CONNECT_ALL: Duration = Duration::from_secs(15);
/// After this long without a byte on a connection with requests on it, it is pinged ...
pub const PING: Duration = Duration::from_secs(30);
/// ... and is given up when there is no answer after that. As the kubelet's client has it.
pub const PONG: Duration = Duration::from_secs(15);
/// First and longest time after a failed connection in which requests fail at once, without another try. Up to half of it
/// is taken off at random, so that the nodes of a cluster don't come back as one.
pub const RECONNECT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// What a client is told to wait when the API server is away.
pub const RETRY_AFTER: &str = "1";
/// After this long without an answer of the API server to anybody, it is asked whether it is there.
pub const QUIET: Duration = Duration::from_secs(15);
/// How long it may take to say so, and how long until it is asked again when it does not.
pub const PROBE: Duration = Duration::from_secs(5);
/// How often the credential's files are looked at.
pub const LOOK: Duration = Duration::from_secs(5);
/// First and longest time between two looks whether a certificate that was asked for is there.
pub const POLL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// First and longest time after a failure to get a certificate.
pub const RENEW: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Longest time that is waited for a date: the clock may be set meanwhile.
pub const CLOCK: Duration = Duration::from_secs(60);
/// How often the node's addresses are looked at, for its serving certificate; and the same while it has none.
pub const ADDRESSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(2));
/// How often the certificate that the node signed itself is looked at.
pub const SELF_SIGNED: Duration = Duration::from_secs(3600);
/// Wait after a failed accept, such as for want of file descriptors.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// At the end of the drain, how long requests whose connection is gone may take to notice it.
pub const LAST_CALL: Duration = Duration::from_millis(200);
