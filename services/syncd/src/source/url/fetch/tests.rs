use bulkhead_base::chain;
use bulkhead_config::Headers;

use super::super::testing::{CERTIFICATE, Web, moved, ok};
use super::*;

fn url(text: &str) -> ManifestUrl {
    let headers = Headers([("X-Token".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into());
    ManifestUrl::new(text, &headers).unwrap()
}

async fn get(text: &str) -> Result<Vec<u8>, String> {
    let mut fetcher = Fetcher::trusting(vec![CERTIFICATE.into()]);
    fetcher.get(&url(text)).await.map_err(|error| chain(&error).to_string())
}

#[tokio::test]
async fn what_is_asked_is_the_url_with_its_headers() {
    let web = Web::plain(|_| ok("body")).await;
    let (named, query) = (web.port, "?a=b");
    assert_eq!(get(&format!("http://localhost:{named}/p/q{query}")).await.unwrap(), b"body");
    let head = web.heads().remove(0).to_lowercase();
    for line in [
        "get /p/q?a=b http/1.1\r\n",
        "x-token: a\r\n",
        "x-token: b\r\n",
        &format!("host: localhost:{named}\r\n"),
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
}

#[tokio::test]
async fn certificates_are_checked() {
    let web = Web::tls(|_| ok("body")).await;
    assert_eq!(get(&format!("https://localhost:{}/", web.port)).await.unwrap(), b"body");
    let other_name = get(&format!("https://127.0.0.1:{}/", web.port)).await.unwrap_err();
    assert!(other_name.contains("TLS with 127.0.0.1"), "{other_name}");
    let dir = tempfile::tempdir().unwrap();
    let (empty, missing) = (dir.path().join("empty"), dir.path().join("missing"));
    std::fs::write(&empty, "# nothing\n").unwrap();
    let at = url(&format!("https://localhost:{}/", web.port));
    let nobody = Fetcher::trusting(vec![missing.clone()]).get(&at).await.unwrap_err();
    assert!(matches!(nobody, FetchError::NoRoots));
    let nothing = Fetcher::trusting(vec![missing, empty]).get(&at).await.unwrap_err();
    assert!(matches!(nothing, FetchError::Roots { .. }), "{nothing:?}");
    // The machine's own certificates do not know this one.
    if super::tls::bundles().iter().any(|bundle| bundle.is_file()) {
        assert!(matches!(Fetcher::default().get(&at).await, Err(FetchError::Tls { .. })));
    }
}

#[tokio::test]
async fn redirects_are_followed_without_the_headers_to_another_server_and_never_to_another_scheme() {
    let other = Web::plain(|_| ok("there")).await;
    let to = format!("http://127.0.0.1:{}/x", other.port);
    let web = Web::plain(move |head| match head.split(' ').nth(1) {
        Some("/away") => moved(&to),
        Some("/ring") => moved("ring"),
        Some("/tls") => moved("https://127.0.0.1/?token=s3cret"),
        Some("/here") => moved("/there"),
        _ => ok("here"),
    })
    .await;
    let at = |path: &str| format!("http://127.0.0.1:{}{path}", web.port);
    assert_eq!(get(&at("/here")).await.unwrap(), b"here");
    assert!(web.heads().iter().all(|head| head.to_lowercase().contains("x-token")));
    assert_eq!(get(&at("/away")).await.unwrap(), b"there");
    assert!(!other.heads()[0].to_lowercase().contains("x-token"), "{:?}", other.heads());
    assert!(get(&at("/ring")).await.unwrap_err().contains("10 times"));
    let refused = get(&at("/tls")).await.unwrap_err();
    assert!(refused.contains("https://127.0.0.1/") && !refused.contains("s3cret"), "{refused}");
}

#[tokio::test]
async fn what_is_no_answer_is_named() {
    for (answer, part) in [
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_vec(), "status 503"),
        (b"HTTP/1.1 204 No\r\n\r\n".to_vec(), "status 204"),
        (b"hello\r\n\r\n".to_vec(), "HTTP with 127.0.0.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec(), "HTTP with 127.0.0.1"),
        (format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(2 * HEAD_BYTES)).into_bytes(), "HTTP with"),
        (ok(vec![b' '; MAX_LIST_BYTES + 1]), "larger than"),
    ] {
        let web = Web::plain(move |_| answer.clone()).await;
        let error = get(&format!("http://127.0.0.1:{}/", web.port)).await.unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let largest = Web::plain(|_| ok(vec![b' '; MAX_LIST_BYTES])).await;
    assert_eq!(get(&format!("http://127.0.0.1:{}/", largest.port)).await.unwrap().len(), MAX_LIST_BYTES);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(get(&format!("http://{closed}/")).await.unwrap_err().contains("cannot connect"));
    assert!(get("http://does-not-exist.invalid/").await.unwrap_err().contains("does-not-exist.invalid"));
}
