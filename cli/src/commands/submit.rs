//! `bulkhead run -f FILE` and `bulkhead delete pod NAME`: pods without a manifest in the static pod directory.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bulkhead_api::syncd::v1 as wire;
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::with_deadline;
use wire::submissions_client::SubmissionsClient;

use super::node::{Node, NodeFlags, explain_of};
use crate::output;

/// Deadline of a call.
const CALL: Duration = Duration::from_secs(10);
/// What syncd takes at once, with room for the message around it.
const MOST: usize = 3 << 20;
const SYNCD: &str = "syncd";

/// What to run.
#[derive(Debug, clap::Args)]
pub struct RunFlags {
    /// A v1 Pod, or a List of them, as YAML or JSON; `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    filename: PathBuf,
    #[command(flatten)]
    node: NodeFlags,
}

/// What to end.
#[derive(Debug, clap::Args)]
pub struct DeleteFlags {
    /// The only kind that a node has.
    #[arg(value_parser = ["pods", "pod", "po"])]
    kind: String,
    /// Name of the pod, with or without the node's name at its end.
    name: String,
    /// Its namespace.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    #[command(flatten)]
    node: NodeFlags,
}

/// Submits pods. They are kept until they are deleted.
pub fn run(flags: &RunFlags) -> anyhow::Result<()> {
    let manifest = read(&flags.filename)?;
    let node = Node::find(&flags.node)?;
    let pods = super::small_runtime()?.block_on(async {
        let request = with_deadline(wire::SubmitPodsRequest { manifest }, CALL);
        let answer = client(&node).submit_pods(request).await;
        answer.map_err(|status| explain_of(SYNCD, status)).map(|answer| answer.into_inner().pods)
    });
    let pods = pods.with_context(|| format!("{} was not taken", flags.filename.display()))?;
    output::print(&pods.iter().map(told).collect::<String>())
}

/// Deletes a submitted pod.
pub fn delete(flags: &DeleteFlags) -> anyhow::Result<()> {
    let node = Node::find(&flags.node)?;
    let (name, namespace) = (flags.name.clone(), flags.namespace.clone());
    let deleted = super::small_runtime()?.block_on(async {
        let request = wire::DeletePodRequest { namespace, name };
        let answer = client(&node).delete_pod(with_deadline(request, CALL)).await;
        answer.map_err(|status| explain_of(SYNCD, status)).map(|answer| answer.into_inner().deleted)
    })?;
    if !deleted {
        bail!("no pod {}/{} was submitted: see `bulkhead get pods`", flags.namespace, flags.name);
    }
    output::print(&format!("pod {}/{} is being ended", flags.namespace, flags.name))
}

fn client(node: &Node) -> SubmissionsClient<PeerChannel> {
    SubmissionsClient::new(node.peer(SYNCD))
}

fn told(pod: &wire::SubmittedPod) -> String {
    let what = match pod.change() {
        wire::SubmittedChange::Created => "created",
        wire::SubmittedChange::Replaced => "replaced: it starts when the one before it has ended",
        wire::SubmittedChange::Nothing => "unchanged",
    };
    format!("pod {}/{} {what}\n", pod.namespace, pod.name)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let name = || format!("cannot read {}", path.display());
    let file: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).with_context(name)?)
    };
    let mut bytes = Vec::new();
    file.take(u64::try_from(MOST)? + 1).read_to_end(&mut bytes).with_context(name)?;
    if bytes.len() > MOST {
        bail!("{} is larger than {MOST} bytes: submit its pods one by one", path.display());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_each_pod_is_a_line() {
        let pod = |change: wire::SubmittedChange| {
            told(&wire::SubmittedPod { namespace: "d".into(), name: "a-n".into(), change: change.into() })
        };
        assert_eq!(pod(wire::SubmittedChange::Created), "pod d/a-n created\n");
        assert_eq!(pod(wire::SubmittedChange::Nothing), "pod d/a-n unchanged\n");
        assert!(pod(wire::SubmittedChange::Replaced).starts_with("pod d/a-n replaced"));
    }

    #[test]
    fn too_large_a_file_is_refused_before_it_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, vec![b' '; MOST]).unwrap();
        assert_eq!(read(&path).unwrap().len(), MOST);
        std::fs::write(&path, vec![b' '; MOST + 1]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("one by one"));
        assert!(read(&dir.path().join("none")).unwrap_err().to_string().contains("cannot read"));
    }
}
