//! Figures of the whole machine from /proc. Blocks for a few small reads.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use procfs::prelude::{FromBufReadSI, FromRead};
use procfs::{KernelStats, LoadAverage, ProcError};

use crate::error::CollectError;

/// Largest `stat`, in bytes: its line of interrupts has some ten thousand numbers on the largest machines.
const STAT_LIMIT: u64 = 4 * 1024 * 1024;
/// Largest other file, in bytes.
const SMALL_LIMIT: u64 = 64 * 1024;

/// What /proc says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcFigures {
    /// When the machine was started, in seconds since 1970.
    pub(crate) boot_seconds: u64,
    /// Processor time used since then by all processors, in nanoseconds. In steps of a clock tick.
    pub(crate) cpu_used_ns: u64,
    /// Memory of the machine, in bytes.
    pub(crate) memory_total: u64,
    /// Memory that nobody uses.
    pub(crate) memory_free: u64,
    /// File pages that were not touched lately.
    pub(crate) inactive_file: u64,
    /// Anonymous memory.
    pub(crate) anonymous: u64,
    /// Swap of the machine.
    pub(crate) swap_total: u64,
    /// Swap that nobody uses.
    pub(crate) swap_free: u64,
    /// Processes and threads now.
    pub(crate) tasks: u64,
    /// The most tasks that there may be.
    pub(crate) max_tasks: u64,
}

impl ProcFigures {
    /// Swap that containers may still use. Known without looking at their limits only where there is none.
    pub(crate) fn available_to_containers(&self) -> Option<u64> {
        (self.swap_total == 0).then_some(0)
    }
}

/// Reads it all from `dir`, usually `/proc`.
pub(crate) fn read(dir: &Path) -> Result<ProcFigures, CollectError> {
    let stat = parse(dir.join("stat"), STAT_LIMIT, kernel_stats)?;
    Ok(ProcFigures {
        boot_seconds: stat.btime,
        cpu_used_ns: used_ticks(&stat).saturating_mul(tick_ns()),
        ..read_lean(dir)?
    })
}

/// Reads all but the processors' time, which costs the most.
pub(crate) fn read_lean(dir: &Path) -> Result<ProcFigures, CollectError> {
    let memory = parse(dir.join("meminfo"), SMALL_LIMIT, meminfo)?;
    let load = parse(dir.join("loadavg"), SMALL_LIMIT, load_average)?;
    let max_pid = number(dir.join("sys/kernel/pid_max"))?;
    let max_threads = number(dir.join("sys/kernel/threads-max"))?;
    Ok(ProcFigures {
        boot_seconds: 0,
        cpu_used_ns: 0,
        memory_total: memory.mem_total,
        memory_free: memory.mem_free,
        inactive_file: memory.inactive_file.unwrap_or(0),
        anonymous: memory.anon_pages.unwrap_or(0),
        swap_total: memory.swap_total,
        swap_free: memory.swap_free,
        tasks: u64::from(load.max),
        max_tasks: max_pid.min(max_threads),
    })
}

/// The kernel writes these files in ASCII, and their parsers cut names where a longer character may be.
fn ascii(bytes: &[u8]) -> Result<&[u8], ProcError> {
    if bytes.is_ascii() { Ok(bytes) } else { Err(ProcError::Other("it is not ASCII".to_owned())) }
}

fn kernel_stats(bytes: &[u8]) -> Result<KernelStats, ProcError> {
    KernelStats::from_buf_read(ascii(bytes)?, procfs::current_system_info())
}

/// The lines of `meminfo` that are needed, in bytes. procfs' own parser panics at some texts.
struct Meminfo {
    mem_total: u64,
    mem_free: u64,
    inactive_file: Option<u64>,
    anon_pages: Option<u64>,
    swap_total: u64,
    swap_free: u64,
}

fn meminfo(bytes: &[u8]) -> Result<Meminfo, ProcError> {
    let text = std::str::from_utf8(bytes).map_err(|error| ProcError::Other(error.to_string()))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
    };
    let needed = |name| field(name).ok_or_else(|| ProcError::Other(format!("no {name} in kB")));
    Ok(Meminfo {
        mem_total: needed("MemTotal")?,
        mem_free: needed("MemFree")?,
        inactive_file: field("Inactive(file)"),
        anon_pages: field("AnonPages"),
        swap_total: needed("SwapTotal")?,
        swap_free: needed("SwapFree")?,
    })
}

