//! The pod's own fields as files of a volume (`downwardAPI`).

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, DownwardAPIVolumeSource};

use super::{PodFacts, field};
use crate::spec;

/// Permission bits of a file when nothing else is said.
pub const DEFAULT_MODE: u32 = 0o644;

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFile {
    /// Relative to the volume.
    pub path: String,
    /// What is in it.
    pub content: String,
    /// Permission bits, at most 0777.
    pub mode: u32,
}

/// A file that cannot be made from the pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("file `{path}`: {problem}")]
pub struct FileError {
    /// Its path in the volume.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// The files of a `downwardAPI` volume. Labels and annotations as a whole are lines of `key="value"`, in the order of keys.
///
/// # Errors
/// A field or resource that a file cannot show.
pub fn downward_files(
    volume: &DownwardAPIVolumeSource,
    facts: &PodFacts<'_>,
) -> Result<Vec<VolumeFile>, FileError> {
    let mode = |mode: Option<i32>| mode.and_then(|mode| u32::try_from(mode).ok()).map(|mode| mode & 0o777);
    let default = mode(volume.default_mode).unwrap_or(DEFAULT_MODE);
    let file = |item: &DownwardAPIVolumeFile| {
        let content =
            content(item, facts).map_err(|problem| FileError { path: item.path.clone(), problem })?;
        Ok(VolumeFile { path: item.path.clone(), content, mode: mode(item.mode).unwrap_or(default) })
    };
    volume.items.iter().flatten().map(file).collect()
}

fn content(item: &DownwardAPIVolumeFile, facts: &PodFacts<'_>) -> Result<String, String> {
    if let Some(field) = &item.field_ref {
        let metadata = &facts.pod.metadata;
        return match field.field_path.as_str() {
            "metadata.labels" => Ok(lines(metadata.labels.as_ref())),
            "metadata.annotations" => Ok(lines(metadata.annotations.as_ref())),
            path if path.starts_with("metadata.") => field::field_value(field, facts),
            // A file would not follow what changes in these (API: `downwardAPI.items[].fieldRef`).
            path => Err(format!("fieldRef.fieldPath `{path}` is not supported in a volume")),
        };
    }
    let Some(resource) = &item.resource_field_ref else {
        return Err("names neither fieldRef nor resourceFieldRef".into());
    };
    let name = resource.container_name.as_deref().unwrap_or("");
    let all = spec::containers(facts.pod);
    let Some(container) = all.iter().find(|found| found.name() == name) else {
        return Err(format!("resourceFieldRef.containerName `{name}`: the pod has no such container"));
    };
    field::resource_value(container.container, resource, facts)
}

fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<_> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// In double quotes, with the escapes of Go's `%q`: that is what readers of these files parse.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let known = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            _ => "",
        };
        let code = u32::from(c);
        let hidden = c.is_control() || (c != ' ' && c.is_whitespace());
        // Writing to a string cannot fail.
        let _ = match (known, hidden) {
            ("", false) => out.write_char(c),
            ("", true) if code < 0x80 => write!(out, "\\x{code:02x}"),
            ("", true) if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
            ("", true) => write!(out, "\\U{code:08x}"),
            (known, _) => out.write_str(known),
        };
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;
    use crate::quantity::Quantity;

    fn files(volume: Value) -> Result<Vec<(String, String, u32)>, FileError> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u",
                "labels": {"b": "2", "a": "x"},
                "annotations": {"k": "say \"hi\"\n\\ tab\t \u{0}\u{a0}é\u{7f}"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "64Mi"}}}, {"name": "d"}]}
        }))
        .unwrap();
        let facts = PodFacts {
            pod: &pod,
            node_name: "n",
            pod_ips: &[],
            host_ips: &[],
            allocatable_cpu: Quantity::from_milli(1900),
            allocatable_memory: Quantity::parse("7Gi").unwrap(),
        };
        let volume: DownwardAPIVolumeSource = serde_json::from_value(volume).unwrap();
        let files = downward_files(&volume, &facts)?;
        Ok(files.into_iter().map(|file| (file.path, file.content, file.mode)).collect())
    }

    fn field(path: &str) -> Value {
        json!({"items": [{"path": "f", "fieldRef": {"fieldPath": path}}]})
    }

    #[test]
    fn fields() {
        for (path, expected) in [
            ("metadata.name", "p"),
            ("metadata.namespace", "ns"),
            ("metadata.uid", "u"),
            ("metadata.labels", "a=\"x\"\nb=\"2\""),
            ("metadata.labels['b']", "2"),
            ("metadata.annotations", "k=\"say \\\"hi\\\"\\n\\\\ tab\\t \\x00\\u00a0é\\x7f\""),
        ] {
            assert_eq!(files(field(path)).unwrap(), [("f".to_owned(), expected.to_owned(), 0o644)], "{path}");
        }
        for path in ["status.podIP", "spec.nodeName", "metadata.x", ""] {
            assert!(files(field(path)).unwrap_err().to_string().contains("`f`"), "{path}");
        }
    }

    #[test]
    fn resources_and_modes() {
        let of = |container: &str, resource: &str| {
            let source = json!({"containerName": container, "resource": resource});
            files(json!({"defaultMode": 0o400, "items": [
                {"path": "a/b", "resourceFieldRef": source, "mode": 0o440},
                {"path": "c", "fieldRef": {"fieldPath": "metadata.name"}}]}))
        };
        let expected =
            |value: &str| vec![("a/b".into(), value.into(), 0o440), ("c".into(), "p".into(), 0o400)];
        assert_eq!(of("c", "limits.memory").unwrap(), expected("67108864"));
        assert_eq!(of("d", "limits.memory").unwrap(), expected("7516192768"));
        assert!(of("", "limits.memory").is_err() && of("c", "limits.gpu").is_err());
        assert!(files(json!({"items": [{"path": "f"}]})).is_err());
        assert!(files(json!({})).unwrap().is_empty());
    }
}
