use std::path::PathBuf;

use super::*;
use crate::wish::{HostNamespaces, Places, Pod};

const STRICT: &str = r#"
[rules]
privileged = false
hostNetwork = false
hostPID = false
hostIPC = false
devices = ["/dev/fuse", "vendor.com/gpu="]
capabilities = ["NET_BIND_SERVICE", "CAP_CHOWN"]
seccomp = ["RuntimeDefault", "Localhost"]
appArmor = ["RuntimeDefault"]
[rules.hostPaths]
allow = ["/srv/data", "/run"]
deny = ["/run/containerd/containerd.sock"]

[[exception]]
namespace = "kube-system"
namePrefix = "proxy-"
rules = { privileged = true, hostNetwork = true }

[[exception]]
namespace = "kube-system"
[exception.rules]
hostPaths = { deny = ["/etc"] }
"#;

fn node() -> Node {
    Node { root: "/k".into(), logs: "/logs".into() }
}

fn wish(asked: Asked) -> Wish {
    let pod = Pod { namespace: "default".into(), name: "p".into(), uid: "u".into() };
    Wish { pod, part: Part::Container("c".into()), asked }
}

fn mount(source: &str) -> Mount {
    Mount { source: source.into(), places: Ok(vec![source.into()]) }
}

fn mounting(source: &str) -> Asked {
    Asked { mounts: vec![mount(source)], ..Default::default() }
}

fn rules(policy: &Policy, wish: &Wish) -> Vec<String> {
    policy.judge(&node(), wish).into_iter().map(|refusal| refusal.rule).collect()
}

#[test]
fn each_field_has_a_rule() {
    let policy = Policy::parse(STRICT).unwrap();
    let host = |network, pid, ipc| Asked { host: HostNamespaces { network, pid, ipc }, ..Default::default() };
    let path = |path| DeviceWish::Path(mount(path));
    let cdi = |name: &str| DeviceWish::Cdi(name.to_owned());
    let device = |device| Asked { devices: vec![device], ..Default::default() };
    let capability = |name: &str| Asked { capabilities: vec![name.to_owned()], ..Default::default() };
    let seccomp = |profile| Asked { seccomp: Some(profile), ..Default::default() };
    let app_armor = |profile| Asked { app_armor: Some(profile), ..Default::default() };
    let local = |name: &str| Profile::Localhost(name.to_owned());
    let log = |folder: &str, file: &str| Asked {
        log: Some(LogFile { folder: mount(folder), file: file.into() }),
        ..Default::default()
    };
    let cases = [
        (Asked::default(), ""),
        (Asked { privileged: true, ..Default::default() }, "privileged"),
        (host(true, false, false), "hostNetwork"),
        (host(false, true, false), "hostPID"),
        (host(false, false, true), "hostIPC"),
        (mounting("/srv/data/x"), ""),
        (mounting("/srv/data"), ""),
        (mounting("/srv/database"), "hostPaths"),
        (mounting("/srv"), "hostPaths"),
        (mounting("/"), "hostPaths"),
        (mounting("/run/x"), ""),
        (mounting("/run"), "hostPaths"),
        (mounting("/run/containerd"), "hostPaths"),
        (mounting("/run/containerd/containerd.sock"), "hostPaths"),
        (mounting("/k/pods/u/volumes/x"), ""),
        (mounting("/k/pods/u"), "hostPaths"),
        (mounting("/k/pods/other/volumes/x"), "hostPaths"),
        (device(path("/dev/fuse")), ""),
        (device(path("/dev/fuse2")), "devices"),
        (device(cdi("vendor.com/gpu=0")), ""),
        (device(cdi("vendor.com/nic=0")), "devices"),
        (capability("NET_BIND_SERVICE"), ""),
        (capability("cap_chown"), ""),
        (capability("SYS_ADMIN"), "capabilities"),
        (capability("ALL"), "capabilities"),
        (seccomp(Profile::RuntimeDefault), ""),
        (seccomp(Profile::Unconfined), "seccomp"),
        (seccomp(local("/k/seccomp/a.json")), ""),
        (seccomp(local("/k/seccomp/../pods/u/a.json")), "seccomp"),
        (seccomp(local("/tmp/a.json")), "seccomp"),
        (app_armor(Profile::RuntimeDefault), ""),
        (app_armor(local("x")), "appArmor"),
        (app_armor(Profile::Unconfined), "appArmor"),
        (log("/logs/default_p_u", "c/0.log"), ""),
        (log("/logs/default_p_u", ""), ""),
        (log("", ""), ""),
        (log("/etc/cron.d", "c/0.log"), "hostPaths"),
        (log("/logs", "c/0.log"), "hostPaths"),
        (log("/logs/default_p_u", "../../etc/cron.d/x"), "hostPaths"),
        (log("/logs/default_p_u", "/etc/cron.d/x"), "hostPaths"),
    ];
    for (asked, rule) in cases {
        let expected: Vec<String> =
            [rule].iter().filter(|rule| !rule.is_empty()).map(|rule| format!("rules.{rule}")).collect();
        assert_eq!(rules(&policy, &wish(asked.clone())), expected, "{asked:?}");
        assert!(rules(&Policy::default(), &wish(asked)).is_empty(), "no policy refuses nothing");
    }
}

