//! A container's environment, and `$(VAR)` in its environment, command and arguments.
//!
//! Owns the order in which variables are made (services, then `envFrom`, then `env`), what a later one sees of the earlier
//! ones, and the pod's own fields as values (`fieldRef`, `resourceFieldRef`). Must never read a ConfigMap, a Secret or this
//! process's environment: what objects hold is an argument. Values may be secrets: no error and no `Debug` here shows one.

mod expand;
mod field;
mod files;
mod objects;
mod services;

use std::collections::HashMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Container, EnvVar as ApiEnvVar, Pod};

use crate::quantity::Quantity;

pub use expand::{MAX_STRING, expand};
pub use field::{field_path_is_known, resource_is_known};
pub use files::{DEFAULT_MODE, FileError, VolumeFile, downward_files};
pub use objects::{EnvNeeds, EnvObjects, Values, env_needs};
pub use services::{Service, ServicePort, service_variables};

/// Most bytes of all variables together, names included: what Linux takes with the usual 8 MiB stack.
pub const MAX_TOTAL: usize = 2 << 20;

/// What a variable can say about the pod it is in. The pod's own metadata and spec come from `pod`.
#[derive(Clone, Copy)]
pub struct PodFacts<'a> {
    /// The pod, with its resources as they were last accepted.
    pub pod: &'a Pod,
    /// `spec.nodeName` of the node that runs it.
    pub node_name: &'a str,
    /// The pod's addresses, at most one per family, the node's primary family first (for a host-network pod the
    /// node's). The same list as in its status.
    pub pod_ips: &'a [String],
    /// The node's addresses, the primary one first.
    pub host_ips: &'a [String],
    /// CPUs that pods may use: the value of a CPU limit that is not stated.
    pub allocatable_cpu: Quantity,
    /// Bytes of memory that pods may use: the value of a memory limit that is not stated.
    pub allocatable_memory: Quantity,
}

/// One variable, ready for the process.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvVar {
    /// Printable ASCII without `=`.
    pub name: String,
    /// Without NUL. May be secret, and need not be text.
    pub value: Vec<u8>,
}

impl fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=<{} bytes>", self.name, self.value.len())
    }
}

/// Why a container's environment, command or arguments could not be made: `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// The value is kept where this version cannot read it.
    #[error("container `{container}`: {field} is not supported by this version")]
    Unsupported {
        /// The container.
        container: String,
        /// The field, with the variable's name.
        field: String,
    },
    /// An object of the API that is not there. The kubelet's words.
    #[error("{kind} \"{name}\" not found")]
    NoObject {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// An object of the API that has not the key. The kubelet's words.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// The pod's namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// The name cannot be a variable's.
    #[error(
        "container `{container}`: `{name}` cannot be the name of a variable: use printable ASCII without `=`"
    )]
    Name {
        /// The container.
        container: String,
        /// The name.
        name: String,
    },
    /// The value cannot be a variable's.
    #[error("container `{container}`: the value of variable `{name}` holds a NUL byte")]
    Nul {
        /// The container.
        container: String,
        /// The variable, `command` or `args`.
        name: String,
    },
    /// Bytes of a Secret where only text can be.
    #[error("container `{container}`: `{name}` holds the value of a variable that is no UTF-8 text")]
    NotText {
        /// The container.
        container: String,
        /// `command` or `args`.
        name: String,
    },
    /// A string, or all together, is longer than the system takes.
    #[error("container `{container}`: {what} is too long: at most {limit} bytes")]
    TooLong {
        /// The container.
        container: String,
        /// What is too long.
        what: String,
        /// The most bytes that it may have.
        limit: usize,
    },
    /// `fieldRef` or `resourceFieldRef` names nothing that a variable can show.
    #[error("container `{container}`: variable `{name}`: {problem}")]
    Reference {
        /// The container.
        container: String,
        /// The variable.
        name: String,
        /// What is wrong, with the path.
        problem: String,
    },
}

/// The variables of `container`: those of services, then those of `envFrom` in its order, then `env`. A name that comes twice
/// keeps its first place and its last value. `$(X)` in a value of `env` is what X is at that place; no other value is expanded.
pub fn container_env(
    container: &Container,
    facts: &PodFacts<'_>,
    objects: &EnvObjects,
) -> Result<Vec<EnvVar>, EnvError> {
    let mut made = Made::new(container);
    for (name, value) in &objects.services {
        made.add(name, value.clone().into_bytes())?;
    }
    for source in container.env_from.iter().flatten() {
        for (name, value) in objects::of_source(source, objects)? {
            // The kubelet passes over what cannot be a name, too.
            if name_is_valid(&name) {
                made.add(&name, no_nul(container, &name, value)?)?;
            }
        }
    }
    for wanted in container.env.iter().flatten() {
        // An optional key that is not there gives no variable.
        if let Some(value) = value(container, wanted, facts, objects, &|name| made.get(name))? {
            made.add(&wanted.name, value)?;
        }
    }
    Ok(made.vars)
}

