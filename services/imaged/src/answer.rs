//! What a container is told: an image, or a reason to wait in the kubelet's words.

use std::time::Duration;

use bulkhead_cri::wire;
use bulkhead_model::image::ImageError;

/// Longest message, in bytes: what bulkhead.imaged.v1 promises.
const MESSAGE_BYTES: usize = 1024;
/// How soon to ask again while a pull runs or waits for its turn.
const PULLING: Duration = Duration::from_secs(1);
/// How long ErrImagePull stands before it becomes ImagePullBackOff: both should be seen.
const JUST_FAILED: Duration = Duration::from_secs(5);
/// How soon to look again at what may change without this process: an image loaded by hand, the runtime's store.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How soon to ask again about what only another spec can mend.
const HOPELESS: Duration = Duration::from_secs(60);

/// An image on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The runtime's id of it: what CreateContainer takes.
    pub(crate) id: String,
    /// Numeric user, when the image names one by number.
    pub(crate) uid: Option<i64>,
    /// User name, when the image names one by name.
    pub(crate) username: String,
    /// Size in bytes.
    pub(crate) size: u64,
}

/// What there is to say about a container's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is there.
    Present {
        /// The image.
        image: Image,
        /// Whether a pull for this container brought it.
        pulled: bool,
    },
    /// It is not.
    Waiting(Waiting),
}

/// Why a container has no image yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// For the container's status.
    pub(crate) reason: Reason,
    /// At most 1,024 bytes.
    pub(crate) message: String,
    /// When a new call is worth it.
    pub(crate) retry_after: Duration,
}

/// Reasons as container statuses have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The pull runs or waits for its turn.
    ContainerCreating,
    /// The pull just failed.
    ErrImagePull,
    /// It failed, and the time for the next one has not come.
    ImagePullBackOff,
    /// It is absent and must not be pulled.
    ErrImageNeverPull,
    /// The reference cannot be read.
    InvalidImageName,
    /// The runtime cannot tell about the image.
    ImageInspectError,
    /// The runtime says that the registry is away.
    RegistryUnavailable,
    /// The runtime refuses the image's signature.
    SignatureValidationFailed,
}

/// A pull that failed: what stays of it during its back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PullFailure {
    /// ErrImagePull or one of the reasons that the runtime itself gives.
    pub(crate) reason: Reason,
    /// What the runtime said.
    pub(crate) text: String,
}

impl From<wire::Image> for Image {
    fn from(image: wire::Image) -> Self {
        Self { id: image.id, uid: image.uid.map(|uid| uid.value), username: image.username, size: image.size }
    }
}

impl Reason {
    /// The word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ContainerCreating => "ContainerCreating",
            Self::ErrImagePull => "ErrImagePull",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::InvalidImageName => "InvalidImageName",
            Self::ImageInspectError => "ImageInspectError",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::SignatureValidationFailed => "SignatureValidationFailed",
        }
    }
}

impl PullFailure {
    /// Reads the runtime's text: CRI lets it start with the name of a reason.
    pub(crate) fn from_runtime(text: &str) -> Self {
        let named = [Reason::RegistryUnavailable, Reason::SignatureValidationFailed];
        for reason in named {
            if let Some(rest) = text.strip_prefix(reason.as_str()) {
                let rest = rest.trim_start_matches([':', ' ']);
                let text = if rest.is_empty() { "the runtime gives no details" } else { rest };
                return Self { reason, text: text.to_owned() };
            }
        }
        Self { reason: Reason::ErrImagePull, text: text.to_owned() }
    }

    /// More pulls were started than `registryPullQPS` and `registryBurst` let through; the text is the kubelet's.
    pub(crate) fn too_fast() -> Self {
        Self { reason: Reason::ErrImagePull, text: "pull QPS exceeded".to_owned() }
    }

    /// What a container is told right after the failure, `delay` being the back-off that it caused.
    pub(crate) fn just_now(&self, image: &str, delay: Duration) -> Waiting {
        let message = match self.reason {
            Reason::RegistryUnavailable => {
                format!("image pull failed for {image} because the registry is unavailable: {}", self.text)
            }
            Reason::SignatureValidationFailed => {
                format!(
                    "image pull failed for {image} because the signature validation failed: {}",
                    self.text
                )
            }
            _ => self.text.clone(),
        };
        Waiting::new(self.reason, message, delay.min(JUST_FAILED))
    }

    /// What it is told until the back-off is over, in `remaining`.
    pub(crate) fn in_back_off(&self, image: &str, remaining: Duration) -> Waiting {
        let message = format!("Back-off pulling image {image:?}: {}: {}", self.reason.as_str(), self.text);
        Waiting::new(Reason::ImagePullBackOff, message, remaining)
    }
}

impl Waiting {
    fn new(reason: Reason, mut message: String, retry_after: Duration) -> Self {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
        Self { reason, message, retry_after }
    }

