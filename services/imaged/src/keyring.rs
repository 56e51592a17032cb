//! Which credentials a registry gets: docker configurations, and the rules by which their entries match an image. Pure.
//!
//! Must never show a password: nothing here has a `Debug` that does, and no error quotes what could not be read.

use std::fmt;

use bulkhead_cri::wire;
use bulkhead_model::image::ImageRef;
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Docker Hub, under each name that it has in configurations.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];
/// Entries of one configuration that are read.
const ENTRIES: usize = 1024;

/// How to authenticate at a registry. Secret.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Auth {
    username: String,
    password: String,
    identity_token: String,
    registry_token: String,
}

/// Entries for registries, the most exact first.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Keyring {
    entries: Vec<(Pattern, Auth)>,
}

/// What of an image's name an entry is for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pattern {
    /// As written, but for scheme and API version: what decides between two that match.
    text: String,
    /// Labels of the host, which may hold `*`.
    labels: Vec<String>,
    port: String,
    /// What the image's path begins with.
    path: String,
}

/// A configuration that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no docker configuration")]
pub(crate) struct NotReadable;

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth")
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|(pattern, _)| &pattern.text)).finish()
    }
}

impl Auth {
    /// A user with a password.
    pub(crate) fn password(username: String, password: String) -> Self {
        Self { username, password, identity_token: String::new(), registry_token: String::new() }
    }

    /// For the runtime.
    pub(crate) fn to_wire(&self) -> wire::AuthConfig {
        wire::AuthConfig {
            username: self.username.clone(),
            password: self.password.clone(),
            identity_token: self.identity_token.clone(),
            registry_token: self.registry_token.clone(),
            ..Default::default()
        }
    }

    /// The same for the same credentials, with the same salt; says nothing about them.
    pub(crate) fn fingerprint(&self, salt: &str) -> String {
        let mut hash = Sha256::new();
        for text in [salt, &self.username, &self.password, &self.identity_token, &self.registry_token] {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn is_empty(&self) -> bool {
        [&self.username, &self.password, &self.identity_token, &self.registry_token]
            .iter()
            .all(|text| text.is_empty())
    }
}

/// `config.json`, and `.dockerconfigjson` of a Secret.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: std::collections::BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

impl Keyring {
    /// Of a `config.json`.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn config(bytes: &[u8]) -> Result<Self, NotReadable> {
        let config: Config = serde_json::from_slice(bytes).map_err(|_| NotReadable)?;
        Ok(Self::of(config.auths))
    }

    /// Of a `.dockercfg`: the same without `auths` around it.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn legacy(bytes: &[u8]) -> Result<Self, NotReadable> {
        serde_json::from_slice(bytes).map(Self::of).map_err(|_| NotReadable)
    }

    fn of(entries: std::collections::BTreeMap<String, Entry>) -> Self {
        let entry = |(key, entry): (String, Entry)| Some((Pattern::parse(&key)?, auth(entry)?));
        Self::new(entries.into_iter().take(ENTRIES).filter_map(entry).collect())
    }

    /// Of entries.
    pub(crate) fn new(mut entries: Vec<(Pattern, Auth)>) -> Self {
        // The kubelet's order: names from the last to the first, so that of two with one beginning the longer one comes first.
        entries.sort_by(|(a, _), (b, _)| b.text.cmp(&a.text));
        Self { entries }
    }

    /// All that match, in the order in which they are tried.
    pub(crate) fn matching<'a>(&'a self, image: &ImageRef) -> impl Iterator<Item = &'a Auth> {
        let image = image.clone();
        self.entries.iter().filter(move |(pattern, _)| pattern.matches(&image)).map(|(_, auth)| auth)
    }
}

fn auth(entry: Entry) -> Option<Auth> {
    let mut auth = Auth {
        username: entry.username,
        password: entry.password,
        identity_token: entry.identitytoken,
        registry_token: entry.registrytoken,
    };
    if !entry.auth.is_empty() {
        // Some tools leave the padding out, and some add line breaks.
        let decoded = decode(&entry.auth).and_then(|bytes| String::from_utf8(bytes).ok())?;
        let (username, password) = decoded.split_once(':')?;
        auth.username = username.to_owned();
        auth.password = password.trim_end_matches('\0').to_owned();
    }
    (!auth.is_empty()).then_some(auth)
}

