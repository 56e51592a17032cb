//! What a pod asks for, checked: from the wire's messages to types that cannot say anything wrong. Pure.

mod files;
mod objects;
mod sub_paths;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::{Component, Path, PathBuf};

use bulkhead_api::volumed::v1 as wire;
use prost::Message;

use crate::error::Error;
use crate::names::{PodUid, VolumeName};

pub(crate) use files::{VolumeFile, arrange};
pub(crate) use objects::{FilesSpec, ObjectFiles, Part, TokenKey, TrustFile};
#[cfg(test)]
pub(crate) use objects::{Item, TokenFile};
pub(crate) use sub_paths::{SubPath, SubPaths, parse as parse_sub_paths};

/// Volumes of one pod that are set up; more are refused. Pods of today have dozens at most.
const VOLUMES: usize = 1024;
/// Longest path, with its end (`PATH_MAX` of Linux).
const PATH_BYTES: usize = 4095;

/// All volumes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodSpec {
    pub(crate) uid: PodUid,
    pub(crate) volumes: Vec<VolumeSpec>,
    /// `securityContext.fsGroup`.
    pub(crate) fs_group: Option<u32>,
    /// What of it the API server is told.
    pub(crate) identity: Identity,
    /// The request for those volumes alone whose files follow objects of the API, as [`parse_kept`] reads it; empty: none do.
    pub(crate) wanted: Vec<u8>,
}

/// The pod as the API server knows it. Empty texts for a pod that names no objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Its service account.
    pub(crate) account: String,
    /// The one user of all its containers.
    pub(crate) token_owner: Option<u32>,
    /// Whether it has an fsGroup.
    pub(crate) has_group: bool,
}

impl Identity {
    /// The namespace of its objects.
    fn namespace(&self) -> Result<String, Error> {
        VolumeName::parse(&self.namespace)
            .map(|namespace| namespace.to_string())
            .map_err(|_| Error::Invalid(format!("the pod's namespace {:?} is none", cut(&self.namespace))))
    }

    /// Checks all that a token is asked for with.
    fn account(&self) -> Result<(), Error> {
        self.namespace()?;
        for text in [&self.name, &self.account] {
            objects::object_name(text.clone())?;
        }
        Ok(())
    }
}

impl PodSpec {
    /// The same, of those volumes alone whose files follow objects of the API.
    pub(crate) fn following(&self) -> Self {
        let follows = |volume: &&VolumeSpec| matches!(volume.source, Source::Files(_));
        Self { volumes: self.volumes.iter().filter(follows).cloned().collect(), ..self.clone() }
    }
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeSpec {
    pub(crate) name: VolumeName,
    pub(crate) source: Source,
}

/// Where a volume comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    EmptyDir(Medium),
    HostPath(HostPath),
    DownwardApi(Vec<VolumeFile>),
    Files(FilesSpec),
}

/// What an emptyDir is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A directory on the node's disk. Its size limit is kept by eviction.
    Disk,
    /// A tmpfs; `size` in bytes, without one half of the node's memory.
    Memory { size: Option<NonZeroU64> },
    /// A hugetlbfs with pages of so many bytes.
    HugePages { page: NonZeroU64 },
}

/// A path of the node: absolute, without `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPath {
    /// As it was given.
    pub(crate) path: String,
    pub(crate) kind: HostPathType,
}

/// `hostPath.type` of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostPathType {
    /// Empty: nothing is checked.
    Any,
    DirectoryOrCreate,
    Directory,
    FileOrCreate,
    File,
    Socket,
    CharDevice,
    BlockDevice,
}

impl HostPath {
    /// As a path.
    pub(crate) fn as_path(&self) -> &Path {
        Path::new(&self.path)
    }
}

/// Checks what was kept of a request.
pub(crate) fn parse_kept(request: &[u8]) -> Result<PodSpec, Error> {
    let request = wire::SetUpPodRequest::decode(request);
    parse(request.map_err(|_| Error::Invalid("what was kept of a request is none".to_owned()))?)
}

fn wanted(request: &wire::SetUpPodRequest) -> Vec<u8> {
    use wire::volume::Source;
    let follows = |volume: &&wire::Volume| {
        matches!(volume.source, Some(Source::ConfigMap(_) | Source::Secret(_) | Source::Projected(_)))
    };
    let volumes: Vec<_> = request.volumes.iter().filter(follows).cloned().collect();
    if volumes.is_empty() {
        return Vec::new();
    }
    wire::SetUpPodRequest { volumes, ..request.clone() }.encode_to_vec()
}