    /// The pull runs or waits for its turn.
    pub(crate) fn pulling(image: &str) -> Self {
        Self::new(Reason::ContainerCreating, format!("pulling image {image:?}"), PULLING)
    }

    /// So many pulls wait that this one could not even get in line.
    pub(crate) fn crowded(image: &str) -> Self {
        let message = format!("too many image pulls are waiting; image {image:?} comes after some of them");
        Self::new(Reason::ContainerCreating, message, LOOK_AGAIN)
    }

    /// Absent with policy Never.
    pub(crate) fn never(image: &str) -> Self {
        let message = format!("Container image {image:?} is not present with pull policy of Never");
        Self::new(Reason::ErrImageNeverPull, message, LOOK_AGAIN)
    }

    /// There, with policy Never, and the pod could not have pulled it.
    pub(crate) fn not_theirs(image: &str) -> Self {
        let message = format!(
            "Container image {image:?} is present with pull policy of Never, but was pulled with credentials that the \
             pod has not"
        );
        Self::new(Reason::ErrImageNeverPull, message, LOOK_AGAIN)
    }

    /// No image reference.
    pub(crate) fn invalid(image: &ImageError) -> Self {
        let message = format!("Failed to read the container's image: {image}; write it as registry/name:tag");
        Self::new(Reason::InvalidImageName, message, HOPELESS)
    }

    /// The runtime answered ImageStatus with an error.
    pub(crate) fn not_inspected(image: &str, text: &str) -> Self {
        let message = format!("Failed to inspect image {image:?}: {text}");
        Self::new(Reason::ImageInspectError, message, LOOK_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_runtimes_own_reasons_are_told_apart() {
        let table = [
            ("RegistryUnavailable: 503 from r", Reason::RegistryUnavailable, "503 from r"),
            ("RegistryUnavailable", Reason::RegistryUnavailable, "the runtime gives no details"),
            ("SignatureValidationFailed: no key", Reason::SignatureValidationFailed, "no key"),
            ("a RegistryUnavailable", Reason::ErrImagePull, "a RegistryUnavailable"),
            ("not found", Reason::ErrImagePull, "not found"),
        ];
        for (text, reason, rest) in table {
            assert_eq!(PullFailure::from_runtime(text), PullFailure { reason, text: rest.to_owned() });
        }
    }

    #[test]
    fn messages_are_the_kubelets() {
        let failed = PullFailure::from_runtime("no such tag");
        let unavailable = PullFailure::from_runtime("RegistryUnavailable: 503");
        let unsigned = PullFailure::from_runtime("SignatureValidationFailed: no key");
        let bad = crate::reference::for_runtime("UPPER").unwrap_err();
        let table = [
            (failed.just_now("a:1", S(10)), "ErrImagePull", "no such tag", S(5)),
            (failed.just_now("a:1", S(2)), "ErrImagePull", "no such tag", S(2)),
            (
                failed.in_back_off("a:1", S(7)),
                "ImagePullBackOff",
                "Back-off pulling image \"a:1\": ErrImagePull: no such tag",
                S(7),
            ),
            (
                unavailable.just_now("a:1", S(10)),
                "RegistryUnavailable",
                "image pull failed for a:1 because the registry is unavailable: 503",
                S(5),
            ),
            (
                unavailable.in_back_off("a:1", S(7)),
                "ImagePullBackOff",
                "Back-off pulling image \"a:1\": RegistryUnavailable: 503",
                S(7),
            ),
            (
                unsigned.just_now("a:1", S(10)),
                "SignatureValidationFailed",
                "image pull failed for a:1 because the signature validation failed: no key",
                S(5),
            ),
            (Waiting::pulling("a:1"), "ContainerCreating", "pulling image \"a:1\"", PULLING),
            (
                Waiting::never("a:1"),
                "ErrImageNeverPull",
                "Container image \"a:1\" is not present with pull policy of Never",
                LOOK_AGAIN,
            ),
            (
                Waiting::not_inspected("a:1", "disk gone"),
                "ImageInspectError",
                "Failed to inspect image \"a:1\": disk gone",
                LOOK_AGAIN,
            ),
        ];
        for (waiting, reason, message, retry_after) in table {
            assert_eq!((waiting.reason.as_str(), &*waiting.message), (reason, message));
            assert_eq!(waiting.retry_after, retry_after, "{message}");
        }
        let invalid = Waiting::invalid(&bad);
        assert_eq!(invalid.reason.as_str(), "InvalidImageName");
        assert!(
            invalid.message.contains("`UPPER`") && invalid.message.contains("registry/name:tag"),
            "{invalid:?}"
        );
    }

    #[test]
    fn messages_are_bounded_at_whole_characters() {
        let waiting = PullFailure::from_runtime(&"é".repeat(2000)).in_back_off("a:1", S(1));
        assert!(waiting.message.len() <= MESSAGE_BYTES && waiting.message.len() > MESSAGE_BYTES - 2);
    }
}
