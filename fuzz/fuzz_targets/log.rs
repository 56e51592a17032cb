//! A container's log, as the runtime writes it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| gateway::fuzz_log(bytes));
