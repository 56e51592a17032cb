//! `bulkhead status`: every process in its own words, and whether the node is well.

use std::time::Duration;

use anyhow::Context;
use bulkhead_api::access::ACCESS;
use bulkhead_api::gateway::v1::{GetHealthRequest, HealthCheck};
use bulkhead_api::process::v1::{Peer, ProcessStatus};
use bulkhead_base::{Clock, SystemClock};
use bulkhead_ipc::status::with_deadline;
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::age;
use super::node::{Node, NodeFlags};
use super::peer::{self, why};
use super::table::draw;
use crate::output;

/// Deadline of the node's health.
const HEALTH: Duration = Duration::from_secs(5);
/// Longest error in the table.
const ERROR_CHARS: usize = 60;

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Form.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    node: NodeFlags,
}

/// How it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// A row for each process.
    #[default]
    Table,
    /// Everything they say.
    Json,
}

/// What was found out.
struct Found {
    /// By name; `Err` says why one does not answer.
    processes: Vec<(String, Result<ProcessStatus, String>)>,
    /// The node's health, if the gateway answers.
    health: Result<Vec<HealthCheck>, String>,
}

/// Shows how the node is.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let node = Node::find(&flags.node)?;
    let found = super::small_runtime()?.block_on(ask(&node));
    match flags.output {
        Form::Table => output::print(&text(&found, SystemClock.now())),
        Form::Json => {
            output::print(&serde_json::to_string_pretty(&json(&found)).context("cannot print the status")?)
        }
    }
}

async fn ask(node: &Node) -> Found {
    let processes = ACCESS.process.keys().map(|name| async move {
        let status = peer::status(&node.peer(name)).await;
        (name.clone(), status.map_err(|status| why(&status)))
    });
    let request = with_deadline(GetHealthRequest {}, HEALTH);
    let mut gateway = node.gateway();
    let (processes, health) = futures::join!(join_all(processes), gateway.get_health(request));
    let health = health.map(|answer| answer.into_inner().checks).map_err(|status| why(&status));
    Found { processes, health }
}

fn text(found: &Found, now: Timestamp) -> String {
    let rows: Vec<_> = found.processes.iter().map(|(name, status)| cells(name, status, now)).collect();
    let mut text = draw(&["PROCESS", "STATE", "PID", "UID", "UP", "PEERS", "LAST ERROR"], &rows);
    let mut notes = Vec::new();
    for (name, status) in &found.processes {
        let Ok(status) = status else { continue };
        let checks = status.checks.iter().filter(|check| !check.ok);
        notes.extend(checks.map(|check| vec![name.clone(), check.name.clone(), check.reason.clone()]));
        let peers = status.peers.iter().filter(|peer| !peer.connected && asked(peer));
        notes.extend(
            peers.map(|peer| vec![name.clone(), format!("-> {}", peer.name), peer.last_error.clone()]),
        );
    }
    if !notes.is_empty() {
        text.push('\n');
        text.push_str(&draw(&["PROCESS", "WHAT", "WHY NOT"], &notes));
    }
    text.push('\n');
    text.push_str(&health(&found.health));
    text
}

fn cells(name: &str, status: &Result<ProcessStatus, String>, now: Timestamp) -> Vec<String> {
    let dash = || "-".to_owned();
    let status = match status {
        Ok(status) => status,
        Err(reason) => {
            return vec![name.to_owned(), "down".to_owned(), dash(), dash(), dash(), dash(), short(reason)];
        }
    };
    let well = status.checks.iter().all(|check| check.ok);
    let state = match (status.ready, well) {
        (false, _) => "starting",
        (true, false) => "degraded",
        (true, true) => "up",
    };
    let connected = status.peers.iter().filter(|peer| peer.connected).count();
    let error = match &status.last_error_at {
        Some(at) => format!("{} ({} ago)", short(&status.last_error), age(timestamp(Some(at)), now)),
        None => dash(),
    };
    vec![
        name.to_owned(),
        state.to_owned(),
        status.pid.to_string(),
        status.uid.to_string(),
        age(timestamp(status.started_at.as_ref()), now),
        format!("{connected}/{}", status.peers.iter().filter(|peer| asked(peer)).count()),
        error,
    ]
}

/// A peer that nobody needed yet is not missing.
fn asked(peer: &Peer) -> bool {
    peer.connected || !peer.last_error.is_empty()
}

