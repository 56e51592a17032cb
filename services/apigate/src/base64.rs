//! Base64 as kubeconfigs and certificate requests have it: the standard alphabet, padded. Pure.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes `text`; line breaks and spaces in it are passed over. `None`: it is none.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.chunks_exact(4);
    let last = groups.len().checked_sub(1);
    for (at, group) in groups.enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && Some(at) != last) {
            return None;
        }
        let mut bits = 0_u32;
        for byte in group.iter().take(4 - padding) {
            bits = bits << 6 | value(*byte)?;
        }
        bits <<= 6 * u32::try_from(padding).ok()?;
        let [_, decoded @ ..] = bits.to_be_bytes();
        let (kept, cut) = decoded.split_at(3 - padding);
        if cut.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(kept);
    }
    Some(bytes)
}

/// Encodes `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4_usize {
            let letter = bits >> (18 - 6 * place) & 0x3f;
            let letter = usize::try_from(letter).ok().and_then(|letter| ALPHABET.get(letter));
            text.push(letter.filter(|_| place <= group.len()).map_or('=', |letter| char::from(*letter)));
        }
    }
    text
}

fn value(letter: u8) -> Option<u32> {
    ALPHABET.iter().position(|known| *known == letter).and_then(|value| u32::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_alphabet_is_the_standard_one() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode("Zm9v\n Yg==\n").unwrap(), b"foob");
        for text in ["Z", "Zg", "Zg=", "Zg==Zg==", "=", "====", "Z===", "Zh==", "Zm9_", "Zm-v", "Zmé="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn any_text_is_survived(text in "\\PC{0,40}|[A-Za-z0-9+/=]{0,40}") {
            if let Some(bytes) = decode(&text) {
                let plain: String = text.split_whitespace().collect();
                prop_assert_eq!(encode(&bytes), plain);
            }
        }
    }
}
