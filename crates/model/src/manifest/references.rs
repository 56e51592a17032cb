//! References to API objects. A static pod that has one could run, but its mirror would be refused by the API server,
//! and nobody would see it; so it is refused as a whole, with the field.

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use super::path::{At, Fault};

/// Refuses the first reference to an API object.
pub(super) fn check(pod: &Pod) -> Result<(), Fault> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let at = At::ROOT.field("spec");
    let named = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let filled = |count: Option<usize>| count.is_some_and(|count| count > 0);
    for (field, set) in [
        ("serviceAccountName", named(&spec.service_account_name)),
        ("serviceAccount", named(&spec.service_account)),
        ("imagePullSecrets", filled(spec.image_pull_secrets.as_ref().map(Vec::len))),
        ("resourceClaims", filled(spec.resource_claims.as_ref().map(Vec::len))),
    ] {
        refuse(&at.field(field), set)?;
    }
    for (list, containers) in [
        ("initContainers", spec.init_containers.as_deref()),
        ("containers", Some(spec.containers.as_slice())),
    ] {
        let list = at.field(list);
        for (index, container) in containers.into_iter().flatten().enumerate() {
            check_container(&list.index(index), container)?;
        }
    }
    let volumes = at.field("volumes");
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        check_volume(&volumes.index(index), volume)?;
    }
    Ok(())
}

fn check_container(at: &At<'_>, container: &Container) -> Result<(), Fault> {
    let env_from = at.field("envFrom");
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        let at = env_from.index(index);
        refuse(&at.field("configMapRef"), source.config_map_ref.is_some())?;
        refuse(&at.field("secretRef"), source.secret_ref.is_some())?;
    }
    let env = at.field("env");
    for (index, variable) in container.env.iter().flatten().enumerate() {
        let Some(source) = &variable.value_from else { continue };
        let item = env.index(index);
        let at = item.field("valueFrom");
        refuse(&at.field("configMapKeyRef"), source.config_map_key_ref.is_some())?;
        refuse(&at.field("secretKeyRef"), source.secret_key_ref.is_some())?;
    }
    let claims = container.resources.as_ref().and_then(|resources| resources.claims.as_ref());
    refuse(&at.field("resources").field("claims"), claims.is_some_and(|claims| !claims.is_empty()))?;
    refuse(
        &at.field("volumeDevices"),
        container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()),
    )
}

fn check_volume(at: &At<'_>, volume: &Volume) -> Result<(), Fault> {
    for (field, set) in [
        ("configMap", volume.config_map.is_some()),
        ("secret", volume.secret.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
    ] {
        refuse(&at.field(field), set)?;
    }
    let projected = at.field("projected");
    let sources = projected.field("sources");
    for (index, source) in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()).enumerate() {
        let at = sources.index(index);
        for (field, set) in [
            ("configMap", source.config_map.is_some()),
            ("secret", source.secret.is_some()),
            ("serviceAccountToken", source.service_account_token.is_some()),
            ("clusterTrustBundle", source.cluster_trust_bundle.is_some()),
            ("podCertificate", source.pod_certificate.is_some()),
        ] {
            refuse(&at.field(field), set)?;
        }
    }
    for (field, inner, set) in [
        ("azureFile", "secretName", volume.azure_file.is_some()),
        ("cephfs", "secretRef", volume.cephfs.as_ref().is_some_and(|v| v.secret_ref.is_some())),
        ("cinder", "secretRef", volume.cinder.as_ref().is_some_and(|v| v.secret_ref.is_some())),
        (
            "csi",
            "nodePublishSecretRef",
            volume.csi.as_ref().is_some_and(|v| v.node_publish_secret_ref.is_some()),
        ),
        ("flexVolume", "secretRef", volume.flex_volume.as_ref().is_some_and(|v| v.secret_ref.is_some())),
        ("glusterfs", "endpoints", volume.glusterfs.is_some()),
        ("iscsi", "secretRef", volume.iscsi.as_ref().is_some_and(|v| v.secret_ref.is_some())),
        ("rbd", "secretRef", volume.rbd.as_ref().is_some_and(|v| v.secret_ref.is_some())),
        ("scaleIO", "secretRef", volume.scale_io.is_some()),
        ("storageos", "secretRef", volume.storageos.as_ref().is_some_and(|v| v.secret_ref.is_some())),
    ] {
        refuse(&at.field(field).field(inner), set)?;
    }
    Ok(())
}

fn refuse(at: &At<'_>, set: bool) -> Result<(), Fault> {
    at.require(!set, "a static pod cannot refer to objects of the API server: take this field out")
}
