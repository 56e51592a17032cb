//! The systemd units, by systemd's own judgement.
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The units of deploy/systemd in a folder, with the program under test for the installed one, which verify looks for.
fn units(folder: &Path) -> Vec<PathBuf> {
    let checked_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    let mut units = Vec::new();
    for entry in std::fs::read_dir(checked_in).unwrap().map(Result::unwrap) {
        let is_unit = entry.path().extension().is_some_and(|e| e == "service" || e == "target");
        if is_unit {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let unit = folder.join(entry.file_name());
            std::fs::write(&unit, text.replace("/usr/bin/bulkhead", env!("CARGO_BIN_EXE_bulkhead"))).unwrap();
            units.push(unit);
        }
    }
    units
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: systemd-analyze is not installed (tools/ensure-packages installs it)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let units = units(folder.path());
    assert!(units.len() > 9, "{units:?}");
    // The runtime's unit is the distribution's.
    std::fs::write(folder.path().join("containerd.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    // Faults of units that the machine itself brings are none of ours.
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(&units)
        .env("SYSTEMD_UNIT_PATH", format!("{}:", folder.path().display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours: Vec<_> = said.lines().filter(|line| line.contains("bulkhead")).collect();
    assert!(output.status.success() && ours.is_empty(), "{said}");
}
