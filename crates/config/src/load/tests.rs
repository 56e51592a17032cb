use super::*;
use crate::Duration;
use proptest::prelude::*;

const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// Parses texts without their first two lines; names are a, b, c.
fn parse_all(texts: &[&str]) -> Result<Loaded, ConfigError> {
    let texts: Vec<String> = texts.iter().map(|text| format!("{HEADER}{text}")).collect();
    let names = ["a", "b", "c"];
    let sources: Vec<_> =
        names.iter().zip(&texts).map(|(name, text)| Source { name, text: text.as_bytes() }).collect();
    parse(&sources, &[])
}

fn good(texts: &[&str]) -> KubeletConfiguration {
    match parse_all(texts) {
        Ok(loaded) => loaded.config,
        Err(error) => panic!("{texts:?}: {error}"),
    }
}

fn problems(texts: &[&str]) -> Vec<String> {
    match parse_all(texts) {
        Err(ConfigError::Invalid { problems, .. }) => problems.0.iter().map(ToString::to_string).collect(),
        other => panic!("{texts:?}: {other:?}"),
    }
}

#[test]
fn nothing_said_is_the_defaults() {
    let default = KubeletConfiguration::default();
    assert_eq!(
        parse(&[], &[]).unwrap(),
        Loaded { config: default.clone(), ignored: Vec::new(), warnings: Vec::new() }
    );
    assert_eq!(good(&[""]), default);
    assert_eq!(load(None, None, &[]).unwrap().config, default);
}

#[test]
fn fields_are_read_from_yaml_and_json() {
    let config = good(&["staticPodPath: /etc/kubernetes/manifests\nmaxPods: 50\nlogging: {format: json}\n"]);
    assert_eq!(config.static_pod_path, "/etc/kubernetes/manifests");
    assert_eq!((config.max_pods, config.logging.format.as_str(), config.logging.verbosity), (50, "json", 2));
    let json = br#"{"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
	"maxPods": 7, "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"}}"#;
    let config = parse(&[Source { name: "f.json", text: json }], &[]).unwrap().config;
    assert_eq!(
        (config.max_pods, config.crash_loop_back_off.max_container_restart_period),
        (7, Duration::from_secs(10))
    );
}

#[test]
fn zeroes_that_tools_write_are_defaults() {
    let zeroes = "syncFrequency: 0s\nfileCheckFrequency: 0s\nhttpCheckFrequency: 0s\nnodeStatusReportFrequency: 0s\n\
                  nodeStatusUpdateFrequency: 0s\nruntimeRequestTimeout: 0s\nstreamingConnectionIdleTimeout: 0s\n\
                  volumeStatsAggPeriod: 0s\nimageMinimumGCAge: 0s\nimageMaximumGCAge: 0s\ncpuManagerReconcilePeriod: 0s\n\
                  evictionPressureTransitionPeriod: 0s\nshutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n\
                  containerRuntimeEndpoint: \"\"\nmemorySwap: {}\ncrashLoopBackOff: {}\naddress: \"\"\nport: 0\nmaxPods: 0\n\
                  authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, x509: {}}\n\
                  authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}\n\
                  healthzBindAddress: 127.0.0.1\nhealthzPort: 10248\n\
                  logging: {flushFrequency: 0, verbosity: 2, options: {json: {infoBufferSize: \"0\"}, text: {infoBufferSize: \"0\"}}}\n";
    assert_eq!(good(&[zeroes]), KubeletConfiguration::default());
}

#[test]
fn the_report_follows_the_update_when_only_that_is_set() {
    let report = |text: &str| good(&[text]).node_status_report_frequency.to_string();
    assert_eq!(report("nodeStatusUpdateFrequency: 30s"), "30s");
    assert_eq!(report("nodeStatusUpdateFrequency: 30s\nnodeStatusReportFrequency: 0s"), "30s");
    assert_eq!(report("nodeStatusUpdateFrequency: 30s\nnodeStatusReportFrequency: 1m"), "1m0s");
    assert_eq!(report("nodeStatusUpdateFrequency: 0s"), "5m0s");
}