fn load_average(bytes: &[u8]) -> Result<LoadAverage, ProcError> {
    LoadAverage::from_read(ascii(bytes)?)
}

/// Every reader here, given the same bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    if let Ok(stat) = kernel_stats(bytes) {
        let _ = used_ticks(&stat).saturating_mul(tick_ns());
    }
    let _ = (meminfo(bytes).is_ok(), load_average(bytes).is_ok());
}

/// Time that was worked. Guests' time is within that of `user` and `nice` (proc(5)); stolen time was another machine's.
fn used_ticks(stat: &KernelStats) -> u64 {
    let cpu = &stat.total;
    let interrupts = [cpu.irq, cpu.softirq].into_iter().flatten();
    [cpu.user, cpu.nice, cpu.system].into_iter().chain(interrupts).fold(0, u64::saturating_add)
}

fn tick_ns() -> u64 {
    1_000_000_000_u64.checked_div(procfs::ticks_per_second()).unwrap_or(0)
}

fn number(path: PathBuf) -> Result<u64, CollectError> {
    parse(path, SMALL_LIMIT, |bytes| {
        let text = std::str::from_utf8(bytes).unwrap_or_default().trim();
        text.parse().map_err(|_| ProcError::Other("no number".to_owned()))
    })
}

fn parse<T>(
    path: PathBuf,
    limit: u64,
    parser: impl FnOnce(&[u8]) -> Result<T, ProcError>,
) -> Result<T, CollectError> {
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(limit.saturating_add(1)).read_to_end(&mut bytes));
    match read {
        Ok(read) if u64::try_from(read).is_ok_and(|read| read <= limit) => {}
        Ok(_) => return Err(CollectError::TooLarge { path, limit }),
        Err(source) => return Err(CollectError::Read { path, source }),
    }
    parser(&bytes).map_err(|error| {
        // The parser's own errors name its own source file, in many lines.
        let reason = match error {
            ProcError::Other(reason) => reason,
            _ => "not what the kernel writes there".to_owned(),
        };
        CollectError::Malformed { path, reason }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::ProcFixture;

    #[test]
    fn a_fixture_is_read() {
        let proc = ProcFixture::new();
        let expected = ProcFigures {
            boot_seconds: 1_796_051_663,
            // 100 + 10 + 50 + 3 + 7 ticks, not idle, iowait, steal and guest.
            cpu_used_ns: 170 * tick_ns(),
            memory_total: 8_000_000 * 1024,
            memory_free: 2_000_000 * 1024,
            inactive_file: 1_500_000 * 1024,
            anonymous: 1_000_000 * 1024,
            swap_total: 0,
            swap_free: 0,
            tasks: 287,
            max_tasks: 32_768,
        };
        assert_eq!(read(proc.dir()).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_names_the_file() {
        let files = ["stat", "meminfo", "loadavg", "sys/kernel/pid_max", "sys/kernel/threads-max"];
        for name in files {
            for content in
                ["", "x\n", "cpu 1\n", "MemTotal: many kB\n", "\u{fc}\u{fc}\n", "-1\n", "a\u{fffd} 1\n"]
            {
                let proc = ProcFixture::new();
                fs::write(proc.dir().join(name), content).unwrap();
                let error = read(proc.dir()).unwrap_err();
                assert!(matches!(error, CollectError::Malformed { .. }), "{name} {content:?}: {error:?}");
                assert!(error.to_string().contains(name), "{error}");
                assert!(error.to_string().lines().count() == 1, "{error}");
            }
            let proc = ProcFixture::new();
            fs::remove_file(proc.dir().join(name)).unwrap();
            let error = read(proc.dir()).unwrap_err();
            assert!(matches!(&error, CollectError::Read { path, .. } if path.ends_with(name)), "{error:?}");
        }
        let proc = ProcFixture::new();
        fs::write(proc.dir().join("loadavg"), " ".repeat(70_000)).unwrap();
        assert!(matches!(read(proc.dir()), Err(CollectError::TooLarge { .. })));
    }

    #[test]
    fn this_machine_is_read() {
        let figures = read(Path::new("/proc")).unwrap();
        assert!(figures.boot_seconds > 0 && figures.cpu_used_ns > 0, "{figures:?}");
        assert!(figures.memory_total > figures.memory_free && figures.memory_free > 0, "{figures:?}");
        assert!(figures.tasks > 0 && figures.max_tasks >= figures.tasks, "{figures:?}");
    }
}
