//! A container's environment, and `$(VAR)` in its environment, command and arguments.
//!
//! Owns the order in which variables are made, what a later one sees of the earlier ones, and the pod's own fields as
//! values (`fieldRef`, `resourceFieldRef`). Must never read a ConfigMap, a Secret or this process's environment.
//! Values may be secrets: no error and no `Debug` here shows one.

mod expand;
mod field;
mod files;

use std::collections::HashMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Container, EnvVar as ApiEnvVar, Pod};

use crate::quantity::Quantity;

pub use expand::{MAX_STRING, expand};
pub use field::{field_path_is_known, resource_is_known};
pub use files::{FileError, VolumeFile, downward_files};

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
    /// Without NUL. May be secret.
    pub value: String,
}

impl fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=<{} bytes>", self.name, self.value.len())
    }
}

/// Why a container's environment, command or arguments could not be made: `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// The value is kept in an API object.
    #[error(
        "container `{container}`: {field} needs an object of the API server, which this version cannot read"
    )]
    NeedsApi {
        /// The container.
        container: String,
        /// The field, with the variable's name.
        field: String,
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

/// The variables of `container`, in the order of the spec; a name that comes twice keeps its first place and its last
/// value. `$(X)` in a value is what X is at that place.
pub fn container_env(container: &Container, facts: &PodFacts<'_>) -> Result<Vec<EnvVar>, EnvError> {
    if container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()) {
        return Err(EnvError::NeedsApi { container: container.name.clone(), field: "envFrom".into() });
    }
    let mut made: Vec<EnvVar> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut total = 0;
    for wanted in container.env.iter().flatten() {
        let value = {
            let lookup =
                |name: &str| places.get(name).and_then(|at| made.get(*at)).map(|var| var.value.as_str());
            value(container, wanted, facts, &lookup)?
        };
        total += wanted.name.len() + value.len() + 2;
        let too_long =
            |what: String, limit| EnvError::TooLong { container: container.name.clone(), what, limit };
        if wanted.name.len() + value.len() + 2 > MAX_STRING {
            return Err(too_long(format!("variable `{}`", wanted.name), MAX_STRING));
        }
        if total > MAX_TOTAL {
            return Err(too_long("the environment".into(), MAX_TOTAL));
        }
        let var = EnvVar { name: wanted.name.clone(), value };
        match places.get(wanted.name.as_str()).and_then(|at| made.get_mut(*at)) {
            Some(earlier) => *earlier = var,
            None => {
                places.insert(&wanted.name, made.len());
                made.push(var);
            }
        }
    }
    Ok(made)
}

/// `command` and `args` of `container` with `$(VAR)` replaced from `env`, which [`container_env`] made.
pub fn container_command(
    container: &Container,
    env: &[EnvVar],
) -> Result<(Vec<String>, Vec<String>), EnvError> {
    let values: HashMap<&str, &str> = env.iter().map(|var| (var.name.as_str(), var.value.as_str())).collect();
    let mut total = 0;
    let mut all = |list: &Option<Vec<String>>, what: &str| {
        let each = list.iter().flatten().map(|text| {
            let text = checked(container, what, text, &|name| values.get(name).copied())?;
            total += text.len() + 1;
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

fn value<'v>(
    container: &Container,
    wanted: &ApiEnvVar,
    facts: &PodFacts<'_>,
    lookup: &dyn Fn(&str) -> Option<&'v str>,
) -> Result<String, EnvError> {
    let (of, name) = (|| container.name.clone(), || wanted.name.clone());
    if !name_is_valid(&wanted.name) {
        return Err(EnvError::Name { container: of(), name: name() });
    }
    let Some(source) = &wanted.value_from else {
        let text = wanted.value.as_deref().unwrap_or("");
        return checked(container, &wanted.name, text, lookup);
    };
    let reference = |problem| EnvError::Reference { container: of(), name: name(), problem };
    if let Some(field) = &source.field_ref {
        let value = field::field_value(field, facts).map_err(reference)?;
        return no_nul(container, &wanted.name, value);
    }
    if let Some(resource) = &source.resource_field_ref {
        return field::resource_value(container, resource, facts).map_err(reference);
    }
    let needs = [
        ("configMapKeyRef", source.config_map_key_ref.is_some()),
        ("secretKeyRef", source.secret_key_ref.is_some()),
        ("fileKeyRef", source.file_key_ref.is_some()),
    ];
    match needs.into_iter().find(|(_, set)| *set) {
        Some((kind, _)) => Err(EnvError::NeedsApi {
            container: of(),
            field: format!("variable `{}`: valueFrom.{kind}", wanted.name),
        }),
        None => Err(reference("valueFrom names no source".into())),
    }
}

fn checked<'v>(
    container: &Container,
    what: &str,
    text: &str,
    lookup: &dyn Fn(&str) -> Option<&'v str>,
) -> Result<String, EnvError> {
    let text = expand(text, lookup).ok_or_else(|| EnvError::TooLong {
        container: container.name.clone(),
        what: format!("`{what}`"),
        limit: MAX_STRING,
    })?;
    no_nul(container, what, text)
}

fn no_nul(container: &Container, what: &str, text: String) -> Result<String, EnvError> {
    if text.contains('\0') {
        return Err(EnvError::Nul { container: container.name.clone(), name: what.to_owned() });
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
