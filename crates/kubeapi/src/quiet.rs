//! Requests whose answers may be secret, and what can be said of a failure.
//!
//! The client writes what it cannot read into the log, whole. What is asked for here is read here, and no text that is made of
//! a failure shows a value.

use kube::core::params::{GetParams, PostParams};
use kube::core::{NamespaceResourceScope, Request};
use kube::runtime::watcher;
use kube::{Client, Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of an API server's text that are repeated.
const TEXT: usize = 512;

/// One object of a namespace; `None` when there is none of that name.
///
/// # Errors
/// Every other failure.
pub async fn get<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    let path = K::url_path(&(), Some(namespace));
    let request = Request::new(path).get(name, &GetParams::default()).map_err(Error::BuildRequest)?;
    match send(client, request).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a subresource of an object, such as a service account's token; returns what the API server made of it.
///
/// # Errors
/// Every failure.
pub async fn create_subresource<K, T>(
    client: &Client,
    namespace: &str,
    name: &str,
    subresource: &str,
    body: &T,
) -> Result<T, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    T: Serialize + DeserializeOwned,
{
    let path = K::url_path(&(), Some(namespace));
    let body = serde_json::to_vec(body).map_err(Error::SerdeError)?;
    let request = Request::new(path).create_subresource(subresource, name, &PostParams::default(), body);
    send(client, request.map_err(Error::BuildRequest)?).await
}

async fn send<T: DeserializeOwned>(client: &Client, request: http::Request<Vec<u8>>) -> Result<T, Error> {
    let text = client.request_text(request).await?;
    serde_json::from_str(&text).map_err(Error::SerdeError)
}

/// Whether the API server says that there is no such object.
pub fn is_not_found(error: &Error) -> bool {
    code(error) == Some(404)
}

/// The API server's own code; `None` when it did not answer, or not with a code.
pub fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Why a request failed, for people. Shows nothing of an object.
pub fn reason(error: &Error) -> String {
    match error {
        Error::Api(status) if !status.message.is_empty() => cut(&status.message),
        Error::Api(status) => format!("the API server answered {} {}", status.code, cut(&status.reason)),
        // The text of these quotes what could not be read.
        Error::SerdeError(_) | Error::FromUtf8(_) => {
            "the API server's answer cannot be understood".to_owned()
        }
        other => cut(&bulkhead_base::chain(other).to_string()),
    }
}

/// As [`reason`], of a watch.
pub fn watch_reason(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => reason(source),
        watcher::Error::WatchError(status) => cut(&status.message),
        watcher::Error::NoResourceVersion => "the API server's answer cannot be understood".to_owned(),
    }
}

fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn no_text_shows_what_could_not_be_read() {
        let error = serde_json::from_str::<u32>("\"hunter2\"").unwrap_err();
        assert!(error.to_string().contains("hunter2"), "or this test shows nothing");
        assert!(!reason(&Error::SerdeError(error)).contains("hunter2"));
    }

    #[test]
    fn the_api_servers_own_words_are_kept_and_bounded() {
        let status =
            |message: &str| Error::Api(Box::new(Status::failure(message, "NotFound").with_code(404)));
        assert_eq!(reason(&status("secrets \"x\" not found")), "secrets \"x\" not found");
        assert_eq!(reason(&status("")), "the API server answered 404 NotFound");
        assert_eq!(reason(&status(&"é".repeat(1000))).len(), TEXT);
        assert!(is_not_found(&status("x")));
    }
}
