//! What the server of an HTTP probe answers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| prober::fuzz::http_answer(bytes));
