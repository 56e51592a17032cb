//! bulkhead.imaged.v1.Imaged: parse, call, answer.

use std::time::Duration;

use bulkhead_api::imaged::v1 as wire;
use bulkhead_cri::Images;
use bulkhead_ipc::status::to_status;
use bulkhead_model::image::PullPolicy;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::answer::{Answer, Waiting};
use crate::credentials::Owner;
use crate::ensure::{Keeper, Need};
use crate::error::EnsureError;
use crate::gc::{Collector, Disk, Users};
use crate::list;
use crate::table::Asker;

/// Longest wait for a pull within one call: the deadline that bulkhead.imaged.v1 names.
const LONGEST: Duration = Duration::from_secs(120);
/// How long before the caller's deadline the answer is sent, at most.
const MARGIN: Duration = Duration::from_secs(1);
/// Longest pod UID and container name taken, in bytes.
const NAME_BYTES: usize = 253;
/// Pull secrets of one pod that are looked at.
const PULL_SECRETS: usize = 64;

/// The handlers.
pub(crate) struct Handlers<R, U, D> {
    keeper: Keeper<R>,
    collector: Collector<R, U, D>,
}

impl<R: Images, U: Users, D: Disk> Handlers<R, U, D> {
    /// Answers with what `keeper` finds, and what `collector` frees.
    pub(crate) fn new(keeper: Keeper<R>, collector: Collector<R, U, D>) -> Self {
        Self { keeper, collector }
    }
}

#[tonic::async_trait]
impl<R: Images, U: Users, D: Disk> wire::imaged_server::Imaged for Handlers<R, U, D> {
    async fn ensure_image(
        &self,
        request: Request<wire::EnsureImageRequest>,
    ) -> Result<Response<wire::EnsureImageResponse>, Status> {
        let deadline = Instant::now() + patience(request.metadata());
        let need = need(request.into_inner()).map_err(|error| to_status(&error))?;
        let answer = self.keeper.ensure(&need, deadline).await.map_err(|error| to_status(&error))?;
        Ok(Response::new(to_wire(answer)))
    }

    async fn reclaim_images(
        &self,
        _: Request<wire::ReclaimImagesRequest>,
    ) -> Result<Response<wire::ReclaimImagesResponse>, Status> {
        let freed_bytes = self.collector.reclaim().await.map_err(|error| to_status(&error))?;
        Ok(Response::new(wire::ReclaimImagesResponse { freed_bytes }))
    }

    async fn list_node_images(
        &self,
        request: Request<wire::ListNodeImagesRequest>,
    ) -> Result<Response<wire::ListNodeImagesResponse>, Status> {
        let most = request.into_inner().most;
        let images = self.keeper.images().await.map_err(|error| to_status(&error))?;
        Ok(Response::new(wire::ListNodeImagesResponse { images: list::node_images(images, most) }))
    }
}

fn need(request: wire::EnsureImageRequest) -> Result<Need, EnsureError> {
    let wrong = |field, problem| Err(EnsureError::Request { field, problem });
    for (field, text) in [("pod_uid", &request.pod_uid), ("container_name", &request.container_name)] {
        if text.is_empty() {
            return wrong(field, "it is empty");
        }
        if text.len() > NAME_BYTES {
            return wrong(field, "it is longer than 253 bytes");
        }
    }
    if request.image.is_empty() {
        return wrong("image", "it is empty");
    }
    let Some(policy) = PullPolicy::parse(&request.pull_policy) else {
        return wrong("pull_policy", "it is neither Always, IfNotPresent nor Never");
    };
    let asker = Asker { pod_uid: request.pod_uid, container: request.container_name };
    let secrets = request.pull_secrets.into_iter().filter(|name| !name.is_empty()).take(PULL_SECRETS);
    let owner = Owner { namespace: request.pod_namespace, secrets: secrets.collect() };
    Ok(Need { asker, image: request.image, policy, owner })
}

fn to_wire(answer: Answer) -> wire::EnsureImageResponse {
    use wire::ensure_image_response::Result as Wire;
    let result = match answer {
        Answer::Present { image, pulled } => Wire::Present(wire::ImagePresent {
            image_ref: image.id,
            uid: image.uid,
            username: image.username,
            size_bytes: image.size,
            pulled,
        }),
        Answer::Waiting(Waiting { reason, message, retry_after }) => Wire::Waiting(wire::ImageWaiting {
            reason: reason.as_str().to_owned(),
            message,
            // A Duration of the standard library that does not fit is centuries long.
            retry_after: prost_types::Duration::try_from(retry_after).ok(),
        }),
    };
    wire::EnsureImageResponse { result: Some(result) }
}

/// How long a call may wait: until shortly before its caller gives up.
fn patience(metadata: &MetadataMap) -> Duration {
    let timeout = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(parse_timeout);
    let whole = timeout.map_or(LONGEST, |timeout| timeout.min(LONGEST));
    whole.saturating_sub(MARGIN.min(whole / 4))
}

/// The `grpc-timeout` header: at most eight digits and a unit.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.saturating_mul(3600)),
        "M" => Duration::from_secs(number.saturating_mul(60)),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bulkhead_ipc::status::with_deadline;
    use tonic::Code;

    use super::*;

    #[test]
    fn a_call_is_answered_before_its_caller_gives_up() {
        for (timeout, millis) in
            [(120_000, 119_000), (3_600_000, 119_000), (10_000, 9_000), (400, 300), (0, 0)]
        {
            let request = with_deadline((), Duration::from_millis(timeout));
            assert_eq!(patience(request.metadata()).as_millis(), millis, "{timeout}");
        }
        assert_eq!(patience(&MetadataMap::new()).as_secs(), 119);
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        let table = [
            ("1H", Some(3_600_000_000)),
            ("2M", Some(120_000_000)),
            ("3S", Some(3_000_000)),
            ("4m", Some(4000)),
            ("5u", Some(5)),
            ("6000n", Some(6)),
            ("99999999H", Some(359_999_996_400_000_000)),
            ("123456789S", None),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
            ("+5S", None),
            ("5é", None),
        ];
        for (text, micros) in table {
            assert_eq!(parse_timeout(text).map(|timeout| timeout.as_micros()), micros, "{text}");
        }
    }

    #[test]
    fn a_request_must_say_everything() {
        let good = wire::EnsureImageRequest {
            pod_uid: "u1".to_owned(),
            container_name: "app".to_owned(),
            image: "a:1".to_owned(),
            pull_policy: "Never".to_owned(),
            ..Default::default()
        };
        assert_eq!(need(good.clone()).unwrap().policy, PullPolicy::Never);
        let (empty, long) = (String::new, || "x".repeat(NAME_BYTES + 1));
        let table = [
            (wire::EnsureImageRequest { pod_uid: empty(), ..good.clone() }, "pod_uid"),
            (wire::EnsureImageRequest { pod_uid: long(), ..good.clone() }, "pod_uid"),
            (wire::EnsureImageRequest { container_name: empty(), ..good.clone() }, "container_name"),
            (wire::EnsureImageRequest { container_name: long(), ..good.clone() }, "container_name"),
            (wire::EnsureImageRequest { image: empty(), ..good.clone() }, "image"),
            (wire::EnsureImageRequest { pull_policy: "never".to_owned(), ..good.clone() }, "pull_policy"),
        ];
        for (request, field) in table {
            let status = to_status(&need(request).unwrap_err());
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(field), "{status}");
        }
    }
}
