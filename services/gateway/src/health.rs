//! Whether the node is well, from what its processes say about themselves. Pure.

use bulkhead_api::gateway::v1::HealthCheck;
use bulkhead_api::process::v1::ProcessStatus;

pub(crate) mod board;

/// Name of the check that says whether a process is there at all.
pub(crate) const PROCESS: &str = "process";
/// Checks that say how the cluster is reached. They are shown with all others, but an API server that is away makes no node
/// unwell: whoever restarts a node by its `/healthz` must not restart every node of a cluster then (nor does the kubelet's).
const OF_THE_CLUSTER: [(&str, &str); 7] = [
    ("apigate", "apiserver"),
    ("apigate", "credential"),
    // How the cluster reaches the node.
    ("apigate", "serving certificate"),
    ("gateway", "certificates"),
    ("statusd", "node in the cluster"),
    ("syncd", "pods of the API server"),
    ("syncd", "services of the API server"),
];
/// Longest reason kept, in bytes.
const REASON_BYTES: usize = 512;

/// What a process said when it was asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// Its name.
    pub(crate) process: String,
    /// What it said of itself, or why it said nothing.
    pub(crate) said: Result<ProcessStatus, String>,
}

/// What `/healthz` says: the code is 200 or 500.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whether everything that was looked at is well.
    pub(crate) ok: bool,
    /// A line for each process.
    pub(crate) lines: String,
}

/// Every check of every process: first whether it is there, then its own.
pub(crate) fn checks(answers: &[Answer]) -> Vec<HealthCheck> {
    answers.iter().flat_map(of_process).collect()
}

fn of_process(answer: &Answer) -> Vec<HealthCheck> {
    let check = |name: &str, ok: bool, reason: &str| HealthCheck {
        process: answer.process.clone(),
        name: one_line(name),
        ok,
        reason: if ok { String::new() } else { one_line(reason) },
    };
    match &answer.said {
        Err(reason) => vec![check(PROCESS, false, reason)],
        Ok(status) => {
            let there = check(PROCESS, status.ready, "it is still starting");
            let own = status.checks.iter().map(|own| check(&own.name, own.ok, &own.reason));
            std::iter::once(there).chain(own).collect()
        }
    }
}

/// A line for each process, as the kubelet's verbose health has them. The checks of a process stand together.
pub(crate) fn report(checks: &[HealthCheck]) -> Report {
    let mut lines = String::new();
    for own in checks.chunk_by(|a, b| a.process == b.process) {
        let process = own.first().map_or("", |check| &check.process);
        let bad: Vec<String> = own.iter().filter(|check| !is_well(check)).map(reason).collect();
        if bad.is_empty() {
            lines.push_str(&format!("[+]{process} ok\n"));
        } else {
            lines.push_str(&format!("[-]{process} failed: {}\n", bad.join("; ")));
        }
    }
    Report { ok: checks.iter().all(is_well), lines }
}

fn is_well(check: &HealthCheck) -> bool {
    check.ok || OF_THE_CLUSTER.contains(&(check.process.as_str(), check.name.as_str()))
}

fn reason(check: &HealthCheck) -> String {
    match check.name.as_str() {
        PROCESS => check.reason.clone(),
        name => format!("{name}: {}", check.reason),
    }
}

/// Reasons hold what others wrote: no control characters, and an end.
fn one_line(text: &str) -> String {
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.truncate(text.floor_char_boundary(REASON_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use bulkhead_api::process::v1::Check;

    use super::*;

    fn own(name: &str, reason: &str) -> Check {
        Check { name: name.to_owned(), ok: reason.is_empty(), reason: reason.to_owned(), since: None }
    }

    fn answer(process: &str, ready: bool, checks: Vec<Check>) -> Answer {
        Answer {
            process: process.to_owned(),
            said: Ok(ProcessStatus { ready, checks, ..Default::default() }),
        }
    }

    #[test]
    fn what_is_missing_is_named_with_its_reason() {
        let table = [
            (answer("syncd", true, vec![own("sources", "")]), true, "[+]syncd ok\n"),
            (answer("syncd", true, Vec::new()), true, "[+]syncd ok\n"),
            (answer("pleg", false, Vec::new()), false, "[-]pleg failed: it is still starting\n"),
            (
                answer(
                    "pleg",
                    true,
                    vec![own("a", ""), own("runtime", "no answer"), own("z", "late\nand odd")],
                ),
                false,
                "[-]pleg failed: runtime: no answer; z: late and odd\n",
            ),
            (
                Answer {
                    process: "prober".to_owned(),
                    said: Err("no answer on /run/prober.sock: refused".to_owned()),
                },
                false,
                "[-]prober failed: no answer on /run/prober.sock: refused\n",
            ),
        ];
        for (answer, ok, lines) in table {
            assert_eq!(report(&checks(&[answer])), Report { ok, lines: lines.to_owned() });
        }
    }

    #[test]
    fn one_bad_part_makes_the_node_unwell_and_hides_no_other() {
        let answers = [
            answer("crigate", true, vec![own("runtime", "")]),
            Answer { process: "prober".to_owned(), said: Err("gone".to_owned()) },
            answer("syncd", true, Vec::new()),
        ];
        let report = report(&checks(&answers));
        assert!(!report.ok);
        assert_eq!(report.lines, "[+]crigate ok\n[-]prober failed: gone\n[+]syncd ok\n");
    }

    #[test]
    fn a_cluster_that_is_away_makes_no_node_unwell() {
        let away = |process, name| answer(process, true, vec![own(name, "connection refused")]);
        let cluster = [away("apigate", "apiserver"), away("statusd", "node in the cluster")];
        let told = checks(&cluster);
        assert!(told.iter().any(|check| !check.ok), "it is told all the same");
        let lines = "[+]apigate ok\n[+]statusd ok\n".to_owned();
        assert_eq!(report(&told), Report { ok: true, lines });
        assert!(!report(&checks(&[away("statusd", "statuses")])).ok);
    }

    #[test]
    fn reasons_are_bounded() {
        let checks = checks(&[answer("a", true, vec![own("x", &"é".repeat(9000))])]);
        assert!(checks.iter().all(|check| check.reason.len() <= REASON_BYTES));
        assert!(report(&[]).ok, "nothing to look at is nothing wrong");
    }
}
