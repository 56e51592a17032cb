//! Names that tools on the node know: labels and annotations of sandboxes, containers and static pods.
//! The values are the kubelet's, so that a node can change from the one to the other.

/// CRI label: pod name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// CRI label: pod namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// CRI label: pod UID.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// CRI label: container name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// CRI annotation: fingerprint of the container's spec, hex.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// CRI annotation: restart count.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// CRI annotation: where the container writes its termination message.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// CRI annotation: `File` or `FallbackToLogsOnError`.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// CRI annotation: the container's preStop hook as the API's JSON, for who ends a pod that no source knows any more.
pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
/// CRI annotation of ours: the container has a postStart hook, which is run before it counts as started.
pub const POST_START: &str = "bulkhead.dev/post-start";
/// CRI annotation of ours: how long the container waits when it ends, in milliseconds, before it is started again.
pub const RESTART_BACKOFF: &str = "bulkhead.dev/restart-backoff-ms";
/// CRI annotation: the pod's grace period in seconds.
pub const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Pod annotation: `file`, `http` or `api`.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Pod annotation: fingerprint of a static pod's manifest; equals its UID unless the manifest names one.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Pod annotation: when this node first saw the pod, RFC 3339 with nanoseconds.
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// Pod annotation: on a mirror pod, the static pod's [`CONFIG_HASH`].
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Pod annotation of ours: somebody at this node submitted the pod by hand. [`CONFIG_SOURCE`] has no word for that.
pub const SUBMITTED: &str = "bulkhead.dev/submitted";
/// Sandbox annotation of ours: W3C trace context of the start that made it.
pub const TRACEPARENT: &str = "bulkhead.dev/traceparent";

/// Name of the folder of a pod's logs beneath `podLogsDir`. No path: whoever takes the parts from elsewhere must make sure that
/// they hold no `/`.
pub fn pod_log_folder(namespace: &str, name: &str, uid: &str) -> String {
    format!("{namespace}_{name}_{uid}")
}
