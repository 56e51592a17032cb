//! Volumes with objects of the API: which ones, and which files they become. Pure.

use bulkhead_api::volumed::v1 as wire;

use super::files::{self, VolumeFile};
use super::{Identity, Medium, cut};
use crate::error::Error;
use crate::names::{CONFIG_MAP, PROJECTED, SECRET};
use crate::objects::Key;

/// Sources of one projected volume, and keys of one source that are named.
const PARTS: usize = 1024;
/// Least and longest life of a token (API: an expirationSeconds below 600 is refused, above 2^32 too).
const LIFE: std::ops::RangeInclusive<u64> = 600..=1 << 32;

/// A volume whose files are written here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilesSpec {
    /// The plug-in's folder.
    pub(crate) folder: &'static str,
    /// What it is made of.
    pub(crate) medium: Medium,
    /// What is in it. Of two files with one path the later counts.
    pub(crate) parts: Vec<Part>,
}

/// A source of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Computed by the caller.
    Written(Vec<VolumeFile>),
    /// A ConfigMap or Secret.
    Object(ObjectFiles),
    /// A token.
    Token(TokenFile),
    /// Certificates.
    Trust(TrustFile),
}

/// Files of one ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectFiles {
    pub(crate) key: Key,
    pub(crate) optional: bool,
    /// Empty: all keys, each with its own name.
    pub(crate) items: Vec<Item>,
    /// Of files that have none of their own.
    pub(crate) mode: u32,
}

/// One key as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) key: String,
    pub(crate) path: String,
    pub(crate) mode: u32,
}

/// A file with a token of the pod's service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenFile {
    pub(crate) path: String,
    pub(crate) token: TokenKey,
    pub(crate) mode: u32,
    pub(crate) owner: Option<u32>,
}

/// Which token of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenKey {
    /// Empty: the API server's own.
    pub(crate) audience: String,
    pub(crate) expiration_seconds: u64,
}

/// A file with certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrustFile {
    pub(crate) key: Key,
    pub(crate) path: String,
    pub(crate) optional: bool,
    pub(crate) mode: u32,
}

impl Part {
    /// The object of the API that it needs.
    pub(crate) fn key(&self) -> Option<&Key> {
        match self {
            Self::Object(object) => Some(&object.key),
            Self::Trust(trust) => Some(&trust.key),
            Self::Written(_) | Self::Token(_) => None,
        }
    }
}

/// A `configMap` volume.
pub(super) fn config_map(source: wire::ObjectFiles, pod: &Identity) -> Result<FilesSpec, Error> {
    // On the disk, as with the kubelet: a ConfigMap is no secret, and memory is dear.
    let part = Part::Object(object(source, pod, config_map_key)?);
    Ok(FilesSpec { folder: CONFIG_MAP, medium: Medium::Disk, parts: vec![part] })
}

/// A `secret` volume.
pub(super) fn secret(source: wire::ObjectFiles, pod: &Identity) -> Result<FilesSpec, Error> {
    let part = Part::Object(object(source, pod, secret_key)?);
    Ok(FilesSpec { folder: SECRET, medium: crate::files::MEMORY, parts: vec![part] })
}

/// A `projected` volume.
pub(super) fn projected(source: wire::Projected, pod: &Identity) -> Result<FilesSpec, Error> {
    if source.sources.len() > PARTS {
        return Err(Error::Invalid(format!("it has {} sources: {PARTS} are possible", source.sources.len())));
    }
    let part = |source: wire::ProjectedSource| {
        use wire::projected_source::Source;
        match source.source {
            Some(Source::ConfigMap(source)) => object(source, pod, config_map_key).map(Part::Object),
            Some(Source::Secret(source)) => object(source, pod, secret_key).map(Part::Object),
            Some(Source::DownwardApi(source)) => files::parse(source.files).map(Part::Written),
            Some(Source::Token(source)) => token(&source, pod).map(Part::Token),
            Some(Source::TrustBundle(source)) => trust(source).map(Part::Trust),
            None => Err(Error::Invalid("a source is none that this version knows".to_owned())),
        }
    };
    let parts = source.sources.into_iter().map(part).collect::<Result<_, _>>()?;
    Ok(FilesSpec { folder: PROJECTED, medium: crate::files::MEMORY, parts })
}

fn config_map_key(namespace: String, name: String) -> Key {
    Key::ConfigMap { namespace, name }
}

fn secret_key(namespace: String, name: String) -> Key {
    Key::Secret { namespace, name }
}

fn object(
    source: wire::ObjectFiles,
    pod: &Identity,
    key: fn(String, String) -> Key,
) -> Result<ObjectFiles, Error> {
    if source.items.len() > PARTS {
        return Err(Error::Invalid(format!("it names {} keys: {PARTS} are possible", source.items.len())));
    }
    let default = source.default_mode;
    files::checked("any", default)?;
    let item = |item: wire::KeyFile| {
        let mode = item.mode.unwrap_or(default);
        Ok(Item { path: files::checked(&item.path, mode)?, key: item.key, mode })
    };
    let items = source.items.into_iter().map(item).collect::<Result<_, Error>>()?;
    let name = object_name(source.name)?;
    Ok(ObjectFiles { key: key(pod.namespace()?, name), optional: source.optional, items, mode: default })
}

fn token(source: &wire::ServiceAccountToken, pod: &Identity) -> Result<TokenFile, Error> {
    pod.account()?;
    if !LIFE.contains(&source.expiration_seconds) {
        return Err(Error::Invalid(format!(
            "serviceAccountToken.expirationSeconds {} is not between 600 and 2^32",
            source.expiration_seconds
        )));
    }
    // A file that its one reader owns needs to be open to nobody else; with the pod's group, the group reads it.
    let known = pod.token_owner.is_some() || pod.has_group;
    let mode = if known { 0o600 } else { source.mode };
    Ok(TokenFile {
        path: files::checked(&source.path, mode)?,
        token: TokenKey { audience: source.audience.clone(), expiration_seconds: source.expiration_seconds },
        mode,
        owner: pod.token_owner,
    })
}

