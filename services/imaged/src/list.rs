//! What the node object says of the node's images. Pure.

use std::cmp::Reverse;

use bulkhead_api::imaged::v1::NodeImage;
use bulkhead_cri::wire::Image;

/// Names of one image: the kubelet's bound.
const NAMES: usize = 5;

/// The largest images, at most `most` of them; 0: all. One without a name nobody can ask for.
pub(crate) fn node_images(images: Vec<Image>, most: u32) -> Vec<NodeImage> {
    let named = images.into_iter().filter_map(|image| {
        let mut names: Vec<_> = image.repo_digests.into_iter().chain(image.repo_tags).collect();
        names.sort_by_cached_key(|name| (name.contains('@'), name.clone()));
        names.truncate(NAMES);
        (!names.is_empty()).then_some(NodeImage { names, size_bytes: image.size })
    });
    let mut images: Vec<_> = named.collect();
    images.sort_by(|a, b| (Reverse(a.size_bytes), &a.names).cmp(&(Reverse(b.size_bytes), &b.names)));
    if let (1.., Ok(most)) = (most, usize::try_from(most)) {
        images.truncate(most);
    }
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(tags: &[&str], digests: &[&str], size: u64) -> Image {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Image { repo_tags: own(tags), repo_digests: own(digests), size, ..Image::default() }
    }

    fn listed(images: Vec<Image>, most: u32) -> Vec<(String, u64)> {
        let images = node_images(images, most).into_iter();
        images.map(|image| (image.names.join(" "), image.size_bytes)).collect()
    }

    #[test]
    fn the_largest_come_first_under_at_most_five_names() {
        let images = || {
            vec![
                image(&["b:1"], &[], 1),
                image(&["a:1"], &[], 1),
                image(&["c:3", "c:2", "c:1"], &["c@sha256:2", "c@sha256:1", "c@sha256:0"], 9),
                image(&[], &[], 100),
            ]
        };
        let all = [
            ("c:1 c:2 c:3 c@sha256:0 c@sha256:1".to_owned(), 9),
            ("a:1".to_owned(), 1),
            ("b:1".to_owned(), 1),
        ];
        assert_eq!(listed(images(), 0), all);
        assert_eq!(listed(images(), 2), all[..2]);
    }
}
