//! The parsers of what the kernel writes, open to fuzzing. Nobody else may use this.

use std::path::Path;

use crate::{CgroupPath, Layout, Mounts, limits, stats, tree};

/// Reads `text` as every file that this crate reads. It must return, whatever the text is.
pub fn kernel_files(text: &str) {
    stats::read_anything(text);
    let _ = (limits::parse_cpu_max(text), tree::parse_procs(text, Path::new("x")), Mounts::parse(text));
    let name = text.lines().next().unwrap_or_default();
    if let Ok(path) = CgroupPath::parse(name) {
        let below = path.below(Path::new("/sys/fs/cgroup"));
        assert!(below.starts_with("/sys/fs/cgroup"), "{below:?} is no cgroup");
        let _ = Layout::new(CgroupPath::root()).name(&path);
    }
    let _ = Layout::pod_uid(name);
}
