//! The access file: who may do what on the node. The only reader of proto/access.toml.

mod rule;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;

pub use rule::{ApiRequest, ApiRule, BadRule, Verb, Verdict, judge};

/// The caller name of root: the operator's command line.
pub const CLI: &str = "cli";
/// Group of everyone who may connect to sockets at all.
pub const GROUP: &str = "bulkhead";
/// Group of those who read container logs.
pub const LOG_GROUP: &str = "bulkhead-logs";

/// The file as built in. Changing it means changing the release, on purpose: a node's owner narrows it, never widens.
pub const SOURCE: &str = include_str!("../../../proto/access.toml");

/// The parsed file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// By process name.
    pub process: BTreeMap<String, Process>,
}

/// One process' row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Name of its user and group.
    pub user: String,
    /// Names of further groups.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Capabilities that it keeps.
    #[serde(default)]
    pub capabilities: Vec<Capability>,
    /// Path patterns that it may write.
    #[serde(default)]
    pub writable: Vec<String>,
    /// What it needs IP for; `None`: it opens Unix sockets alone.
    #[serde(default)]
    pub network: Option<String>,
    /// `Service/Method` of runtime.v1 that its CRI socket passes.
    #[serde(default)]
    pub cri: BTreeSet<String>,
    /// What its API socket passes.
    #[serde(default)]
    pub api: Vec<ApiRule>,
    /// By gRPC service: who may call it.
    #[serde(default)]
    pub callers: BTreeMap<String, BTreeSet<String>>,
}

/// A capability and why it is needed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    /// Such as `CAP_SYS_ADMIN`.
    pub name: String,
    /// What would not work without it.
    pub reason: String,
}

/// The access file of this release.
///
/// # Panics
/// If the built-in file does not parse, which a test rules out.
pub static ACCESS: LazyLock<Access> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "built in, and parsed by a test")]
    parse(SOURCE).expect("proto/access.toml is valid")
});

/// Parses an access file.
///
/// # Errors
/// With line and column when the text is not TOML of this shape.
pub fn parse(text: &str) -> Result<Access, toml::de::Error> {
    toml::from_str(text)
}

impl Access {
    /// Whether `caller` may call `service` (such as `bulkhead.pleg.v1.Pleg`) on the socket of `process`.
    pub fn may_call(&self, process: &str, service: &str, caller: &str) -> bool {
        match service {
            // Health and self-description are for whoever watches the node; a peer may ask health to find readiness.
            "grpc.health.v1.Health" => caller == CLI || self.process.contains_key(caller),
            "bulkhead.process.v1.Process" => caller == CLI || caller == "gateway",
            _ => self
                .process
                .get(process)
                .and_then(|row| row.callers.get(service))
                .is_some_and(|callers| callers.contains(caller)),
        }
    }

