//! Volumes of objects of the API, as volumed is asked for them: by name, never with what is in them. Pure.

use bulkhead_api::volumed::v1 as wire;
use bulkhead_model::env::{DEFAULT_MODE, FileError, PodFacts, downward_files};
use bulkhead_model::spec;
use k8s_openapi::api::core::v1::{
    ClusterTrustBundleProjection, ConfigMapVolumeSource, DownwardAPIVolumeSource, KeyToPath, Pod,
    ProjectedVolumeSource, SecretVolumeSource, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Life of a token when nothing is said (API).
const TOKEN_SECONDS: u64 = 3600;

/// A `configMap` volume.
pub fn config_map(source: &ConfigMapVolumeSource) -> wire::ObjectFiles {
    files(&Named {
        name: Some(&source.name),
        optional: source.optional,
        items: source.items.as_deref(),
        default_mode: source.default_mode,
    })
}

/// A `secret` volume.
pub fn secret(source: &SecretVolumeSource) -> wire::ObjectFiles {
    files(&Named {
        name: source.secret_name.as_ref(),
        optional: source.optional,
        items: source.items.as_deref(),
        default_mode: source.default_mode,
    })
}

/// A `projected` volume.
///
/// # Errors
/// A file that cannot be made from the pod.
pub fn projected(source: &ProjectedVolumeSource, facts: &PodFacts<'_>) -> Result<wire::Projected, FileError> {
    let default_mode = source.default_mode;
    let sources = source.sources.iter().flatten().map(|source| {
        let source = part(source, default_mode, facts)?;
        Ok(wire::ProjectedSource { source })
    });
    Ok(wire::Projected { sources: sources.collect::<Result<_, _>>()? })
}

/// The pod's service account.
pub fn service_account(pod: &Pod) -> String {
    let name = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    name.unwrap_or_default()
}

/// The user that every container of the pod is said to run as; `None` when they are not all one (KEP-1205).
pub fn one_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec.as_ref()?.security_context.as_ref().and_then(|security| security.run_as_user);
    let mut users = spec::containers(pod).into_iter().map(|found| {
        let own = found.container.security_context.as_ref().and_then(|security| security.run_as_user);
        own.or(of_pod)
    });
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok())?
}

/// What the sources of the API that name an object have in common.
struct Named<'a> {
    name: Option<&'a String>,
    optional: Option<bool>,
    items: Option<&'a [KeyToPath]>,
    default_mode: Option<i32>,
}

fn files(source: &Named<'_>) -> wire::ObjectFiles {
    let item = |item: &KeyToPath| wire::KeyFile {
        key: item.key.clone(),
        path: item.path.clone(),
        mode: item.mode.map(bits),
    };
    wire::ObjectFiles {
        name: source.name.cloned().unwrap_or_default(),
        optional: source.optional == Some(true),
        items: source.items.into_iter().flatten().map(item).collect(),
        default_mode: source.default_mode.map_or(DEFAULT_MODE, bits),
    }
}

fn part(
    source: &VolumeProjection,
    default_mode: Option<i32>,
    facts: &PodFacts<'_>,
) -> Result<Option<wire::projected_source::Source>, FileError> {
    use wire::projected_source::Source;
    let mode = default_mode.map_or(DEFAULT_MODE, bits);
    if let Some(named) = &source.config_map {
        let (name, optional, items) = (Some(&named.name), named.optional, named.items.as_deref());
        return Ok(Some(Source::ConfigMap(files(&Named { name, optional, items, default_mode }))));
    }
    if let Some(named) = &source.secret {
        let (name, optional, items) = (Some(&named.name), named.optional, named.items.as_deref());
        return Ok(Some(Source::Secret(files(&Named { name, optional, items, default_mode }))));
    }
    if let Some(downward) = &source.downward_api {
        let volume =
            DownwardAPIVolumeSource { default_mode, items: downward.items.clone(), ..Default::default() };
        let file = |file: bulkhead_model::env::VolumeFile| wire::VolumeFile {
            path: file.path,
            content: file.content.into(),
            mode: file.mode,
        };
        let files = downward_files(&volume, facts)?.into_iter().map(file).collect();
        return Ok(Some(Source::DownwardApi(wire::DownwardApi { files })));
    }
    if let Some(token) = &source.service_account_token {
        let seconds = token.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        return Ok(Some(Source::Token(wire::ServiceAccountToken {
            path: token.path.clone(),
            audience: token.audience.clone().unwrap_or_default(),
            expiration_seconds: seconds.unwrap_or(TOKEN_SECONDS),
            mode,
        })));
    }
    let Some(bundle) = &source.cluster_trust_bundle else { return Ok(None) };
    Ok(Some(Source::TrustBundle(trust(bundle, mode))))
}

