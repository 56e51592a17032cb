//! Volumes and mounts of a manifest.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, PodSpec, Volume};

use super::path::{At, Fault};
use super::text::{absolute_path, at_most, dns_label, one_of, relative_path};
use crate::quantity::Quantity;

/// Most mounts of a container.
const MAX_MOUNTS: usize = 500;
/// Most files of a volume.
const MAX_ITEMS: usize = 1000;
/// Kinds of `hostPath`.
const HOST_PATH_TYPES: [&str; 7] =
    ["DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

/// All volumes.
pub(super) fn check(at: &At<'_>, spec: &PodSpec) -> Result<(), Fault> {
    let list = at.field("volumes");
    let mut names = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let at = list.index(index);
        let at_name = at.field("name");
        at_name.require(!volume.name.is_empty(), "is missing")?;
        dns_label(&at_name, &volume.name)?;
        at_name.require(names.insert(volume.name.as_str()), "is the name of an earlier volume")?;
        check_volume(&at, volume)?;
    }
    Ok(())
}

fn check_volume(at: &At<'_>, volume: &Volume) -> Result<(), Fault> {
    // Every field of a volume but its name is a source.
    let fields = serde_json::to_value(volume).ok();
    let sources =
        fields.as_ref().and_then(|fields| fields.as_object()).map_or(0, |map| map.len().saturating_sub(1));
    at.require(sources <= 1, "must name only one source")?;
    if let Some(host) = &volume.host_path {
        let at = at.field("hostPath");
        at.field("path").require(!host.path.is_empty(), "is missing")?;
        absolute_path(&at.field("path"), &host.path)?;
        one_of(&at.field("type"), host.type_.as_deref(), &HOST_PATH_TYPES)?;
    }
    if let Some(empty) = &volume.empty_dir {
        let at = at.field("emptyDir");
        let medium = empty.medium.as_deref().unwrap_or("");
        let known = matches!(medium, "" | "Memory" | "HugePages") || medium.starts_with("HugePages-");
        at.field("medium").require(known, "must be empty, Memory, HugePages or HugePages-<size>")?;
        if let Some(limit) = &empty.size_limit {
            let at = at.field("sizeLimit");
            let limit = Quantity::parse(&limit.0).map_err(|error| at.fault(error.to_string()))?;
            at.require(!limit.is_negative(), "must not be negative")?;
        }
    }
    if let Some(downward) = &volume.downward_api {
        let at = at.field("downwardAPI");
        check_mode(&at.field("defaultMode"), downward.default_mode)?;
        check_files(&at.field("items"), downward.items.as_ref())?;
    }
    if let Some(projected) = &volume.projected {
        let at = at.field("projected");
        check_mode(&at.field("defaultMode"), projected.default_mode)?;
        let sources = at.field("sources");
        at_most(&sources, projected.sources.as_ref(), MAX_ITEMS)?;
        for (index, source) in projected.sources.iter().flatten().enumerate() {
            if let Some(downward) = &source.downward_api {
                let item = sources.index(index);
                check_files(&item.field("downwardAPI").field("items"), downward.items.as_ref())?;
            }
        }
    }
    Ok(())
}

fn check_files(at: &At<'_>, files: Option<&Vec<DownwardAPIVolumeFile>>) -> Result<(), Fault> {
    at_most(at, files, MAX_ITEMS)?;
    for (index, file) in files.into_iter().flatten().enumerate() {
        let at = at.index(index);
        at.field("path").require(!file.path.is_empty(), "is missing")?;
        relative_path(&at.field("path"), &file.path)?;
        // The names that atomic updates of the folder use begin with two dots.
        at.field("path").require(!file.path.starts_with(".."), "must not begin with `..`")?;
        check_mode(&at.field("mode"), file.mode)?;
        let one = file.field_ref.is_some() != file.resource_field_ref.is_some();
        at.require(one, "must name exactly one of fieldRef, resourceFieldRef")?;
    }
    Ok(())
}

fn check_mode(at: &At<'_>, mode: Option<i32>) -> Result<(), Fault> {
    at.require(mode.is_none_or(|mode| (0..=0o777).contains(&mode)), "must be between 0 and 0777")
}

/// The mounts of one container.
pub(super) fn check_mounts(at: &At<'_>, spec: &PodSpec, container: &Container) -> Result<(), Fault> {
    at_most(at, container.volume_mounts.as_ref(), MAX_MOUNTS)?;
    let volumes: BTreeMap<&str, &Volume> =
        spec.volumes.iter().flatten().map(|volume| (volume.name.as_str(), volume)).collect();
    let mut paths = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let at = at.index(index);
        at.field("name").require(!mount.name.is_empty(), "is missing")?;
        if !volumes.contains_key(mount.name.as_str()) {
            let name: String = mount.name.chars().filter(|c| !c.is_control()).take(63).collect();
            return Err(at.field("name").fault(format!("the pod has no volume `{name}`")));
        }
        let at_path = at.field("mountPath");
        at_path.require(!mount.mount_path.is_empty(), "is missing")?;
        absolute_path(&at_path, &mount.mount_path)?;
        at_path.require(!mount.mount_path.contains(':'), "must not hold `:`")?;
        at_path.require(paths.insert(mount.mount_path.as_str()), "is the path of an earlier mount")?;
        let (sub, expr) =
            (mount.sub_path.as_deref().unwrap_or(""), mount.sub_path_expr.as_deref().unwrap_or(""));
        relative_path(&at.field("subPath"), sub)?;
        relative_path(&at.field("subPathExpr"), expr)?;
        at.field("subPathExpr")
            .require(sub.is_empty() || expr.is_empty(), "cannot be set together with subPath")?;
        let propagation = mount.mount_propagation.as_deref();
        let at_propagation = at.field("mountPropagation");
        one_of(&at_propagation, propagation, &["None", "HostToContainer", "Bidirectional"])?;
        let privileged =
            container.security_context.as_ref().and_then(|context| context.privileged) == Some(true);
        let allowed = privileged || propagation != Some("Bidirectional");
        at_propagation.require(allowed, "can be Bidirectional only in a privileged container")?;
        let recursive = mount.recursive_read_only.as_deref();
        let at_recursive = at.field("recursiveReadOnly");
        one_of(&at_recursive, recursive, &["Disabled", "IfPossible", "Enabled"])?;
        let plain = matches!(recursive, None | Some("" | "Disabled")) || mount.read_only == Some(true);
        at_recursive.require(plain, "needs readOnly: true")?;
    }
    Ok(())
}
