//! The configuration and a drop-in: two texts, split at the first line of dashes and an x.
#![no_main]

use bulkhead_config::{Source, parse};
use libfuzzer_sys::fuzz_target;

const SPLIT: &[u8] = b"\n--x\n";

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.windows(SPLIT.len()).position(|window| window == SPLIT);
    let (main, drop_in) = match at {
        Some(at) => (&bytes[..at], &bytes[at + SPLIT.len()..]),
        None => (bytes, &[][..]),
    };
    let mut sources = vec![Source { name: "a", text: main }];
    if at.is_some() {
        sources.push(Source { name: "b", text: drop_in });
    }
    match parse(&sources, &[]) {
        Ok(loaded) => {
            let printed = loaded.config.to_configz_json().unwrap();
            assert!(printed.starts_with("{\"kubeletconfig\":"));
        }
        Err(error) => assert!(error.to_string().len() < 100_000),
    }
});
