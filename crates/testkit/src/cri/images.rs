//! The images of the fake runtime and their ImageService.

use std::collections::{BTreeMap, BTreeSet};

use bulkhead_api::cri::v1;
use tonic::{Request, Status};
use v1::image_service_server::ImageService;

use super::log::{Call, Detail, Method};
use super::server::Service;
use super::{Answer, Boxed, answer};

/// Bytes of an image that nobody gave a size.
const SIZE: u64 = 1024 * 1024;

/// The images on the node, and what registries would refuse.
#[derive(Clone, Debug, Default)]
pub struct Images {
    present: BTreeMap<String, v1::Image>,
    refused: BTreeMap<String, Status>,
    moved: BTreeSet<String>,
    made: u64,
}

impl Images {
    /// Every image, by id.
    pub fn all(&self) -> impl Iterator<Item = &v1::Image> {
        self.present.values()
    }

    /// The image that an id, tag or digest names. Short names are Docker's: `busybox` is
    /// `docker.io/library/busybox:latest`.
    pub fn find(&self, reference: &str) -> Option<&v1::Image> {
        if reference.is_empty() {
            return None;
        }
        if let Some(image) = self.present.get(reference) {
            return Some(image);
        }
        let name = full_name(reference);
        self.present
            .values()
            .find(|image| image.repo_tags.contains(&name) || image.repo_digests.contains(&name))
    }

    /// Makes an image present under a reference and returns its id; one that is present stays as it is.
    pub(super) fn add(&mut self, reference: &str) -> String {
        if let Some(image) = self.find(reference) {
            return image.id.clone();
        }
        self.made = self.made.wrapping_add(1);
        let name = full_name(reference);
        let (tags, digest) = match name.split_once('@') {
            Some(_) => (Vec::new(), name),
            None => {
                let repository = name.rsplit_once(':').map_or(name.as_str(), |(repository, _)| repository);
                let digest = format!("{repository}@sha256:d{:063x}", self.made);
                (vec![name], digest)
            }
        };
        let image = v1::Image {
            id: format!("sha256:1{:063x}", self.made),
            repo_tags: tags,
            repo_digests: vec![digest],
            size: SIZE,
            ..v1::Image::default()
        };
        let id = image.id.clone();
        self.put(image);
        id
    }

    /// Makes exactly this image present. Its tags move away from others.
    pub(super) fn put(&mut self, image: v1::Image) {
        for other in self.present.values_mut() {
            other.repo_tags.retain(|tag| !image.repo_tags.contains(tag));
        }
        self.present.insert(image.id.clone(), image);
    }

    pub(super) fn remove(&mut self, reference: &str) {
        if let Some(id) = self.find(reference).map(|image| image.id.clone()) {
            self.present.remove(&id);
        }
    }

    pub(super) fn refuse(&mut self, reference: &str, status: Status) {
        self.refused.insert(full_name(reference), status);
    }

    pub(super) fn allow(&mut self, reference: &str) {
        self.refused.remove(&full_name(reference));
    }

    /// The registry's tag points to another image from now on; the node learns it at the next pull.
    pub(super) fn move_tag(&mut self, reference: &str) {
        self.moved.insert(full_name(reference));
    }

    fn pull(&mut self, reference: &str) -> Result<String, Status> {
        let name = full_name(reference);
        if let Some(status) = self.refused.get(&name) {
            return Err(status.clone());
        }
        if self.moved.remove(&name) {
            for image in self.present.values_mut() {
                image.repo_tags.retain(|tag| *tag != name);
            }
        }
        Ok(self.add(&name))
    }

    fn matching(&self, filter: Option<&v1::ImageFilter>) -> Vec<v1::Image> {
        match filter.and_then(|filter| filter.image.as_ref()).map(|spec| spec.image.as_str()) {
            None | Some("") => self.present.values().cloned().collect(),
            Some(reference) => self.find(reference).cloned().into_iter().collect(),
        }
    }
}

