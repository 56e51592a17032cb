use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Kubeconfig, KubeconfigError> {
    Kubeconfig::parse(text.as_bytes(), Path::new("/etc/kubernetes"))
}

/// With these fields of cluster and user.
fn with(cluster: &str, user: &str) -> Result<Kubeconfig, KubeconfigError> {
    parse(&format!(
        "apiVersion: v1\nkind: Config\npreferences: {{}}\n\
         clusters:\n- name: other\n  cluster: {{server: 'https://other'}}\n- name: c\n  cluster: {{server: 'https://h:6443'{cluster}}}\n\
         users:\n- name: u\n  user: {{{user}}}\n\
         contexts:\n- name: x\n  context: {{cluster: c, user: u, namespace: d}}\n\
         current-context: x\n"
    ))
}

fn file(path: &str) -> Material {
    Material::File(path.into())
}

fn inline(text: &str) -> Material {
    Material::Inline(Secret::new(text.as_bytes().to_vec()))
}

#[test]
fn the_current_context_counts() {
    let found =
        with(", certificate-authority: pki/ca.crt", "client-certificate: /a.crt, client-key: ../a.key");
    let found = found.unwrap();
    assert_eq!(found.server, "https://h:6443");
    assert_eq!(found.trust, Trust::Authorities(file("/etc/kubernetes/pki/ca.crt")));
    assert_eq!(found.identity, Some((file("/a.crt"), file("/etc/kubernetes/../a.key"))));
    assert_eq!(found.files().count(), 3);
    assert_eq!((found.token, found.tls_server_name), (None, None));
}

#[test]
fn data_wins_over_files_and_a_tokens_file_over_a_token() {
    let cluster =
        ", certificate-authority: ca.crt, certificate-authority-data: Y2E=, tls-server-name: kubernetes";
    let user = "client-certificate: a, client-certificate-data: Y3J0, client-key-data: a2V5, token: t, tokenFile: tok";
    let found = with(cluster, user).unwrap();
    assert_eq!(found.trust, Trust::Authorities(inline("ca")));
    assert_eq!(found.identity, Some((inline("crt"), inline("key"))));
    assert_eq!(found.token, Some(file("/etc/kubernetes/tok")));
    assert_eq!(found.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(with("", "token: t").unwrap().token, Some(inline("t")));
}

#[test]
fn who_is_trusted() {
    assert_eq!(with("", "").unwrap().trust, Trust::Machine);
    assert_eq!(with(", insecure-skip-tls-verify: true", "").unwrap().trust, Trust::Anybody);
    let both = with(", insecure-skip-tls-verify: true, certificate-authority: ca", "").unwrap_err();
    assert!(both.to_string().contains("exclude each other"), "{both}");
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    for (cluster, user, name) in [
        (", proxy-url: 'http://p'", "", "proxy-url"),
        ("", "exec: {command: aws}", "exec"),
        ("", "auth-provider: {name: gcp}", "auth-provider"),
        ("", "username: admin, password: hunter2", "username"),
        ("", "as: other", "as"),
        ("", "as-groups: [system:masters]", "as"),
    ] {
        let error = with(cluster, user).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name} is not supported: ")), "{error}");
        assert!(!error.contains("hunter2"));
    }
}

#[test]
fn broken_files_say_what_is_missing_and_never_a_secret() {
    for (text, expected) in [
        ("", "it has no current-context"),
        ("text", "it is not a kubeconfig"),
        ("clusters: {}", "it is not a kubeconfig: see line 1"),
        ("apiVersion: v1\n", "it has no current-context"),
        ("current-context: x\n", "there is no context named \"x\" in it"),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n",
            "there is no cluster named \"c\" in it",
        ),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c}]\n",
            "there is no user named \"u\" in it",
        ),
        ("users: [{name: u, user: {token: [hunter2]}}]", "it is not a kubeconfig: see line 1"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text:?}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    assert_eq!(with("", "client-key-data: '!'").unwrap_err().to_string(), "client-key-data is not base64");
    let half = with("", "client-certificate: a").unwrap_err();
    assert_eq!(half.to_string(), "client-certificate has no client-key");
}

#[test]
fn what_is_written_is_read_again() {
    for cluster in [
        "",
        ", certificate-authority: ca.crt, tls-server-name: n",
        ", certificate-authority-data: Y2E=",
        ", insecure-skip-tls-verify: true",
    ] {
        let before = with(cluster, "token: hunter2").unwrap();
        let text = before.with_certificate(Path::new("/pki/current.pem"));
        assert!(!text.contains("hunter2"), "the bootstrap token is no more");
        let pair = Some((file("/pki/current.pem"), file("/pki/current.pem")));
        assert_eq!(parse(&text).unwrap(), Kubeconfig { identity: pair, token: None, ..before });
    }
}

#[test]
fn a_flat_one_needs_no_file() {
    let before =
        with(", certificate-authority: ca", "client-certificate: crt, client-key: key, tokenFile: t")
            .unwrap();
    let read = |path: &Path| Ok::<_, ()>(path.file_name().unwrap().as_encoded_bytes().to_vec());
    let flat = parse(&before.flatten(read).unwrap()).unwrap();
    assert_eq!(flat.files().count(), 0);
    assert_eq!(flat.identity, Some((inline("crt"), inline("key"))));
    assert_eq!((flat.trust, flat.token), (Trust::Authorities(inline("ca")), Some(inline("t"))));
    let gone = with("", "tokenFile: t").unwrap().flatten(|_| Err("gone"));
    assert_eq!(gone, Err("gone"));
}

#[test]
fn nothing_secret_is_shown() {
    let found =
        with("", "client-certificate-data: Y3J0, client-key-data: aHVudGVyMg==, token: hunter3").unwrap();
    let shown = format!("{found:?}");
    assert!(!shown.contains("hunter") && !shown.contains("aHVudGVyMg"), "{shown}");
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Kubeconfig::parse(&bytes, Path::new("/"));
    }
}
