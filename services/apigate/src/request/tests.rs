use proptest::prelude::*;

use super::*;

/// `VERB GROUP/RESOURCE[/SUBRESOURCE] NAMESPACE NAME`.
fn read(method: &str, uri: &str) -> Result<String, String> {
    let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
    let Asked { request, streaming, .. } = parse(method, path, query)?;
    assert_eq!(streaming, request.verb == Verb::Watch);
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let (namespace, name) = (dash(&request.namespace), dash(&request.name));
    Ok(format!("{} {} {namespace} {name}", request.verb, request.target()))
}

#[test]
fn requests_are_what_authorization_calls_them() {
    for (method, uri, expected) in [
        ("GET", "/api/v1/pods?watch=true", "watch core/pods - -"),
        ("GET", "/api/v1/pods?watch=0&limit=5", "list core/pods - -"),
        ("GET", "/api/v1/namespaces/ns/pods/a", "get core/pods ns a"),
        ("PATCH", "/api/v1/namespaces/ns/pods/a/status?force=true", "patch core/pods/status ns a"),
        ("DELETE", "/api/v1/namespaces/ns/pods/a", "delete core/pods ns a"),
        ("DELETE", "/api/v1/namespaces/ns/pods", "deletecollection core/pods ns -"),
        ("POST", "/api/v1/nodes", "create core/nodes - -"),
        ("PUT", "/api/v1/nodes/n.x:1/status", "update core/nodes/status - n.x:1"),
        ("GET", "/api/v1/namespaces", "list core/namespaces - -"),
        ("GET", "/api/v1/namespaces/ns", "get core/namespaces - ns"),
        ("PUT", "/api/v1/namespaces/ns/finalize", "update core/namespaces/finalize - ns"),
        ("GET", "/api/v1/namespaces/ns/watch", "list core/watch ns -"),
        ("POST", "/api/v1/namespaces/ns/serviceaccounts/sa/token", "create core/serviceaccounts/token ns sa"),
        (
            "GET",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n",
            "get coordination.k8s.io/leases kube-node-lease n",
        ),
        (
            "POST",
            "/apis/authentication.k8s.io/v1beta1/tokenreviews",
            "create authentication.k8s.io/tokenreviews - -",
        ),
        ("GET", "/api/v1/namespaces/ns/pods/a/log?follow=1", "watch core/pods/log ns a"),
        ("GET", "/api/v1/namespaces/ns/pods/a/exec", "get core/pods/exec ns a"),
    ] {
        assert_eq!(read(method, uri).as_deref(), Ok(expected), "{method} {uri}");
    }
}

#[test]
fn what_is_not_written_in_the_one_usual_way_is_none() {
    for uri in [
        "",
        "/",
        "*",
        "api/v1/pods",
        "//api/v1/pods",
        "/api//v1/pods",
        "/api/v1//pods",
        "/api/v1/pods/",
        "/api/v1/./pods",
        "/api/v1/namespaces/ns/pods/../secrets/s",
        "/api/v1/namespaces/ns/pods/a%2fb",
        "/api/v1/%70ods",
        "/api/v1/pods%00",
        "/api/v1/pods;x",
        "/api/v1/pods\\x",
        "/api/v1/p ods",
        "/api/v1/pöds",
        "/API/v1/pods",
        "/api/v1/Pods",
        "/api/v1",
        "/api",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis//v1/pods",
        "/apis/Apps/v1/deployments",
        "/apis/a..b/v1/deployments",
        "/apis/-a/v1/deployments",
        "/api/1/pods",
        "/api/v/pods",
        "/api/v1alpha/pods",
        "/api/v1gamma1/pods",
        "/version",
        "/healthz",
        "/openapi/v3",
        "/metrics",
        "/logs/x",
        "/api/v1/watch/pods",
        "/api/v1/proxy/nodes/n",
        "/api/v1/nodes/n/proxy",
        "/api/v1/nodes/n/proxy/pods",
        "/api/v1/namespaces/ns/pods/a/proxy",
        "/api/v1/namespaces/ns/pods/a/status/x",
        "/api/v1/namespaces/NS/pods",
        "/api/v1/namespaces/-ns/pods",
        "/api/v1/nodes/n?watch=1",
        "/api/v1/pods?watch=yes",
        "/api/v1/pods?unknown=1",
        "/api/v1/pods?fieldSelector=a",
    ] {
        assert!(read("GET", uri).is_err(), "{uri}");
    }
    for method in ["HEAD", "OPTIONS", "CONNECT", "get", "TRACE", "", "PROPFIND"] {
        assert!(read(method, "/api/v1/pods").is_err(), "{method}");
    }
    assert!(read("GET", &format!("/api/v1/nodes/{}", "n".repeat(254))).is_err());
    assert!(read("GET", &format!("/api/v1/{}", "n".repeat(limits::PATH))).is_err());
}

#[test]
fn the_target_is_the_path_and_the_query_again() {
    let asked = parse("GET", "/api/v1/pods", Some("fieldSelector=spec.nodeName=n&watch=1")).unwrap();
    assert_eq!(asked.target, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn&watch=1");
    assert_eq!(parse("GET", "/api/v1/pods", Some("")).unwrap().target, "/api/v1/pods");
}

/// Texts that are nearly paths.
fn paths() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("api".to_owned()),
        Just("apis".to_owned()),
        Just("v1".to_owned()),
        Just("namespaces".to_owned()),
        Just("pods".to_owned()),
        Just("proxy".to_owned()),
        "[a-z.%:-]{0,8}",
        "[ -~]{0,4}"
    ];
    prop_oneof![
        prop::collection::vec(part, 0..8).prop_map(|parts| format!("/{}", parts.join("/"))),
        "\\PC{0,60}"
    ]
}

proptest! {
    #[test]
    fn any_request_is_survived_and_what_is_read_can_be_written_again(
        method in "GET|POST|PUT|PATCH|DELETE|[A-Z]{0,5}",
        path in paths(),
        query in prop::option::of("[ -~]{0,40}|(watch|limit|fieldSelector)=[a-z=,.%0-9]{0,12}"),
    ) {
        let Ok(asked) = parse(&method, &path, query.as_deref()) else { return Ok(()) };
        // The same again when read again, so that what is judged is what arrives.
        let (path, query) = asked.target.split_once('?').map_or((asked.target.as_str(), None), |(p, q)| (p, Some(q)));
        prop_assert_eq!(&parse(&method, path, query).unwrap(), &asked);
        // And its path is made of what was read, in order.
        let request = &asked.request;
        let mut rebuilt: Vec<&str> = Vec::new();
        let scoped = !request.namespace.is_empty();
        if scoped { rebuilt.extend(["namespaces", &request.namespace]); }
        rebuilt.push(&request.resource);
        rebuilt.extend([request.name.as_str(), &request.subresource].into_iter().filter(|part| !part.is_empty()));
        prop_assert!(path.ends_with(&rebuilt.join("/")), "{path} {rebuilt:?}");
        prop_assert!(!path.contains("//") && !path.contains("/../") && !path.contains('%'), "{path}");
    }
}
