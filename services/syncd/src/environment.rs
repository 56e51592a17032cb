//! What the API server says that containers' variables are made of: ConfigMaps, Secrets, and where services are.
//!
//! Owns the questions, each time that a container is made, and the watch on services. Must never keep a value longer than its
//! pod, nor hold up a pod that asks for nothing of the API.

mod services;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use bulkhead_kubeapi::quiet;
use bulkhead_model::env::{EnvNeeds, EnvObjects, Values, env_needs};
use bulkhead_model::spec;
use bulkhead_service::Check;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};
use kube::Client;
use tokio_util::sync::CancellationToken;

use services::Services;

/// How long all of a container's objects may take.
const OBJECTS: Duration = Duration::from_secs(10);
/// How long a pod of the API waits for services that were not read yet, before it says so.
const SERVICES: Duration = Duration::from_secs(5);

/// Clones share what is known of services.
#[derive(Clone)]
pub struct Environment(Option<Cluster>);

#[derive(Clone)]
struct Cluster {
    client: Client,
    services: Services,
}

/// What was read for one pod: while the API server is away, its containers start again with that.
#[derive(Debug, Default)]
pub struct Kept {
    config_maps: BTreeMap<String, Values>,
    secrets: BTreeMap<String, Values>,
}

impl Environment {
    /// Follows services until `shutdown`; `check` says whether that stands. Without a client nothing can be asked for.
    pub fn new(cluster: Option<(Client, Check)>, shutdown: &CancellationToken) -> Self {
        Self(cluster.map(|(client, check)| {
            let services = Services::default();
            tokio::spawn(
                shutdown.clone().run_until_cancelled_owned(services.clone().follow(client.clone(), check)),
            );
            Cluster { client, services }
        }))
    }

    /// What the variables of a container are made of by now.
    ///
    /// # Errors
    /// Why something cannot be had, in the API server's words.
    pub async fn read(
        &self,
        pod: &Pod,
        container: &Container,
        kept: &mut Kept,
    ) -> Result<EnvObjects, String> {
        let needs = env_needs(container);
        let Some(Cluster { client, services }) = &self.0 else {
            let none = "variables of objects of the API server: this node has none (--kubeconfig)";
            return if needs.is_empty() { Ok(EnvObjects::default()) } else { Err(none.to_owned()) };
        };
        // A static pod runs without the API server, with what is known.
        if !spec::is_static(pod) && !services.were_read(SERVICES).await {
            return Err("services have not yet been read at least once, cannot construct envvars".to_owned());
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
        let mut objects =
            EnvObjects { services: services.variables(namespace, links), ..EnvObjects::default() };
        let reads = read_all(client, namespace, &needs, kept, &mut objects);
        match tokio::time::timeout(OBJECTS, reads).await {
            Ok(Ok(())) => Ok(objects),
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err("the API server does not answer".to_owned()),
        }
    }
}

async fn read_all(
    client: &Client,
    namespace: &str,
    needs: &EnvNeeds,
    kept: &mut Kept,
    objects: &mut EnvObjects,
) -> Result<(), String> {
    for name in &needs.config_maps {
        let answer = quiet::get::<ConfigMap>(client, namespace, name);
        let values = one(answer, name, &mut kept.config_maps, config_map).await?;
        objects.config_maps.insert(name.clone(), values);
    }
    for name in &needs.secrets {
        let answer = quiet::get::<Secret>(client, namespace, name);
        let values = one(answer, name, &mut kept.secrets, secret).await?;
        objects.secrets.insert(name.clone(), values);
    }
    Ok(())
}

/// One object; `None`: there is none of that name. What was read before counts only while the API server cannot say.
async fn one<K>(
    answer: impl Future<Output = Result<Option<K>, kube::Error>>,
    name: &str,
    kept: &mut BTreeMap<String, Values>,
    values: fn(K) -> Values,
) -> Result<Option<Values>, String> {
    match answer.await {
        Ok(Some(object)) => {
            let values = values(object);
            kept.insert(name.to_owned(), values.clone());
            Ok(Some(values))
        }
        Ok(None) => {
            kept.remove(name);
            Ok(None)
        }
        Err(error) => match kept.get(name) {
            Some(values) if !says_no(&error) => Ok(Some(values.clone())),
            _ => Err(quiet::reason(&error)),
        },
    }
}

/// Whether the API server answered that this may not be read.
fn says_no(error: &kube::Error) -> bool {
    matches!(quiet::code(error), Some(401 | 403))
}

fn config_map(object: ConfigMap) -> Values {
    // The kubelet makes no variables of binaryData either.
    let data = object.data.into_iter().flatten();
    Values(data.map(|(key, value)| (key, value.into_bytes())).collect())
}

fn secret(object: Secret) -> Values {
    Values(object.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect())
}

#[cfg(test)]
mod tests;
