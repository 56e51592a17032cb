//! What processes and files say, open to fuzzing. Nobody else may use this.

use std::path::Path;

use bulkhead_api::access::{ACCESS, Verdict, judge};

use crate::kubeconfig::Kubeconfig;
use crate::pem::Pair;
use crate::{base64, csr, request};

/// A request `METHOD PATH[?QUERY]`: read, judged for every process, and read again as it is sent on.
///
/// # Panics
/// When what is sent on is not what was judged, or what no process may do passes.
pub fn asked(line: &str) {
    let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let Ok(asked) = request::parse(method, path, query) else { return };
    let (path, query) = asked
        .target
        .split_once('?')
        .map_or((asked.target.as_str(), None), |(path, query)| (path, Some(query)));
    assert_eq!(request::parse(method, path, query).as_ref(), Ok(&asked), "{line:?}");
    assert!(!path.contains("//") && !path.contains('%') && !path.contains("/.."), "{line:?}");
    for row in ACCESS.process.values() {
        if judge(&row.api, &asked.request, "node-a") == Verdict::Passes {
            assert_ne!(asked.request.subresource, "proxy", "{line:?}");
            assert!(asked.request.resource != "nodes" || asked.request.name != "node-b", "{line:?}");
        }
    }
}

/// A kubeconfig, a pair in PEM, a certificate request's object: whatever it is, an error or a value.
///
/// # Panics
/// When a kubeconfig is not read again as it was written.
pub fn file(bytes: &[u8]) {
    if let Ok(kubeconfig) = Kubeconfig::parse(bytes, Path::new("/etc/kubernetes")) {
        let text = kubeconfig.with_certificate(Path::new("/pki/current.pem"));
        assert!(Kubeconfig::parse(text.as_bytes(), Path::new("/")).is_ok(), "{text}");
    }
    let _ = Pair::from_pem(bytes, bytes);
    let _ = csr::read(bytes);
    if let Some(decoded) = base64::decode(&String::from_utf8_lossy(bytes)) {
        assert_eq!(base64::decode(&base64::encode(&decoded)), Some(decoded));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests(line in "(GET|PUT) /api/v1/(namespaces/[a-z]{1,3}/)?(pods|nodes|secrets)(/node-[ab])?(/[a-z]{3,6})?([?][a-zA-Z=,.%&]{0,40})?|\\PC{0,60}") {
            super::asked(&line);
        }

        #[test]
        fn files(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            super::file(&bytes);
        }
    }
}