fn trust(source: wire::TrustBundle) -> Result<TrustFile, Error> {
    let path = files::checked(&source.path, source.mode)?;
    let key = match (source.name.is_empty(), source.signer_name.is_empty()) {
        // `:` parts the signer from the rest of the name.
        (false, true) => Key::TrustBundle { name: selectable("ClusterTrustBundle", source.name)? },
        (true, false) => Key::TrustBundles {
            signer: selectable("signer", source.signer_name)?,
            labels: source.label_selector,
        },
        _ => {
            return Err(Error::Invalid(
                "clusterTrustBundle needs either a name or a signerName, and not both".to_owned(),
            ));
        }
    };
    Ok(TrustFile { key, path, optional: source.optional, mode: source.mode })
}

/// A name of a ConfigMap or Secret: a DNS subdomain. It becomes part of a field selector.
pub(super) fn object_name(name: String) -> Result<String, Error> {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if (1..=253).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(name);
    }
    Err(Error::Invalid(format!("{:?} is no name of an object", cut(&name))))
}

/// Text that a field selector can hold.
fn selectable(what: &str, text: String) -> Result<String, Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'/' | b'_');
    if text.len() <= 1024 && text.bytes().all(allowed) {
        return Ok(text);
    }
    Err(Error::Invalid(format!("{what} {:?} is no name", cut(&text))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod() -> Identity {
        Identity {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            account: "default".to_owned(),
            token_owner: None,
            has_group: false,
        }
    }

    fn source(name: &str, items: &[(&str, &str, Option<u32>)]) -> wire::ObjectFiles {
        let item = |(key, path, mode): &(&str, &str, Option<u32>)| wire::KeyFile {
            key: (*key).to_owned(),
            path: (*path).to_owned(),
            mode: *mode,
        };
        wire::ObjectFiles {
            name: name.to_owned(),
            optional: false,
            items: items.iter().map(item).collect(),
            default_mode: 0o640,
        }
    }

    #[test]
    fn keys_become_paths_with_modes() {
        let files = secret(source("s.x", &[("k", "a//b", None), ("l", "c", Some(0o400))]), &pod()).unwrap();
        let [Part::Object(object)] = files.parts.as_slice() else { panic!("{files:?}") };
        assert_eq!(object.key, Key::Secret { namespace: "ns".into(), name: "s.x".into() });
        let items: Vec<_> = object.items.iter().map(|i| (i.key.as_str(), i.path.as_str(), i.mode)).collect();
        assert_eq!(items, [("k", "a/b", 0o640), ("l", "c", 0o400)]);
        assert!(matches!(files.medium, Medium::Memory { .. }));
        assert_eq!(config_map(source("c", &[]), &pod()).unwrap().medium, Medium::Disk);
    }

    #[test]
    fn what_is_refused() {
        for (name, path) in
            [("", "a"), ("a,b=c", "a"), ("A", "a"), ("a", ".."), ("a", "a/../b"), ("a", "/a"), ("a", "..a")]
        {
            assert!(config_map(source(name, &[("k", path, None)]), &pod()).is_err(), "{name} {path}");
        }
        let nobody = Identity { namespace: String::new(), ..pod() };
        assert!(config_map(source("c", &[]), &nobody).is_err(), "no namespace");
        let mut high = source("c", &[]);
        high.default_mode = 0o1777;
        assert!(config_map(high, &pod()).is_err());
    }

    #[test]
    fn a_token_is_open_to_as_few_as_can_be_known() {
        // KEP-1205.
        let source = wire::ServiceAccountToken {
            path: "token".to_owned(),
            audience: String::new(),
            expiration_seconds: 3607,
            mode: 0o644,
        };
        for (owner, has_group, mode) in
            [(None, false, 0o644), (Some(7), false, 0o600), (None, true, 0o600), (Some(7), true, 0o600)]
        {
            let pod = Identity { token_owner: owner, has_group, ..pod() };
            let file = token(&source, &pod).unwrap();
            assert_eq!((file.mode, file.owner), (mode, owner));
        }
        for seconds in [0, 599, (1 << 32) + 1] {
            let source = wire::ServiceAccountToken { expiration_seconds: seconds, ..source.clone() };
            assert!(token(&source, &pod()).is_err(), "{seconds}");
        }
    }

    #[test]
    fn certificates_are_of_one_bundle_or_of_one_signer() {
        let source = |name: &str, signer: &str| wire::TrustBundle {
            name: name.to_owned(),
            signer_name: signer.to_owned(),
            path: "ca.pem".to_owned(),
            mode: 0o644,
            ..Default::default()
        };
        assert!(matches!(trust(source("a:b:c", "")).unwrap().key, Key::TrustBundle { .. }));
        assert!(matches!(trust(source("", "example.com/x")).unwrap().key, Key::TrustBundles { .. }));
        for (name, signer) in [("", ""), ("a", "b"), ("a,b", ""), ("", "a=b")] {
            assert!(trust(source(name, signer)).is_err(), "{name} {signer}");
        }
    }

    proptest! {
        #[test]
        fn a_name_that_passes_is_one_term_of_a_selector(name in "[a-zA-Z,.=!\\\\-]{0,10}|\\PC{0,20}") {
            if let Ok(name) = object_name(name) {
                prop_assert!(!name.contains([',', '=', '\\', '!', ' ']));
            }
        }
    }
}
