//! Every bound of the gate, in one place. A process that misbehaves, or a runtime that does, gets an error, and at most
//! about 64 MiB here: [`ANSWER_WINDOW`], [`CALLS`] send buffers, [`CONNECTIONS`] request windows, and [`STREAMS`] read
//! ahead; and 32 MiB for all when there is a node policy: [`JUDGED`] messages and their copies.

use std::time::Duration;

/// Calls of one process in flight, over all its connections; the next one is refused with RESOURCE_EXHAUSTED. A pod start
/// has at most one call running, probes are bounded by prober, so 256 is far beyond what a healthy node needs.
pub const CALLS: u32 = 256;
/// Connections of one process to its socket. A healthy one has one or two.
pub const CONNECTIONS: usize = 64;
/// Connections of others to that socket, which only get refusals: kept apart, so that they take no place from the owner.
pub const STRANGERS: usize = 4;
/// Bytes of a request's headers.
pub const REQUEST_HEADERS: u32 = 16 * 1024;
/// Bytes of an answer's headers or trailers: the runtime's error texts travel there, and some are long.
pub const ANSWER_HEADERS: u32 = 256 * 1024;
/// Bytes of one message stream that may be under way in one direction and not yet taken on.
pub const STREAM_WINDOW: u32 = 64 * 1024;
/// The same for all answers to one process: room for each of its calls, so that answers which it does not read cannot
/// hold up those which it does.
pub const ANSWER_WINDOW: u32 = CALLS * STREAM_WINDOW;
/// The same for all requests of one connection.
pub const REQUEST_WINDOW: u32 = 4 * STREAM_WINDOW;
/// Frames of one stream without an end that were read and not yet taken on, of at most 16 KiB each. A pod's life is about
/// ten events.
pub const AHEAD: usize = 256;
/// Such streams of one process at a time. A healthy one has one, and an old one for a moment.
pub const STREAMS: usize = 4;
/// Bytes of a message that a node policy is held against. A pod is at most about 1 MiB.
pub const MESSAGE: usize = 2 * 1024 * 1024;
/// Such messages held at the same time; further ones wait.
pub const JUDGED: usize = 8;
/// Bytes of one stream that wait to be written.
pub const SEND_BUFFER: usize = 64 * 1024;
/// Bytes of a client's text (a path) that are repeated in answers and logs.
pub const TEXT: usize = 128;

/// Longest time until a message that is judged is there.
pub const RECEIVE: Duration = Duration::from_secs(10);
/// Longest time to find out where its paths lead.
pub const LOOK: Duration = Duration::from_secs(5);
/// Longest wait for the runtime's socket to take a connection.
pub const CONNECT: Duration = Duration::from_secs(2);
/// First and longest time after a failed connection in which calls fail at once, without another try.
pub const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// After this long without an answer of the runtime to anybody, it is asked whether it is there.
pub const QUIET: Duration = Duration::from_secs(10);
/// How long it may take to say so, and how long until it is asked again when it does not.
pub const PROBE: Duration = Duration::from_secs(5);
/// Wait after a failed accept, such as for want of file descriptors.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// At the end of the drain, how long calls whose connection is gone may take to notice it.
pub const LAST_CALL: Duration = Duration::from_millis(200);
