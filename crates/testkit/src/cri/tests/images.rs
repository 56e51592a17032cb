//! Images over the socket.

use super::*;

fn spec(reference: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec { image: reference.to_owned(), ..Default::default() })
}

impl Bench {
    async fn pull(&mut self, reference: &str) -> Result<String, Status> {
        let request = v1::PullImageRequest { image: spec(reference), ..Default::default() };
        Ok(self.images.pull_image(request).await?.into_inner().image_ref)
    }

    async fn image(&mut self, reference: &str) -> Option<v1::Image> {
        let request = v1::ImageStatusRequest { image: spec(reference), verbose: false };
        self.images.image_status(request).await.unwrap().into_inner().image
    }
}

#[tokio::test]
async fn an_image_is_found_by_id_tag_and_digest_until_it_is_removed() {
    let mut bench = bench().await;
    assert_eq!(bench.image("busybox").await, None, "absent is an answer, not an error");
    let id = bench.pull("busybox").await.unwrap();
    let image = bench.image("docker.io/library/busybox:latest").await.unwrap();
    assert_eq!(image.id, id);
    assert_eq!(bench.image(&image.repo_digests[0]).await.unwrap().id, id);
    assert_eq!(bench.pull("busybox:latest").await.unwrap(), id, "pulling again changes nothing");
    let all = bench.images.list_images(v1::ListImagesRequest { filter: None }).await.unwrap().into_inner();
    assert_eq!(all.images.len(), 2, "and the bench's own");

    let remove = v1::RemoveImageRequest { image: spec(&id) };
    bench.images.remove_image(remove.clone()).await.unwrap();
    assert_eq!(code(bench.images.remove_image(remove).await), Code::Ok, "again");
    assert_eq!(bench.image("busybox").await, None);
    let filter = Some(v1::ImageFilter { image: spec("local/bb:1") });
    let left = bench.images.list_images(v1::ListImagesRequest { filter }).await.unwrap().into_inner();
    assert_eq!(left.images.len(), 1);
}

#[tokio::test]
async fn a_refused_pull_fails_until_it_is_allowed() {
    let mut bench = bench().await;
    bench.fake.refuse_pulls("private/app:1", Status::unauthenticated("no credentials"));
    assert_eq!(code(bench.pull("docker.io/private/app:1").await), Code::Unauthenticated);
    assert_eq!(code(bench.pull("private/app:2").await), Code::Ok, "another one");
    bench.fake.allow_pulls("private/app:1");
    assert_eq!(code(bench.pull("private/app:1").await), Code::Ok);
    assert_eq!(code(bench.pull("").await), Code::Unknown);
    assert_eq!(bench.fake.log().count(Method::PullImage), 4);
}

#[tokio::test]
async fn a_moved_tag_brings_another_image_at_the_next_pull() {
    let mut bench = bench().await;
    let old = bench.pull("app:1").await.unwrap();
    bench.fake.move_tag("app:1");
    assert_eq!(bench.image("app:1").await.unwrap().id, old, "the node does not know yet");
    let new = bench.pull("app:1").await.unwrap();
    assert_ne!(new, old);
    assert_eq!(bench.image("app:1").await.unwrap().id, new);
    assert!(bench.image(&old).await.unwrap().repo_tags.is_empty(), "the old one stays without its tag");
}

#[tokio::test]
async fn the_file_system_holds_images_and_layers() {
    let mut bench = bench().await;
    bench.fake.remove_behind_back(IMAGE);
    bench.fake.put_image(v1::Image {
        id: "sha256:aa".to_owned(),
        repo_tags: vec!["docker.io/local/bb:1".to_owned()],
        size: 1000,
        pinned: true,
        ..Default::default()
    });
    let (_, app) = bench.running("u1", "app").await;
    let usage = Usage { writable_layer_bytes: 24, writable_layer_inodes: 3, ..Usage::default() };
    bench.fake.set_usage(&app, usage);
    let info = bench.images.image_fs_info(v1::ImageFsInfoRequest {}).await.unwrap().into_inner();
    let [file_system] = info.image_filesystems.as_slice() else { panic!("one file system: {info:?}") };
    assert_eq!(file_system.used_bytes.unwrap().value, 1024);
    assert_eq!(file_system.inodes_used.unwrap().value, 3);
    assert_eq!(bench.status(&app).await.unwrap().image_ref, "sha256:aa", "no digest: the id");
}