/// Checks a request.
pub(crate) fn parse(request: wire::SetUpPodRequest) -> Result<PodSpec, Error> {
    let wanted = wanted(&request);
    let uid = PodUid::parse(&request.pod_uid)?;
    if request.volumes.len() > VOLUMES {
        return Err(Error::Invalid(format!(
            "the pod has {} volumes: {VOLUMES} are possible",
            request.volumes.len()
        )));
    }
    let fs_group = group(request.fs_group)?;
    let identity = Identity {
        namespace: request.pod_namespace,
        name: request.pod_name,
        account: request.service_account,
        token_owner: group(request.token_owner)?,
        has_group: fs_group.is_some(),
    };
    let volumes = request.volumes.into_iter().map(|found| volume(found, &identity));
    let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
    let mut seen = BTreeSet::new();
    match volumes.iter().find(|volume| !seen.insert(volume.name.as_str())) {
        Some(twice) => Err(Error::Invalid(format!("two volumes of the pod have the name `{}`", twice.name))),
        None => Ok(PodSpec { uid, volumes, fs_group, identity, wanted }),
    }
}

/// -1 means "no change" to the system.
fn group(id: Option<u32>) -> Result<Option<u32>, Error> {
    match id {
        Some(u32::MAX) => Err(Error::Invalid(format!("user or group {} does not exist", u32::MAX))),
        group => Ok(group),
    }
}

fn volume(volume: wire::Volume, pod: &Identity) -> Result<VolumeSpec, Error> {
    let name = VolumeName::parse(&volume.name)?;
    let source = match volume.source {
        Some(wire::volume::Source::EmptyDir(source)) => empty_dir(&source).map(Source::EmptyDir),
        Some(wire::volume::Source::HostPath(source)) => host_path(source).map(Source::HostPath),
        Some(wire::volume::Source::DownwardApi(source)) => {
            files::parse(source.files).map(Source::DownwardApi)
        }
        Some(wire::volume::Source::ConfigMap(source)) => objects::config_map(source, pod).map(Source::Files),
        Some(wire::volume::Source::Secret(source)) => objects::secret(source, pod).map(Source::Files),
        Some(wire::volume::Source::Projected(source)) => objects::projected(source, pod).map(Source::Files),
        None => Err(Error::Invalid("it has no source that this version knows".to_owned())),
    };
    match source {
        Ok(source) => Ok(VolumeSpec { name, source }),
        Err(source) => Err(Error::Volume { volume: name.to_string(), source: Box::new(source) }),
    }
}

fn empty_dir(source: &wire::EmptyDir) -> Result<Medium, Error> {
    match source.medium.as_str() {
        "" => Ok(Medium::Disk),
        "Memory" => Ok(Medium::Memory { size: NonZeroU64::new(source.size_limit_bytes) }),
        "HugePages" => match NonZeroU64::new(source.huge_page_bytes) {
            Some(page) if page.is_power_of_two() => Ok(Medium::HugePages { page }),
            _ => Err(Error::Invalid(format!("{} is no size of a page", source.huge_page_bytes))),
        },
        other => Err(Error::Unsupported(format!(
            "emptyDir.medium {:?} is not supported: empty, \"Memory\" and \"HugePages\" are",
            cut(other)
        ))),
    }
}

fn host_path(source: wire::HostPath) -> Result<HostPath, Error> {
    let kind = match source.r#type.as_str() {
        "" => HostPathType::Any,
        "DirectoryOrCreate" => HostPathType::DirectoryOrCreate,
        "Directory" => HostPathType::Directory,
        "FileOrCreate" => HostPathType::FileOrCreate,
        "File" => HostPathType::File,
        "Socket" => HostPathType::Socket,
        "CharDevice" => HostPathType::CharDevice,
        "BlockDevice" => HostPathType::BlockDevice,
        other => return Err(Error::Invalid(format!("hostPath.type {:?} does not exist", cut(other)))),
    };
    let path = PathBuf::from(&source.path);
    let refused = |why: &str| Err(Error::Invalid(format!("hostPath.path {:?} {why}", cut(&source.path))));
    if !path.is_absolute() {
        return refused("is not absolute");
    }
    if path.components().any(|component| component == Component::ParentDir) {
        return refused("holds `..`");
    }
    if source.path.contains('\0') {
        return refused("holds a NUL byte");
    }
    if source.path.len() > PATH_BYTES {
        return refused("is longer than 4095 bytes");
    }
    Ok(HostPath { path: source.path, kind })
}