    /// Whether the CRI socket of `process` passes `method` (such as `RuntimeService/Version`).
    pub fn may_use_cri(&self, process: &str, method: &str) -> bool {
        self.process.get(process).is_some_and(|row| row.cri.contains(method))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto_index;

    #[test]
    fn names_in_the_file_exist() {
        let known = proto_index();
        for (name, row) in &ACCESS.process {
            assert_eq!(&row.user, name, "one name everywhere");
            for method in &row.cri {
                let (service, method) = method.split_once('/').unwrap();
                assert!(
                    known.contains(&format!("runtime.v1.{service}/{method}")),
                    "{name}: no CRI method {method}"
                );
            }
            for (service, callers) in &row.callers {
                assert!(
                    known.iter().any(|m| m.starts_with(&format!("{service}/"))),
                    "{name}: no service {service}"
                );
                for caller in callers {
                    assert!(
                        caller == CLI || ACCESS.process.contains_key(caller),
                        "{name}: no caller {caller}"
                    );
                    assert_ne!(caller, name, "a process does not call itself");
                }
            }
            for capability in &row.capabilities {
                assert!(capability.reason.len() > 20, "{name}: {} needs a reason", capability.name);
            }
            assert!(row.network.as_ref().is_none_or(|why| why.len() > 20), "{name}: IP needs a reason");
        }
        // Every service of ours stands in the file or is served by all.
        for method in
            known.iter().filter(|m| m.starts_with("bulkhead.") && !m.starts_with("bulkhead.process."))
        {
            let service = method.split('/').next().unwrap();
            assert!(
                ACCESS.process.values().any(|row| row.callers.contains_key(service)),
                "{service} has no row"
            );
        }
    }

    #[test]
    fn dangerous_methods_have_one_owner() {
        let owners = |method: &str| -> Vec<&str> {
            ACCESS.process.iter().filter(|(_, r)| r.cri.contains(method)).map(|(n, _)| n.as_str()).collect()
        };
        for method in [
            "RunPodSandbox",
            "StopPodSandbox",
            "RemovePodSandbox",
            "CreateContainer",
            "StartContainer",
            "StopContainer",
            "RemoveContainer",
        ] {
            assert_eq!(owners(&format!("RuntimeService/{method}")), ["syncd"], "{method}");
        }
        assert_eq!(owners("RuntimeService/ExecSync"), ["prober"]);
        assert_eq!(owners("RuntimeService/Exec"), ["gateway"]);
        let with_capabilities: Vec<_> = ACCESS
            .process
            .iter()
            .filter(|(_, r)| !r.capabilities.is_empty())
            .map(|(n, _)| n.as_str())
            .collect();
        assert_eq!(with_capabilities, ["volumed"], "only volumed holds capabilities");
    }

    #[test]
    fn the_api_is_used_by_those_whose_work_it_is() {
        let may = |verb: Verb, target: &str| -> Vec<&str> {
            let rows = |row: &Process| row.api.clone();
            ACCESS
                .process
                .iter()
                .filter(|(_, p)| rows(p).iter().any(|r| r.target() == target && r.verbs().any(|v| v == verb)))
                .map(|(name, _)| name.as_str())
                .collect()
        };
        for verb in [Verb::Create, Verb::Update, Verb::Patch] {
            for target in [
                "core/nodes",
                "core/nodes/status",
                "core/pods",
                "core/pods/status",
                "coordination.k8s.io/leases",
            ] {
                assert!(may(verb, target).iter().all(|name| *name == "statusd"), "{verb} {target}");
            }
        }
        assert_eq!(may(Verb::Delete, "core/pods"), ["statusd"]);
        assert_eq!(may(Verb::Create, "authentication.k8s.io/tokenreviews"), ["gateway"]);
        assert_eq!(may(Verb::Create, "authorization.k8s.io/subjectaccessreviews"), ["gateway"]);
        assert_eq!(may(Verb::Create, "core/serviceaccounts/token"), ["imaged", "volumed"]);
        for (name, row) in &ACCESS.process {
            for rule in &row.api {
                let target = rule.target();
                assert!(!target.ends_with("/proxy"), "{name}: {target}");
                assert!(
                    !target.starts_with("certificates.k8s.io/certificatesigning"),
                    "apigate's own: {name}"
                );
                for verb in rule.verbs() {
                    assert_ne!(verb, Verb::DeleteCollection, "{name}");
                    let many = matches!(verb, Verb::List | Verb::Watch);
                    let whole = rule.conditions().is_empty();
                    let others = ["core/pods", "core/nodes", "core/secrets", "core/configmaps"];
                    assert!(!(many && whole && others.contains(&target.as_str())), "{name} {verb} {target}");
                }
            }
        }
        let row = &ACCESS.process["apigate"];
        assert!(row.api.is_empty(), "it needs no socket to itself");
    }

    #[test]
    fn callers_are_checked_by_service() {
        let a = &*ACCESS;
        assert!(a.may_call("pleg", "bulkhead.pleg.v1.Pleg", "syncd"));
        assert!(!a.may_call("pleg", "bulkhead.pleg.v1.Pleg", "volumed"));
        assert!(!a.may_call("pleg", "bulkhead.pleg.v1.Pleg", CLI), "root asks the gateway");
        assert!(!a.may_call("prober", "bulkhead.pleg.v1.Pleg", "syncd"), "another process' service");
        assert!(a.may_call("pleg", "bulkhead.process.v1.Process", CLI));
        assert!(!a.may_call("pleg", "bulkhead.process.v1.Process", "prober"));
        assert!(a.may_use_cri("pleg", "RuntimeService/ListContainers"));
        assert!(!a.may_use_cri("pleg", "RuntimeService/StopContainer"));
        assert!(!a.may_use_cri("nobody", "RuntimeService/Version"));
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(parse("[process.x]\nuser='x'\ncapabilites=[]\n").is_err());
        let error = parse("[process.x]\nuser='x'\napi=['get pods']\n").unwrap_err().to_string();
        assert!(error.contains("`get pods`"), "{error}");
    }
}
