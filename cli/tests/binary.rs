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
fn a_configuration_is_checked_before_anything_starts_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("{head}{text}")).unwrap();
        path.to_string_lossy().into_owned()
    };
    let (well, said) = bulkhead(&["config", "check", &write("good.yaml", "maxPods: 7\n")]);
    assert!(well && said.ends_with("good.yaml: good\n"), "{said}");
    let (well, said) = bulkhead(&["config", "check", "--print", &write("good.yaml", "maxPods: 7\n")]);
    assert!(well && said.contains("\"maxPods\":7"), "{said}");
    let (well, said) = bulkhead(&["config", "check", &write("bad.yaml", "maxPods: x\n")]);
    assert!(!well && said.contains("bad.yaml:3") && said.contains("maxPods"), "{said}");
    let (well, said) = bulkhead(&["config", "check", &write("both.yaml", "maxPods: x\nfoo: 1\n")]);
    assert!(
        !well && said.contains("field maxPods") && said.contains("both.yaml:4") && said.contains("foo"),
        "{said}"
    );
    let (well, said) = bulkhead(&["config", "check", &write("unknown.yaml", "maxPods: 7\nfoo: 1\n")]);
    assert!(!well && said.contains("unknown.yaml:4") && said.contains("foo"), "{said}");
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
