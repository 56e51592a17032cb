use proptest::prelude::*;

use super::*;

fn refused(text: &str) -> String {
    match parse(text.as_bytes()) {
        Ok(_) => panic!("taken:\n{text}"),
        Err(refusal) => refusal.to_string(),
    }
}

fn taken(text: &str) -> Pod {
    let manifest = parse(text.as_bytes()).unwrap_or_else(|refusal| panic!("{refusal}\n{text}"));
    assert_eq!(manifest.warnings, [], "{text}");
    manifest.pod
}

/// A pod whose only container and whose spec have these further fields.
fn with(container: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n  - {{name: c, image: bb{container}}}\n{spec}"
    )
}

const FULL: &str = r#"
# every kind of field that a node agent looks at
apiVersion: v1
kind: Pod
metadata:
  name: web.example
  namespace: kube-system
  uid: 0a1b-2c
  labels: {app: web, example.com/tier: "", 1: "1"}
  annotations: {note: "a: b", empty: }
spec:
  restartPolicy: OnFailure
  hostNetwork: yes
  terminationGracePeriodSeconds: 5
  initContainers:
  - name: side
    image: local/bb:1
    restartPolicy: Always
    startupProbe: &probe
      httpGet: {port: http, path: /ok, httpHeaders: [{name: X-A, value: b}]}
      failureThreshold: 2
  containers:
  - name: c
    image: registry.k8s.io/a@sha256:4d00640e5d1086fc53a7a6b0fad255f8b71b68bfc2098a59eb9b2e53973ddf7d
    command: [sh, -c, "echo $(A)"]
    env:
    - {name: A, value: "1"}
    - {name: B, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    ports: [{name: http, containerPort: 0120, hostPort: 80}]
    resources: {requests: {cpu: 0.5, memory: 64Mi}, limits: {cpu: 1, example.com/gpu: 2}}
    livenessProbe: *probe
    readinessProbe: {exec: {command: [test, -e, /ok]}, successThreshold: 2}
    lifecycle: {preStop: {sleep: {seconds: 3}}}
    volumeMounts:
    - {name: e, mountPath: /e, subPath: a/b}
    - {name: h, mountPath: /h, readOnly: true}
  volumes:
  - {name: e, emptyDir: {medium: Memory, sizeLimit: 8Mi}}
  - {name: h, hostPath: {path: /var/log, type: Directory}}
  - {name: d, downwardAPI: {defaultMode: 0644, items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
status: {phase: Running}
"#;

#[test]
fn a_full_pod_is_read_as_go_reads_it() {
    let pod = taken(FULL);
    let value = serde_json::to_value(&pod).unwrap();
    let expected = [
        ("/metadata/labels/1", serde_json::json!("1")),
        ("/metadata/annotations/empty", serde_json::json!("")),
        ("/spec/hostNetwork", serde_json::json!(true)),
        ("/spec/containers/0/ports/0/containerPort", serde_json::json!(80)),
        ("/spec/containers/0/resources/requests/cpu", serde_json::json!("0.5")),
        ("/spec/containers/0/resources/limits/cpu", serde_json::json!("1")),
        ("/spec/containers/0/livenessProbe/httpGet/port", serde_json::json!("http")),
        ("/spec/volumes/2/downwardAPI/defaultMode", serde_json::json!(420)),
    ];
    for (pointer, value_there) in expected {
        assert_eq!(value.pointer(pointer), Some(&value_there), "{pointer}");
    }
}

#[test]
fn json_is_the_same_pod() {
    let pod = taken(FULL);
    for json in [serde_json::to_string(&pod).unwrap(), serde_json::to_string_pretty(&pod).unwrap()] {
        assert_eq!(taken(&json), pod);
        assert_eq!(taken(&json.replace("  ", "\t")), pod, "tabs");
    }
    assert_eq!(taken(&format!("\u{feff}---\n{FULL}\n---\n# nothing\n")), pod, "marks around it");
}

#[test]
fn what_is_no_pod_is_named() {
    let pod = with("", "");
    for (text, expected) in [
        (String::new(), "the manifest is empty: it must hold one v1 Pod"),
        ("# only\n---\n---\n".into(), "the manifest is empty: it must hold one v1 Pod"),
        ("hello".into(), "line 1, column 1: the manifest is a text: it must be a v1 Pod"),
        ("- a".into(), "line 1, column 1: the manifest is a list: it must be a v1 Pod"),
        ("a: b".into(), "line 1, column 1: the manifest has no kind: it must be a v1 Pod"),
        ("apiVersion: v1\n".into(), "line 1, column 1: the manifest has no kind: it must be a v1 Pod"),
        ("kind: Pod".into(), "line 1, column 1: kind Pod has no apiVersion: it must be v1"),
        ("kind: Pod\napiVersion: v2".into(), "line 2, column 13: the apiVersion of a Pod must be v1"),
        (
            "apiVersion: apps/v1\nkind: DaemonSet\n".into(),
            "line 2, column 7: kind DaemonSet: only v1 Pods can be run from a manifest",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: []\n".into(),
            "line 2, column 7: kind List: put each Pod into a file of its own",
        ),
        (
            "apiVersion: v1\nkind: PodList\n".into(),
            "line 2, column 7: kind PodList: put each Pod into a file of its own",
        ),
        (
            format!("{pod}---\nkind: Service\n---\n{pod}---\n1\n"),
            "line 8, column 1: the file holds 4 documents (Pod, Service, Pod, unknown): put each Pod into a file of its own",
        ),
        ("kind: 5".into(), "line 1, column 7: kind unknown has no apiVersion: it must be v1"),
    ] {
        assert_eq!(refused(&text), expected, "{text}");
    }
}

#[test]
fn broken_text_is_refused_with_its_line() {
    for (text, line) in [
        (with("", "").replace("name: a}", "name: a"), 4),
        (format!("{}  dnsPolicy: Default\n  dnsPolicy: Default\n", with("", "")), 8),
        (with("", "  hostname: *nowhere\n"), 7),
        (with("", "  hostname: a\n \tb: c\n"), 7),
        (r#"{"apiVersion": "v1", "kind": "Pod", "kind": "Pod"}"#.into(), 1),
        ("apiVersion".into(), 1),
        ("a: &a [*a]\n".into(), 1),
    ] {
        let refusal = parse(text.as_bytes()).unwrap_err();
        assert_eq!(refusal.line, Some(line), "{refusal}\n{text}");
        assert!(!refusal.reason.contains('\n'), "{refusal}");
    }
    let refusal = parse(b"a: b\nc: \xff\n").unwrap_err();
    assert_eq!(refusal.to_string(), "line 2: the manifest is not UTF-8 text");
    assert_eq!(refused("a: 1\na: 2\n"), "line 2, column 1: the key `a` comes twice");
}

#[test]
fn wrong_types_are_refused_with_their_place_and_without_their_value() {
    for (text, expected) in [
        (
            with("", "").replace("bb", "5"),
            "line 6, column 22: spec.containers[0].image: expected a text, found a number: put it into quotes",
        ),
        (
            with(", command: sleep", ""),
            "line 6, column 35: spec.containers[0].command: expected a list, found a text",
        ),
        (
            with(", tty: 'true'", ""),
            "line 6, column 31: spec.containers[0].tty: expected a boolean, found a text",
        ),
        (
            with(", env: [{name: A, value: 918273}]", ""),
            "line 6, column 49: spec.containers[0].env[0].value: expected a text, found a number: put it into quotes",
        ),
        (
            with(", ports: [{containerPort: '80'}]", ""),
            "line 6, column 50: spec.containers[0].ports[0].containerPort: expected a whole number, found a text",
        ),
        (
            with(", ports: [{containerPort: 99999999999}]", ""),
            "line 6, column 50: spec.containers[0].ports[0].containerPort: expected a whole number, found another value",
        ),
        (
            with(", resources: {limits: {cpu: true}}", ""),
            "line 6, column 52: spec.containers[0].resources.limits.cpu: expected a quantity such as 100m or 64Mi, found a boolean",
        ),
        (
            with("", "  hostname: no\n"),
            "line 7, column 13: spec.hostname: expected a text, found a boolean: put it into quotes",
        ),
        (
            with("", "  hostNetwork: 1\n"),
            "line 7, column 16: spec.hostNetwork: expected a boolean, found a number",
        ),
        (with("", "  volumes: {}\n"), "line 7, column 12: spec.volumes: expected a list, found an object"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: []\n".into(),
            "line 3, column 11: metadata: expected an object (ObjectMeta), found a list",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [null]}\n".into(),
            "line 4, column 21: spec.containers[0]: expected an object (Container), found null",
        ),
    ] {
        let refusal = refused(&text);
        assert_eq!(refusal, expected, "{text}");
        assert!(!refusal.contains("918273"));
    }
}

#[test]
fn unknown_fields_are_warnings() {
    let text = with(", imag: x, livenessProbe: {exec: {command: [a], cmd: {}}}", "  hostnam: x\n");
    let manifest = parse(text.as_bytes()).unwrap();
    let warnings: Vec<_> = manifest.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "line 6, column 32: spec.containers[0].imag: this field is unknown and ignored",
            "line 6, column 77: spec.containers[0].livenessProbe.exec.cmd: this field is unknown and ignored",
            "line 7, column 12: spec.hostnam: this field is unknown and ignored",
        ]
    );
    let many: String = (0..100).map(|i| format!("  x{i}: 1\n")).collect();
    assert_eq!(parse(with("", &many).as_bytes()).unwrap().warnings.len(), MAX_WARNINGS);
}

#[test]
fn references_to_api_objects_are_refused_by_field() {
    let volume = |source: &str| with("", &format!("  volumes: [{{name: v, {source}}}]\n"));
    for (text, field) in [
        (with("", "  serviceAccountName: default\n"), "spec.serviceAccountName"),
        (with("", "  serviceAccount: default\n"), "spec.serviceAccount"),
        (with("", "  imagePullSecrets: [{name: a}]\n"), "spec.imagePullSecrets"),
        (with("", "  resourceClaims: [{name: a}]\n"), "spec.resourceClaims"),
        (with(", envFrom: [{configMapRef: {name: a}}]", ""), "spec.containers[0].envFrom[0].configMapRef"),
        (
            with(", envFrom: [{prefix: a}, {secretRef: {name: a}}]", ""),
            "spec.containers[0].envFrom[1].secretRef",
        ),
        (
            with(", env: [{name: A, valueFrom: {configMapKeyRef: {name: a, key: b}}}]", ""),
            "spec.containers[0].env[0].valueFrom.configMapKeyRef",
        ),
        (
            with(", env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: b, optional: true}}}]", ""),
            "spec.containers[0].env[0].valueFrom.secretKeyRef",
        ),
        (with(", resources: {claims: [{name: a}]}", ""), "spec.containers[0].resources.claims"),
        (with(", volumeDevices: [{name: a, devicePath: /d}]", ""), "spec.containers[0].volumeDevices"),
        (volume("configMap: {name: a}"), "spec.volumes[0].configMap"),
        (volume("secret: {secretName: a}"), "spec.volumes[0].secret"),
        (volume("persistentVolumeClaim: {claimName: a}"), "spec.volumes[0].persistentVolumeClaim"),
        (volume("ephemeral: {}"), "spec.volumes[0].ephemeral"),
        (
            volume("projected: {sources: [{downwardAPI: {}}, {serviceAccountToken: {path: a}}]}"),
            "spec.volumes[0].projected.sources[1].serviceAccountToken",
        ),
        (
            volume("projected: {sources: [{configMap: {name: a}}]}"),
            "spec.volumes[0].projected.sources[0].configMap",
        ),
        (
            volume("projected: {sources: [{secret: {name: a}}]}"),
            "spec.volumes[0].projected.sources[0].secret",
        ),
        (
            volume("csi: {driver: a, nodePublishSecretRef: {name: b}}"),
            "spec.volumes[0].csi.nodePublishSecretRef",
        ),
    ] {
        let refusal = refused(&text);
        assert!(refusal.contains(&format!(" {field}: a static pod cannot refer")), "{field}: {refusal}");
        assert!(refusal.starts_with("line "), "{refusal}");
    }
}

#[test]
fn rules_of_metadata_and_spec() {
    let metadata = |text: &str| with("", "").replace("{name: a}", text);
    let long = "a".repeat(64);
    for (text, field) in [
        (metadata("{}"), "metadata.name"),
        (metadata("{generateName: a}"), "metadata.name"),
        (metadata("{name: A}"), "metadata.name"),
        (metadata("{name: a/b}"), "metadata.name"),
        (metadata("{name: ..}"), "metadata.name"),
        (metadata(&format!("{{name: {}}}", "a".repeat(254))), "metadata.name"),
        (metadata("{name: a, namespace: a.b}"), "metadata.namespace"),
        (metadata("{name: a, namespace: ../b}"), "metadata.namespace"),
        (metadata("{name: a, uid: ../b}"), "metadata.uid"),
        (metadata("{name: a, labels: {a b: c}}"), "metadata.labels[a b]"),
        (metadata(&format!("{{name: a, labels: {{a: {long}}}}}")), "metadata.labels.a"),
        (metadata("{name: a, annotations: {a/b/c: d}}"), "metadata.annotations[a/b/c]"),
        (
            metadata(&format!("{{name: a, annotations: {{a: {}}}}}", "x".repeat(270_000))),
            "metadata.annotations",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n".into(), "spec"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n".into(), "spec.containers"),
        (with("", "  restartPolicy: always\n"), "spec.restartPolicy"),
        (with("", "  dnsPolicy: x\n"), "spec.dnsPolicy"),
        (with("", "  dnsPolicy: None\n"), "spec.dnsConfig.nameservers"),
        (with("", "  terminationGracePeriodSeconds: -1\n"), "spec.terminationGracePeriodSeconds"),
        (with("", "  activeDeadlineSeconds: 0\n"), "spec.activeDeadlineSeconds"),
        (with("", "  hostname: a.b\n"), "spec.hostname"),
        (with("", "  os: {name: plan9}\n"), "spec.os.name"),
        (with("", "  hostPID: true\n  shareProcessNamespace: true\n"), "spec.shareProcessNamespace"),
        (with("", "  ephemeralContainers: [{name: a}]\n"), "spec.ephemeralContainers"),
        (with("", "  schedulingGates: [{name: a}]\n"), "spec.schedulingGates"),
        (with("", "  hostAliases: [{ip: a}]\n"), "spec.hostAliases[0].ip"),
        (with("", "  overhead: {cpu: 1x}\n"), "spec.overhead.cpu"),
        (with("", "  securityContext: {windowsOptions: {}}\n"), "spec.securityContext.windowsOptions"),
        (
            with("", "  securityContext: {supplementalGroupsPolicy: x}\n"),
            "spec.securityContext.supplementalGroupsPolicy",
        ),
        (
            with("", "  securityContext: {sysctls: [{name: ../a, value: b}]}\n"),
            "spec.securityContext.sysctls[0].name",
        ),
        (
            with("", "  securityContext: {sysctls: [{name: a.b, value: c}, {name: a/b, value: c}]}\n"),
            "spec.securityContext.sysctls[1].name",
        ),
        (
            with("", "  securityContext: {seccompProfile: {type: x}}\n"),
            "spec.securityContext.seccompProfile.type",
        ),
        (with("", "  runtimeClassName: ../a\n"), "spec.runtimeClassName"),
        (with("", "  initContainers: [{name: c, image: a}]\n"), "spec.containers[0].name"),
        (with("", "  - {name: c, image: a}\n"), "spec.containers[1].name"),
        (with("", &"  - {name: x, image: a}\n".repeat(101)), "spec.containers"),
    ] {
        let refusal = refused(&text);
        assert!(refusal.contains(&format!(" {field}: ")), "{field}: {refusal}");
    }
}

#[test]
fn rules_of_containers() {
    let bare = |container: &str| with("", "").replace("name: c, image: bb", container);
    let init =
        |container: &str| with("", &format!("  initContainers: [{{name: i, image: bb{container}}}]\n"));
    let nul = r#", env: [{name: Z, value: "a\0b"}]"#;
    for (text, field) in [
        (bare("image: bb"), "name"),
        (bare("name: C, image: bb"), "name"),
        (bare("name: ../c, image: bb"), "name"),
        (bare("name: c"), "image"),
        (bare("name: c, image: ' bb'"), "image"),
        (with(", imagePullPolicy: Sometimes", ""), "imagePullPolicy"),
        (
            with(", securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../x}}", ""),
            "securityContext.seccompProfile.localhostProfile",
        ),
        (
            with(", securityContext: {seccompProfile: {type: Localhost}}", ""),
            "securityContext.seccompProfile.localhostProfile",
        ),
        (
            with(", securityContext: {appArmorProfile: {type: RuntimeDefault, localhostProfile: x}}", ""),
            "securityContext.appArmorProfile.localhostProfile",
        ),
        (with(", securityContext: {procMount: Unmasked}", ""), "securityContext.procMount"),
        (
            with(", securityContext: {privileged: true, allowPrivilegeEscalation: false}", ""),
            "securityContext.allowPrivilegeEscalation",
        ),
        (with(", securityContext: {windowsOptions: {}}", ""), "securityContext.windowsOptions"),
        (with(", terminationMessagePath: ../x", ""), "terminationMessagePath"),
        (with(", terminationMessagePath: /dev/../x", ""), "terminationMessagePath"),
        (with(", terminationMessagePolicy: x", ""), "terminationMessagePolicy"),
        (with(r#", command: [a, "b\0"]"#, ""), "command[1]"),
        (with(", env: [{value: a}]", ""), "env[0].name"),
        (with(", env: [{name: a=b}]", ""), "env[0].name"),
        (with(nul, ""), "env[0].value"),
        (
            with(", env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", ""),
            "env[0].valueFrom",
        ),
        (with(", env: [{name: A, valueFrom: {}}]", ""), "env[0].valueFrom"),
        (
            with(", env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]", ""),
            "env[0].valueFrom.fieldRef.fieldPath",
        ),
        (
            with(", env: [{name: A, valueFrom: {resourceFieldRef: {resource: cpu}}}]", ""),
            "env[0].valueFrom.resourceFieldRef.resource",
        ),
        (with(", ports: [{containerPort: 0}]", ""), "ports[0].containerPort"),
        (with(", ports: [{hostPort: 80}]", ""), "ports[0].containerPort"),
        (with(", ports: [{containerPort: 65536}]", ""), "ports[0].containerPort"),
        (with(", ports: [{containerPort: 1, hostPort: -1}]", ""), "ports[0].hostPort"),
        (with(", ports: [{containerPort: 1, hostPort: 2}]", "  hostNetwork: true\n"), "ports[0].hostPort"),
        (with(", ports: [{containerPort: 1, protocol: tcp}]", ""), "ports[0].protocol"),
        (with(", ports: [{containerPort: 1, hostIP: a}]", ""), "ports[0].hostIP"),
        (with(", ports: [{containerPort: 1, name: A}]", ""), "ports[0].name"),
        (with(", ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]", ""), "ports[1].name"),
        (with(", ports: [{containerPort: 1, hostPort: 8}, {containerPort: 2, hostPort: 8}]", ""), "ports[1]"),
        (with(", resources: {limits: {cpu: 1x}}", ""), "resources.limits.cpu"),
        (with(", resources: {limits: {cpu: -1}}", ""), "resources.limits.cpu"),
        (with(", resources: {limits: {gpu: 1}}", ""), "resources.limits.gpu"),
        (with(", resources: {limits: {cpu: 1}, requests: {cpu: 1001m}}", ""), "resources.requests.cpu"),
        (
            with(", resources: {limits: {hugepages-2Mi: 4Mi}, requests: {hugepages-2Mi: 2Mi}}", ""),
            "resources.requests[hugepages-2Mi]",
        ),
    ] {
        let refusal = refused(&text);
        assert!(refusal.contains(&format!(" spec.containers[0].{field}: ")), "{field}: {refusal}");
        assert!(refusal.starts_with("line 6, "), "{refusal}");
    }
    assert!(refused(&with(nul, "")).contains("`Z`"), "the key is named");
    for field in ["livenessProbe: {exec: {command: [a]}}", "lifecycle: {}"] {
        let refusal = refused(&init(&format!(", {field}")));
        assert!(refusal.contains("spec.initContainers[0]."), "{refusal}");
        taken(&init(&format!(", restartPolicy: Always, {field}")));
    }
}

#[test]
fn rules_of_probes_and_hooks() {
    let headers = "httpGet: {port: 1, httpHeaders: [{name: 'a b', value: c}]}";
    for (probe, field) in [
        ("{}", ""),
        ("{exec: {command: [a]}, tcpSocket: {port: 1}}", ""),
        ("{exec: {}}", ".exec.command"),
        ("{exec: {command: []}}", ".exec.command"),
        ("{httpGet: {}}", ".httpGet.port"),
        ("{httpGet: {port: 0}}", ".httpGet.port"),
        ("{httpGet: {port: 65536}}", ".httpGet.port"),
        ("{httpGet: {port: No_Name}}", ".httpGet.port"),
        ("{httpGet: {port: 1, scheme: http}}", ".httpGet.scheme"),
        ("{httpGet: {port: 1, path: \"/a\\r\\nb\"}}", ".httpGet.path"),
        (&format!("{{{headers}}}"), ".httpGet.httpHeaders[0].name"),
        ("{httpGet: {port: 1, httpHeaders: [{name: a, value: \"b\\nc\"}]}}", ".httpGet.httpHeaders[0].value"),
        ("{tcpSocket: {port: '80'}}", ".tcpSocket.port"),
        ("{grpc: {port: 0}}", ".grpc.port"),
        ("{tcpSocket: {port: 1}, periodSeconds: -1}", ".periodSeconds"),
        ("{tcpSocket: {port: 1}, successThreshold: 2}", ".successThreshold"),
        ("{tcpSocket: {port: 1}, terminationGracePeriodSeconds: 0}", ".terminationGracePeriodSeconds"),
    ] {
        let refusal = refused(&with(&format!(", livenessProbe: {probe}"), ""));
        assert!(
            refusal.contains(&format!(" spec.containers[0].livenessProbe{field}: ")),
            "{probe}: {refusal}"
        );
    }
    let readiness =
        refused(&with(", readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 5}", ""));
    assert!(readiness.contains(".terminationGracePeriodSeconds: "), "{readiness}");
    for (hook, field) in
        [("{}", ""), ("{exec: {}}", ".exec.command"), ("{sleep: {seconds: -1}}", ".sleep.seconds")]
    {
        let refusal = refused(&with(&format!(", lifecycle: {{preStop: {hook}}}"), ""));
        assert!(refusal.contains(&format!(".lifecycle.preStop{field}: ")), "{hook}: {refusal}");
    }
}

#[test]
fn a_stop_signal_needs_a_system_and_a_name_that_it_knows() {
    let of = |signal: &str, system: &str| with(&format!(", lifecycle: {{stopSignal: {signal}}}"), system);
    let linux = "  os: {name: linux}\n";
    for signal in ["SIGTERM", "SIGUSR1", "SIGRTMIN+15", "\"\""] {
        let pod = taken(&of(signal, linux));
        assert!(pod.spec.unwrap().containers[0].lifecycle.is_some());
    }
    for (signal, system) in
        [("SIGTERM", ""), ("TERM", linux), ("SIGRTMIN+16", linux), ("SIGUSR1", "  os: {name: windows}\n")]
    {
        let refusal = refused(&of(signal, system));
        assert!(refusal.contains(" spec.containers[0].lifecycle.stopSignal: "), "{signal}: {refusal}");
    }
    taken(&of("SIGKILL", "  os: {name: windows}\n"));
}

#[test]
fn rules_of_volumes_and_mounts() {
    let mount = |mount: &str| {
        with(&format!(", volumeMounts: [{{name: v, {mount}}}]"), "  volumes: [{name: v, emptyDir: {}}]\n")
    };
    let volume = |volume: &str| with("", &format!("  volumes: [{volume}]\n"));
    for (text, field) in [
        (volume("{emptyDir: {}}"), "volumes[0].name"),
        (volume("{name: A}"), "volumes[0].name"),
        (volume("{name: ../a}"), "volumes[0].name"),
        (volume("{name: a}, {name: a}"), "volumes[1].name"),
        (volume("{name: a, emptyDir: {}, hostPath: {path: /a}}"), "volumes[0]"),
        (volume("{name: a, hostPath: {}}"), "volumes[0].hostPath.path"),
        (volume("{name: a, hostPath: {path: a}}"), "volumes[0].hostPath.path"),
        (volume("{name: a, hostPath: {path: /var/../etc}}"), "volumes[0].hostPath.path"),
        (volume("{name: a, hostPath: {path: /a, type: directory}}"), "volumes[0].hostPath.type"),
        (volume("{name: a, emptyDir: {medium: Disk}}"), "volumes[0].emptyDir.medium"),
        (volume("{name: a, emptyDir: {sizeLimit: -1}}"), "volumes[0].emptyDir.sizeLimit"),
        (volume("{name: a, emptyDir: {sizeLimit: 8MiB}}"), "volumes[0].emptyDir.sizeLimit"),
        (volume("{name: a, downwardAPI: {defaultMode: 01000}}"), "volumes[0].downwardAPI.defaultMode"),
        (volume("{name: a, downwardAPI: {items: [{path: ../a}]}}"), "volumes[0].downwardAPI.items[0].path"),
        (volume("{name: a, downwardAPI: {items: [{path: /a}]}}"), "volumes[0].downwardAPI.items[0].path"),
        (volume("{name: a, downwardAPI: {items: [{path: ..data}]}}"), "volumes[0].downwardAPI.items[0].path"),
        (with(", volumeMounts: [{name: w, mountPath: /a}]", ""), "containers[0].volumeMounts[0].name"),
        (mount("subPath: a"), "containers[0].volumeMounts[0].mountPath"),
        (mount("mountPath: a"), "containers[0].volumeMounts[0].mountPath"),
        (mount("mountPath: /a/../b"), "containers[0].volumeMounts[0].mountPath"),
        (mount("mountPath: '/a:b'"), "containers[0].volumeMounts[0].mountPath"),
        (mount("mountPath: /a}, {name: v, mountPath: /a"), "containers[0].volumeMounts[1].mountPath"),
        (mount("mountPath: /a, subPath: /b"), "containers[0].volumeMounts[0].subPath"),
        (mount("mountPath: /a, subPath: b/../.."), "containers[0].volumeMounts[0].subPath"),
        (mount("mountPath: /a, subPathExpr: ../b"), "containers[0].volumeMounts[0].subPathExpr"),
        (mount("mountPath: /a, subPath: a, subPathExpr: b"), "containers[0].volumeMounts[0].subPathExpr"),
        (mount("mountPath: /a, mountPropagation: x"), "containers[0].volumeMounts[0].mountPropagation"),
        (
            mount("mountPath: /a, mountPropagation: Bidirectional"),
            "containers[0].volumeMounts[0].mountPropagation",
        ),
        (
            mount("mountPath: /a, recursiveReadOnly: Enabled"),
            "containers[0].volumeMounts[0].recursiveReadOnly",
        ),
    ] {
        let refusal = refused(&text);
        assert!(refusal.contains(&format!(" spec.{field}: ")), "{field}: {refusal}");
    }
    taken(&mount("mountPath: /a..b, subPath: ..c"));
}

/// Levels of lists, each of ten references to the one before.
fn bomb(first: &str, levels: usize) -> String {
    let mut text = format!("l0: &l0 {first}\n");
    for level in 1..levels {
        let refs = vec![format!("*l{}", level - 1); 10].join(", ");
        text.push_str(&format!("l{level}: &l{level} [{refs}]\n"));
    }
    text
}

#[test]
fn hostile_sizes_are_refused_before_they_cost_anything() {
    let start = "apiVersion: v1\nkind: Pod\n";
    let big = format!("{start}a: {}\n", "x".repeat(10 << 20));
    assert_eq!(refused(&big), format!("the manifest has {} bytes: at most 1048576 are read", big.len()));
    let text = format!("\"{}\\n\"", "x".repeat(500_000));
    for (name, text) in [
        ("alias bomb", format!("{start}{}", bomb("[a, a, a, a, a, a, a, a, a, a]", 9))),
        ("alias bomb of one long text", format!("{start}{}", bomb(&text, 4))),
        ("deep lists", format!("{start}a: {}{}", "[".repeat(5000), "]".repeat(5000))),
        ("deep blocks", (0..5000).map(|i| format!("{}a:\n", " ".repeat(i % 400))).collect()),
        ("deeper than a pod", format!("{start}a: {}{}", "[".repeat(40), "]".repeat(40))),
        ("many values", format!("{start}a: [{}]", "1,".repeat(30_000))),
        (
            "many anchors",
            format!("{start}a: [{}]", (0..200).map(|i| format!("&a{i} 1,")).collect::<String>()),
        ),
    ] {
        let refusal = refused(&text);
        assert!(refusal.len() < 400, "{name}: {refusal}");
        let expected =
            if name.contains("lists") || name == "deeper than a pod" { "recursion" } else { "too big" };
        assert!(refusal.contains(expected), "{name}: {refusal}");
    }
    let merge = with("", "  <<: &m {hostname: a}\n");
    assert_eq!(taken(&merge).spec.unwrap().hostname.as_deref(), Some("a"), "merge keys are fine");
}

proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn any_yaml_like_text_is_taken_or_refused(text in "[-a-c:{}\\[\\]&*!|>'\"#%@, \n\t0-9.]{0,200}") {
        if let Err(refusal) = parse(text.as_bytes()) {
            prop_assert!(refusal.reason.len() < 1000);
        }
    }

    #[test]
    fn a_damaged_manifest_never_panics(at in 0..FULL.len(), with in "[a-z{}\\[\\]:,*&\n -]{0,3}", cut in 0_usize..20) {
        let end = (at + cut).min(FULL.len());
        if let (Some(head), Some(tail)) = (FULL.get(..at), FULL.get(end..)) {
            let text = format!("{head}{with}{tail}");
            if let Err(refusal) = parse(text.as_bytes()) {
                prop_assert!(refusal.line.is_none_or(|line| line as usize <= text.lines().count() + 1));
            }
        }
    }
}
