//! Variables from ConfigMaps and Secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource};

use super::EnvError;

/// What an object holds: values by key. May be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Values(pub BTreeMap<String, Vec<u8>>);

/// What the API says that variables are made of. Must never be kept longer than the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvObjects {
    /// ConfigMaps by name; `None`: there is none of that name.
    pub config_maps: BTreeMap<String, Option<Values>>,
    /// Secrets by name; `None`: there is none of that name.
    pub secrets: BTreeMap<String, Option<Values>>,
    /// Variables of services, by name.
    pub services: BTreeMap<String, String>,
}

/// The objects that a container's variables are made of, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvNeeds {
    /// ConfigMaps of the pod's namespace.
    pub config_maps: BTreeSet<String>,
    /// Secrets of the pod's namespace.
    pub secrets: BTreeSet<String>,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(key, value)| (key, value.len()))).finish()
    }
}

impl EnvNeeds {
    /// Whether it needs nothing.
    pub fn is_empty(&self) -> bool {
        self.config_maps.is_empty() && self.secrets.is_empty()
    }
}

/// What must be read before the environment of `container` can be made.
pub fn env_needs(container: &Container) -> EnvNeeds {
    let mut needs = EnvNeeds::default();
    for source in container.env_from.iter().flatten() {
        needs.config_maps.extend(source.config_map_ref.as_ref().map(|named| named.name.clone()));
        needs.secrets.extend(source.secret_ref.as_ref().map(|named| named.name.clone()));
    }
    for source in container.env.iter().flatten().filter_map(|var| var.value_from.as_ref()) {
        match wanted_key(source) {
            Some(Key { kind: Kind::ConfigMap, name, .. }) => needs.config_maps.insert(name.to_owned()),
            Some(Key { kind: Kind::Secret, name, .. }) => needs.secrets.insert(name.to_owned()),
            None => false,
        };
    }
    needs
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ConfigMap,
    Secret,
}

impl Kind {
    /// As the API server writes it in an error.
    fn in_errors(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

/// One key that a variable names.
pub(super) struct Key<'a> {
    kind: Kind,
    name: &'a str,
    key: &'a str,
    optional: bool,
}

/// The key that a variable's source names, if that is what it does.
pub(super) fn wanted_key(source: &EnvVarSource) -> Option<Key<'_>> {
    if let Some(named) = &source.config_map_key_ref {
        let optional = named.optional == Some(true);
        return Some(Key { kind: Kind::ConfigMap, name: &named.name, key: &named.key, optional });
    }
    let named = source.secret_key_ref.as_ref()?;
    let optional = named.optional == Some(true);
    Some(Key { kind: Kind::Secret, name: &named.name, key: &named.key, optional })
}

impl EnvObjects {
    /// The value of a key; `None` for one that may be missing, and is.
    pub(super) fn key(&self, wanted: &Key<'_>, namespace: &str) -> Result<Option<&[u8]>, EnvError> {
        let Some(values) = self.object(wanted.kind, wanted.name, wanted.optional)? else { return Ok(None) };
        match values.0.get(wanted.key) {
            Some(value) => Ok(Some(value)),
            None if wanted.optional => Ok(None),
            None => Err(EnvError::NoKey {
                kind: wanted.kind.name(),
                namespace: namespace.to_owned(),
                name: wanted.name.to_owned(),
                key: wanted.key.to_owned(),
            }),
        }
    }

    fn object(&self, kind: Kind, name: &str, optional: bool) -> Result<Option<&Values>, EnvError> {
        let objects = match kind {
            Kind::ConfigMap => &self.config_maps,
            Kind::Secret => &self.secrets,
        };
        match objects.get(name) {
            Some(Some(values)) => Ok(Some(values)),
            _ if optional => Ok(None),
            _ => Err(EnvError::NoObject { kind: kind.in_errors(), name: name.to_owned() }),
        }
    }
}

/// All variables of an `envFrom` source, names with its prefix.
pub(super) fn of_source(
    source: &EnvFromSource,
    objects: &EnvObjects,
) -> Result<Vec<(String, Vec<u8>)>, EnvError> {
    let values = if let Some(named) = &source.config_map_ref {
        objects.object(Kind::ConfigMap, &named.name, named.optional == Some(true))?
    } else if let Some(named) = &source.secret_ref {
        objects.object(Kind::Secret, &named.name, named.optional == Some(true))?
    } else {
        None
    };
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let values = values.into_iter().flat_map(|values| &values.0);
    Ok(values.map(|(key, value)| (format!("{prefix}{key}"), value.clone())).collect())
}