#[test]
fn later_texts_win_key_by_key() {
    let config = good(&[
        "maxPods: 50\nlogging: {format: json, verbosity: 3}\nregistryBurst: 4\n",
        "maxPods: 60\nlogging: {verbosity: 5}\n",
        "maxPods: 70\nregistryBurst: 0\n",
    ]);
    assert_eq!((config.max_pods, config.registry_burst), (70, 10));
    assert_eq!((config.logging.format.as_str(), config.logging.verbosity), ("json", 5));
}

#[test]
fn the_header_is_checked_in_every_text() {
    let table = [
        (
            "",
            "f:1:1: this is no KubeletConfiguration: write fields, and before them apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration",
        ),
        (
            "- a\n",
            "f:1:1: this is no KubeletConfiguration: write fields, and before them apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration",
        ),
        (
            "kind: KubeletConfiguration\n",
            "f: field apiVersion: is missing: write apiVersion: kubelet.config.k8s.io/v1beta1",
        ),
        (
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Pod\n",
            "f:2:7: field kind: is something else: write kind: KubeletConfiguration",
        ),
        (
            "apiVersion: v1\nkind: KubeletConfiguration\n",
            "f:1:13: field apiVersion: is something else: write apiVersion: kubelet.config.k8s.io/v1beta1",
        ),
    ];
    for (text, expected) in table {
        match parse(&[Source { name: "f", text: text.as_bytes() }], &[]) {
            Err(ConfigError::Invalid { problems, .. }) => {
                assert_eq!(problems.to_string(), expected, "{text:?}")
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
    let sources =
        [Source { name: "f", text: HEADER.as_bytes() }, Source { name: "d/1.conf", text: b"maxPods: 5\n" }];
    let bare = parse(&sources, &[]);
    let text = bare.unwrap_err().to_string();
    assert!(text.contains("d/1.conf: field apiVersion"), "{text}");
}

#[test]
fn faults_are_told_with_file_line_and_field() {
    let table: &[(&[&str], &str)] = &[
        (
            &["syncFrequency: 10\n"],
            "a:3:16: field syncFrequency: expected a duration such as 30s or 1m30s, found 10",
        ),
        (
            &["syncFrequency: \"10\"\n"],
            "a:3:16: field syncFrequency: duration \"10\" has no unit: write it with ns, us, ms, s, m or h, such as 30s or 1m30s",
        ),
        (
            &["address: here\n"],
            "a:3:10: field address: is not an IP address: write one such as 127.0.0.1 or ::1",
        ),
        (
            &["readOnlyPort: 65536\n"],
            "a:3:15: field readOnlyPort: expected a whole number from 0 to 65535, found 65536",
        ),
        // Bounds and what is missing are told at the text that won.
        (
            &["maxPods: 1\n", "# c\nmaxPods: -1\n"],
            "b:4:1: field maxPods: is -1: set it to at least 0, or remove it",
        ),
        (
            &["cgroupDriver: systemd\n"],
            "a:3:1: field cgroupDriver: this release of bulkhead implements only cgroupfs; remove it or set it to that",
        ),
        (
            &["logging:\n  options:\n    text:\n      splitStream: true\n"],
            "a:6:7: field logging.options.text.splitStream: this release of bulkhead does not implement it; remove it (by default it is not set)",
        ),
        (
            &["enforceNodeAllocatable: []\n"],
            "a:3:1: field enforceNodeAllocatable: this release of bulkhead does not implement it; remove it or set it to its default [\"pods\"]",
        ),
    ];
    for (texts, expected) in table {
        assert_eq!(problems(texts), [*expected], "{texts:?}");
    }
}

#[test]
fn names_that_the_kubelet_ignores_are_told_and_ignored() {
    let table: &[(&[&str], &str)] = &[
        (
            &["maxPods: 1\nMaxPods: 2\n"],
            "a:4:1: field MaxPods: is unknown and ignored: did you mean maxPods? Names are case-sensitive",
        ),
        (
            &["maxPods: 1\n", "foo: 1\n"],
            "b:3:1: field foo: is unknown and ignored: remove it, or look for its name in the KubeletConfiguration v1beta1 reference",
        ),
        (
            &["maxPods: 2\nregistryBurst: 7\nmaxPods: 1\n"],
            "a:5:1: field maxPods: is set twice, first in line 3: the last one counts; remove one of the two",
        ),
        (
            &["maxPods: 1\nlogging: {Verbosity: 7}\n"],
            "a:4:11: field logging.Verbosity: is unknown and ignored: did you mean verbosity? Names are case-sensitive",
        ),
    ];
    for (texts, expected) in table {
        let loaded = parse_all(texts).unwrap();
        assert_eq!(loaded.config.max_pods, 1, "{texts:?}");
        assert_eq!(loaded.config.logging.verbosity, 2, "{texts:?}");
        let ignored: Vec<_> = loaded.ignored.iter().map(ToString::to_string).collect();
        assert_eq!(ignored, [*expected], "{texts:?}");
    }
}

#[test]
fn a_fault_does_not_hide_behind_a_later_text() {
    assert_eq!(problems(&["maxPods: x\nfoo: 1\n", "maxPods: 5\nfoo: 2\n"]).len(), 1);
    assert_eq!(parse_all(&["foo: 1\n", "foo: 2\n"]).unwrap().ignored.len(), 2);
}

#[test]
fn all_problems_are_told_in_one_error() {
    let error = parse_all(&["maxPods: -1\nsyncFrequency: -1s\nprotectKernelDefaults: true\n"]).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the kubelet configuration cannot be used: 3 problems\n  a:"), "{text}");
    for field in ["maxPods", "syncFrequency", "protectKernelDefaults"] {
        assert!(text.contains(&format!("field {field}: ")), "{text}");
    }
    let many: String = (0..200).map(|number| format!("{{lowest: {number}, highest: x}}, ")).collect();
    let shares = format!("registerWithTaints: [{many}]\nmaxPods: 1\n");
    assert_eq!(parse_all(&[&shares]).unwrap_err().to_string().matches('\n').count(), 0);
    let many = Problems(vec![Problem::of("f", "is wrong"); 200]);
    assert!(many.to_string().ends_with("and 150 more"));
}

#[test]
fn hostile_texts_are_refused() {
    let large = vec![b'#'; 10 << 20];
    assert!(matches!(parse(&[Source { name: "f", text: &large }], &[]), Err(ConfigError::TooLarge { .. })));
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let uses = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{uses}]\n"));
    }
    let nested = format!("evictionHard: {}", "{a: ".repeat(5_000));
    let wide = "x: 1\n".repeat(100_000);
    for text in [bomb.as_str(), nested.as_str(), wide.as_str()] {
        assert_eq!(problems(&[text]).len(), 1);
    }
    let unknown: String = (0..9000).map(|number| format!("f{number}: 1\n")).collect();
    assert!(parse_all(&[&unknown]).unwrap().ignored.len() <= 1000);
}

#[test]
fn an_open_read_only_port_is_warned_of() {
    let warnings = |text: &str| parse_all(&[text]).unwrap().warnings.len();
    assert_eq!(warnings("readOnlyPort: 10255"), 1);
    assert_eq!(warnings("readOnlyPort: 10255\naddress: 127.0.0.1"), 0);
    assert_eq!(warnings("maxPods: 5"), 0);
}

#[test]
fn drop_ins_are_conf_files_in_byte_order() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), format!("{HEADER}{text}")).unwrap();
    write("main.yaml", "maxPods: 50\n");
    let conf = dir.path().join("conf.d");
    fs::create_dir(&conf).unwrap();
    write("conf.d/9.conf", "maxPods: 9\n");
    write("conf.d/10.conf", "maxPods: 10\nregistryBurst: 3\n");
    write("conf.d/Z.conf", "logging: {verbosity: 4}\n");
    write("conf.d/a.yaml", "nonsense: 1\n");
    write("conf.d/.hidden.swp", "nonsense: 1\n");
    let loaded = load(Some(&dir.path().join("main.yaml")), Some(&conf), &[]).unwrap();
    assert_eq!(
        (loaded.config.max_pods, loaded.config.registry_burst, loaded.config.logging.verbosity),
        (9, 3, 4)
    );
    assert_eq!(loaded.warnings.len(), 1);
    assert!(loaded.warnings[0].contains("a.yaml"), "{:?}", loaded.warnings);

    write("conf.d/bad.conf", "\nmaxPods: x\n");
    let text = load(None, Some(&conf), &[]).unwrap_err().to_string();
    assert!(text.contains("bad.conf:4:10: field maxPods"), "{text}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let error = load(Some(&missing), None, &[]).unwrap_err();
    assert!(matches!(&error, ConfigError::Read { path, .. } if *path == missing), "{error:?}");
    assert!(matches!(load(None, Some(&missing), &[]), Err(ConfigError::List { .. })));
    assert!(matches!(load(Some(dir.path()), None, &[]), Err(ConfigError::NotAFile { .. })));
    assert!(matches!(load(Some(Path::new("/dev/zero")), None, &[]), Err(ConfigError::NotAFile { .. })));
    let large = dir.path().join("large.yaml");
    fs::File::create(&large).unwrap().set_len(10 << 20).unwrap();
    assert!(matches!(load(Some(&large), None, &[]), Err(ConfigError::TooLarge { .. })));
    fs::create_dir(dir.path().join("x.conf")).unwrap();
    assert!(matches!(load(None, Some(dir.path()), &[]), Err(ConfigError::NotAFile { .. })));
    let many = dir.path().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..=MAX_DROP_INS {
        fs::write(many.join(format!("{number}.conf")), HEADER).unwrap();
    }
    assert!(matches!(load(None, Some(&many), &[]), Err(ConfigError::TooManyDropIns { .. })));
}

