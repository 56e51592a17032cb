//! Certificates of several bundles as one text. Pure.

use std::collections::BTreeSet;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
/// Letters of one line.
const LINE: usize = 64;

/// Every certificate of the bundles once, in an order that does not depend on theirs (API: the order is of no meaning, and may
/// change). What stands between certificates is left out.
pub(super) fn merge<'a>(bundles: impl Iterator<Item = &'a Vec<u8>>) -> String {
    let mut bodies = BTreeSet::new();
    for bundle in bundles {
        let text = String::from_utf8_lossy(bundle);
        for block in text.split(BEGIN).skip(1) {
            if let Some((body, _)) = block.split_once(END) {
                bodies.insert(body.chars().filter(|c| !c.is_whitespace()).collect::<String>());
            }
        }
    }
    let mut merged = String::new();
    for body in bodies {
        merged.push_str(BEGIN);
        for (at, letter) in body.chars().enumerate() {
            if at % LINE == 0 {
                merged.push('\n');
            }
            merged.push(letter);
        }
        merged.push('\n');
        merged.push_str(END);
        merged.push('\n');
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_certificate_once() {
        let bundle = |bodies: &[&str]| {
            let blocks = bodies.iter().map(|body| format!("# about it\n{BEGIN}\n{body}\n{END}\n"));
            blocks.collect::<String>().into_bytes()
        };
        let long = "A".repeat(65);
        let merged = merge([bundle(&["BB", &long]), bundle(&["B\nB", "CC"])].iter());
        let expected =
            format!("{BEGIN}\n{}\nA\n{END}\n{BEGIN}\nBB\n{END}\n{BEGIN}\nCC\n{END}\n", "A".repeat(64));
        assert_eq!(merged, expected);
        assert_eq!(
            merge([b"no certificate".to_vec(), b"-----BEGIN CERTIFICATE-----\nAA".to_vec()].iter()),
            ""
        );
    }
}