impl Pattern {
    /// Reads `*.example.com:5000/team`, `https://index.docker.io/v1/`. `None`: that is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        // What clients once wrote for the version of the registry's API.
        let path = path.strip_prefix("v1/").or_else(|| path.strip_prefix("v2/")).unwrap_or(path);
        let path = if matches!(path, "v1" | "v2") { "" } else { path };
        let (name, port) = host.split_once(':').unwrap_or((host, ""));
        if name.is_empty() || name.len() > 253 || name.split('.').any(str::is_empty) {
            return None;
        }
        let name = if DOCKER_HUB.contains(&name) && port.is_empty() { DOCKER_HUB[0] } else { name };
        let colon = if port.is_empty() { "" } else { ":" };
        let slash = if path.is_empty() { "" } else { "/" };
        Some(Self {
            text: format!("{name}{colon}{port}{slash}{path}"),
            labels: name.split('.').map(str::to_owned).collect(),
            port: port.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Whether it is for this image: each label of the host, its port, and the beginning of its path.
    pub(crate) fn matches(&self, image: &ImageRef) -> bool {
        let (host, port) = image.registry.split_once(':').unwrap_or((image.registry.as_str(), ""));
        let labels: Vec<&str> = host.split('.').collect();
        port == self.port
            && labels.len() == self.labels.len()
            && self.labels.iter().zip(labels).all(|(pattern, label)| glob(pattern, label))
            && image.repository.starts_with(&self.path)
    }
}

/// Whether `text` is what `pattern` says, where `*` is any text and `?` any letter. Of one label, so there are no dots.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // What of the pattern's beginnings matches the text so far; labels are short.
    let mut reached = vec![false; pattern.len() + 1];
    let open = |reached: &mut Vec<bool>| {
        for at in 0..pattern.len() {
            if reached.get(at) == Some(&true) && pattern.get(at) == Some(&'*') {
                set(reached, at + 1);
            }
        }
    };
    set(&mut reached, 0);
    open(&mut reached);
    for letter in text {
        let mut next = vec![false; pattern.len() + 1];
        for (at, wanted) in pattern.iter().enumerate().filter(|(at, _)| reached.get(*at) == Some(&true)) {
            match wanted {
                '*' => set(&mut next, at),
                '?' => set(&mut next, at + 1),
                wanted if *wanted == letter => set(&mut next, at + 1),
                _ => {}
            }
        }
        open(&mut next);
        reached = next;
    }
    reached.last() == Some(&true)
}

fn set(reached: &mut [bool], at: usize) {
    if let Some(place) = reached.get_mut(at) {
        *place = true;
    }
}

/// Base64 of either alphabet; padding and line breaks do not count.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes().filter(|letter| !letter.is_ascii_whitespace() && *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, image: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(&ImageRef::parse(image).unwrap())
    }

    #[test]
    fn hosts_label_by_label_ports_and_the_beginning_of_paths() {
        // The table of the API's documentation on imagePullSecrets, and more.
        for (pattern, image, expected) in [
            ("*.kubernetes.io", "abc.kubernetes.io/a", true),
            ("*.kubernetes.io", "kubernetes.io/a", false),
            ("*.*.kubernetes.io", "abc.kubernetes.io/a", false),
            ("*.*.kubernetes.io", "abc.def.kubernetes.io/a", true),
            ("prefix.*.io", "prefix.kubernetes.io/a", true),
            ("*-good.kubernetes.io", "prefix-good.kubernetes.io/a", true),
            ("*.kubernetes.io", "a.b.kubernetes.io/a", false),
            ("my-registry.io/images", "my-registry.io/images/my-image", true),
            ("my-registry.io/images", "my-registry.io/other", false),
            ("*.my-registry.io/images", "sub.my-registry.io/images/my-image", true),
            ("registry.io:5000", "registry.io:5000/a", true),
            ("registry.io:5000", "registry.io/a", false),
            ("registry.io", "registry.io:5000/a", false),
            ("https://registry.io/v2/", "registry.io/a", true),
            ("http://registry.io", "registry.io/a", true),
            ("registry.io/v1", "registry.io/a", true),
            ("https://index.docker.io/v1/", "busybox", true),
            ("index.docker.io", "docker.io/a/b", true),
            ("docker.io", "busybox:1", true),
            ("docker.io/library", "busybox", true),
            ("docker.io/team", "busybox", false),
            ("quay.io", "busybox", false),
            ("localhost", "localhost/a", true),
            ("*", "localhost:1/a", false),
            ("*", "r.io/a", false),
        ] {
            assert_eq!(matches(pattern, image), expected, "{pattern} {image}");
        }
        for text in ["", "https://", "/a", "a..b", ".a"] {
            assert!(Pattern::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn configurations_of_all_kinds_and_the_longest_name_first() {
        let config = r#"{"auths": {
            "r.io": {"auth": "dTpw"},
            "r.io/team": {"username": "v", "password": "q"},
            "r.io/team/app": {"auth": "dzpyOjE"},
            "*.io": {"identitytoken": "t"},
            "r.io/none": {},
            "bad": {"auth": "!!"}}, "credsStore": "x"}"#;
        let keyring = Keyring::config(config.as_bytes()).unwrap();
        let found = |image: &str| {
            let image = ImageRef::parse(image).unwrap();
            let found = keyring.matching(&image).map(|auth| (auth.username.clone(), auth.password.clone()));
            found.collect::<Vec<_>>()
        };
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        assert_eq!(found("r.io/team/app"), [pair("w", "r:1"), pair("v", "q"), pair("u", "p"), pair("", "")]);
        assert_eq!(found("r.io/x"), [pair("u", "p"), pair("", "")]);
        assert_eq!(found("r.org/x"), []);
        let legacy = Keyring::legacy(br#"{"r.io": {"auth": "dTpw"}}"#).unwrap();
        assert_eq!(legacy.entries.len(), 1);
        for text in ["", "7", "{\"auths\": 7}", "hunter2"] {
            let error = Keyring::config(text.as_bytes()).unwrap_err();
            assert!(!error.to_string().contains("hunter2"));
        }
        assert!(!format!("{keyring:?} {:?}", found("r.io/x").len()).contains("dTpw"));
        assert_eq!(format!("{:?}", Auth::password("u".into(), "hunter2".into())), "Auth");
    }

    proptest! {
        #[test]
        fn any_pattern_and_image_are_survived(pattern in "[*?a-z./:]{0,20}|\\PC{0,20}", image in "[a-z./:]{0,20}") {
            if let (Some(pattern), Ok(image)) = (Pattern::parse(&pattern), ImageRef::parse(&image)) {
                let _ = pattern.matches(&image);
            }
        }

        #[test]
        fn a_name_is_for_itself(host in "[a-z]{1,5}\\.[a-z]{1,5}", path in "[a-z]{1,5}/[a-z]{1,5}") {
            let name = format!("{host}/{path}");
            prop_assert!(matches(&name, &name));
            prop_assert!(matches(&host, &name));
        }

        #[test]
        fn a_star_takes_any_label(label in "[a-z0-9-]{0,8}", before in "[a-z]{0,3}") {
            prop_assert!(glob("*", &label));
            let (pattern, text, longer) = (before.clone() + "*", before.clone() + &label, before + "xy");
            prop_assert!(glob(&pattern, &text), "{}", text);
            prop_assert!(!glob("x", &longer), "{}", longer);
        }

        #[test]
        fn base64_is_read_with_and_without_padding(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let text = bulkhead_testkit::apiserver::base64(&bytes);
            prop_assert_eq!(decode(&text), Some(bytes.clone()));
            prop_assert_eq!(decode(text.trim_end_matches('=')), Some(bytes));
        }
    }
}
