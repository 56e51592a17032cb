//! Files of cgroups, /proc and /sys.
#![no_main]

use bulkhead_model::capacity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    evictd::fuzz::proc_files(bytes);
    let text = String::from_utf8_lossy(bytes);
    bulkhead_cgroup::fuzz::kernel_files(&text);
    let _ = (capacity::memory_total(&text), capacity::cpu_count(&text), capacity::huge_page_size(&text));
});
