//! The node's configuration: the user's file, and what the launcher lays over it because it decided it.

use std::path::Path;

use anyhow::Context;
use bulkhead_config::{API_VERSION, KIND, KubeletConfiguration, Source, parse};
use serde_json::json;

use super::folders::write;
use super::layout::Layout;

/// The user's text and what it means together with the overlay.
#[derive(Debug)]
pub struct NodeConfig {
    base: Vec<u8>,
    overlay: String,
    /// What the processes will read.
    pub config: KubeletConfiguration,
}

impl NodeConfig {
    /// Reads `file`, or takes the defaults, and lays over it where this node's folders and runtime are.
    pub fn new(file: Option<&Path>, layout: &Layout, runtime: &Path) -> anyhow::Result<Self> {
        let (name, base) = match file {
            Some(file) => {
                let text = std::fs::read(file)
                    .with_context(|| format!("cannot read --config {}", file.display()))?;
                (file.display().to_string(), text)
            }
            None => {
                ("config.yaml".to_owned(), format!("apiVersion: {API_VERSION}\nkind: {KIND}\n").into_bytes())
            }
        };
        let overlay = overlay(layout, runtime);
        let sources =
            [Source { name: &name, text: &base }, Source { name: "the launcher", text: overlay.as_bytes() }];
        let loaded = parse(&sources)?;
        Ok(Self { base, overlay, config: loaded.config })
    }

    /// Writes both for the processes: `--config` and `--config-dir`.
    pub fn write(&self, layout: &Layout) -> anyhow::Result<()> {
        write(&layout.config(), &self.base)?;
        write(&layout.config_dir().join("50-launcher.conf"), self.overlay.as_bytes())
    }
}

/// The fields that the launcher decides. JSON is YAML.
fn overlay(layout: &Layout, runtime: &Path) -> String {
    let overlay = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "staticPodPath": layout.manifests(),
        "podLogsDir": layout.pod_logs(),
        "cgroupRoot": layout.cgroup(),
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": format!("unix://{}", runtime.display()),
        // The launcher is for development: it takes the machine as it is.
        "failCgroupV1": false,
        "failSwapOn": false,
    });
    format!("{overlay:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new("/s".into()).unwrap()
    }

    #[test]
    fn the_launchers_fields_win_and_the_users_stay() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("k.yaml");
        let text =
            format!("apiVersion: {API_VERSION}\nkind: {KIND}\nhealthzPort: 12345\nstaticPodPath: /etc/x\n");
        std::fs::write(&file, text).unwrap();
        let node = NodeConfig::new(Some(&file), &layout(), Path::new("/run/c.sock")).unwrap();
        assert_eq!(node.config.healthz_port, 12345);
        assert_eq!(node.config.static_pod_path, "/s/manifests");
        assert_eq!(node.config.container_runtime_endpoint, "unix:///run/c.sock");
        assert_eq!(node.config.cgroup_root, layout().cgroup());
        assert!(!node.config.fail_swap_on && !node.config.fail_cgroup_v1);
    }

    #[test]
    fn a_bad_file_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("k.yaml");
        std::fs::write(&file, "kind: Pod\n").unwrap();
        let error = NodeConfig::new(Some(&file), &layout(), Path::new("/run/c.sock")).unwrap_err();
        assert!(format!("{error:#}").contains("k.yaml"), "{error:#}");
        assert!(NodeConfig::new(None, &layout(), Path::new("/run/c.sock")).is_ok());
    }
}