fn trust(source: &ClusterTrustBundleProjection, mode: u32) -> wire::TrustBundle {
    wire::TrustBundle {
        name: source.name.clone().unwrap_or_default(),
        signer_name: source.signer_name.clone().unwrap_or_default(),
        // No selector selects nothing, and an empty one everything (API).
        label_selector: source.label_selector.as_ref().map_or_else(nothing, selector),
        path: source.path.clone(),
        optional: source.optional == Some(true),
        mode,
    }
}

/// A selector that no object meets.
fn nothing() -> String {
    "a,!a".to_owned()
}

/// As a list request takes it.
fn selector(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let others = selector.match_expressions.iter().flatten().map(|wanted| {
        let (key, values) = (&wanted.key, wanted.values.clone().unwrap_or_default().join(","));
        match wanted.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            "DoesNotExist" => format!("!{key}"),
            // Of a later API: what is not understood must not select too much.
            _ => nothing(),
        }
    });
    equal.chain(others).collect::<Vec<_>>().join(",")
}

/// Permission bits; the API lets none but these through.
fn bits(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(DEFAULT_MODE) & 0o777
}

#[cfg(test)]
mod tests {
    use bulkhead_model::quantity::Quantity;
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn of(source: Value) -> wire::projected_source::Source {
        let pod = pod(json!({"containers": [{"name": "c"}]}));
        let facts = PodFacts {
            pod: &pod,
            node_name: "n",
            pod_ips: &[],
            host_ips: &[],
            allocatable_cpu: Quantity::ZERO,
            allocatable_memory: Quantity::ZERO,
        };
        let source = serde_json::from_value(json!({"defaultMode": 0o440, "sources": [source]})).unwrap();
        projected(&source, &facts).unwrap().sources.into_iter().next().unwrap().source.unwrap()
    }

    #[test]
    fn every_source_goes_by_name() {
        use wire::projected_source::Source;
        let items = json!([{"key": "k", "path": "p/q", "mode": 0o400}]);
        let Source::Secret(secret) = of(json!({"secret": {"name": "s", "optional": true, "items": items}}))
        else {
            panic!()
        };
        assert!(secret.optional && secret.name == "s" && secret.default_mode == 0o440);
        assert_eq!(secret.items, [wire::KeyFile { key: "k".into(), path: "p/q".into(), mode: Some(0o400) }]);
        let Source::Token(token) = of(json!({"serviceAccountToken": {"path": "token"}})) else { panic!() };
        assert_eq!((token.expiration_seconds, token.audience.as_str(), token.mode), (3600, "", 0o440));
        let item = json!([{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]);
        let Source::DownwardApi(files) = of(json!({"downwardAPI": {"items": item}})) else { panic!() };
        assert_eq!((files.files[0].content.as_slice(), files.files[0].mode), (&b"p"[..], 0o440));
        assert!(matches!(of(json!({"configMap": {"name": "c"}})), Source::ConfigMap(_)));
    }

    #[test]
    fn bundles_are_selected_as_the_api_says() {
        use wire::projected_source::Source;
        let labels = |selector: Value| {
            let bundle = json!({"signerName": "a/b", "path": "ca", "labelSelector": selector});
            let Source::TrustBundle(bundle) = of(json!({"clusterTrustBundle": bundle})) else { panic!() };
            bundle.label_selector
        };
        assert_eq!(labels(Value::Null), "a,!a", "no selector: nothing");
        assert_eq!(labels(json!({})), "", "an empty one: everything");
        let expressions = json!([
            {"key": "x", "operator": "In", "values": ["1", "2"]}, {"key": "y", "operator": "NotIn", "values": ["3"]},
            {"key": "z", "operator": "Exists"}, {"key": "w", "operator": "DoesNotExist"}
        ]);
        let all = json!({"matchLabels": {"a": "b"}, "matchExpressions": expressions});
        assert_eq!(labels(all), "a=b,x in (1,2),y notin (3),z,!w");
    }

    #[test]
    fn one_user_only_if_all_containers_have_it() {
        let user = |user: Value| json!({"runAsUser": user});
        for (pod_user, containers, expected) in [
            (Value::Null, vec![Value::Null], None),
            (json!(7), vec![Value::Null], Some(7)),
            (json!(7), vec![Value::Null, json!(8)], None),
            (json!(7), vec![json!(8), json!(8)], Some(8)),
            (Value::Null, vec![json!(8), Value::Null], None),
            (Value::Null, vec![json!(0)], Some(0)),
        ] {
            let containers: Vec<_> = containers
                .into_iter()
                .enumerate()
                .map(|(at, of)| json!({"name": format!("c{at}"), "securityContext": user(of)}))
                .collect();
            let spec = json!({"securityContext": user(pod_user), "containers": containers});
            assert_eq!(one_user(&pod(spec.clone())), expected, "{spec}");
        }
    }
}
