//! Image references: `busybox`, `registry:5000/a/b:tag@sha256:...`.
//!
//! Owns their grammar (the distribution project's reference format), the Docker Hub defaults and the default pull
//! policy. Must never ask a registry.

use std::fmt;

/// Longest name, registry included and tag excluded, in bytes.
const MAX_NAME: usize = 255;
/// Longest tag in bytes.
const MAX_TAG: usize = 128;
/// Longest text that is parsed, in bytes.
const MAX_TEXT: usize = 1024;

/// A parsed image reference, made whole: registry and `library/` are filled in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageRef {
    /// Registry host, with its port if one was given.
    pub registry: String,
    /// Path within the registry.
    pub repository: String,
    /// The tag that was written; `None` if none was.
    pub tag: Option<String>,
    /// `algorithm:hex`; `None` if none was written.
    pub digest: Option<String>,
}

/// When an image is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PullPolicy {
    /// Before each start.
    Always,
    /// When the node has none.
    IfNotPresent,
    /// Not at all.
    Never,
}

/// A text that names no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an image reference: {problem}")]
pub struct ImageError {
    /// The text, cut to 100 characters.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl ImageRef {
    /// Reads a reference. Names without a registry are Docker Hub's.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        Self::read(text).map_err(|problem| ImageError { text: text.chars().take(100).collect(), problem })
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("it is empty");
        }
        if text.len() > MAX_TEXT {
            return Err("it is longer than 1024 bytes");
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err("what follows `@` is no digest such as sha256:<64 hexadecimal digits>");
        }
        // A colon behind the last slash starts a tag; one before it belongs to the registry's port.
        let name_start = rest.rfind('/').map_or(0, |slash| slash + 1);
        let colon = rest.get(name_start..).and_then(|last| last.find(':')).map(|at| at + name_start);
        let (name, tag) = match colon.and_then(|at| rest.split_at_checked(at)) {
            Some((name, tag)) => (name, tag.strip_prefix(':')),
            None => (rest, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err("its tag may hold only letters, digits, `_`, `.` and `-`, and at most 128 of them");
        }
        let (registry, path) = match name.split_once('/') {
            Some((first, path)) if is_host(first) => (first, path),
            _ => ("docker.io", name),
        };
        let registry = if registry == "index.docker.io" { "docker.io" } else { registry };
        if !is_registry(registry) {
            return Err("its registry is no host name with an optional port");
        }
        if path.is_empty() || !path.split('/').all(is_component) {
            return Err(
                "its name may hold only lower-case letters and digits, separated by `/`, `.`, `_`, `__` or `-`",
            );
        }
        if name == path && path.len() == 64 && path.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err("64 hexadecimal digits are an image id, not a name");
        }
        let library = registry == "docker.io" && !path.contains('/');
        let repository = if library { format!("library/{path}") } else { path.to_owned() };
        if registry.len() + 1 + repository.len() > MAX_NAME {
            return Err("its name is longer than 255 bytes");
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository,
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// What is asked for by policy when a container names none: a digest pins the content and any tag but `latest`
    /// is taken as fixed.
    pub fn default_pull_policy(&self) -> PullPolicy {
        match (&self.digest, self.tag.as_deref()) {
            (None, None | Some("latest")) => PullPolicy::Always,
            _ => PullPolicy::IfNotPresent,
        }
    }
}

/// The whole name: with registry, and with `:latest` when neither tag nor digest was written.
impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match (&self.tag, &self.digest) {
            (None, None) => f.write_str(":latest"),
            (tag, digest) => {
                tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
                digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
            }
        }
    }
}

impl PullPolicy {
    /// The policy for a container that names none; [`PullPolicy::IfNotPresent`] for an image that cannot be parsed.
    pub fn default_for(image: &str) -> Self {
        ImageRef::parse(image).map_or(Self::IfNotPresent, |image| image.default_pull_policy())
    }

