//! `bulkhead up --demo`: one pod that shows what a node does, from an image that is made on this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bulkhead_api::gateway::v1::ReadLogsRequest;
use bulkhead_base::{Clock, SystemClock};
use bulkhead_imagetar::{ImageBuilder, standard};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::{Instant, sleep};

use super::containerd::{self, Peers};
use super::node::{Node, RuntimeChoice};
use super::{command, folders};
use crate::commands::{get, logs, node as asking, trace};
use crate::output;

/// The image's name.
const IMAGE: &str = "local/busybox:1";
/// How long the pod may take to be ready.
const READY: Duration = Duration::from_secs(60);
/// Log lines that are shown of each container.
const LINES: u64 = 5;

/// The manifest. Both containers end at TERM at once: a shell as the first process of a container must catch it.
pub const MANIFEST: &str = r#"# Written by `bulkhead up --demo`.
apiVersion: v1
kind: Pod
metadata:
  name: demo
  labels:
    app: demo
spec:
  terminationGracePeriodSeconds: 5
  containers:
    - name: web
      image: local/busybox:1
      imagePullPolicy: Never
      command: ["sh", "-c", "trap 'exit 0' TERM; echo serving /www on port 8080; httpd -f -v -p 8080 -h /www & wait"]
      ports:
        - containerPort: 8080
      readinessProbe:
        httpGet:
          path: /index.html
          port: 8080
        periodSeconds: 1
      livenessProbe:
        tcpSocket:
          port: 8080
        periodSeconds: 5
      resources:
        requests: {cpu: 10m, memory: 8Mi}
        limits: {cpu: 200m, memory: 32Mi}
      volumeMounts:
        - name: shared
          mountPath: /www
          readOnly: true
    - name: clock
      image: local/busybox:1
      imagePullPolicy: Never
      command:
        - sh
        - -c
        - |
          trap 'exit 0' TERM
          n=0
          while true; do
            n=$((n + 1))
            echo "tick $n"
            echo "tick $n" >/shared/index.html
            sleep 1
          done
      resources:
        requests: {cpu: 10m, memory: 8Mi}
        limits: {cpu: 200m, memory: 32Mi}
      volumeMounts:
        - name: shared
          mountPath: /shared
  volumes:
    - name: shared
      emptyDir: {}
"#;

/// The demo, with what it needs.
pub struct Demo {
    peers: Peers,
    image: ImageBuilder,
}

impl Demo {
    /// Finds out what is missing. Makes nothing.
    pub fn plan(node: &Node) -> anyhow::Result<Self> {
        let RuntimeChoice::Private(peers) = &node.runtime else {
            bail!("--demo needs --containerd private: it brings its own image");
        };
        if peers.ctr.is_none() || peers.pause.is_none() {
            bail!(
                "--demo needs `ctr` and `pause` beside containerd: pass --peers with the folder that tests/peers/build prints"
            );
        }
        let busybox =
            command::find("busybox", None).context("there is no busybox: apt-get install busybox-static")?;
        Ok(Self { peers: peers.clone(), image: image(&busybox)? })
    }

    /// Runs the pod and shows it.
    pub async fn show(&self, node: &Node) -> anyhow::Result<()> {
        containerd::import(&node.layout, &self.peers, &self.image, "busybox").await?;
        let manifest: PathBuf = node.layout.manifests().join("demo.yaml");
        folders::write(&manifest, MANIFEST.as_bytes())?;
        output::event(&format!("demo: wrote {}", manifest.display()));
        let asking = asking::Node::new(node.channels());
        let started = Instant::now();
        let pod = wait_ready(&asking, started).await?;
        output::event(&format!("demo: ready {:.1} s later", started.elapsed().as_secs_f64()));
        output::print("\n$ bulkhead get pods\n")?;
        output::print(&get::text(&asking.pods().await?, true, SystemClock.now()))?;
        for container in ["web", "clock"] {
            output::print(&format!("\n$ bulkhead logs demo -c {container} --tail {LINES}\n"))?;
            let request = ReadLogsRequest {
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                pod: pod.metadata.name.clone().unwrap_or_default(),
                container: container.to_owned(),
                tail_lines: Some(LINES),
                ..Default::default()
            };
            logs::read(&asking, request, output::write).await?;
        }
        output::print("\n$ bulkhead trace demo\n")?;
        let spans = trace::newest(&asking, pod.metadata.uid.as_deref().unwrap_or_default()).await;
        output::print(&format!("{}\n", trace::text(&spans)))
    }
}

fn image(busybox: &Path) -> anyhow::Result<ImageBuilder> {
    let listed = std::process::Command::new(busybox).arg("--list").output();
    let listed = listed.with_context(|| format!("cannot run {}", busybox.display()))?;
    let applets = String::from_utf8_lossy(&listed.stdout).into_owned();
    standard::busybox([IMAGE], busybox, applets.lines()).with_context(|| {
        format!("{} cannot go into an image: apt-get install busybox-static", busybox.display())
    })
}

async fn wait_ready(node: &asking::Node, started: Instant) -> anyhow::Result<Pod> {
    loop {
        let pods = node.pods().await;
        let found = pods.as_ref().ok().and_then(|pods| pods.pods.iter().find(|pod| is_demo(pod)));
        if let Some(pod) = found.filter(|pod| is_ready(pod)) {
            return Ok(pod.clone());
        }
        if started.elapsed() > READY {
            let why = match pods {
                Err(error) => format!("{error:#}"),
                Ok(pods) => get::text(&pods, false, SystemClock.now()),
            };
            bail!("the demo's pod is not ready after {} s: {why}", READY.as_secs());
        }
        sleep(Duration::from_millis(200)).await;
    }
}

fn is_demo(pod: &Pod) -> bool {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get("app")).is_some_and(|app| app == "demo")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_taken_without_a_warning() {
        let manifest = bulkhead_model::manifest::parse(MANIFEST.as_bytes()).unwrap();
        assert_eq!(manifest.warnings, []);
        assert!(is_demo(&manifest.pod));
        let spec = manifest.pod.spec.unwrap();
        assert!(spec.containers.iter().all(|container| container.image.as_deref() == Some(IMAGE)));
        assert!(spec.containers[0].readiness_probe.is_some() && spec.containers[0].liveness_probe.is_some());
    }
}
