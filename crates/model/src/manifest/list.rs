//! An answer or a submission: one Pod, or a list of them. Each pod is taken or refused by itself.

use super::tree::{self, Bounds, Node, Value};
use super::{Manifest, Refusal, checked, not_text, only_pod};

/// Largest list in bytes. A bigger one is refused unread.
pub const MAX_LIST_BYTES: usize = 10 << 20;
/// Most pods of one list. A node has 110 by default.
pub const MAX_ITEMS: usize = 512;

/// One pod of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Namespace (`default` where none is written) and name, as far as they can be read: of a refused pod too.
    pub name: Option<(String, String)>,
    /// The pod, or why it was not taken.
    pub manifest: Result<Manifest, Refusal>,
}

/// Reads a v1 Pod, PodList or List of Pods from YAML or JSON. Pods are as [`super::parse`] takes them, and one that is refused
/// refuses no other.
///
/// # Errors
/// When it is none of these as a whole.
pub fn parse_all(bytes: &[u8]) -> Result<Vec<Item>, Refusal> {
    if bytes.len() > MAX_LIST_BYTES {
        return Err(Refusal::whole(format!(
            "the list has {} bytes: at most {MAX_LIST_BYTES} are read",
            bytes.len()
        )));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| not_text(bytes, error.valid_up_to()))?;
    let documents = tree::parse(text, &Bounds::LIST)?;
    let Some((document, in_pod_list)) = list(&documents) else {
        let document = only_pod(&documents)?;
        return Ok(vec![Item { name: name(document), manifest: checked(document) }]);
    };
    let items = match document.get("items").map(|node| (node, &node.value)) {
        None | Some((_, Value::Null)) => return Ok(Vec::new()),
        Some((_, Value::Seq(items))) => items,
        Some((node, other)) => {
            return Err(Refusal::at(node, format!("items: expected a list, found {}", other.describe())));
        }
    };
    if items.len() > MAX_ITEMS {
        return Err(Refusal::at(
            document,
            format!("the list holds {} pods: at most {MAX_ITEMS}", items.len()),
        ));
    }
    let item = |item: &Node| {
        // The items of a PodList need not say what they are: the API server's do not.
        let plain = in_pod_list
            && matches!(item.value, Value::Map(_))
            && item.get("kind").is_none()
            && item.get("apiVersion").is_none();
        let pod = if plain { Ok(item) } else { only_pod(std::slice::from_ref(item)) };
        Item { name: name(item), manifest: pod.and_then(checked) }
    };
    Ok(items.iter().map(item).collect())
}

/// The one document, when it is a list, and whether it is one of pods alone.
fn list(documents: &[Node]) -> Option<(&Node, bool)> {
    let [document] = documents else { return None };
    let is = |key: &str, text: &str| matches!(document.get(key), Some(Node { value: Value::Str(s), .. }) if s == text);
    let in_pod_list = is("kind", "PodList");
    (is("apiVersion", "v1") && (in_pod_list || is("kind", "List"))).then_some((document, in_pod_list))
}

fn name(pod: &Node) -> Option<(String, String)> {
    let metadata = pod.get("metadata")?;
    let text = |key: &str| match metadata.get(key).map(|node| &node.value) {
        Some(Value::Str(text)) if !text.is_empty() => Some(text.chars().take(253).collect::<String>()),
        _ => None,
    };
    Some((text("namespace").unwrap_or_else(|| "default".to_owned()), text("name")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "metadata: {name: a}, spec: {containers: [{name: c, image: i}]}";

    fn seen(text: &str) -> Vec<(String, Result<(), String>)> {
        let items = parse_all(text.as_bytes()).unwrap_or_else(|refusal| panic!("{refusal}\n{text}"));
        let item = |item: Item| {
            let name = item.name.map_or_else(String::new, |(namespace, name)| format!("{namespace}/{name}"));
            (name, item.manifest.map(drop).map_err(|refusal| refusal.to_string()))
        };
        items.into_iter().map(item).collect()
    }

    #[test]
    fn a_pod_and_both_kinds_of_lists_are_read() {
        let good = || ("default/a".to_owned(), Ok(()));
        assert_eq!(seen(&format!("{{apiVersion: v1, kind: Pod, {POD}}}")), [good()]);
        let typed = format!("{{apiVersion: v1, kind: Pod, {POD}}}");
        for kind in ["List", "PodList"] {
            assert_eq!(
                seen(&format!("{{apiVersion: v1, kind: {kind}, items: [{typed}]}}")),
                [good()],
                "{kind}"
            );
            for items in ["", ", items: ", ", items: []"] {
                assert_eq!(seen(&format!("{{apiVersion: v1, kind: {kind}{items}}}")), [], "{kind} {items}");
            }
        }
        assert_eq!(
            seen(&format!("{{apiVersion: v1, kind: PodList, items: [{{{POD}}}]}}")),
            [good()],
            "untyped"
        );
        let json = serde_json::json!({"apiVersion": "v1", "kind": "PodList", "items": [
            {"metadata": {"name": "b", "namespace": "n"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        ]});
        assert_eq!(seen(&json.to_string()), [("n/b".to_owned(), Ok(()))]);
    }

    #[test]
    fn one_bad_pod_refuses_no_other_and_is_known_by_its_name() {
        let text = format!(
            "apiVersion: v1\nkind: PodList\nitems:\n- {{{POD}}}\n- {{metadata: {{name: b, namespace: shop}}, spec: {{}}}}\n\
             - {{kind: Pod, metadata: {{name: 5}}}}\n- 7\n"
        );
        let seen = seen(&text);
        assert_eq!(seen[0], ("default/a".to_owned(), Ok(())));
        assert_eq!(seen[1].0, "shop/b");
        assert!(seen[1].1.as_ref().unwrap_err().starts_with("line 5"), "{seen:?}");
        assert_eq!((seen[2].0.as_str(), seen[3].0.as_str()), ("", ""));
        assert!(seen[2].1.as_ref().unwrap_err().contains("apiVersion"), "{seen:?}");
        assert!(seen[3].1.is_err());
        let untyped_in_list = format!("{{apiVersion: v1, kind: List, items: [{{{POD}}}]}}");
        assert!(
            parse_all(untyped_in_list.as_bytes()).unwrap()[0].manifest.is_err(),
            "a List may hold anything"
        );
    }

    #[test]
    fn what_is_no_list_of_pods_is_refused_as_a_whole() {
        let many = format!("{{apiVersion: v1, kind: List, items: [{}]}}", "1, ".repeat(MAX_ITEMS + 1));
        for (text, part) in [
            ("", "empty"),
            ("<html>", "a text"),
            ("{apiVersion: v1, kind: List, items: 3}", "expected a list"),
            ("{apiVersion: apps/v1, kind: DeploymentList}", "DeploymentList"),
            ("{apiVersion: v1, kind: ConfigMap}", "only v1 Pods"),
            (&many, "at most 512"),
            (&" ".repeat(MAX_LIST_BYTES + 1), "bytes"),
        ] {
            let refusal = parse_all(text.as_bytes()).unwrap_err().to_string();
            assert!(refusal.contains(part), "{refusal}");
        }
        assert!(parse_all(b"\xff").is_err());
    }

    #[test]
    fn a_list_may_be_larger_than_one_pod() {
        let pods = format!("{{{POD}}},").repeat(500).replacen("name: a", "name: b", 1);
        let padding = format!("#{}\n", "x".repeat(super::super::MAX_BYTES));
        let text = format!("{padding}{{apiVersion: v1, kind: PodList, items: [{pods}]}}");
        assert_eq!(seen(&text).len(), 500);
    }
}
