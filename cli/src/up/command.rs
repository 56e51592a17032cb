//! Running the few programs of others that the launcher needs, and finding them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};

/// Longest run of a helper program; an image import is the slowest.
const LIMIT: Duration = Duration::from_secs(120);
/// Where system programs are: the launcher's own PATH may lack the administrator's folders.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a program to its end; returns what it printed. Its last line of complaint becomes the error.
pub async fn output(program: impl AsRef<OsStr>, arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<String> {
    let name = program.as_ref().to_string_lossy().into_owned();
    let run = tokio::process::Command::new(program)
        .args(arguments)
        .env("PATH", SYSTEM_PATH)
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .output();
    let done = tokio::time::timeout(LIMIT, run).await;
    let done = done.with_context(|| format!("{name} took longer than {LIMIT:?}"))?;
    let done = done.with_context(|| format!("cannot run {name}"))?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        bail!("`{name} {}` failed: {}", words.join(" "), last.trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The file of a program: in `folder`, or in PATH when there is no folder.
pub fn find(program: &str, folder: Option<&Path>) -> Option<PathBuf> {
    let own = std::env::var("PATH").unwrap_or_default();
    let path = format!("{own}:{SYSTEM_PATH}");
    let folders: Vec<&Path> = match folder {
        Some(folder) => vec![folder],
        None => path.split(':').filter(|folder| folder.starts_with('/')).map(Path::new).collect(),
    };
    folders.into_iter().map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Says what to do when a program is missing.
pub fn require(program: &str, remedy: &str) -> anyhow::Result<()> {
    if find(program, None).is_none() {
        bail!("`{program}` is not installed: {remedy}");
    }
    Ok(())
}
