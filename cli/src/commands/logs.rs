//! `bulkhead logs`.

use std::time::Duration;

use bulkhead_api::gateway::v1::ReadLogsRequest;

use super::node::{Node, NodeFlags, explain};
use crate::output;

/// Deadline when not following.
const READ: Duration = Duration::from_secs(60);

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// The pod, with or without the node's name at its end.
    pod: String,
    /// The container; needed when the pod has several.
    #[arg(short, long)]
    container: Option<String>,
    /// Go on as lines are written.
    #[arg(short, long)]
    follow: bool,
    /// Of the instance before the present one.
    #[arg(short, long)]
    previous: bool,
    /// Only the last lines.
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
    /// With the time of each line.
    #[arg(long)]
    timestamps: bool,
    /// Only lines that are not older than this, as in `90s`, `5m`, `1h30m`.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    since: Option<u64>,
    /// The pod's namespace.
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    node: NodeFlags,
}

/// Shows a log.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let node = Node::find(&flags.node)?;
    super::small_runtime()?.block_on(async {
        let pod = node.pod(&flags.pod, flags.namespace.as_deref()).await?;
        let request = ReadLogsRequest {
            namespace: pod.metadata.namespace.unwrap_or_default(),
            pod: pod.metadata.name.unwrap_or_default(),
            container: flags.container.clone().unwrap_or_default(),
            follow: flags.follow,
            previous: flags.previous,
            tail_lines: flags.tail,
            timestamps: flags.timestamps,
            since_seconds: flags.since.unwrap_or(0),
        };
        read(&node, request, output::write).await
    })
}

/// Hands a log to `take`, piece by piece.
pub async fn read(
    node: &Node,
    request: ReadLogsRequest,
    mut take: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let follow = request.follow;
    let mut call = tonic::Request::new(request);
    if !follow {
        call.set_timeout(READ);
    }
    let mut stream = node.gateway().read_logs(call).await.map_err(explain)?.into_inner();
    while let Some(chunk) = stream.message().await.map_err(explain)? {
        take(&chunk.data)?;
    }
    Ok(())
}

/// A duration as Go writes it, in whole seconds, at least one.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a duration such as 90s, 5m or 1h30m");
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let (unit, tail) = [("h", 3600), ("m", 60), ("s", 1)]
            .iter()
            .find_map(|(name, unit)| tail.strip_prefix(name).map(|tail| (*unit, tail)))
            .ok_or_else(wrong)?;
        total = number.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = tail;
    }
    if total == 0 { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds() {
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("1h30m"), Ok(5400));
        for wrong in ["", "5", "s", "0s", "-5s", "1d", "5m!", "99999999999999999999s", "9999999999999999999h"]
        {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