/// Variables that were made so far.
struct Made<'a> {
    container: &'a Container,
    vars: Vec<EnvVar>,
    places: HashMap<String, usize>,
    total: usize,
}

impl<'a> Made<'a> {
    fn new(container: &'a Container) -> Self {
        Self { container, vars: Vec::new(), places: HashMap::new(), total: 0 }
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        self.places.get(name).and_then(|at| self.vars.get(*at)).map(|var| var.value.as_slice())
    }

    fn add(&mut self, name: &str, value: Vec<u8>) -> Result<(), EnvError> {
        let bytes = name.len() + value.len() + 2;
        self.total += bytes;
        let too_long =
            |what: String, limit| EnvError::TooLong { container: self.container.name.clone(), what, limit };
        if bytes > MAX_STRING {
            return Err(too_long(format!("variable `{name}`"), MAX_STRING));
        }
        if self.total > MAX_TOTAL {
            return Err(too_long("the environment".into(), MAX_TOTAL));
        }
        let var = EnvVar { name: name.to_owned(), value };
        match self.places.get(name).and_then(|at| self.vars.get_mut(*at)) {
            Some(earlier) => *earlier = var,
            None => {
                self.places.insert(name.to_owned(), self.vars.len());
                self.vars.push(var);
            }
        }
        Ok(())
    }
}

/// `command` and `args` of `container` with `$(VAR)` replaced from `env`, which [`container_env`] made.
pub fn container_command(
    container: &Container,
    env: &[EnvVar],
) -> Result<(Vec<String>, Vec<String>), EnvError> {
    let values: HashMap<&str, &[u8]> =
        env.iter().map(|var| (var.name.as_str(), var.value.as_slice())).collect();
    let mut total = 0;
    let mut all = |list: &Option<Vec<String>>, what: &str| {
        let each = list.iter().flatten().map(|text| {
            let text = checked(container, what, text, &|name| values.get(name).copied())?;
            total += text.len() + 1;
            let not_text = |_| EnvError::NotText { container: container.name.clone(), name: what.to_owned() };
            let text = String::from_utf8(text).map_err(not_text)?;
            let (container, what) = (container.name.clone(), what.to_owned());
            if total > MAX_TOTAL {
                Err(EnvError::TooLong { container, what, limit: MAX_TOTAL })
            } else {
                Ok(text)
            }
        });
        each.collect::<Result<Vec<_>, _>>()
    };
    Ok((all(&container.command, "command")?, all(&container.args, "args")?))
}

/// Whether the API takes `name` for a variable: printable ASCII without `=`, not empty.
pub fn name_is_valid(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=')
}

/// `None`: an optional key that is not there.
fn value<'v>(
    container: &Container,
    wanted: &ApiEnvVar,
    facts: &PodFacts<'_>,
    objects: &EnvObjects,
    lookup: &dyn Fn(&str) -> Option<&'v [u8]>,
) -> Result<Option<Vec<u8>>, EnvError> {
    let (of, name) = (|| container.name.clone(), || wanted.name.clone());
    if !name_is_valid(&wanted.name) {
        return Err(EnvError::Name { container: of(), name: name() });
    }
    let Some(source) = &wanted.value_from else {
        let text = wanted.value.as_deref().unwrap_or("");
        return checked(container, &wanted.name, text, lookup).map(Some);
    };
    let reference = |problem| EnvError::Reference { container: of(), name: name(), problem };
    if let Some(field) = &source.field_ref {
        let value = field::field_value(field, facts).map_err(reference)?;
        return no_nul(container, &wanted.name, value.into_bytes()).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        let value = field::resource_value(container, resource, facts).map_err(reference)?;
        return Ok(Some(value.into_bytes()));
    }
    let namespace = facts.pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(key) = objects::wanted_key(source) {
        let value = objects.key(&key, namespace)?.map(<[u8]>::to_vec);
        return value.map(|value| no_nul(container, &wanted.name, value)).transpose();
    }
    match &source.file_key_ref {
        Some(_) => {
            let field = format!("variable `{}`: valueFrom.fileKeyRef", wanted.name);
            Err(EnvError::Unsupported { container: of(), field })
        }
        None => Err(reference("valueFrom names no source".into())),
    }
}

fn checked<'v>(
    container: &Container,
    what: &str,
    text: &str,
    lookup: &dyn Fn(&str) -> Option<&'v [u8]>,
) -> Result<Vec<u8>, EnvError> {
    let value = expand::bytes(text, lookup).ok_or_else(|| EnvError::TooLong {
        container: container.name.clone(),
        what: format!("`{what}`"),
        limit: MAX_STRING,
    })?;
    no_nul(container, what, value)
}

fn no_nul(container: &Container, what: &str, value: Vec<u8>) -> Result<Vec<u8>, EnvError> {
    if value.contains(&0) {
        return Err(EnvError::Nul { container: container.name.clone(), name: what.to_owned() });
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