/// Text of a pod for a message: bounded.
fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use bulkhead_ipc::status::Coded;
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn request(volumes: Vec<wire::Volume>) -> wire::SetUpPodRequest {
        wire::SetUpPodRequest { pod_uid: "u1".to_owned(), volumes, ..Default::default() }
    }

    fn memory(name: &str, medium: &str, size_limit_bytes: u64) -> wire::Volume {
        let source = wire::EmptyDir { medium: medium.to_owned(), size_limit_bytes, huge_page_bytes: 0 };
        wire::Volume { name: name.to_owned(), source: Some(wire::volume::Source::EmptyDir(source)) }
    }

    fn host(name: &str, path: &str, r#type: &str) -> wire::Volume {
        let source = wire::HostPath { path: path.to_owned(), r#type: r#type.to_owned() };
        wire::Volume { name: name.to_owned(), source: Some(wire::volume::Source::HostPath(source)) }
    }

    #[test]
    fn sources() {
        let volumes = vec![
            memory("a", "", 5),
            memory("b", "Memory", 0),
            memory("c", "Memory", 8),
            host("d", "/var//log/./x/", "File"),
        ];
        let spec = parse(request(volumes)).unwrap();
        let sources: Vec<_> = spec.volumes.into_iter().map(|volume| volume.source).collect();
        assert_eq!(
            sources,
            [
                Source::EmptyDir(Medium::Disk),
                Source::EmptyDir(Medium::Memory { size: None }),
                Source::EmptyDir(Medium::Memory { size: NonZeroU64::new(8) }),
                Source::HostPath(HostPath { path: "/var//log/./x/".to_owned(), kind: HostPathType::File }),
            ]
        );
    }

    #[test]
    fn what_is_refused() {
        let long = format!("/{}", "a".repeat(4095));
        for (volumes, code, text) in [
            (vec![memory("A", "", 0)], Code::InvalidArgument, "volume name"),
            (vec![memory("..", "", 0)], Code::InvalidArgument, "volume name"),
            (vec![memory("a", "", 0), memory("a", "", 0)], Code::InvalidArgument, "name `a`"),
            (vec![memory("a", "HugePages", 0)], Code::InvalidArgument, "volume `a`"),
            (vec![memory("a", "HugePages-2Mi", 0)], Code::FailedPrecondition, "volume `a`"),
            (vec![memory("a", "memory", 0)], Code::FailedPrecondition, "\"memory\""),
            (vec![host("a", "", "")], Code::InvalidArgument, "absolute"),
            (vec![host("a", "var/log", "")], Code::InvalidArgument, "absolute"),
            (vec![host("a", "/var/../etc", "")], Code::InvalidArgument, "`..`"),
            (vec![host("a", "/..", "")], Code::InvalidArgument, "`..`"),
            (vec![host("a", "/a\0b", "")], Code::InvalidArgument, "NUL"),
            (vec![host("a", &long, "")], Code::InvalidArgument, "4095"),
            (vec![host("a", "/a", "directory")], Code::InvalidArgument, "\"directory\""),
            (vec![wire::Volume { name: "a".to_owned(), source: None }], Code::InvalidArgument, "no source"),
            (vec![memory("a", "", 0); 1025], Code::InvalidArgument, "1025"),
        ] {
            let status = bulkhead_ipc::status::to_status(&parse(request(volumes)).unwrap_err());
            assert_eq!(status.code(), code, "{}", status.message());
            assert!(status.message().contains(text), "{}", status.message());
        }
        let pod = wire::SetUpPodRequest { pod_uid: "../x".to_owned(), ..Default::default() };
        assert_eq!(parse(pod).unwrap_err().code(), Code::InvalidArgument);
    }

    proptest! {
        #[test]
        fn a_host_path_that_passes_never_climbs(path in "[/.a]{0,8}|\\PC{0,40}") {
            if let Ok(spec) = parse(request(vec![host("a", &path, "")])) {
                let Some(Source::HostPath(host)) = spec.volumes.first().map(|volume| &volume.source) else {
                    return Err(TestCaseError::fail("not a hostPath"));
                };
                prop_assert_eq!(&host.path, &path);
                prop_assert!(path.starts_with('/') && !path.split('/').any(|part| part == ".."));
            }
        }
    }
}
