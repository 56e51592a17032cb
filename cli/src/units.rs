//! `bulkhead units --out DIR`: the systemd units of a node, made of proto/access.toml. What they say is checked in as
//! deploy/systemd, and a test holds the two against each other.
//!
//! Owns how a row of the access file becomes a unit. Must never grant anything that the row does not.

mod places;
mod service;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use bulkhead_api::access::{ACCESS, GROUP, LOG_GROUP};

use crate::processes;

/// First line of every file.
const MADE: &str =
    "# Made of proto/access.toml by `bulkhead units`: change that, or override it with a drop-in.\n";

/// Where the units go.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Folder to write to.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Writes the units.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    for (name, text) in files() {
        let path = flags.out.join(name);
        let done =
            path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, text));
        done.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Every file, by its path beneath the folder. Pure.
fn files() -> BTreeMap<String, String> {
    let mut files = BTreeMap::from([
        ("bulkhead.target".to_owned(), target()),
        ("bulkhead-cgroups.service".to_owned(), service::cgroups()),
        ("sysusers.d/bulkhead.conf".to_owned(), sysusers()),
        ("tmpfiles.d/bulkhead.conf".to_owned(), places::tmpfiles()),
    ]);
    for (name, row) in &ACCESS.process {
        files.insert(unit(name), service::process(name, row));
    }
    files
}

/// Name of the unit of a process.
fn unit(process: &str) -> String {
    format!("bulkhead-{process}.service")
}

fn target() -> String {
    let services: Vec<_> = processes::NAMES.iter().map(|name| unit(name)).collect();
    format!(
        "{MADE}\
[Unit]
Description=bulkhead: the Kubernetes node agent
Documentation=file:/usr/share/doc/bulkhead/operations.md
# Wants, not Requires: a node with one process missing still does what the others do.
Wants={}

[Install]
WantedBy=multi-user.target
",
        services.join(" ")
    )
}

fn sysusers() -> String {
    let mut text = format!(
        "{MADE}# {GROUP}: may connect to the processes' sockets at all. {LOG_GROUP}: reads container logs.\n\
         g {GROUP} -\ng {LOG_GROUP} -\n"
    );
    for row in ACCESS.process.values() {
        let _ = writeln!(text, "u {0} - \"bulkhead {0}\" / /usr/sbin/nologin", row.user);
    }
    text
}

/// Files in a folder, by their path beneath it.
#[cfg(test)]
fn read(folder: &std::path::Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, std::fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
