//! Where a dangerous method's arguments are judged, after the method itself was found to be allowed.
//!
//! Owns the decision about a request's message, and nothing else: identity and method lists are `table`'s. Today no rule
//! looks at a message, so every body is streamed through untouched.

use http::Request;
use http_body_util::Either;
use hyper::body::Incoming;

use crate::error::Refusal;
use crate::methods::Method;
use crate::upstream::RequestBody;

/// Decides whether `process` may send this request of `method`, and hands on what goes to the runtime.
///
/// The boundary for argument rules (host paths, privileges, namespaces of RunPodSandbox and CreateContainer): a rule
/// that must see the message reads the body here, up to a bound, and hands it on as bytes ([`Either::Right`]); a method
/// without a rule keeps its stream ([`Either::Left`]). Runs before anything reaches the runtime, and counts as in flight.
///
/// # Errors
/// With the reason for the caller when a rule refuses the arguments.
pub async fn screen(
    _process: &str,
    _method: &Method,
    request: Request<Incoming>,
) -> Result<Request<RequestBody>, Refusal> {
    Ok(request.map(Either::Left))
}
