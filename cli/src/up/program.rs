//! One program that the launcher keeps running: what to start, and what becomes of its output.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::jail::Jail;
use crate::output;

/// A log file is put aside at this size, in bytes; one older file is kept.
const LOG_BYTES: u64 = 10 * 1024 * 1024;
/// Longest line taken as one, in bytes.
const LINE_BYTES: u64 = 16 * 1024;
/// Errors of one program that are shown; further ones are only in its log.
const SHOWN: usize = 20;

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name for people, and of its log file.
    pub name: String,
    /// This program, which becomes the other one.
    pub launcher: PathBuf,
    /// The file to run.
    pub file: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// Where and as whom.
    pub jail: Jail,
    /// What it prints.
    pub log: PathBuf,
    /// Whether to show its lines of level ERROR.
    pub show_errors: bool,
}

/// A program that runs.
pub struct Running {
    /// The process.
    pub child: Child,
    /// The last line that it printed.
    pub last_line: watch::Receiver<String>,
}

impl Program {
    /// Its uid.
    pub fn uid(&self) -> u32 {
        self.jail.user.as_ref().map_or(0, |user| user.uid)
    }

    /// Starts it.
    pub fn start(&self) -> anyhow::Result<Running> {
        let name = || format!("cannot start {}", self.name);
        let spec = serde_json::to_string(&self.jail).with_context(name)?;
        let (reader, writer) = std::io::pipe().with_context(name)?;
        let twin = writer.try_clone().with_context(name)?;
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader)).with_context(name)?;
        let mut command = Command::new(&self.launcher);
        command.args(["exec-as", "--spec", &spec, "--"]).arg(&self.file).args(&self.arguments);
        command.env_clear().envs(self.environment.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null()).stdout(writer).stderr(twin);
        // A group of its own: Ctrl-C in the terminal is the launcher's to act on.
        command.process_group(0).current_dir("/");
        let child = command.spawn().with_context(name)?;
        // Its ends of the pipe: without them gone the reader would never see the end.
        drop(command);
        let (last, last_line) = watch::channel(String::new());
        let log = Log::open(self.log.clone()).with_context(name)?;
        let shown = if self.show_errors { SHOWN } else { 0 };
        tokio::spawn(copy(BufReader::new(reader), log, Lines { name: self.name.clone(), shown, last }));
        Ok(Running { child, last_line })
    }
}

/// What is noticed in a program's lines.
struct Lines {
    name: String,
    shown: usize,
    last: watch::Sender<String>,
}

impl Lines {
    fn see(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        self.last.send_replace(line.to_owned());
        if self.shown > 0
            && let Some(text) = error_of(line)
        {
            self.shown -= 1;
            let last = if self.shown == 0 { " (further errors are only in its log)" } else { "" };
            output::event(&format!("{}: {text}{last}", self.name));
        }
    }
}

/// The text of a line of level ERROR, as the processes print it: date, level, then the rest.
fn error_of(line: &str) -> Option<&str> {
    let (date, rest) = line.trim_start().split_once(' ')?;
    let date_like = date.starts_with(|first: char| first.is_ascii_digit());
    let text = rest.trim_start().strip_prefix("ERROR ")?;
    date_like.then_some(text.trim())
}

async fn copy(mut reader: BufReader<pipe::Receiver>, mut log: Log, mut lines: Lines) {
    use tokio::io::AsyncReadExt;
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LINE_BYTES).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // A full disk must not stop the program, which would wait for its reader.
        let _ = log.write(&line);
        lines.see(String::from_utf8_lossy(&line).trim_end());
    }
}

/// A log file of bounded size.
struct Log {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Log {
    fn open(path: PathBuf) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, file, size })
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.size >= LOG_BYTES {
            std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
            *self = Self::open(self.path.clone())?;
        }
        self.size += u64::try_from(bytes.len()).unwrap_or(0);
        self.file.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_error_lines_are_shown() {
        let line = "2026-01-02T03:04:05.6Z ERROR pleg::loop: cannot list: gone";
        assert_eq!(error_of(line), Some("pleg::loop: cannot list: gone"));
        assert_eq!(error_of("2026-01-02T03:04:05.6Z  WARN pleg: ERROR in text"), None);
        assert_eq!(error_of("ERROR without a date"), None);
        assert_eq!(error_of(""), None);
    }

    #[test]
    fn a_log_is_put_aside_when_it_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut log = Log::open(path.clone()).unwrap();
        log.size = LOG_BYTES - 1;
        log.write(b"one\n").unwrap();
        log.write(b"two\n").unwrap();
        assert_eq!(std::fs::read(path.with_extension("log.1")).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
        assert_eq!(log.size, 4);
    }
}
