//! The table of known faults names a test that exists for every case, or says when there will be one.
#![cfg(test)]

use bulkhead_tidy::root;

/// All cases there are.
const CASES: &str = "S1 S2 S3 S4 S5 P1 P2 P3 P4 L1 L2 L3 L4 L5 T1 T2 V1 V2 V3 V4 V5 V6 E1 E2 I1 G1 X1 X2 C1 C2 N1 K1 D1 M1 R1";

/// Files and names of tests in a cell: a name belongs to the file before it.
fn tests(cell: &str) -> Vec<(&str, &str)> {
    let mut file = "";
    let mut tests = Vec::new();
    for word in cell.split('`').skip(1).step_by(2) {
        if word.contains('/') {
            file = word;
        } else {
            tests.push((file, word));
        }
    }
    tests
}

/// Whether `text` has a test with this name.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_it = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let at = lines.iter().position(|line| is_it(line)).unwrap_or_default();
    let before = lines.get(at.saturating_sub(4)..at).unwrap_or_default();
    before.iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
}

#[test]
fn every_known_fault_has_its_tests() {
    let text = std::fs::read_to_string(root().join("docs/known-faults.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    let mut cases = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let [case, _, shown] = cells.as_slice() else { panic!("three cells: {row}") };
        cases.push(*case);
        let tests = tests(shown);
        assert!(
            !tests.is_empty() || shown.contains("step 3 (API server)") || shown.contains("later: with"),
            "{case}"
        );
        for (file, name) in tests {
            let source =
                std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{case}: {file}: {e}"));
            assert!(has_test(&source, name), "{case}: there is no test {name} in {file}");
        }
    }
    assert_eq!(cases.join(" "), CASES);
}

#[test]
fn a_name_alone_is_no_test() {
    assert!(has_test("#[test]\nfn a() {}\n", "a"));
    assert!(has_test("  #[tokio::test(start_paused = true)]\n  async fn a() {}\n", "a"));
    assert!(!has_test("fn a() {}\n", "a"));
    assert!(!has_test("#[test]\nfn ab() {}\n", "a"));
    assert_eq!(
        tests("x `p/a.rs` `b` `c`, `q/d.rs` `e`"),
        [("p/a.rs", "b"), ("p/a.rs", "c"), ("q/d.rs", "e")]
    );
}
