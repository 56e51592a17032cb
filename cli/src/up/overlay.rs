//! The node's configuration: the user's files, and what the launcher lays over them because it decided it.

use std::path::Path;

use anyhow::bail;
use bulkhead_config::{API_VERSION, About, Files, Given, KIND, KubeletConfiguration, Source, parse};
use serde_json::{Value, json};

use super::folders::write;
use super::layout::Layout;

/// Fields that the launcher decides whatever the user says: they go together with the folders, cgroups and runtime that it
/// makes.
const DECIDED: [&str; 5] =
    ["staticPodPath", "podLogsDir", "cgroupRoot", "cgroupDriver", "containerRuntimeEndpoint"];

/// The user's texts and flags and what they mean together with the overlay.
#[derive(Debug)]
pub struct NodeConfig {
    /// The main file's text and those of its drop-ins.
    texts: Vec<Vec<u8>>,
    overlay: String,
    flags: Vec<Given>,
    /// What the processes will read.
    pub config: KubeletConfiguration,
    /// What its owner should know.
    pub warnings: Vec<String>,
}

impl NodeConfig {
    /// Takes the user's files and flags, or the defaults, and lays over the files where this node's folders and runtime are.
    pub fn new(files: Files, flags: &[Given], layout: &Layout, runtime: &Path) -> anyhow::Result<Self> {
        if let Some(flag) = flags.iter().find(|given| is_decided(given)) {
            bail!("{} is up to the launcher, which makes what it names: remove it", flag.written());
        }
        let base = base().into_bytes();
        let overlay = overlay(layout, runtime);
        let named: Vec<_> = files.texts.iter().map(|(path, _)| path.display().to_string()).collect();
        let texts = files.texts.iter().map(|(_, text)| text.as_slice());
        let mut sources = vec![Source { name: "config.yaml", text: &base }];
        sources.extend(named.iter().zip(texts).map(|(name, text)| Source { name, text }));
        sources.push(Source { name: "the launcher", text: overlay.as_bytes() });
        let loaded = parse(&sources, flags)?;
        let ignored = loaded.ignored.iter().map(ToString::to_string);
        let warnings = ignored.chain(loaded.warnings).chain(files.warnings).collect();
        let mut texts = vec![base];
        texts.extend(files.texts.into_iter().map(|(_, text)| text));
        Ok(Self { texts, overlay, flags: flags.to_vec(), config: loaded.config, warnings })
    }

    /// Writes all of it for the processes: `--config` and `--config-dir`.
    pub fn write(&self, layout: &Layout) -> anyhow::Result<()> {
        let folder = layout.config_dir();
        // Drop-ins of an earlier start must not stay.
        for entry in std::fs::read_dir(&folder)?.flatten() {
            std::fs::remove_file(entry.path())?;
        }
        for (index, text) in self.texts.iter().enumerate() {
            match index {
                0 => write(&layout.config(), text)?,
                index => write(&folder.join(format!("10-user-{index:03}.conf")), text)?,
            }
        }
        write(&folder.join("50-launcher.conf"), self.overlay.as_bytes())
    }

    /// The flags as the processes take them.
    pub fn flags(&self) -> impl Iterator<Item = String> {
        let each = |given: &Given| {
            let name = given.written();
            given.values.iter().map(move |value| format!("{name}={value}")).collect::<Vec<_>>()
        };
        self.flags.iter().flat_map(each)
    }
}

/// What a node for development has unless its user says otherwise: its disk is shared with everything else on the machine,
/// and its images were put there by hand. A full disk is no reason to evict its pods or remove its images.
fn base() -> String {
    format!(
        "apiVersion: {API_VERSION}\nkind: {KIND}\nevictionHard: {{memory.available: 100Mi}}\n\
         imageGCHighThresholdPercent: 100\n"
    )
}

fn is_decided(given: &Given) -> bool {
    matches!(given.flag.about, About::Field(field) if DECIDED.contains(&field))
}

/// The fields that the launcher decides. JSON is YAML.
fn overlay(layout: &Layout, runtime: &Path) -> String {
    let mut overlay = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        // The launcher is for development: it takes the machine as it is.
        "failCgroupV1": false,
        "failSwapOn": false,
    });
    let decided: [Value; DECIDED.len()] = [
        json!(layout.manifests()),
        json!(layout.pod_logs()),
        json!(layout.cgroup()),
        json!("cgroupfs"),
        json!(format!("unix://{}", runtime.display())),
    ];
    for (field, value) in DECIDED.iter().zip(decided) {
        if let Some(fields) = overlay.as_object_mut() {
            fields.insert((*field).to_owned(), value);
        }
    }
    format!("{overlay:#}\n")
}

#[cfg(test)]
mod tests {
    use bulkhead_config::Flag;

    use super::*;

    fn layout() -> Layout {
        Layout::new("/s".into()).unwrap()
    }

    fn files(texts: &[&str]) -> Files {
        let whole = |text: &&str| format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}").into_bytes();
        let texts = texts.iter().map(whole).enumerate();
        let texts = texts.map(|(index, text)| (format!("/u/{index}.conf").into(), text)).collect();
        Files { texts, warnings: Vec::new() }
    }

    fn flag(name: &str, value: &str) -> Given {
        Given { flag: Flag::find(name).unwrap(), values: vec![value.to_owned()] }
    }

    fn node(files: Files, flags: &[Given]) -> anyhow::Result<NodeConfig> {
        NodeConfig::new(files, flags, &layout(), Path::new("/run/c.sock"))
    }

    #[test]
    fn the_launchers_fields_win_and_the_users_stay() {
        let user = files(&["healthzPort: 12345\nstaticPodPath: /etc/x\nMaxPods: 1\n", "maxPods: 7\n"]);
        let node = node(user, &[flag("event-burst", "100"), flag("pods-per-core", "3")]).unwrap();
        assert_eq!(
            (node.config.healthz_port, node.config.max_pods, node.config.pods_per_core),
            (12345, 7, 3)
        );
        assert_eq!(node.config.static_pod_path, "/s/manifests");
        assert_eq!(node.config.container_runtime_endpoint, "unix:///run/c.sock");
        assert_eq!(node.config.cgroup_root, layout().cgroup());
        assert!(!node.config.fail_swap_on && !node.config.fail_cgroup_v1);
        assert!(node.warnings[0].contains("/u/0.conf:5:1: field MaxPods"), "{:?}", node.warnings);
        assert_eq!(node.flags().collect::<Vec<_>>(), ["--event-burst=100", "--pods-per-core=3"]);
    }

    #[test]
    fn what_is_bad_is_refused_before_anything_is_made() {
        let bad = Files { texts: vec![("/u/k.yaml".into(), b"kind: Pod\n".to_vec())], ..Files::default() };
        let error = node(bad, &[]).unwrap_err();
        assert!(format!("{error:#}").contains("k.yaml"), "{error:#}");
        assert!(node(Files::default(), &[]).is_ok());
        for (name, value) in
            [("cgroup-root", "/x"), ("pod-manifest-path", "/m"), ("container-runtime-endpoint", "unix:///x")]
        {
            let error = node(Files::default(), &[flag(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert!(node(Files::default(), &[flag("max-pods", "-1")]).is_err());
    }
}
