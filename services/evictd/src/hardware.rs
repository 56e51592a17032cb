//! What machine this is. Blocks for some small reads. Must never fail the rest: what cannot be read is 0 or empty.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Largest list of processors, in bytes: some two thousand of them.
const LIMIT: u64 = 4 * 1024 * 1024;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hardware {
    /// Processors that the kernel schedules on.
    pub(crate) cpus: u64,
    /// Cores, each of which may be several processors.
    pub(crate) cores: u64,
    /// Sockets.
    pub(crate) sockets: u64,
    /// /etc/machine-id.
    pub(crate) machine_id: String,
    /// Of the firmware; empty when only root may read it.
    pub(crate) system_uuid: String,
    /// Changes with every boot.
    pub(crate) boot_id: String,
}

impl Hardware {
    /// With the proc file system at `proc_dir`, and `/etc` and `/sys` in `root`.
    pub(crate) fn read(proc_dir: &Path, root: &Path) -> Self {
        let line = |path: &Path| text(path).map(|text| text.trim().to_owned());
        let machine_id = line(&root.join("etc/machine-id")).unwrap_or_default();
        let system_uuid = match line(&root.join("sys/class/dmi/id/product_uuid")) {
            // A machine without such firmware goes by its machine id, as with the kubelet.
            Err(ErrorKind::NotFound) => machine_id.clone(),
            found => found.unwrap_or_default(),
        };
        let boot_id = line(&proc_dir.join("sys/kernel/random/boot_id")).unwrap_or_default();
        let (cpus, cores, sockets) = processors(&text(&proc_dir.join("cpuinfo")).unwrap_or_default());
        Self { cpus, cores, sockets, machine_id, system_uuid, boot_id }
    }
}

fn text(path: &Path) -> Result<String, ErrorKind> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LIMIT).read_to_end(&mut bytes))
        .map_err(|error| error.kind())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Processors, cores and sockets out of `cpuinfo`. Where it names no cores, each processor is one, in one socket.
fn processors(cpuinfo: &str) -> (u64, u64, u64) {
    let (mut cpus, mut cores, mut sockets) = (0_u64, BTreeSet::new(), BTreeSet::new());
    let mut socket = "";
    for line in cpuinfo.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        match (key.trim(), value.trim()) {
            ("processor", _) => cpus = cpus.saturating_add(1),
            ("physical id", id) => {
                socket = id;
                sockets.insert(id);
            }
            ("core id", id) => {
                cores.insert((socket, id));
            }
            _ => {}
        }
    }
    let count = |found: usize| u64::try_from(found).unwrap_or(0);
    let cores = if cores.is_empty() { cpus } else { count(cores.len()) };
    (cpus, cores, count(sockets.len()).max(cpus.min(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_share_cores_and_sockets() {
        let cpu = |n: u32, socket: u32, core: u32| {
            format!("processor\t: {n}\nmodel name\t: a: b\nphysical id\t: {socket}\ncore id\t\t: {core}\n\n")
        };
        let two = [cpu(0, 0, 0), cpu(1, 0, 0), cpu(2, 1, 0), cpu(3, 1, 0)].concat();
        let table = [
            (two.as_str(), (4, 2, 2)),
            ("processor : 0\nprocessor : 1\n", (2, 2, 1)),
            ("", (0, 0, 0)),
            ("x\n:\n", (0, 0, 0)),
        ];
        for (text, wanted) in table {
            assert_eq!(processors(text), wanted, "{text}");
        }
    }

    #[test]
    fn this_machine_is_read() {
        let found = Hardware::read(Path::new("/proc"), Path::new("/"));
        assert!(found.cpus >= found.cores && found.cores >= found.sockets && found.sockets > 0, "{found:?}");
        assert!(!found.boot_id.is_empty());
    }
}