fn health(health: &Result<Vec<HealthCheck>, String>) -> String {
    match health {
        Err(reason) => format!("Node: unknown, because gateway does not answer: {reason}\n"),
        Ok(checks) => {
            let bad: Vec<_> = checks
                .iter()
                .filter(|check| !check.ok)
                .map(|check| format!("  {} {}: {}\n", check.process, check.name, check.reason))
                .collect();
            if bad.is_empty() {
                "Node: healthy\n".to_owned()
            } else {
                format!("Node: not healthy\n{}", bad.concat())
            }
        }
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(ERROR_CHARS) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn timestamp(time: Option<&prost_types::Timestamp>) -> Option<Timestamp> {
    time.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok())
}

fn json(found: &Found) -> Value {
    let time = |time: &Option<prost_types::Timestamp>| timestamp(time.as_ref()).map(|time| time.to_string());
    let processes: Vec<_> = found
        .processes
        .iter()
        .map(|(name, status)| match status {
            Err(reason) => json!({ "name": name, "up": false, "reason": reason }),
            Ok(status) => json!({
                "name": name,
                "up": true,
                "version": status.version,
                "pid": status.pid,
                "uid": status.uid,
                "startedAt": time(&status.started_at),
                "ready": status.ready,
                "checks": status.checks.iter().map(|check| json!({
                    "name": check.name, "ok": check.ok, "reason": check.reason, "since": time(&check.since),
                })).collect::<Vec<_>>(),
                "peers": status.peers.iter().map(|peer| json!({
                    "name": peer.name, "connected": peer.connected, "since": time(&peer.since),
                    "lastError": peer.last_error, "lastErrorAt": time(&peer.last_error_at),
                })).collect::<Vec<_>>(),
                "lastError": status.last_error,
                "lastErrorAt": time(&status.last_error_at),
                "suppressedLogLines": status.suppressed_log_lines,
                "refusedCalls": status.refused_calls,
            }),
        })
        .collect();
    let health = match &found.health {
        Err(reason) => json!({ "known": false, "reason": reason }),
        Ok(checks) => json!({
            "known": true,
            "healthy": checks.iter().all(|check| check.ok),
            "checks": checks.iter().map(|check| json!({
                "process": check.process, "name": check.name, "ok": check.ok, "reason": check.reason,
            })).collect::<Vec<_>>(),
        }),
    };
    json!({ "processes": processes, "health": health })
}

#[cfg(test)]
mod tests {
    use bulkhead_api::process::v1::Check;

    use super::*;

    fn found() -> Found {
        let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let check =
            |ok, reason: &str| Check { name: "runtime".into(), ok, reason: reason.into(), since: at(0) };
        let peer =
            |name: &str, connected| Peer { name: name.into(), connected, since: at(0), ..Default::default() };
        let well = ProcessStatus {
            pid: 12,
            uid: 64203,
            started_at: at(0),
            ready: true,
            checks: vec![check(true, "")],
            peers: vec![peer("syncd", true)],
            ..Default::default()
        };
        let ill = ProcessStatus {
            checks: vec![check(false, "no socket")],
            peers: vec![
                peer("syncd", true),
                peer("crigate", false),
                Peer { last_error: "refused".into(), ..peer("pleg", false) },
            ],
            last_error: "x".repeat(70),
            last_error_at: at(60),
            ..well.clone()
        };
        Found {
            processes: vec![
                ("crigate".into(), Ok(well)),
                ("prober".into(), Ok(ill)),
                ("syncd".into(), Err("no such file".into())),
            ],
            health: Ok(vec![HealthCheck {
                process: "syncd".into(),
                name: "process".into(),
                ok: false,
                reason: "does not answer".into(),
            }]),
        }
    }

    #[test]
    fn what_is_missing_is_named_below_the_table() {
        insta::assert_snapshot!(text(&found(), Timestamp::new(90, 0).unwrap()), @r"
        PROCESS   STATE      PID   UID     UP    PEERS   LAST ERROR
        crigate   up         12    64203   90s   1/1     -
        prober    degraded   12    64203   90s   1/2     xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx... (30s ago)
        syncd     down       -     -       -     -       no such file

        PROCESS   WHAT      WHY NOT
        prober    runtime   no socket
        prober    -> pleg   refused

        Node: not healthy
          syncd process: does not answer
        ");
    }

    #[test]
    fn json_holds_everything() {
        let value = json(&found());
        assert_eq!(value["processes"][1]["checks"][0]["reason"], "no socket");
        assert_eq!(value["processes"][1]["peers"][1]["connected"], false);
        assert_eq!(value["processes"][2]["up"], false);
        assert_eq!(value["health"]["healthy"], false);
    }
}
