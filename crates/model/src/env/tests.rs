use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, EnvFromSource, EnvVarSource, FileKeySelector, ObjectFieldSelector, PodSpec,
    ResourceFieldSelector, SecretKeySelector,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;

use super::*;
use crate::resources::tests::requirements;

fn var(name: &str, value: &str) -> ApiEnvVar {
    ApiEnvVar { name: name.into(), value: Some(value.into()), value_from: None }
}

fn from(name: &str, source: EnvVarSource) -> ApiEnvVar {
    ApiEnvVar { name: name.into(), value: None, value_from: Some(source) }
}

fn field(name: &str, path: &str) -> ApiEnvVar {
    let field_ref = Some(ObjectFieldSelector { api_version: None, field_path: path.into() });
    from(name, EnvVarSource { field_ref, ..Default::default() })
}

fn resource(name: &str, container: Option<&str>, resource: &str, divisor: Option<&str>) -> ApiEnvVar {
    let selector = ResourceFieldSelector {
        container_name: container.map(Into::into),
        resource: resource.into(),
        divisor: divisor.map(|d| ApiQuantity(d.into())),
    };
    from(name, EnvVarSource { resource_field_ref: Some(selector), ..Default::default() })
}

fn container(env: Vec<ApiEnvVar>) -> Container {
    Container {
        name: "c".into(),
        env: Some(env),
        resources: Some(requirements("cpu=250m", "memory=64Mi,ephemeral-storage=1Gi")),
        ..Default::default()
    }
}

fn made(env: Vec<ApiEnvVar>) -> Result<Vec<(String, String)>, EnvError> {
    let container = container(env);
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some("p".into()),
            namespace: Some("ns".into()),
            uid: Some("u-1".into()),
            labels: Some(BTreeMap::from([("app.kubernetes.io/name".into(), "web".into())])),
            annotations: Some(BTreeMap::from([("note".into(), "it's".into()), ("nul".into(), "a\0".into())])),
            ..Default::default()
        },
        spec: Some(PodSpec {
            service_account_name: Some("sa".into()),
            containers: vec![
                container.clone(),
                Container {
                    name: "other".into(),
                    resources: Some(requirements("", "cpu=2")),
                    ..Default::default()
                },
            ],
            ..Default::default()
        }),
        status: None,
    };
    let (pod_ips, host_ips) = (["10.0.0.1".to_owned(), "fd00::1".to_owned()], ["192.0.2.1".to_owned()]);
    let facts = PodFacts {
        pod: &pod,
        node_name: "node-a",
        pod_ips: &pod_ips,
        host_ips: &host_ips,
        allocatable_cpu: Quantity::from_milli(1900),
        allocatable_memory: Quantity::parse("7Gi").unwrap(),
    };
    Ok(container_env(&container, &facts)?.into_iter().map(|var| (var.name, var.value)).collect())
}

