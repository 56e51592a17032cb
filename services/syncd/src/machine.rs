//! This machine, as far as it decides which pods are taken and how their containers are confined. Read once at the start.

use std::collections::BTreeMap;
use std::path::Path;

use bulkhead_cgroup::{CgroupPath, Mounts, Version};
use bulkhead_model::capacity::{Machine, cpu_count, huge_page_size, memory_total};
use bulkhead_model::confinement::Kernel;

/// Most sizes of huge pages. Machines have two to four.
const MAX_PAGE_SIZES: usize = 16;

/// What the machine has. `disk`: a folder on the file system of pods' folders. What cannot be read is left out.
pub fn machine(disk: &Path) -> Machine {
    Machine {
        cpus: text("/sys/devices/system/cpu/online").and_then(|list| cpu_count(&list)),
        memory: text("/proc/meminfo").and_then(|info| memory_total(&info)),
        huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
        disk: rustix::fs::statvfs(disk).ok().map(|stat| stat.f_blocks.saturating_mul(stat.f_frsize)),
    }
}

/// What the kernel can confine with.
pub fn kernel() -> Kernel {
    Kernel {
        apparmor: text("/sys/module/apparmor/parameters/enabled").is_some_and(|text| text.trim() == "Y"),
    }
}

/// The labels that every node has of its own.
pub fn labels(node_name: &str) -> BTreeMap<String, String> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    };
    let labels = [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
        ("kubernetes.io/hostname", node_name),
    ];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Whether a cgroup can keep its processes from swapping by `memory.swap.max`.
pub fn bounds_swap(mounts: &Mounts, root: &CgroupPath) -> bool {
    mounts.version() == Version::V2
        && mounts.controller("memory").is_some_and(|mount| root.below(mount).join("memory.swap.max").exists())
}

fn text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn huge_pages(dir: &Path) -> BTreeMap<u64, u64> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_PAGE_SIZES);
    let sizes = entries.filter_map(|entry| {
        let size = huge_page_size(entry.file_name().to_str()?)?;
        let count = std::fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        Some((size, count.trim().parse().ok()?))
    });
    sizes.collect()
}
