//! Runtime classes (KEP 585): which of the container runtime's handlers a pod's class stands for.
//!
//! Owns the question to the API server, each time that a sandbox is to be made. Must never answer for another class.

use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Api, Client};

const DEADLINE: Duration = Duration::from_secs(5);

/// Asks for classes; nothing is asked where there is no API server.
#[derive(Clone)]
pub struct RuntimeClasses(Option<Client>);

/// Why there is no handler.
#[derive(Debug, thiserror::Error)]
pub enum ClassError {
    /// There is no such class. The kubelet's words.
    #[error("runtimeclass.node.k8s.io \"{class}\" not found")]
    Missing {
        /// Its name.
        class: String,
    },
    /// The API server could not be asked.
    #[error("runtime class {class} cannot be asked for")]
    Away {
        /// Its name.
        class: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl RuntimeClasses {
    /// Over apigate, if there is a cluster.
    pub fn new(client: Option<Client>) -> Self {
        Self(client)
    }

    /// The handler of this class by now.
    ///
    /// # Errors
    /// When there is no such class, or the API server cannot be asked.
    pub async fn handler(&self, class: &str) -> Result<String, ClassError> {
        let away = |source| ClassError::Away { class: class.to_owned(), source };
        let Some(client) = &self.0 else { return Err(away("this node has no API server".into())) };
        let api: Api<RuntimeClass> = Api::all(client.clone());
        match tokio::time::timeout(DEADLINE, api.get_opt(class)).await {
            Ok(Ok(Some(found))) => Ok(found.handler),
            Ok(Ok(None)) => Err(ClassError::Missing { class: class.to_owned() }),
            Ok(Err(error)) => Err(away(Box::new(error))),
            Err(_) => Err(away("the API server does not answer".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_base::chain;
    use bulkhead_testkit::apiserver::FakeApiServer;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_class_is_asked_for_anew_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let (server, socket) = (FakeApiServer::start().await, dir.path().join("api.sock"));
        server.serve_at(&socket);
        let classes = RuntimeClasses::new(Some(bulkhead_kubeapi::over_socket(&socket, None)));
        let missing = classes.handler("kata").await.unwrap_err();
        assert_eq!(missing.to_string(), "runtimeclass.node.k8s.io \"kata\" not found");
        let path = "/apis/node.k8s.io/v1/runtimeclasses/kata";
        let class = |handler: &str| json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": handler});
        server.put(path, class("one"));
        assert_eq!(classes.handler("kata").await.unwrap(), "one");
        server.put(path, class("two"));
        assert_eq!(classes.handler("kata").await.unwrap(), "two");
        server.fail("GET", Some((503, "gone fishing")));
        let away = classes.handler("kata").await.unwrap_err();
        assert!(matches!(away, ClassError::Away { .. }), "{}", chain(&away));
        let nobody = RuntimeClasses::new(None).handler("kata").await.unwrap_err();
        assert!(matches!(nobody, ClassError::Away { .. }));
    }
}
