use std::fs;

use super::*;
use crate::testing::Issued;

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn places(&self) -> Places {
        Places {
            kubeconfig: self.path("kubeconfig"),
            bootstrap: None,
            store: Store::new(self.path("pki")),
            rotates: false,
        }
    }

    fn bootstraps(&self) -> Places {
        Places { bootstrap: Some(self.path("bootstrap")), rotates: true, ..self.places() }
    }

    /// A kubeconfig that names `ca`, `crt` and `key`, which are those of `issued`.
    fn write(&self, issued: &Issued) {
        fs::write(self.path("ca"), issued.authority_pem()).unwrap();
        fs::write(self.path("crt"), issued.certificate_pem()).unwrap();
        fs::write(self.path("key"), issued.key_pem()).unwrap();
        let text = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n\
                    clusters: [{name: c, cluster: {server: 'https://h', certificate-authority: ca}}]\n\
                    users: [{name: u, user: {client-certificate: crt, client-key: key}}]\n";
        fs::write(self.path("kubeconfig"), text).unwrap();
    }

    fn store(&self, issued: &Issued) {
        let key = crate::secret::Secret::new(issued.key_pem().into_bytes());
        let store = Store::new(self.path("pki"));
        store.save(issued.certificate_pem().as_bytes(), &key, at("2026-06-01T00:00:00Z")).unwrap();
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn until(found: &Found) -> Timestamp {
    found.held.as_ref().unwrap().validity.unwrap().until
}

fn good_until(year: u32) -> Issued {
    Issued::client("2026-01-01T00:00:00Z", &format!("{year}-01-01T00:00:00Z"))
}

const NOW: &str = "2026-06-01T00:00:00Z";

#[tokio::test]
async fn what_is_told_is_told_once_until_a_file_changes() {
    let files = Files::new();
    let node = bulkhead_testkit::TestNode::new().await;
    let (held, mut holder) = watch::channel(Held::Standalone);
    let mut keeper = Keeper {
        places: files.places(),
        clock: Arc::new(bulkhead_base::FakeClock::new(at("2028-01-01T00:00:00Z"))),
        held,
        wanted: watch::channel(Wanted::Nothing).0,
        check: node.context("apigate").check("credential"),
        seen: None,
    };
    let mut told = async || {
        keeper.reconcile(Trigger::Interval).await;
        let told = holder.has_changed().unwrap();
        holder.mark_unchanged();
        told
    };
    assert!(told().await, "there is none");
    // One that is good, and one that is over and all there is.
    for year in [2029, 2027] {
        files.write(&good_until(year));
        assert!(told().await);
        assert!(!told().await, "{year}: each telling makes new connections");
    }
}

#[test]
fn a_kubeconfig_is_enough() {
    let files = Files::new();
    files.write(&good_until(2027));
    let found = look(&files.places(), at(NOW));
    assert_eq!(until(&found), at("2027-01-01T00:00:00Z"));
    assert_eq!((found.problem, found.wanted), (None, Wanted::Nothing));
    assert_eq!(found.seen.files.len(), 4);
    assert!(!found.seen.is_outdated(at(NOW)));
    assert!(found.seen.is_outdated(at("2027-01-01T00:00:00Z")), "it is over then");
}

#[test]
fn every_file_that_is_named_is_watched() {
    let files = Files::new();
    files.write(&good_until(2027));
    let seen = || look(&files.places(), at(NOW)).seen;
    for name in ["kubeconfig", "ca", "crt", "key"] {
        let before = seen();
        let content = fs::read(files.path(name)).unwrap();
        // Replaced by a file of the same size.
        fs::write(files.path("new"), &content).unwrap();
        fs::rename(files.path("new"), files.path(name)).unwrap();
        assert!(before.is_outdated(at(NOW)), "{name}");
        let before = seen();
        fs::write(files.path(name), [content.as_slice(), b"\n"].concat()).unwrap();
        assert!(before.is_outdated(at(NOW)), "{name}");
        fs::remove_file(files.path(name)).unwrap();
        fs::write(files.path(name), &content).unwrap();
    }
}

#[test]
fn without_a_kubeconfig_a_certificate_is_asked_for_if_it_can_be() {
    let files = Files::new();
    let found = look(&files.places(), at(NOW));
    assert!(found.held.unwrap_err().contains("kubeconfig: No such file"));
    assert_eq!(found.wanted, Wanted::Nothing);
    let found = look(&files.bootstraps(), at(NOW));
    assert!(found.held.unwrap_err().ends_with("yet: a certificate is asked for"));
    assert_eq!(found.wanted, Wanted::First);
}

#[test]
fn a_certificate_that_is_over_is_never_used_when_a_new_one_can_be_had() {
    let files = Files::new();
    files.write(&good_until(2027));
    let now = at("2028-01-01T00:00:00Z");
    let found = look(&files.bootstraps(), now);
    assert!(found.held.unwrap_err().contains("over since 2027-01-01T00:00:00Z: a new one is asked for"));
    assert_eq!(found.wanted, Wanted::First);
    // With nobody to ask it is tried: the clock may be wrong.
    let found = look(&files.places(), now);
    assert_eq!(until(&found), at("2027-01-01T00:00:00Z"));
    assert!(found.problem.unwrap().contains("over since"));
}

#[test]
fn a_newer_pair_in_the_folder_wins_over_that_of_the_kubeconfig() {
    let files = Files::new();
    files.write(&good_until(2027));
    files.store(&good_until(2030));
    let mut places = files.places();
    assert_eq!(until(&look(&places, at(NOW))), at("2027-01-01T00:00:00Z"), "it is no business of ours");
    places.rotates = true;
    let found = look(&places, at("2028-01-01T00:00:00Z"));
    assert_eq!(until(&found), at("2030-01-01T00:00:00Z"));
    let Wanted::Next(validity) = found.wanted else { panic!("{:?}", found.wanted) };
    assert_eq!((validity.until, found.problem), (at("2030-01-01T00:00:00Z"), None));
}

#[test]
fn a_broken_pair_is_asked_for_anew_or_told() {
    let files = Files::new();
    files.write(&good_until(2027));
    fs::write(files.path("crt"), "-----BEGIN CERTIFICATE-----\nMII").unwrap();
    let found = look(&files.bootstraps(), at(NOW));
    assert_eq!(found.wanted, Wanted::First);
    let found = look(&files.places(), at(NOW));
    assert!(found.held.is_err() && found.wanted == Wanted::Nothing);
    files.store(&good_until(2030));
    let found = look(&files.bootstraps(), at(NOW));
    assert_eq!((until(&found), found.problem), (at("2030-01-01T00:00:00Z"), None));
}

#[test]
fn a_kubeconfig_that_cannot_be_read_is_not_replaced() {
    let files = Files::new();
    fs::write(files.path("kubeconfig"), "{").unwrap();
    let found = look(&files.bootstraps(), at(NOW));
    assert!(found.held.is_err());
    assert_eq!(found.wanted, Wanted::Nothing);
}
