//! Facts about this machine, read from its files. Every read is bounded; what cannot be read is left out.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

mod parse;

/// Most bytes read of any file.
const MAX_BYTES: u64 = 64 * 1024;
/// Most sizes of huge pages. Machines have two to four.
const MAX_PAGE_SIZES: usize = 16;

/// Where to look.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    /// The root of /proc, /sys and /etc.
    pub(crate) root: PathBuf,
    /// A folder on the file system that pods share with the node's root folder.
    pub(crate) disk: PathBuf,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostFacts {
    /// CPUs that are online.
    pub(crate) cpus: Option<u64>,
    /// Bytes of memory.
    pub(crate) memory: Option<u64>,
    /// Number of preallocated huge pages by their size in bytes.
    pub(crate) huge_pages: BTreeMap<u64, u64>,
    /// Bytes of the file system of [`Roots::disk`].
    pub(crate) disk: Option<u64>,
    /// /etc/machine-id; empty if there is none.
    pub(crate) machine_id: String,
    /// Of the firmware; empty when only root may read it.
    pub(crate) system_uuid: String,
    /// Changes with every boot.
    pub(crate) boot_id: String,
    /// The kernel's release.
    pub(crate) kernel_version: String,
    /// The distribution's name for people.
    pub(crate) os_image: String,
    /// Whether user ids here are not those of the machine.
    pub(crate) in_user_namespace: bool,
}

/// Reads all of it. Blocks; a dead network file system below [`Roots::disk`] can make that long.
pub(crate) fn read(roots: &Roots) -> HostFacts {
    let text = |path: &str| read_text(&roots.root.join(path));
    let line = |path: &str| text(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let machine_id = line("etc/machine-id");
    HostFacts {
        cpus: text("sys/devices/system/cpu/online").ok().and_then(|list| parse::cpu_count(&list)),
        memory: text("proc/meminfo").ok().and_then(|info| parse::memory_total(&info)),
        huge_pages: huge_pages(&roots.root.join("sys/kernel/mm/hugepages")),
        disk: rustix::fs::statvfs(&roots.disk).ok().map(|stat| stat.f_blocks.saturating_mul(stat.f_frsize)),
        system_uuid: match text("sys/class/dmi/id/product_uuid") {
            Ok(uuid) => uuid.trim().to_owned(),
            // A machine without such firmware goes by its machine id, as with the kubelet.
            Err(ErrorKind::NotFound) => machine_id.clone(),
            Err(_) => String::new(),
        },
        machine_id,
        boot_id: line("proc/sys/kernel/random/boot_id"),
        kernel_version: line("proc/sys/kernel/osrelease"),
        os_image: text("etc/os-release").ok().and_then(|text| parse::pretty_name(&text)).unwrap_or_default(),
        in_user_namespace: text("proc/self/uid_map").is_ok_and(|map| parse::is_mapped(&map)),
    }
}

fn read_text(path: &Path) -> Result<String, ErrorKind> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes))
        .map_err(|error| error.kind())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn huge_pages(dir: &Path) -> BTreeMap<u64, u64> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_PAGE_SIZES);
    let sizes = entries.filter_map(|entry| {
        let size = parse::huge_page_size(entry.file_name().to_str()?)?;
        let count = read_text(&entry.path().join("nr_hugepages")).ok()?;
        Some((size, count.trim().parse().ok()?))
    });
    sizes.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn roots(dir: &tempfile::TempDir) -> Roots {
        Roots { root: dir.path().to_owned(), disk: dir.path().to_owned() }
    }

    #[test]
    fn facts_are_read_from_files() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sys/devices/system/cpu/online", "0-3,8\n"),
            ("proc/meminfo", "MemTotal:        1000 kB\nMemFree: 10 kB\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
            ("etc/machine-id", "m\n"),
            ("proc/sys/kernel/random/boot_id", "b\n"),
            ("proc/sys/kernel/osrelease", "6.1\n"),
            ("etc/os-release", "NAME=x\nPRETTY_NAME=\"An OS 1\"\n"),
            ("proc/self/uid_map", "         0     100000      65536\n"),
        ] {
            write(dir.path(), path, text);
        }
        let mut facts = read(&roots(&dir));
        assert!(facts.disk.take().is_some_and(|bytes| bytes > 0));
        let expected = HostFacts {
            cpus: Some(5),
            memory: Some(1_024_000),
            huge_pages: [(2 << 20, 3), (1 << 30, 0)].into(),
            disk: None,
            machine_id: "m".to_owned(),
            system_uuid: "m".to_owned(),
            boot_id: "b".to_owned(),
            kernel_version: "6.1".to_owned(),
            os_image: "An OS 1".to_owned(),
            in_user_namespace: true,
        };
        assert_eq!(facts, expected);
        write(dir.path(), "sys/class/dmi/id/product_uuid", "U-1\n");
        assert_eq!(read(&roots(&dir)).system_uuid, "U-1");
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let gone = Roots { root: dir.path().join("gone"), disk: dir.path().join("gone") };
        assert_eq!(read(&gone), HostFacts::default());
        // As root every file can be read; a folder in its place cannot, by anybody.
        std::fs::create_dir_all(dir.path().join("sys/class/dmi/id/product_uuid")).unwrap();
        write(dir.path(), "etc/machine-id", "m");
        assert_eq!(read(&roots(&dir)).system_uuid, "", "unreadable is not the same as missing");
    }

    #[test]
    fn long_files_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "etc/machine-id", &"x".repeat(1 << 20));
        let path = dir.path().join("etc/machine-id");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
        assert_eq!(read(&roots(&dir)).machine_id.len(), 64 * 1024);
    }
}