    /// Reads the API's text. `None` for text that the API does not know.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Always" => Some(Self::Always),
            "IfNotPresent" => Some(Self::IfNotPresent),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    /// The API's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// Whether the first component of a name is a registry rather than a folder on Docker Hub.
fn is_host(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((v6, port)) if v6.parse::<std::net::Ipv6Addr>().is_ok() => {
                ("v6", port.strip_prefix(':').or_else(|| (!port.is_empty()).then_some("x")))
            }
            _ => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    host.split('.').all(label) && port.is_none_or(|port| !port.is_empty() && port.parse::<u16>().is_ok())
}

/// Runs of lower-case letters and digits, joined by one `.`, one or two `_`, or any number of `-`.
fn is_component(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let edges = text.bytes().next().is_some_and(plain) && text.bytes().last().is_some_and(plain);
    let mut separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    edges && separators.all(|s| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= MAX_TAG
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let part = |part: &str| {
        part.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let length = match algorithm {
        "sha256" => hex.len() == 64,
        "sha384" => hex.len() == 96,
        "sha512" => hex.len() == 128,
        _ => hex.len() >= 32,
    };
    algorithm.split(['+', '.', '-', '_']).all(part)
        && length
        && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHA: &str = "sha256:4d00640e5d1086fc53a7a6b0fad255f8b71b68bfc2098a59eb9b2e53973ddf7d";

    #[test]
    fn whole_names_and_default_policies() {
        use PullPolicy::{Always, IfNotPresent};
        let table = [
            ("busybox", "docker.io/library/busybox:latest", Always),
            ("busybox:latest", "docker.io/library/busybox:latest", Always),
            ("busybox:1.36", "docker.io/library/busybox:1.36", IfNotPresent),
            ("me/app", "docker.io/me/app:latest", Always),
            ("docker.io/busybox", "docker.io/library/busybox:latest", Always),
            ("index.docker.io/me/app:2", "docker.io/me/app:2", IfNotPresent),
            ("localhost/app:1", "localhost/app:1", IfNotPresent),
            ("local/bb:1", "docker.io/local/bb:1", IfNotPresent),
            ("localhost:5000/a/b/c", "localhost:5000/a/b/c:latest", Always),
            ("Registry/app:1", "Registry/app:1", IfNotPresent),
            ("[2001:db8::1]:5000/a:1", "[2001:db8::1]:5000/a:1", IfNotPresent),
            (
                "registry.k8s.io/e2e-test-images/busybox:1.36.1-1",
                "registry.k8s.io/e2e-test-images/busybox:1.36.1-1",
                IfNotPresent,
            ),
            ("a__b.c--d:T_1.0-x", "docker.io/library/a__b.c--d:T_1.0-x", IfNotPresent),
        ];
        for (text, whole, policy) in table {
            let image = ImageRef::parse(text).unwrap();
            assert_eq!(image.to_string(), whole);
            assert_eq!(PullPolicy::default_for(text), policy, "{text}");
        }
        for text in [format!("busybox@{SHA}"), format!("busybox:latest@{SHA}"), format!("busybox:1@{SHA}")] {
            let image = ImageRef::parse(&text).unwrap();
            assert_eq!(image.to_string(), format!("docker.io/library/{text}"));
            assert_eq!(image.default_pull_policy(), IfNotPresent, "a digest pins the content: {text}");
        }
    }

    #[test]
    fn what_names_no_image_is_refused() {
        let long = format!("a/{}", "b".repeat(300));
        let (tag, id) = (format!("a:{}", "t".repeat(129)), "a".repeat(64));
        for text in [
            "",
            " ",
            "busybox ",
            " busybox",
            "Busybox",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:-x",
            "a:b:c",
            "a@",
            "a@sha256:12",
            "a@sha256",
            "a@b@c",
            "a..b",
            "a___b",
            "-a",
            "a-",
            "..",
            "../a",
            "http://a/b",
            "a\0",
            "reg:port/a",
            "reg:99999/a",
            "a.b:/c",
            ":80/a",
            "[::1/a",
            "[x]:1/a",
            "[::1]x/a",
            "é",
            &long,
            &tag,
            &id,
        ] {
            assert!(ImageRef::parse(text).is_err(), "{text:?}");
            assert_eq!(PullPolicy::default_for(text), PullPolicy::IfNotPresent);
        }
        let upper = format!("a@{}", SHA.to_uppercase());
        assert!(ImageRef::parse(&upper).is_err());
    }

    #[test]
    fn policies_keep_their_names() {
        for policy in [PullPolicy::Always, PullPolicy::IfNotPresent, PullPolicy::Never] {
            assert_eq!(PullPolicy::parse(policy.as_str()), Some(policy));
        }
        assert_eq!(PullPolicy::parse("always"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,300}") {
            let _ = ImageRef::parse(&text);
        }

        #[test]
        fn the_whole_name_means_the_same(text in "([a-zA-Z.]{1,6}(:[0-9]{1,3})?/)?[a-z0-9._-]{1,8}(/[a-z0-9]{1,3})?(:[a-zA-Z0-9._-]{1,5})?") {
            if let Ok(image) = ImageRef::parse(&text) {
                let whole = image.to_string();
                let again = ImageRef::parse(&whole).unwrap();
                prop_assert_eq!(again.to_string(), whole);
                prop_assert_eq!(again.repository, image.repository);
                prop_assert_eq!(again.registry, image.registry);
            }
        }
    }
}
