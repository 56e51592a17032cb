//! The parsers of /proc, open to fuzzing. Nobody else may use this.

use crate::{net, proc};

/// Reads `bytes` as every file of /proc that is read here. It must return, whatever they are.
pub fn proc_files(bytes: &[u8]) {
    proc::read_anything(bytes);
    let text = String::from_utf8_lossy(bytes);
    let figures = net::figures(&text, &text);
    assert!(figures.interfaces.len() <= 256, "more interfaces than are kept");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_file_is_survived(text in "((cpu|cpu0|intr|ctxt|btime|MemTotal:|eth0:) ?[0-9 .kB/-]{0,60}\n){0,8}|.{0,80}") {
            super::proc_files(text.as_bytes());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            super::proc_files(&bytes);
        }
    }
}
