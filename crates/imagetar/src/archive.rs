//! The docker-archive form: a tar of the layer, the image's configuration and a manifest that names both.
//!
//! The configuration's fields are those of the OCI image specification, which docker-archive shares.

use std::io::Write;

use serde::Serialize;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType};

use crate::builder::Image;
use crate::error::Error;
use crate::layer::header;

/// The only time in an image, so that it does not depend on when it was made.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// How containers of the image run unless their pod says otherwise.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct RunConfig {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) user: String,
    pub(crate) env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) entrypoint: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cmd: Vec<String>,
    pub(crate) working_dir: String,
}

#[derive(Serialize)]
struct ImageConfig {
    created: &'static str,
    architecture: &'static str,
    os: &'static str,
    config: RunConfig,
    rootfs: RootFs,
    history: [History; 1],
}

#[derive(Serialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: &'static str,
    diff_ids: [String; 1],
}

#[derive(Serialize)]
struct History {
    created: &'static str,
    created_by: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ManifestItem<'a> {
    config: &'a str,
    repo_tags: &'a [String],
    layers: [&'a str; 1],
}

pub(crate) fn write(
    out: impl Write,
    references: &[String],
    run: RunConfig,
    layer: &[u8],
) -> Result<Image, Error> {
    let layer_hex = sha256_hex(layer);
    let layer_digest = format!("sha256:{layer_hex}");
    let config = encode(
        "the configuration",
        &ImageConfig {
            created: CREATED,
            architecture: architecture(),
            os: "linux",
            config: run,
            rootfs: RootFs { kind: "layers", diff_ids: [layer_digest.clone()] },
            history: [History { created: CREATED, created_by: "bulkhead-imagetar" }],
        },
    )?;
    let config_hex = sha256_hex(&config);

    let config_path = format!("{config_hex}.json");
    let layer_path = format!("{layer_hex}/layer.tar");
    let manifest = encode(
        "the manifest",
        &[ManifestItem { config: &config_path, repo_tags: references, layers: [&layer_path] }],
    )?;

    let mut tar = Builder::new(out);
    let parts =
        [(config_path.as_str(), config.as_slice()), (&layer_path, layer), ("manifest.json", &manifest)];
    for (path, content) in parts {
        tar.append_data(&mut header(EntryType::Regular, 0o644, content), path, content)
            .map_err(|source| Error::Write { entry: path.to_owned(), source })?;
    }
    tar.into_inner()
        .and_then(|mut out| out.flush())
        .map_err(|source| Error::Write { entry: "the end".to_owned(), source })?;
    Ok(Image { id: format!("sha256:{config_hex}"), layer: layer_digest, references: references.to_vec() })
}

fn encode(entry: &str, value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|source| Error::Encode { entry: entry.to_owned(), source })
}

fn sha256_hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// The OCI name of the architecture that this was compiled for; the parts come from the same machine.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}
