//! What every process tells of itself: processor time, memory and descriptors, from `/proc/self`.

use std::fs;

use bulkhead_api::process::v1::MetricFamily;

use super::Desc;

const fn plain(name: &'static str, help: &'static str) -> Desc {
    Desc { name, help, labels: &[] }
}

/// Figures of this process now; one that cannot be read is left out. Blocks for four small reads.
pub fn process_metrics(started_unix_seconds: f64) -> Vec<MetricFamily> {
    let one = |value| [(Vec::new(), value)];
    let stat = fs::read_to_string("/proc/self/stat").ok().and_then(|text| stat(&text));
    let limit = fs::read_to_string("/proc/self/limits").ok().and_then(|text| max_fds(&text));
    let open =
        fs::read_dir("/proc/self/fd").ok().map(|folder| number(u64::try_from(folder.count()).unwrap_or(0)));
    let mut all = vec![
        plain("process_start_time_seconds", "Start of the process since 1970, in seconds.")
            .gauge(one(started_unix_seconds)),
    ];
    if let Some(stat) = stat {
        all.push(
            plain("process_cpu_seconds_total", "Processor time used by the process, in seconds.")
                .counter(one(stat.cpu_seconds)),
        );
        all.push(
            plain("process_resident_memory_bytes", "Resident memory of the process.")
                .gauge(one(stat.resident)),
        );
        all.push(
            plain("process_virtual_memory_bytes", "Address space of the process.").gauge(one(stat.virtual_)),
        );
    }
    if let Some(open) = open {
        // The folder that is read has a descriptor of its own.
        all.push(plain("process_open_fds", "Open file descriptors.").gauge(one((open - 1.0).max(0.0))));
    }
    if let Some(limit) = limit {
        all.push(plain("process_max_fds", "File descriptors that may be open.").gauge(one(limit)));
    }
    all
}

#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    virtual_: f64,
    resident: f64,
}

/// proc(5): the name in parentheses may hold anything, so fields are counted from its end.
fn stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = rustix::param::clock_ticks_per_second();
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    // `utime` and `stime` are fields 14 and 15, `vsize` 23 and `rss` 24; the first one here is 3.
    let used = field(11)?.saturating_add(field(12)?);
    Some(Stat {
        cpu_seconds: number(used) / number(ticks.max(1)),
        virtual_: number(field(20)?),
        resident: number(field(21)?.saturating_mul(page)),
    })
}

fn max_fds(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    Some(number(line.split_ascii_whitespace().next()?.parse().ok()?))
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_field() {
        let ticks = rustix::param::clock_ticks_per_second();
        let text =
            format!("7 (a) b 9 (c)) S 1 7 7 0 -1 4 5 0 0 0 {ticks} {ticks} 0 0 20 0 1 0 99 4096 2 0\n");
        let page = number(u64::try_from(rustix::param::page_size()).unwrap());
        assert_eq!(stat(&text), Some(Stat { cpu_seconds: 2.0, virtual_: 4096.0, resident: 2.0 * page }));
        for broken in ["", "7 (a", "7 (a) S", "7 (a) S 1 7 7 0 -1 4 5 0 0 0 x y 0 0 20 0 1 0 99 1 2"] {
            assert_eq!(stat(broken), None, "{broken}");
        }
        assert_eq!(
            max_fds("Max processes 1 2 p\nMax open files            1024    4096    files\n"),
            Some(1024.0)
        );
        assert_eq!(max_fds("Max open files            unlimited unlimited files\n"), None);
    }

    #[test]
    fn this_process_is_read() {
        let told = process_metrics(5.0);
        let names: Vec<_> = told.iter().map(|family| family.name.as_str()).collect();
        let wanted = [
            "process_start_time_seconds",
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_max_fds",
        ];
        assert_eq!(names, wanted);
        assert!(told.iter().all(|family| family.series[0].value >= 0.0));
        assert!(told[2].series[0].value > 100_000.0, "a test binary is larger");
    }
}
