//! The node policy's file, and its judgement of a pod that asks for everything.
#![no_main]

use bulkhead_policy::{Asked, DeviceWish, HostNamespaces, LogFile, Mount, Node, Part, Pod, Policy, Profile, Wish, summary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let policy = match Policy::parse(&text) {
        Ok(policy) => policy,
        Err(problem) => {
            assert!(problem.len() < 4096, "a problem of {} bytes", problem.len());
            return;
        }
    };
    let node = Node { root: "/var/lib/kubelet".into(), logs: "/var/log/pods".into() };
    let mount = |source: &str| Mount { source: source.to_owned(), places: Ok(vec![source.into()]) };
    let asked = Asked {
        privileged: true,
        host: HostNamespaces { network: true, pid: true, ipc: true },
        mounts: vec![mount("/"), mount("/run/containerd"), mount("/var/lib/kubelet/pods/u/volumes/x")],
        devices: vec![DeviceWish::Path(mount("/dev/fuse")), DeviceWish::Cdi("vendor.com/gpu=0".to_owned())],
        capabilities: vec!["SYS_ADMIN".to_owned(), "cap_net_raw".to_owned()],
        seccomp: Some(Profile::Unconfined),
        app_armor: Some(Profile::Localhost("x".to_owned())),
        log: Some(LogFile { folder: mount("/var/log/pods/ns_a_u"), file: "app/0.log".to_owned() }),
    };
    let pod = Pod { namespace: "kube-system".to_owned(), name: "kube-proxy-1".to_owned(), uid: "u".to_owned() };
    let everything = Wish { pod: pod.clone(), part: Part::Container("app".to_owned()), asked };
    let nothing = Wish { pod, part: Part::Sandbox, asked: Asked::default() };
    for wish in [&everything, &nothing] {
        assert!(summary(&policy.judge(&node, wish)).len() < 100_000);
    }
});
