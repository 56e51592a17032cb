//! From a command line to an exit code.
#![cfg(test)]

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use bulkhead_service::{Context, Exit, NoFlags, Service, ServiceError, run_to_exit};
use tonic::service::Routes;

/// A process that is ready at once and stops by itself soon after.
struct Short;

impl Service for Short {
    const NAME: &'static str = "pleg";
    type Flags = NoFlags;
    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        let check = context.check("nothing");
        check.good();
        context.ready();
        let shutdown = context.shutdown.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            shutdown.cancel();
        });
        context.serve(Routes::default()).await
    }
}

fn run(dir: &Path, extra: &[&str]) -> Exit {
    let identities = serde_json::json!({
        "process": {"pleg": {"uid": 60001, "gid": 60001}},
        "groups": {"bulkhead-logs": 60003}
    });
    let file = dir.join("identities.json");
    std::fs::write(&file, identities.to_string()).unwrap();
    let path = |name: &str, value: &Path| [format!("--{name}").into(), OsString::from(value)];
    let mut arguments: Vec<OsString> = vec!["program".into()];
    arguments.extend(path("run-dir", dir));
    arguments.extend(path("identities", &file));
    arguments.extend(extra.iter().map(OsString::from));
    run_to_exit::<Short>(arguments)
}

#[test]
fn each_way_to_end_has_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).to_string_lossy().into_owned()
    };
    let good = write("good.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n");
    let bad = write(
        "bad.yaml",
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: x\n",
    );
    let broken = write("broken.json", "{");
    let odd = write(
        "odd.yaml",
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPodz: 1\n",
    );
    assert_eq!(run(dir.path(), &["--config", &good]), Exit::Stopped);
    assert_eq!(run(dir.path(), &["--config", &odd]), Exit::Stopped, "unknown names are warned of");
    assert_eq!(
        run(dir.path(), &["--max-pods=5", "--v", "2", "--cpu-cfs-quota", "--cluster-dns=10.0.0.1"]),
        Exit::Stopped
    );
    assert_eq!(run(dir.path(), &["-v2", "--oom-score-adj", "-999", "--kubeconfig="]), Exit::Stopped);
    assert_eq!(run(dir.path(), &["--max-pods=many"]), Exit::Configuration);
    assert_eq!(run(dir.path(), &["--lock-file=/run/lock/kubelet.lock"]), Exit::Configuration);
    assert_eq!(
        run(dir.path(), &["--cpu-cfs-quota", "false"]),
        Exit::Usage,
        "a switch's value stands behind ="
    );
    assert_eq!(run(dir.path(), &["--no-such-flag"]), Exit::Usage);
    assert_eq!(run(dir.path(), &["--log", "a=b=c"]), Exit::Usage);
    assert_eq!(run(dir.path(), &["--help"]), Exit::Stopped);
    assert_eq!(run(dir.path(), &["--config", &bad]), Exit::Configuration);
    assert_eq!(run(dir.path(), &["--config", "/no/such/file"]), Exit::Configuration);
    // The last --identities wins in clap only where it may be repeated; here it is a mistake on the command line.
    assert_eq!(run(dir.path(), &["--identities", &broken]), Exit::Usage);
    // A socket that somebody answers on is not taken away.
    std::fs::remove_file(dir.path().join("pleg.sock")).unwrap();
    let _owner = std::os::unix::net::UnixListener::bind(dir.path().join("pleg.sock")).unwrap();
    assert_eq!(run(dir.path(), &[]), Exit::Socket);
}
