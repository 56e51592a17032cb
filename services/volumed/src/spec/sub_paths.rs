//! Parts of volumes that a container mounts. Pure.

use std::collections::BTreeSet;

use bulkhead_api::volumed::v1 as wire;

use super::cut;
use crate::error::Error;
use crate::names::{PodUid, VolumeName};

/// Sub-paths of one container.
const SUB_PATHS: usize = 500;
/// Longest path: with the volume's own it must stay below `PATH_MAX`.
const PATH_BYTES: usize = 3000;

/// What one container asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubPaths {
    pub(crate) uid: PodUid,
    /// A container's name is a DNS label, as a volume's is.
    pub(crate) container: VolumeName,
    pub(crate) paths: Vec<SubPath>,
}

/// One part of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubPath {
    /// Place in the container's list of mounts.
    pub(crate) index: u32,
    pub(crate) volume: VolumeName,
    /// Plain names; none for the volume itself.
    pub(crate) parts: Vec<String>,
}

/// Checks a request.
pub(crate) fn parse(request: wire::SetUpSubPathsRequest) -> Result<SubPaths, Error> {
    let uid = PodUid::parse(&request.pod_uid)?;
    let container = VolumeName::parse(&request.container_name)?;
    let many = request.sub_paths.len();
    if many > SUB_PATHS {
        return Err(Error::Invalid(format!("{many} sub-paths of one container: {SUB_PATHS} are possible")));
    }
    let mut seen = BTreeSet::new();
    let paths = request.sub_paths.into_iter().map(|path| {
        if seen.insert(path.index) {
            sub_path(path)
        } else {
            Err(Error::Invalid(format!("two sub-paths have the place {}", path.index)))
        }
    });
    Ok(SubPaths { uid, container, paths: paths.collect::<Result<_, _>>()? })
}

fn sub_path(path: wire::SubPath) -> Result<SubPath, Error> {
    let volume = VolumeName::parse(&path.volume)?;
    let refused = |why: &str| {
        let source = Error::Invalid(format!("subPath {:?} {why}", cut(&path.path)));
        Err(Error::Volume { volume: path.volume.clone(), source: Box::new(source) })
    };
    if path.path.starts_with('/') {
        return refused("is not relative");
    }
    if path.path.split('/').any(|part| part == "..") {
        return refused("holds `..`");
    }
    if path.path.contains('\0') {
        return refused("holds a NUL byte");
    }
    if path.path.len() > PATH_BYTES || path.path.split('/').any(|part| part.len() > 255) {
        return refused("is too long");
    }
    let parts = path.path.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned);
    Ok(SubPath { index: path.index, volume, parts: parts.collect() })
}

#[cfg(test)]
mod tests {
    use bulkhead_ipc::status::Coded;
    use tonic::Code;

    use super::*;

    fn request(container: &str, volume: &str, path: &str) -> wire::SetUpSubPathsRequest {
        let path = wire::SubPath { index: 1, volume: volume.to_owned(), path: path.to_owned() };
        wire::SetUpSubPathsRequest {
            pod_uid: "u1".to_owned(),
            container_name: container.to_owned(),
            sub_paths: vec![path],
        }
    }

    #[test]
    fn paths_become_plain_names() {
        for (path, parts) in
            [("a//b/./c/", vec!["a", "b", "c"]), (".", vec![]), ("", vec![]), ("..a", vec!["..a"])]
        {
            let asked = parse(request("c", "v", path)).unwrap();
            assert_eq!(asked.paths.first().unwrap().parts, parts, "{path:?}");
        }
    }

    #[test]
    fn what_could_leave_the_volume_is_refused() {
        let long = "a/".repeat(2000);
        for (container, volume, path) in [
            ("c", "v", "/a"),
            ("c", "v", "a/../b"),
            ("c", "v", ".."),
            ("c", "v", "a\0"),
            ("c", "v", &long),
            ("../c", "v", "a"),
            ("", "v", "a"),
            ("c", "..", "a"),
        ] {
            let error = parse(request(container, volume, path)).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{container} {volume} {path}");
        }
        let mut twice = request("c", "v", "a");
        twice.sub_paths.push(twice.sub_paths.first().unwrap().clone());
        assert!(parse(twice).is_err());
    }
}
