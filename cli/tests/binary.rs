//! The program as a whole, as far as it goes without root or peers.
#![cfg(test)]

use std::process::Command;

fn bulkhead(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bulkhead")).args(arguments).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

#[test]
fn it_is_every_process_and_says_which() {
    for process in bulkhead_api::access::ACCESS.process.keys() {
        let (well, said) = bulkhead(&[process, "--version"]);
        assert!(well && said.starts_with(&format!("{process} ")), "{process}: {said}");
    }
    let (well, said) = bulkhead(&["kubelet"]);
    assert!(!well && said.contains("kubelet"), "{said}");
}

#[test]
fn a_node_that_is_not_up_is_said_in_one_line_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().to_string_lossy();
    for command in [vec!["get", "pods"], vec!["status"], vec!["logs", "x"], vec!["trace", "x"]] {
        let arguments: Vec<_> = command.into_iter().chain(["--state", &state]).collect();
        let (well, said) = bulkhead(&arguments);
        assert!(
            !well && said.trim().lines().count() == 1 && said.contains("bulkhead up"),
            "{arguments:?}: {said}"
        );
    }
}
