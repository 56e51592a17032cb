//! Documents name what exists, and code keeps to the habits that a reader relies on.
#![cfg(test)]

use bulkhead_tidy::{files, members, root};

/// Paths in backquotes that contain a slash: `services/syncd/src/plan.rs`.
fn paths(text: &str) -> Vec<String> {
    let looks_like_path = |word: &&str| {
        let first = word.split('/').next().unwrap_or_default();
        word.contains('/')
            && !word.contains(['{', '<', '*', ' ', '$'])
            && ["crates", "services", "cli", "tests", "proto", "docs", "deploy", "bench", "tools", ".ci"]
                .contains(&first)
    };
    let words = text.split('`').skip(1).step_by(2);
    words.filter(looks_like_path).map(|word| word.trim_end_matches('/').to_owned()).collect()
}

#[test]
fn every_path_that_a_document_names_exists() {
    let root = root();
    let mut seen = 0;
    for document in files(&root, "md") {
        let text = std::fs::read_to_string(&document).unwrap();
        for path in paths(&text) {
            // A service's README may name its own files.
            let here = document.parent().unwrap().join(&path);
            assert!(root.join(&path).exists() || here.exists(), "{} names {path}", document.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "the documents name {seen} paths: is the pattern still right?");
}

#[test]
fn every_service_has_a_readme_with_the_same_headings() {
    const HEADINGS: [&str; 5] =
        ["## Owns", "## Calls", "## Is called by", "## Privileges", "## Where to change what"];
    for folder in members().into_keys().filter(|folder| folder.starts_with("services/")) {
        let readme = root().join(&folder).join("README.md");
        let text = std::fs::read_to_string(&readme).unwrap_or_else(|_| panic!("{folder} has no README.md"));
        let found: Vec<&str> =
            text.lines().filter(|line| line.starts_with("## ")).map(str::trim_end).collect();
        assert_eq!(found, HEADINGS, "{folder}/README.md");
    }
}

#[test]
fn every_module_says_what_it_is() {
    for folder in ["crates", "services", "cli", "tests", "bench"] {
        for file in files(&root().join(folder), "rs") {
            let text = std::fs::read_to_string(&file).unwrap();
            let sibling_test =
                file.ends_with("tests.rs") || file.components().any(|c| c.as_os_str() == "tests");
            assert!(text.starts_with("//!") || sibling_test, "{} begins without //!", file.display());
        }
    }
}

#[test]
fn files_stay_readable() {
    for folder in ["crates", "services", "cli", "tests", "bench"] {
        for file in files(&root().join(folder), "rs") {
            let lines = std::fs::read_to_string(&file).unwrap().lines().count();
            assert!(lines <= 800, "{} has {lines} lines: split it", file.display());
        }
    }
}
