//! Fingerprints: a static pod's UID and a container's spec hash.
//!
//! Both outlive a process and a release: a changed value restarts what runs. Change nothing here without a migration.

use k8s_openapi::api::core::v1::{Container, Pod};
use md5::{Digest, Md5};

/// Fingerprint of what makes a container a different one: its name and its image. Everything else of a spec can only
/// change with the pod's UID. 32-bit FNV-1a over the JSON object of the two, keys sorted.
pub fn container_hash(container: &Container) -> u32 {
    let fields =
        serde_json::json!({"image": container.image.as_deref().unwrap_or(""), "name": container.name});
    fnv32a(canonical(fields).as_bytes())
}

/// MD5 of the pod's canonical JSON followed by `suffixes`, as 32 hexadecimal digits.
pub(crate) fn pod_hash(pod: &Pod, suffixes: &[String]) -> String {
    let json = serde_json::to_value(pod).map(canonical).unwrap_or_default();
    let mut hasher = Md5::new();
    hasher.update(json.as_bytes());
    for suffix in suffixes {
        hasher.update(suffix.as_bytes());
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// JSON without white space, with sorted keys however serde_json was built.
fn canonical(mut value: serde_json::Value) -> String {
    value.sort_all_objects();
    value.to_string()
}

fn fnv32a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_of_known_texts() {
        for (text, hash) in [("", 0x811c_9dc5), ("a", 0xe40c_292c), ("foobar", 0xbf9c_f968)] {
            assert_eq!(fnv32a(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn only_name_and_image_count() {
        let base = Container { name: "c".into(), image: Some("bb:1".into()), ..Default::default() };
        let hash = container_hash(&base);
        assert_eq!(hash, fnv32a(br#"{"image":"bb:1","name":"c"}"#));
        assert_eq!(container_hash(&Container { tty: Some(true), ..base.clone() }), hash);
        assert_ne!(container_hash(&Container { image: Some("bb:2".into()), ..base.clone() }), hash);
        assert_ne!(container_hash(&Container { name: "d".into(), ..base }), hash);
    }

    #[test]
    fn the_pods_hash_is_md5_over_json_and_suffixes() {
        let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#;
        let pod: Pod = serde_json::from_str(json).unwrap();
        let expected: String =
            Md5::digest(format!("{json}xy")).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(pod_hash(&pod, &["x".into(), "y".into()]), expected);
        assert_eq!(expected.len(), 32);
    }
}
