//! From the image of a pod's spec to what the runtime is asked for.

use bulkhead_model::image::{ImageError, ImageRef};

/// Checks a reference and adds `:latest` when it has neither tag nor digest, as the kubelet does.
///
/// The registry is not filled in: a runtime may have rules of its own for short names, and the name asked for must be
/// the one that its other tools show.
pub(crate) fn for_runtime(image: &str) -> Result<String, ImageError> {
    let parsed = ImageRef::parse(image)?;
    let bare = parsed.tag.is_none() && parsed.digest.is_none();
    Ok(if bare { format!("{image}:latest") } else { image.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tag_is_filled_in() {
        let digest = format!("busybox@sha256:{}", "a1".repeat(32));
        for (image, asked) in [
            ("busybox", "busybox:latest"),
            ("busybox:1", "busybox:1"),
            ("localhost:5000/app", "localhost:5000/app:latest"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            (&*digest, &*digest),
        ] {
            assert_eq!(for_runtime(image).unwrap(), asked);
        }
        for image in ["", "UPPER", "a b", "a@sha256:12", "http://a/b"] {
            assert!(for_runtime(image).is_err(), "{image:?}");
        }
    }
}