#[test]
fn where_a_path_leads_counts_and_not_its_name() {
    let policy = Policy::parse(STRICT).unwrap();
    let led = |source: &str, places: Places| {
        let mounts = vec![Mount { source: source.into(), places }];
        rules(&policy, &wish(Asked { mounts, ..Default::default() }))
    };
    assert_eq!(led("/k/pods/u/volumes/x", Ok(vec!["/etc".into()])), ["rules.hostPaths"]);
    assert_eq!(led("/link", Ok(vec!["/srv/data/x".into()])), Vec::<String>::new());
    assert_eq!(led("/srv/data/x", Err("closed".into())), ["rules.hostPaths"]);
    let refused = policy.judge(
        &node(),
        &wish(Asked {
            mounts: vec![Mount { source: "/a".into(), places: Ok(vec![PathBuf::from("/etc")]) }],
            ..Default::default()
        }),
    );
    assert_eq!(
        summary(&refused),
        "container c mounts /a (that is /etc) which is neither in the pod's own folder nor in `allow` (rule rules.hostPaths)"
    );
}

#[test]
fn an_exception_counts_for_its_pods_and_the_fields_it_sets() {
    let policy = Policy::parse(STRICT).unwrap();
    let of = |namespace: &str, name: &str, asked: Asked| {
        let mut wish = wish(asked);
        wish.pod.namespace = namespace.into();
        wish.pod.name = name.into();
        rules(&policy, &wish)
    };
    let privileged = Asked {
        privileged: true,
        host: HostNamespaces { network: true, pid: true, ipc: false },
        capabilities: vec!["SYS_ADMIN".into()],
        seccomp: Some(Profile::Unconfined),
        ..Default::default()
    };
    assert_eq!(of("kube-system", "proxy-a", privileged.clone()), ["rules.hostPID"]);
    assert_eq!(of("kube-system", "prox", privileged.clone()).len(), 3, "privileged, network, PID");
    assert_eq!(of("default", "proxy-a", privileged).len(), 3);
    assert_eq!(of("kube-system", "x", mounting("/var/lib")), Vec::<String>::new(), "only deny is set");
    assert_eq!(of("kube-system", "x", mounting("/etc/x")), ["exception[2].rules.hostPaths"]);
    assert_eq!(
        of("kube-system", "proxy-a", mounting("/var/lib")),
        ["rules.hostPaths"],
        "the first one counts"
    );
}

#[test]
fn a_uid_that_is_no_name_has_no_folder() {
    let policy = Policy::parse(STRICT).unwrap();
    for uid in ["", ".", "..", "u/..", "../pods", "/"] {
        let mut wish = wish(mounting("/k/pods/x"));
        wish.pod.uid = uid.into();
        assert_eq!(rules(&policy, &wish), ["rules.hostPaths"], "{uid:?}");
    }
}

#[test]
fn a_summary_is_one_short_line() {
    let policy = Policy::parse(STRICT).unwrap();
    let mounts = (0..50).map(|n| mount(&format!("/x{n}\n{}", "y".repeat(5000)))).collect();
    let text = summary(&policy.judge(&node(), &wish(Asked { mounts, ..Default::default() })));
    assert!(text.len() < 2000 && !text.contains('\n') && text.ends_with("and 46 more"), "{text}");
}