proptest! {
    #[test]
    fn any_bytes_are_a_configuration_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&[Source { name: "f", text: &bytes }], &[]).map_err(|error| error.to_string());
    }

    #[test]
    fn any_values_of_fields_are_a_configuration_or_an_error(
        field in "(maxPods|syncFrequency|logging|address|port|evictionHard|staticPodPath|clusterDNS|registerWithTaints)",
        value in "(-?[0-9]{1,20}|-?[0-9.]{1,8}(s|m|h|ms)?|\\[[a-z0-9, ]{0,8}\\]|\\{[a-z]{1,3}: [0-9a-z]{0,3}\\}|\"[ -~&&[^\"\\\\]]{0,10}\"|~|yes)",
    ) {
        let text = format!("{HEADER}{field}: {value}\n");
        let _ = parse(&[Source { name: "f", text: text.as_bytes() }], &[]).map_err(|error| error.to_string());
    }
}

#[test]
fn unknown_names_are_told_beside_a_wrong_type() {
    let text = format!("{HEADER}maxPodz: 5\nmaxPods: x\n");
    match examine(&[Source { name: "f", text: text.as_bytes() }], &[]) {
        Err(ConfigError::Invalid { problems, ignored }) => {
            let fields = |list: &[Problem]| list.iter().map(|p| p.field.clone()).collect::<Vec<_>>();
            assert_eq!(
                (fields(&problems.0), fields(&ignored)),
                (vec!["maxPods".into()], vec!["maxPodz".into()])
            );
        }
        other => panic!("{other:?}"),
    }
}
