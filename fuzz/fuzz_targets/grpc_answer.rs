//! What the server of a gRPC probe answers, HTTP/2 frames and all.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| prober::fuzz::grpc_answer(bytes));
