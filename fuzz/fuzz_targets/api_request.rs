//! What a process asks of apigate, and the files that apigate reads.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        // The first byte says which.
        Some((b'f', file)) => apigate::fuzz::file(file),
        Some(_) => apigate::fuzz::asked(&String::from_utf8_lossy(bytes)),
        None => {}
    }
});
