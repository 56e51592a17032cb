//! Requests of this process itself: whether the API server is there, and certificates.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::body::RequestBody;
use crate::credential::Credential;
use crate::headers::towards_server;
use crate::limits;

/// A request with `credential`; a body is JSON.
pub fn request(credential: &Credential, method: &Method, path: &str, body: Bytes) -> Request<RequestBody> {
    let mut asked = HeaderMap::new();
    asked.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if !body.is_empty() {
        asked.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let mut request = Request::new(RequestBody::own(body));
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri(credential, path);
    *request.headers_mut() = towards_server(&asked, "apigate", credential.bearer.as_ref());
    request
}

/// Where `target` (path and query) is on the API server.
pub fn uri(credential: &Credential, target: &str) -> Uri {
    let server = &credential.server;
    let uri = Uri::builder().scheme("https").authority(server.authority.clone());
    // Authority and target were read before: there is always one. The default goes nowhere.
    uri.path_and_query(format!("{}{target}", server.base)).build().unwrap_or_default()
}

/// The whole of a small answer; `None`: it broke off, or is too large.
pub async fn collect(response: Response<Incoming>) -> Option<Bytes> {
    let mut body = response.into_body();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        if bytes.len() + data.len() > limits::OWN_ANSWER {
            return None;
        }
        bytes.extend_from_slice(&data);
    }
    Some(bytes.freeze())
}
