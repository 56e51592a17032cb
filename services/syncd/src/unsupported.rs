//! What a pod may ask for and this release does not do. Refusing it by name beats doing half of it silently; each later
//! step takes lines out of here.

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

/// Who asks for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The node itself: such a pod runs without the API server, so it may name none of its objects.
    Static,
    /// The API server.
    Api,
}

/// Names of the fields that this release cannot do for such a pod; empty for a pod that it can run as asked.
pub fn unsupported(pod: &Pod, origin: Origin) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mut found = Vec::new();
    let mut note = |present: bool, name: &str| {
        if present {
            found.push(name.to_owned());
        }
    };
    let of_node = origin == Origin::Static;
    let ephemeral = spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty());
    note(of_node && ephemeral, "ephemeralContainers");
    note(of_node && spec.runtime_class_name.is_some(), "runtimeClassName");
    note(spec.host_users == Some(false), "hostUsers false");
    note(spec.resource_claims.as_ref().is_some_and(|list| !list.is_empty()), "resourceClaims");
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        found.extend(
            of_container(container).into_iter().map(|field| format!("{field} of {}", container.name)),
        );
    }
    for volume in spec.volumes.iter().flatten() {
        if let Some(what) = of_volume(volume, origin) {
            found.push(format!("{what} of volume {}", volume.name));
        }
    }
    found
}

fn of_container(container: &Container) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut note = |present: bool, name| {
        if present {
            found.push(name);
        }
    };
    note(container.volume_devices.as_ref().is_some_and(|list| !list.is_empty()), "volumeDevices");
    note(container.restart_policy_rules.as_ref().is_some_and(|list| !list.is_empty()), "restartPolicyRules");
    found
}

/// What of a volume is not done.
fn of_volume(volume: &Volume, origin: Origin) -> Option<&'static str> {
    if volume.host_path.is_some() || volume.empty_dir.is_some() || volume.downward_api.is_some() {
        return None;
    }
    let needs_api = |name| (origin == Origin::Static).then_some(name);
    if volume.config_map.is_some() || volume.secret.is_some() {
        return needs_api("the kind");
    }
    let Some(projected) = &volume.projected else { return Some("the kind") };
    projected.sources.iter().flatten().find_map(|source| {
        if source.pod_certificate.is_some() {
            return Some("projected.sources.podCertificate");
        }
        let known = [
            (source.config_map.is_some(), "projected.sources.configMap"),
            (source.secret.is_some(), "projected.sources.secret"),
            (source.service_account_token.is_some(), "projected.sources.serviceAccountToken"),
            (source.cluster_trust_bundle.is_some(), "projected.sources.clusterTrustBundle"),
        ];
        match known.iter().find(|(is, _)| *is) {
            Some((_, name)) => needs_api(name),
            None => source.downward_api.is_none().then_some("an unknown part"),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(volume: Value, origin: Origin) -> Vec<String> {
        let pod = json!({"spec": {"containers": [{"name": "c"}], "volumes": [volume]}});
        unsupported(&serde_json::from_value(pod).unwrap(), origin)
    }

    #[test]
    fn objects_of_the_api_are_for_its_own_pods() {
        let projected = |source: Value| json!({"name": "v", "projected": {"sources": [source]}});
        for volume in [
            json!({"name": "v", "configMap": {"name": "c"}}),
            json!({"name": "v", "secret": {"secretName": "s"}}),
            projected(json!({"configMap": {"name": "c"}})),
            projected(json!({"secret": {"name": "s"}})),
            projected(json!({"serviceAccountToken": {"path": "t"}})),
            projected(json!({"clusterTrustBundle": {"name": "b", "path": "t"}})),
        ] {
            assert_eq!(of(volume.clone(), Origin::Api), [""; 0], "{volume}");
            assert_eq!(of(volume.clone(), Origin::Static).len(), 1, "{volume}");
        }
        for origin in [Origin::Static, Origin::Api] {
            assert!(of(projected(json!({"downwardAPI": {"items": []}})), origin).is_empty());
            let certificate =
                projected(json!({"podCertificate": {"keyType": "ED25519", "signerName": "a/b"}}));
            assert!(of(certificate, origin).first().is_some_and(|name| name.contains("podCertificate")));
            assert!(!of(json!({"name": "v", "nfs": {"server": "s", "path": "/"}}), origin).is_empty());
        }
    }
}
