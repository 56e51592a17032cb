//! Checks over the repository itself. Owns reading it; the rules are in `tests/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_default()
}

/// Every workspace member's folder (relative to the checkout) and manifest.
pub fn members() -> BTreeMap<String, toml::Table> {
    let root = root();
    let mut members = BTreeMap::new();
    for pattern in ["crates", "services", "tests"] {
        for entry in std::fs::read_dir(root.join(pattern)).into_iter().flatten().flatten() {
            add(&mut members, &root, &format!("{pattern}/{}", entry.file_name().to_string_lossy()));
        }
    }
    add(&mut members, &root, "cli");
    add(&mut members, &root, "bench");
    add(&mut members, &root, "bench/gate");
    members
}

fn add(members: &mut BTreeMap<String, toml::Table>, root: &Path, folder: &str) {
    let text = std::fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap_or_default();
    if let Ok(table) = text.parse::<toml::Table>()
        && table.contains_key("package")
    {
        members.insert(folder.to_owned(), table);
    }
}

/// Names in one dependency table of a manifest.
pub fn dependencies(manifest: &toml::Table, table: &str) -> Vec<String> {
    manifest
        .get(table)
        .and_then(toml::Value::as_table)
        .map(|t| t.keys().cloned().collect())
        .unwrap_or_default()
}

/// Every file beneath `folder` with this extension, build output left out.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if hidden || path.ends_with("target") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
