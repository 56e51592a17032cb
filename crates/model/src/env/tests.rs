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
    made_with(&container(env), &EnvObjects::default())
}

fn made_with(container: &Container, objects: &EnvObjects) -> Result<Vec<(String, String)>, EnvError> {
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
    let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
    Ok(container_env(container, &facts, objects)?.into_iter().map(|v| (v.name, text(v.value))).collect())
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

fn values(list: &[(&str, &[u8])]) -> Option<Values> {
    Some(Values(list.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect()))
}

fn objects() -> EnvObjects {
    EnvObjects {
        config_maps: BTreeMap::from([
            ("cm".to_owned(), values(&[("A", b"1"), ("app.x", b"2"), ("1bad", b"3"), ("X", b"cm")])),
            ("none".to_owned(), None),
        ]),
        secrets: BTreeMap::from([(
            "s".to_owned(),
            values(&[("k", b"hunter2"), ("nul", b"a\0"), ("X", b"s")]),
        )]),
        services: BTreeMap::from([
            ("X".to_owned(), "svc".to_owned()),
            ("SVC_PORT".to_owned(), "80".to_owned()),
        ]),
    }
}

fn env_from(container: &mut Container, config_map: &str, secret: &str, prefix: &str, optional: bool) {
    use k8s_openapi::api::core::v1::{ConfigMapEnvSource, SecretEnvSource};
    let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    let source = EnvFromSource {
        config_map_ref: named(config_map).map(|name| ConfigMapEnvSource { name, optional: Some(optional) }),
        secret_ref: named(secret).map(|name| SecretEnvSource { name, optional: Some(optional) }),
        prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
    };
    container.env_from.get_or_insert_default().push(source);
}

fn key(name: &str, kind: &str, object: &str, key: &str, optional: bool) -> ApiEnvVar {
    let (object, key, optional) = (object.to_owned(), key.to_owned(), Some(optional));
    let source = match kind {
        "configmap" => EnvVarSource {
            config_map_key_ref: Some(ConfigMapKeySelector { name: object, key, optional }),
            ..Default::default()
        },
        _ => EnvVarSource {
            secret_key_ref: Some(SecretKeySelector { name: object, key, optional }),
            ..Default::default()
        },
    };
    from(name, source)
}

#[test]
fn services_then_env_from_in_order_then_env_and_the_last_one_wins() {
    // Known fault M1.
    let mut c = container(vec![var("B", "$(A)-$(app.x)-$(SVC_PORT)"), key("PW", "secret", "s", "k", false)]);
    env_from(&mut c, "cm", "", "", false);
    env_from(&mut c, "cm", "", "P_", false);
    let seen: BTreeMap<_, _> = made_with(&c, &objects()).unwrap().into_iter().collect();
    for (name, value) in [
        ("A", "1"),
        ("app.x", "2"),
        ("1bad", "3"),
        ("P_A", "1"),
        ("X", "cm"),
        ("B", "1-2-80"),
        ("PW", "hunter2"),
        ("SVC_PORT", "80"),
    ] {
        assert_eq!(seen.get(name).map(String::as_str), Some(value), "{name}");
    }
    c.env.get_or_insert_default().push(var("X", "env"));
    let seen: BTreeMap<_, _> = made_with(&c, &objects()).unwrap().into_iter().collect();
    assert_eq!(seen["X"], "env");
    // A value of an object is what it is.
    let mut odd = objects();
    odd.config_maps.insert("cm".to_owned(), values(&[("A", b"$(X)")]));
    let seen: BTreeMap<_, _> = made_with(&c, &odd).unwrap().into_iter().collect();
    assert_eq!(seen["A"], "$(X)");
}

#[test]
fn what_an_object_has_not_is_named_as_the_kubelet_does() {
    for (variable, expected) in [
        (key("V", "configmap", "none", "k", false), "configmap \"none\" not found"),
        (key("V", "secret", "other", "k", false), "secret \"other\" not found"),
        (key("V", "configmap", "cm", "k", false), "couldn't find key k in ConfigMap ns/cm"),
        (key("V", "secret", "s", "z", false), "couldn't find key z in Secret ns/s"),
        (key("V", "secret", "s", "nul", false), "container `c`: the value of variable `V` holds a NUL byte"),
    ] {
        assert_eq!(made_with(&container(vec![variable]), &objects()).unwrap_err().to_string(), expected);
    }
    for variable in [key("V", "configmap", "none", "k", true), key("V", "secret", "s", "z", true)] {
        let c = container(vec![variable]);
        assert_eq!(env_needs(&c).config_maps.len() + env_needs(&c).secrets.len(), 1);
        assert_eq!(made_with(&c, &EnvObjects::default()).unwrap(), [], "no variable at all");
    }
    for (config_map, secret) in [("none", ""), ("", "none")] {
        let mut c = container(vec![]);
        env_from(&mut c, config_map, secret, "", true);
        assert_eq!(made_with(&c, &EnvObjects::default()).unwrap(), []);
        env_from(&mut c, config_map, secret, "", false);
        assert!(matches!(made_with(&c, &EnvObjects::default()), Err(EnvError::NoObject { .. })));
    }
    // A NUL in a whole object names its key.
    let mut c = container(vec![]);
    env_from(&mut c, "", "s", "", false);
    assert!(matches!(made_with(&c, &objects()), Err(EnvError::Nul { name, .. }) if name == "nul"));
}

#[test]
fn bytes_that_are_no_text_reach_the_process_and_no_argument() {
    let mut raw = objects();
    raw.secrets.insert("s".to_owned(), values(&[("k", &[0xff, b'x'])]));
    let c = container(vec![key("RAW", "secret", "s", "k", false), var("B", "<$(RAW)>")]);
    let pod = Pod::default();
    let facts = PodFacts {
        pod: &pod,
        node_name: "",
        pod_ips: &[],
        host_ips: &[],
        allocatable_cpu: Quantity::ZERO,
        allocatable_memory: Quantity::ZERO,
    };
    let env = container_env(&c, &facts, &raw).unwrap();
    assert_eq!(env.iter().find(|var| var.name == "B").unwrap().value, [b'<', 0xff, b'x', b'>']);
    let args = Container { args: Some(vec!["$(RAW)".into()]), ..c };
    assert!(matches!(container_command(&args, &env), Err(EnvError::NotText { .. })));
}

#[test]
fn what_cannot_be_is_named() {
    let source = EnvVarSource { file_key_ref: Some(FileKeySelector::default()), ..Default::default() };
    let error = made(vec![from("KEY", source)]).unwrap_err().to_string();
    assert!(error.contains("KEY") && error.contains("fileKeyRef"), "{error}");

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