/// `busybox` -> `docker.io/library/busybox:latest`; a bare id stays.
fn full_name(reference: &str) -> String {
    if reference.starts_with("sha256:") {
        return reference.to_owned();
    }
    let (first, has_path) = reference.split_once('/').map_or((reference, false), |(first, _)| (first, true));
    let is_registry = has_path && (first.contains(['.', ':']) || first == "localhost");
    let name = match (is_registry, has_path) {
        (true, _) => reference.to_owned(),
        (false, true) => format!("docker.io/{reference}"),
        (false, false) => format!("docker.io/library/{reference}"),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    if last.contains(':') || name.contains('@') { name } else { format!("{name}:latest") }
}

fn reference(spec: Option<&v1::ImageSpec>) -> &str {
    spec.map(|spec| spec.image.as_str()).unwrap_or_default()
}

#[tonic::async_trait]
impl ImageService for Service {
    async fn list_images(&self, request: Request<v1::ListImagesRequest>) -> Answer<v1::ListImagesResponse> {
        self.run(&request, Call::new(Method::ListImages), async |_| {
            let images = self.read(|world| world.images.matching(request.get_ref().filter.as_ref()));
            answer(v1::ListImagesResponse { images })
        })
        .await
    }

    type StreamImagesStream = Boxed<v1::StreamImagesResponse>;

    async fn stream_images(
        &self,
        request: Request<v1::StreamImagesRequest>,
    ) -> Answer<Self::StreamImagesStream> {
        self.refuse(&request, Method::StreamImages).await
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Answer<v1::ImageStatusResponse> {
        let spec = request.get_ref().image.as_ref();
        self.run(&request, Call::new(Method::ImageStatus).image(spec), async |_| {
            let image = self.read(|world| world.images.find(reference(spec)).cloned());
            answer(v1::ImageStatusResponse { image, ..Default::default() })
        })
        .await
    }

    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answer<v1::PullImageResponse> {
        let spec = request.get_ref().image.as_ref();
        let detail = Detail::PullImage(Box::new(request.get_ref().clone()));
        self.run(&request, Call::new(Method::PullImage).image(spec).detail(detail), async |_| {
            if reference(spec).is_empty() {
                return Err(Status::unknown(
                    "failed to parse image reference \"\": invalid reference format",
                ));
            }
            let image_ref = self.change(|world, _| world.images.pull(reference(spec)))?;
            answer(v1::PullImageResponse { image_ref })
        })
        .await
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Answer<v1::RemoveImageResponse> {
        let spec = request.get_ref().image.as_ref();
        self.run(&request, Call::new(Method::RemoveImage).image(spec), async |_| {
            self.change(|world, _| world.images.remove(reference(spec)));
            answer(v1::RemoveImageResponse {})
        })
        .await
    }

    async fn image_fs_info(
        &self,
        request: Request<v1::ImageFsInfoRequest>,
    ) -> Answer<v1::ImageFsInfoResponse> {
        self.run(&request, Call::new(Method::ImageFsInfo), async |_| {
            let now = self.now();
            let (bytes, inodes) = self.read(|world| {
                let images: u64 = world.images.all().map(|image| image.size).sum();
                let layers = world.containers.values().map(|container| container.usage);
                layers.fold((images, 0), |(bytes, inodes), usage| {
                    (bytes + usage.writable_layer_bytes, inodes + usage.writable_layer_inodes)
                })
            });
            let file_system = v1::FilesystemUsage {
                timestamp: now,
                fs_id: Some(v1::FilesystemIdentifier { mountpoint: self.image_directory() }),
                used_bytes: Some(v1::UInt64Value { value: bytes }),
                inodes_used: Some(v1::UInt64Value { value: inodes }),
            };
            answer(v1::ImageFsInfoResponse {
                image_filesystems: vec![file_system.clone()],
                container_filesystems: vec![file_system],
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_dockers() {
        for (short, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1", "docker.io/library/busybox:1"),
            ("team/app:2", "docker.io/team/app:2"),
            ("localhost/app", "localhost/app:latest"),
            ("registry:5000/app", "registry:5000/app:latest"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            ("registry.k8s.io/pause@sha256:ab", "registry.k8s.io/pause@sha256:ab"),
            ("sha256:ab", "sha256:ab"),
        ] {
            assert_eq!(full_name(short), full, "{short}");
        }
    }
}
