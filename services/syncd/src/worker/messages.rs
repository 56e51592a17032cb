//! What containers left when they ended: their termination message files and the ends of their logs.
//!
//! Must never trust either: containers write them. Nothing is followed, only regular files are read, and only so far.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use bulkhead_model::runtime::{Container, ContainerState, RuntimePod};
use bulkhead_model::termination_message::{self, FILE_BYTES, LOG_FILE_BYTES};
use bulkhead_model::{names, spec};
use rustix::fs::{Mode, OFlags};

use super::Worker;
use crate::state::HookEnd;

/// A container that ended and was not looked at.
struct Ended {
    id: String,
    /// Its postStart hook's failure, if that was its end.
    hook: String,
    file: Option<PathBuf>,
    /// Its log, if that may stand in for the file.
    log: Option<PathBuf>,
    policy: String,
    exit_code: i32,
}

impl Worker {
    /// Reads what containers left that ended since the last look. Their files stay as long as they do, so a later life reads
    /// the same.
    pub(super) async fn read_messages(&mut self, runtime: &RuntimePod) {
        self.decision.messages.retain(|id, _| runtime.containers.iter().any(|c| c.id == *id));
        let ended: Vec<Ended> = runtime.containers.iter().filter_map(|c| self.ended(c)).collect();
        if ended.is_empty() {
            return;
        }
        let limit = termination_message::limit(spec::containers(&self.pod).len());
        let read = tokio::task::spawn_blocking(move || {
            let text = |of: &Ended| termination_message::cut(&of.read(), limit).to_owned();
            ended.iter().map(|of| (of.id.clone(), text(of))).collect::<Vec<_>>()
        });
        // A thread that failed is tried again with the next look.
        self.decision.messages.extend(read.await.unwrap_or_default());
    }

    fn ended(&self, container: &Container) -> Option<Ended> {
        if container.state != ContainerState::Exited || self.decision.messages.contains_key(&container.id) {
            return None;
        }
        let record = self.deps.records.get(&self.uid);
        let hook = match record.as_ref().and_then(|record| record.post_start.get(&container.id)) {
            Some(HookEnd::Failed(text)) => text.clone(),
            Some(HookEnd::Done) | None => String::new(),
        };
        // The path comes from the runtime: only beneath the pod's own log folder.
        let log = Path::new(&container.log_path);
        let is_ours =
            self.folders.holds_log(log) && !log.components().any(|part| part == Component::ParentDir);
        Some(Ended {
            id: container.id.clone(),
            hook,
            file: self.folders.termination_log(&container.name, container.attempt),
            log: is_ours.then(|| log.to_owned()),
            policy: container.annotations.get(names::TERMINATION_MESSAGE_POLICY).cloned().unwrap_or_default(),
            exit_code: container.exit_code,
        })
    }
}

impl Ended {
    fn read(&self) -> String {
        let file = self.file.as_deref().and_then(|path| read(path, Part::Begin(FILE_BYTES)));
        let mut text = String::from_utf8_lossy(&file.unwrap_or_default()).into_owned();
        if termination_message::falls_back(&self.policy, self.exit_code, &text) {
            let log = self.log.as_deref().and_then(|path| read(path, Part::End(LOG_FILE_BYTES)));
            text = termination_message::log_tail(&log.unwrap_or_default());
        }
        termination_message::joined(&[&self.hook, &text])
    }
}

/// Which part of a file, in bytes.
#[derive(Clone, Copy)]
enum Part {
    Begin(usize),
    End(usize),
}

/// `None` for what is not there, cannot be read or is no regular file.
fn read(path: &Path, part: Part) -> Option<Vec<u8>> {
    // NONBLOCK: a pipe must not hold us.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok()?;
    if !meta.is_file() {
        return None;
    }
    let bytes = match part {
        Part::Begin(bytes) => bytes,
        Part::End(bytes) => {
            let from = meta.len().saturating_sub(u64::try_from(bytes).ok()?);
            file.seek(SeekFrom::Start(from)).ok()?;
            bytes
        }
    };
    let mut content = Vec::new();
    file.take(u64::try_from(bytes).ok()?).read_to_end(&mut content).ok()?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(dir: &Path, policy: &str, exit_code: i32) -> Ended {
        Ended {
            id: "c".into(),
            hook: String::new(),
            file: Some(dir.join("file")),
            log: Some(dir.join("log")),
            policy: policy.into(),
            exit_code,
        }
    }

    #[test]
    fn the_file_comes_first_then_the_log_of_one_that_failed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), "2026-01-02T03:04:05.6Z stderr F boom\n").unwrap();
        let fallback = ended(dir.path(), "FallbackToLogsOnError", 1);
        assert_eq!(fallback.read(), "boom\n", "no file");
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert_eq!(fallback.read(), "boom\n", "an empty file");
        assert_eq!(ended(dir.path(), "FallbackToLogsOnError", 0).read(), "");
        assert_eq!(ended(dir.path(), "File", 1).read(), "");
        std::fs::write(dir.path().join("file"), "x".repeat(10_000)).unwrap();
        assert_eq!(fallback.read().len(), FILE_BYTES);
        let hook = Ended { hook: "FailedPostStartHook".into(), ..ended(dir.path(), "File", 1) };
        assert!(hook.read().starts_with("FailedPostStartHook: xxx"));
    }

    #[test]
    fn only_the_end_of_a_long_log_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let line = "2026-01-02T03:04:05.6Z stdout F x\n";
        std::fs::write(dir.path().join("log"), line.repeat(100_000) + &line.replace('x', "last")).unwrap();
        let text = ended(dir.path(), "FallbackToLogsOnError", 1).read();
        assert!(text.ends_with("x\nlast\n") && text.len() < 200, "{text}");
    }

    #[test]
    fn links_pipes_and_folders_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert_eq!(ended(dir.path(), "File", 1).read(), "");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert_eq!(ended(dir.path(), "File", 1).read(), "");
        std::fs::remove_dir(&file).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert_eq!(ended(dir.path(), "File", 1).read(), "");
    }
}
