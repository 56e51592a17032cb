//! The direction of dependencies (ARCHITECTURE.md, "Layers"), held against the manifests.
#![cfg(test)]

use std::collections::BTreeMap;

use bulkhead_tidy::{dependencies, members};

/// Which crates of ours each crate may depend on. A crate that is missing here fails the test: put it where it belongs.
fn allowed() -> BTreeMap<&'static str, Vec<&'static str>> {
    let shell = vec![
        "bulkhead-base",
        "bulkhead-model",
        "bulkhead-api",
        "bulkhead-ipc",
        "bulkhead-cri",
        "bulkhead-config",
    ];
    let mut service = shell.clone();
    service.extend(["bulkhead-reconcile", "bulkhead-service"]);
    let with_cgroup = [service.clone(), vec!["bulkhead-cgroup"]].concat();
    let mut table = BTreeMap::from([
        ("bulkhead-base", vec![]),
        ("bulkhead-model", vec!["bulkhead-base"]),
        ("bulkhead-imagetar", vec![]),
        ("bulkhead-policy", vec![]),
        ("bulkhead-kubeapi", vec!["bulkhead-base"]),
        ("bulkhead-config", vec!["bulkhead-base", "bulkhead-model"]),
        ("bulkhead-cgroup", vec!["bulkhead-base"]),
        ("bulkhead-disk", vec![]),
        ("bulkhead-reconcile", vec!["bulkhead-base"]),
        ("bulkhead-api", vec!["bulkhead-base", "bulkhead-model"]),
        ("bulkhead-ipc", vec!["bulkhead-base", "bulkhead-model", "bulkhead-api"]),
        ("bulkhead-cri", vec!["bulkhead-base", "bulkhead-model", "bulkhead-api", "bulkhead-ipc"]),
        ("bulkhead-service", shell),
        ("syncd", with_cgroup.clone()),
        ("evictd", with_cgroup),
        ("bulkhead-tidy", vec![]),
    ]);
    for name in ["crigate", "pleg", "prober", "statusd", "volumed", "imaged", "gateway", "apigate"] {
        table.insert(name, service.clone());
    }
    // The others come to speak to the API server step by step.
    for name in ["apigate", "statusd", "syncd", "gateway", "volumed", "imaged"] {
        if let Some(service) = table.get_mut(name) {
            service.push("bulkhead-kubeapi");
        }
    }
    for name in ["evictd", "imaged"] {
        if let Some(service) = table.get_mut(name) {
            service.push("bulkhead-disk");
        }
    }
    if let Some(crigate) = table.get_mut("crigate") {
        crigate.push("bulkhead-policy");
    }
    table
}

/// Crates that may depend on anything: the one program that holds all processes, and test code.
const EVERYTHING: [&str; 5] =
    ["bulkhead", "bulkhead-testkit", "bulkhead-e2e", "bulkhead-bench", "bulkhead-bench-gate"];
const SERVICES: [&str; 10] =
    ["crigate", "apigate", "pleg", "syncd", "prober", "statusd", "evictd", "volumed", "imaged", "gateway"];

#[test]
fn dependencies_point_one_way() {
    let allowed = allowed();
    for (folder, manifest) in members() {
        let name = manifest["package"]["name"].as_str().unwrap().to_owned();
        if EVERYTHING.contains(&name.as_str()) {
            continue;
        }
        let Some(allowed) = allowed.get(name.as_str()) else {
            panic!("{folder}: give {name} its place in this table")
        };
        let ours = |d: &String| d.starts_with("bulkhead") || SERVICES.contains(&d.as_str());
        for dependency in dependencies(&manifest, "dependencies").into_iter().filter(ours) {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
        }
        for dependency in dependencies(&manifest, "dev-dependencies").into_iter().filter(ours) {
            let test_code = dependency == "bulkhead-testkit" || allowed.contains(&dependency.as_str());
            assert!(test_code, "not even {name}'s tests may depend on {dependency}");
        }
    }
}

#[test]
fn a_crate_that_is_risky_has_one_user() {
    let users = |wanted: &str| -> Vec<String> {
        let uses = |m: &toml::Table| dependencies(m, "dependencies").iter().any(|d| d == wanted);
        members().into_iter().filter(|(_, manifest)| uses(manifest)).map(|(folder, _)| folder).collect()
    };
    assert_eq!(users("cgroups-rs"), ["crates/cgroup"]);
    assert_eq!(users("caps"), ["cli"], "only the launcher sets capabilities");
    assert_eq!(users("sd-notify"), ["crates/service"]);
    assert!(
        !users("kube").contains(&"services/apigate".to_owned()),
        "apigate passes messages and knows none"
    );
    assert!(!users("k8s-openapi").contains(&"services/pleg".to_owned()), "pleg knows no pods of the API");
    assert!(
        !users("k8s-openapi").contains(&"services/crigate".to_owned()),
        "crigate knows no pods of the API"
    );
}

#[test]
fn every_crate_takes_lints_and_versions_from_the_workspace() {
    for (folder, manifest) in members() {
        let lints = manifest.get("lints").and_then(|l| l.get("workspace")).and_then(toml::Value::as_bool);
        assert_eq!(lints, Some(true), "{folder}: [lints] workspace = true");
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for name in dependencies(&manifest, table) {
                let inherited = manifest[table][&name].get("workspace").and_then(toml::Value::as_bool);
                assert_eq!(inherited, Some(true), "{folder}: {name} must come from [workspace.dependencies]");
            }
        }
    }
}
