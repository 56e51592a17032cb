//! Where services are, as far as variables tell it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bulkhead_ipc::said::Said;
use bulkhead_kubeapi::{News, quiet};
use bulkhead_model::env::{Service, ServicePort, service_variables};
use bulkhead_service::Check;
use futures::StreamExt;
use k8s_openapi::api::core::v1 as core;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

/// The namespace of the API server's own service, which every pod is told of, and its name.
const API_SERVER: (&str, &str) = ("default", "kubernetes");
/// How often the same trouble is said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// By namespace, then by name. Only services that variables tell of.
type Table = BTreeMap<String, BTreeMap<String, Service>>;

/// All services. Clones share them.
#[derive(Clone)]
pub(super) struct Services {
    table: Arc<RwLock<Table>>,
    read: watch::Sender<bool>,
}

impl Default for Services {
    fn default() -> Self {
        Self { table: Arc::default(), read: watch::Sender::new(false) }
    }
}

impl Services {
    /// Follows them for ever.
    pub(super) async fn follow(self, client: Client, check: Check) {
        check.bad("the API server has not told its services yet");
        let events = bulkhead_kubeapi::watch(Api::<core::Service>::all(client), watcher::Config::default());
        let mut events = std::pin::pin!(events);
        let said = Said::every(SAY_AGAIN);
        let mut listed = Table::new();
        while let Some(news) = events.next().await {
            match news {
                News::Event(event) => {
                    check.good();
                    self.take(event, &mut listed);
                }
                News::Calm => check.good(),
                News::Trouble(error) => {
                    let reason = quiet::watch_reason(&error);
                    if said.is_news(&reason, Instant::now()) {
                        tracing::warn!(reason, "services are not followed; what is known of them stands");
                    }
                    check.bad(format!("services of the API server are not followed: {reason}"));
                }
            }
        }
    }

    fn take(&self, event: Event<core::Service>, listed: &mut Table) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(service) => put(listed, service),
            Event::InitDone => {
                *self.table.write().unwrap_or_else(PoisonError::into_inner) = std::mem::take(listed);
                self.read.send_replace(true);
            }
            Event::Apply(service) => {
                put(&mut self.table.write().unwrap_or_else(PoisonError::into_inner), service);
            }
            Event::Delete(service) => {
                let (namespace, name) = names(&service);
                remove(&mut self.table.write().unwrap_or_else(PoisonError::into_inner), &namespace, &name);
            }
        }
    }

    /// Whether they were read once, waiting for it a little.
    pub(super) async fn were_read(&self, patience: Duration) -> bool {
        let mut read = self.read.subscribe();
        tokio::time::timeout(patience, read.wait_for(|read| *read)).await.is_ok_and(|read| read.is_ok())
    }

    /// The variables of a pod of this namespace: its own services, if it wants links to them, and the API server's.
    pub(super) fn variables(&self, namespace: &str, links: bool) -> BTreeMap<String, String> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut services: BTreeMap<&String, &Service> = BTreeMap::new();
        let api_server = table.get(API_SERVER.0).and_then(|services| services.get_key_value(API_SERVER.1));
        services.extend(api_server);
        // A service of the pod's namespace has the name for itself.
        services.extend(table.get(namespace).filter(|_| links).into_iter().flatten());
        service_variables(services.into_values())
    }
}

fn names(service: &core::Service) -> (String, String) {
    let meta = &service.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn put(table: &mut Table, service: core::Service) {
    let (namespace, name) = names(&service);
    match slim(&name, service) {
        Some(service) => {
            table.entry(namespace).or_default().insert(name, service);
        }
        None => remove(table, &namespace, &name),
    }
}

fn remove(table: &mut Table, namespace: &str, name: &str) {
    if let Some(services) = table.get_mut(namespace) {
        services.remove(name);
        if services.is_empty() {
            table.remove(namespace);
        }
    }
}

/// `None` for a service without an address of its own: a headless one, or another name for something.
fn slim(name: &str, service: core::Service) -> Option<Service> {
    let spec = service.spec?;
    let ip = spec.cluster_ip.filter(|ip| !ip.is_empty() && ip != "None")?;
    let port = |port: core::ServicePort| ServicePort {
        name: port.name.unwrap_or_default(),
        port: port.port,
        protocol: port.protocol.filter(|name| !name.is_empty()).unwrap_or_else(|| "TCP".to_owned()),
    };
    let ports = spec.ports.into_iter().flatten().map(port).collect();
    Some(Service { name: name.to_owned(), ip, ports })
}