#[test]
fn references_see_what_was_made_before_them() {
    let env = vec![
        var("A", "1"),
        var("B", "$(A)-$(LATER)"),
        var("LATER", "x"),
        var("C", "$$(A)"),
        var("D", "$(A"),
        var("E", "$(NOPE)"),
        var("F", "$$$(A)"),
        var("A", "9"),
        var("G", "$(A)"),
        var("app.x", "2"),
        var("1bad name", "3"),
    ];
    let expected = [
        ("A", "9"),
        ("B", "1-$(LATER)"),
        ("LATER", "x"),
        ("C", "$(A)"),
        ("D", "$(A"),
        ("E", "$(NOPE)"),
        ("F", "$1"),
        ("G", "9"),
        ("app.x", "2"),
        ("1bad name", "3"),
    ];
    let seen = made(env).unwrap();
    assert_eq!(seen, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn expansion_table() {
    let lookup = |name: &str| match name {
        "A" => Some("1"),
        "REF" => Some("$(A)"),
        "" => Some("nameless"),
        "B(" => Some("odd"),
        _ => None,
    };
    for (text, expected) in [
        ("", ""),
        ("$", "$"),
        ("$$", "$"),
        ("$$$", "$$"),
        ("$$$$", "$$"),
        ("a$", "a$"),
        ("$A", "$A"),
        ("$(", "$("),
        ("$()", "nameless"),
        ("$(A)$(A)", "11"),
        ("$(REF)", "$(A)"),
        ("$((A))", "$((A))"),
        ("$(B()", "odd"),
        ("$($(A))", "$($(A))"),
        ("$$(A)$(A)", "$(A)1"),
        ("é$(A)é$é", "é1é$é"),
        ("$(A", "$(A"),
        ("$(X)$(A)", "$(X)1"),
    ] {
        assert_eq!(expand(text, &lookup).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn command_and_args_see_the_whole_environment() {
    let env =
        [("G", "9"), ("S", "a b")].map(|(name, value)| EnvVar { name: name.into(), value: value.into() });
    let mut c = container(vec![]);
    c.command = Some(vec!["echo".into(), "$(S)".into()]);
    c.args = Some(vec!["$(G)".into(), "$$(G)".into(), "$(NOPE)".into()]);
    let (command, args) = container_command(&c, &env).unwrap();
    assert_eq!(command, ["echo", "a b"]);
    assert_eq!(args, ["9", "$(G)", "$(NOPE)"]);
    let none = Container { name: "c".into(), ..Default::default() };
    assert_eq!(container_command(&none, &env), Ok((vec![], vec![])));
    c.args = Some(vec!["a\0b".into()]);
    assert_eq!(
        container_command(&c, &env),
        Err(EnvError::Nul { container: "c".into(), name: "args".into() })
    );
}

#[test]
fn fields_of_the_pod() {
    for (path, expected) in [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app.kubernetes.io/name']", "web"),
        ("metadata.labels['missing']", ""),
        ("metadata.annotations['note']", "it's"),
        ("spec.nodeName", "node-a"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1"),
        ("status.podIP", "10.0.0.1"),
        ("status.podIPs", "10.0.0.1,fd00::1"),
    ] {
        assert!(field_path_is_known(path), "{path}");
        assert_eq!(made(vec![field("X", path)]).unwrap(), [("X".to_owned(), expected.to_owned())], "{path}");
    }
    for path in [
        "",
        "metadata",
        "metadata.labels",
        "metadata.labels['']",
        "metadata.labels[x]",
        "spec.x",
        "spec['x']",
    ] {
        assert!(!field_path_is_known(path), "{path}");
        let Err(EnvError::Reference { name, problem, .. }) = made(vec![field("X", path)]) else {
            panic!("{path}")
        };
        assert!(name == "X" && problem.contains(path), "{problem}");
    }
    let odd = ObjectFieldSelector { api_version: Some("v2".into()), field_path: "metadata.name".into() };
    let source = EnvVarSource { field_ref: Some(odd), ..Default::default() };
    assert!(matches!(made(vec![from("X", source)]), Err(EnvError::Reference { .. })));
}

#[test]
fn resources_in_units_of_the_divisor_rounded_up() {
    for (container, name, divisor, expected) in [
        (None, "requests.cpu", None, "1"),
        (None, "requests.cpu", Some("1m"), "250"),
        (None, "requests.cpu", Some("0"), "1"),
        (None, "limits.cpu", Some("1m"), "1900"),
        (None, "limits.cpu", None, "2"),
        (None, "limits.memory", Some("1Mi"), "64"),
        (None, "requests.memory", None, "67108864"),
        (None, "limits.ephemeral-storage", Some("1Gi"), "1"),
        (None, "requests.hugepages-2Mi", None, "0"),
        (Some("other"), "limits.cpu", None, "2"),
        (Some("other"), "limits.memory", Some("1Gi"), "7"),
        (Some("c"), "requests.cpu", Some("1m"), "250"),
        (Some(""), "requests.cpu", Some("1m"), "250"),
    ] {
        let seen = made(vec![resource("X", container, name, divisor)]).unwrap();
        assert_eq!(seen, [("X".to_owned(), expected.to_owned())], "{name} by {divisor:?}");
    }
    for (container, name, divisor) in [
        (None, "cpu", None),
        (None, "limits.gpu", None),
        (Some("who"), "limits.cpu", None),
        (None, "limits.cpu", Some("x")),
    ] {
        let seen = made(vec![resource("X", container, name, divisor)]);
        assert!(matches!(seen, Err(EnvError::Reference { .. })), "{name} {seen:?}");
    }
}

#[test]
fn what_needs_the_api_or_cannot_be_is_named() {
    let sources = [
        (
            "configMapKeyRef",
            EnvVarSource { config_map_key_ref: Some(ConfigMapKeySelector::default()), ..Default::default() },
        ),
        (
            "secretKeyRef",
            EnvVarSource { secret_key_ref: Some(SecretKeySelector::default()), ..Default::default() },
        ),
        ("fileKeyRef", EnvVarSource { file_key_ref: Some(FileKeySelector::default()), ..Default::default() }),
    ];
    for (kind, source) in sources {
        let error = made(vec![from("KEY", source)]).unwrap_err().to_string();
        assert!(error.contains("KEY") && error.contains(kind), "{error}");
    }
    let mut c = container(vec![]);
    c.env_from = Some(vec![EnvFromSource::default()]);
    let pod = Pod::default();
    let facts = PodFacts {
        pod: &pod,
        node_name: "",
        pod_ips: &[],
        host_ips: &[],
        allocatable_cpu: Quantity::ZERO,
        allocatable_memory: Quantity::ZERO,
    };
    assert!(container_env(&c, &facts).unwrap_err().to_string().contains("envFrom"));

    let nul = EnvError::Nul { container: "c".into(), name: "Z".into() };
    assert_eq!(made(vec![var("Z", "a\0b")]), Err(nul.clone()));
    assert_eq!(made(vec![field("Z", "metadata.annotations['nul']")]), Err(nul));
    for name in ["", "a=b", "a\nb", "é", "a\0"] {
        assert!(matches!(made(vec![var(name, "v")]), Err(EnvError::Name { .. })), "{name:?}");
    }
    assert!(matches!(made(vec![from("X", EnvVarSource::default())]), Err(EnvError::Reference { .. })));
}

#[test]
fn doubling_references_end_in_an_error_and_not_in_memory() {
    let mut env = vec![var("V0", "0123456789")];
    for i in 1..60 {
        env.push(var(&format!("V{i}"), &format!("$(V{0})$(V{0})", i - 1)));
    }
    assert!(matches!(made(env), Err(EnvError::TooLong { .. })));
    let big = "x".repeat(100_000);
    let many = (0..40).map(|i| var(&format!("V{i}"), &big)).collect();
    assert!(matches!(made(many), Err(EnvError::TooLong { limit: MAX_TOTAL, .. })));
}

#[test]
fn debug_shows_no_value() {
    let var = EnvVar { name: "PASSWORD".into(), value: "hunter2".into() };
    assert_eq!(format!("{var:?}"), "PASSWORD=<7 bytes>");
}

proptest! {
    #[test]
    fn text_without_dollars_is_itself(text in "[^$]{0,50}") {
        prop_assert_eq!(expand(&text, &|_| None), Some(text));
    }

    #[test]
    fn escaped_text_comes_back(text in ".{0,50}") {
        prop_assert_eq!(expand(&text.replace('$', "$$"), &|_| Some("never")), Some(text));
    }

    #[test]
    fn unknown_names_change_nothing_but_escapes(text in "[a$()é]{0,40}") {
        let out = expand(&text, &|_| None).unwrap();
        prop_assert_eq!(out.replace('$', ""), text.replace('$', ""));
    }
}
