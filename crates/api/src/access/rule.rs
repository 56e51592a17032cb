//! What an API socket passes: one row of `api = [...]`, and whether a request of the Kubernetes API is what it says. Pure.
//!
//! A row is `VERB[,VERB...] GROUP/RESOURCE[/SUBRESOURCE] [where FIELD=VALUE[,FIELD=VALUE...]]`. The group of what stands
//! beneath `/api` is written `core`. A value is a text, or `{node}` for the node's own name, or `*` for any one name.
//! `metadata.namespace` and `metadata.name` are those of the path; a list or watch without a name in its path must select
//! the field. Every other field must be selected (`fieldSelector`), and only lists and watches can do so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// The field that is the object's name.
const NAME: &str = "metadata.name";
/// The field that is its namespace.
const NAMESPACE: &str = "metadata.namespace";
/// How the group without a name is written.
const CORE: &str = "core";

/// What a request does, as the API's authorization names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads all of a kind.
    List,
    /// Follows all of a kind.
    Watch,
    /// Makes one, or asks a question that is written as an object.
    Create,
    /// Replaces one.
    Update,
    /// Changes one.
    Patch,
    /// Removes one.
    Delete,
    /// Removes all of a kind.
    DeleteCollection,
}

/// A request of the Kubernetes API, as far as rules look at it. Empty texts: there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    /// What it does.
    pub verb: Verb,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource, such as `pods`.
    pub resource: String,
    /// Subresource, such as `status`.
    pub subresource: String,
    /// Namespace of the path.
    pub namespace: String,
    /// Name in the path.
    pub name: String,
    /// What its field selector demands to be equal.
    pub fields: BTreeMap<String, String>,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ApiRule {
    verbs: BTreeSet<Verb>,
    group: String,
    resource: String,
    subresource: String,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    field: String,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Node,
    Any,
    Text(String),
}

/// A row that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{row}`: {reason}")]
pub struct BadRule {
    row: String,
    reason: String,
}

/// What rows say about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One lets it pass.
    Passes,
    /// No row is about this verb and resource.
    NotListed,
    /// Rows are, and the request is not as they say: what they want.
    Unless(String),
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it is about all of a kind.
    fn is_of_many(self) -> bool {
        matches!(self, Self::List | Self::Watch | Self::DeleteCollection)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ApiRequest {
    /// Group, resource and subresource as rows write them: `core/pods/status`.
    pub fn target(&self) -> String {
        target(&self.group, &self.resource, &self.subresource)
    }
}

impl ApiRule {
    /// Verbs that it passes.
    pub fn verbs(&self) -> impl Iterator<Item = Verb> {
        self.verbs.iter().copied()
    }

    /// What it is about: `core/pods/status`.
    pub fn target(&self) -> String {
        target(&self.group, &self.resource, &self.subresource)
    }

    /// What must hold of a request, as the row writes it; empty: nothing.
    pub fn conditions(&self) -> String {
        let conditions: Vec<_> = self.conditions.iter().map(ToString::to_string).collect();
        conditions.join(",")
    }

    fn is_about(&self, request: &ApiRequest) -> bool {
        self.verbs.contains(&request.verb)
            && self.group == request.group
            && self.resource == request.resource
            && self.subresource == request.subresource
    }

    fn holds(&self, request: &ApiRequest, node: &str) -> bool {
        self.conditions.iter().all(|condition| condition.holds(request, node))
    }
}

/// What `rules` say about a request of the node `node`.
pub fn judge(rules: &[ApiRule], request: &ApiRequest, node: &str) -> Verdict {
    let about: Vec<_> = rules.iter().filter(|rule| rule.is_about(request)).collect();
    if about.iter().any(|rule| rule.holds(request, node)) {
        return Verdict::Passes;
    }
    if about.is_empty() {
        return Verdict::NotListed;
    }
    let wanted: Vec<_> = about.iter().map(|rule| rule.conditions().replace("{node}", node)).collect();
    Verdict::Unless(wanted.join(", or "))
}

impl Condition {
    fn holds(&self, request: &ApiRequest, node: &str) -> bool {
        let selected = request.fields.get(&self.field).map_or("", String::as_str);
        let found = match self.field.as_str() {
            NAMESPACE => request.namespace.as_str(),
            NAME if request.name.is_empty() && request.verb.is_of_many() => selected,
            NAME => request.name.as_str(),
            // With a name in its path no selector is looked at.
            _ if request.name.is_empty() && request.verb.is_of_many() => selected,
            _ => "",
        };
        match &self.value {
            Value::Node => !node.is_empty() && found == node,
            Value::Any => !found.is_empty(),
            Value::Text(text) => found == text,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match &self.value {
            Value::Node => "{node}",
            Value::Any => "*",
            Value::Text(text) => text,
        };
        write!(f, "{}={value}", self.field)
    }
}

impl FromStr for ApiRule {
    type Err = BadRule;

    fn from_str(row: &str) -> Result<Self, BadRule> {
        read(row).map_err(|reason| BadRule { row: row.to_owned(), reason })
    }
}

impl TryFrom<String> for ApiRule {
    type Error = BadRule;

    fn try_from(row: String) -> Result<Self, BadRule> {
        row.parse()
    }
}

fn read(row: &str) -> Result<ApiRule, String> {
    let words: Vec<&str> = row.split(' ').collect();
    let (verbs, target, conditions) = match words.as_slice() {
        [verbs, target] => (*verbs, *target, ""),
        [verbs, target, "where", conditions] => (*verbs, *target, *conditions),
        _ => return Err("write `VERBS GROUP/RESOURCE where CONDITIONS`".to_owned()),
    };
    let mut parts = target.split('/');
    let (group, resource) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let subresource = parts.next().unwrap_or_default();
    if group.is_empty() || resource.is_empty() || parts.next().is_some() || target.ends_with('/') {
        return Err(format!("{target:?} is not GROUP/RESOURCE[/SUBRESOURCE]"));
    }
    let rule = ApiRule {
        verbs: verbs.split(',').map(verb).collect::<Result<_, _>>()?,
        group: if group == CORE { String::new() } else { group.to_owned() },
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        conditions: conditions
            .split(',')
            .filter(|c| !c.is_empty())
            .map(condition)
            .collect::<Result<_, _>>()?,
    };
    for Condition { field, .. } in &rule.conditions {
        let can = |verb: &Verb| match field.as_str() {
            NAMESPACE => true,
            // The name of a new object is in its body, which no rule sees.
            NAME => *verb != Verb::Create || !rule.subresource.is_empty(),
            _ => verb.is_of_many(),
        };
        if let Some(verb) = rule.verbs.iter().find(|verb| !can(verb)) {
            return Err(format!("{verb} cannot be held to {field}"));
        }
    }
    Ok(rule)
}

fn verb(name: &str) -> Result<Verb, String> {
    Verb::ALL.into_iter().find(|verb| verb.as_str() == name).ok_or_else(|| format!("{name:?} is no verb"))
}

fn condition(text: &str) -> Result<Condition, String> {
    let (field, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not FIELD=VALUE"))?;
    let value = match value {
        "{node}" => Value::Node,
        "*" => Value::Any,
        "" => return Err(format!("{field} has no value")),
        text => Value::Text(text.to_owned()),
    };
    Ok(Condition { field: field.to_owned(), value })
}

fn target(group: &str, resource: &str, subresource: &str) -> String {
    let group = if group.is_empty() { CORE } else { group };
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{group}/{resource}{slash}{subresource}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: Verb, resource: &str) -> ApiRequest {
        ApiRequest {
            verb,
            group: String::new(),
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            fields: BTreeMap::new(),
        }
    }

    fn verdict(rows: &[&str], request: &ApiRequest) -> Verdict {
        let rules: Vec<ApiRule> = rows.iter().map(|row| row.parse().unwrap()).collect();
        judge(&rules, request, "node-a")
    }

    #[test]
    fn a_row_is_about_its_verbs_and_its_resource() {
        let pods = request(Verb::Get, "pods");
        assert_eq!(verdict(&["get,list core/pods"], &pods), Verdict::Passes);
        for row in ["list core/pods", "get core/pods/status", "get apps/pods", "get core/podtemplates"] {
            assert_eq!(verdict(&[row], &pods), Verdict::NotListed, "{row}");
        }
        let mut status = pods.clone();
        status.subresource = "status".to_owned();
        assert_eq!(verdict(&["get core/pods"], &status), Verdict::NotListed);
        assert_eq!(verdict(&["get core/pods", "get core/pods/status"], &status), Verdict::Passes);
    }

    #[test]
    fn the_own_name_is_in_the_path_or_selected() {
        let rows = ["get,list,watch,patch core/nodes where metadata.name={node}"];
        let wanted = Verdict::Unless("metadata.name=node-a".to_owned());
        for verb in [Verb::Get, Verb::Patch] {
            let mut one = request(verb, "nodes");
            assert_eq!(verdict(&rows, &one), wanted);
            one.fields.insert("metadata.name".to_owned(), "node-a".to_owned());
            assert_eq!(verdict(&rows, &one), wanted, "a selector selects nothing here");
            one.name = "node-a".to_owned();
            assert_eq!(verdict(&rows, &one), Verdict::Passes);
            one.name = "node-b".to_owned();
            assert_eq!(verdict(&rows, &one), wanted);
        }
        for verb in [Verb::List, Verb::Watch] {
            let mut many = request(verb, "nodes");
            assert_eq!(verdict(&rows, &many), wanted);
            many.fields.insert("metadata.name".to_owned(), "node-b".to_owned());
            assert_eq!(verdict(&rows, &many), wanted);
            many.fields.insert("metadata.name".to_owned(), "node-a".to_owned());
            assert_eq!(verdict(&rows, &many), Verdict::Passes);
        }
    }

    #[test]
    fn other_conditions() {
        let rows = ["list core/pods where spec.nodeName={node}", "list core/pods where metadata.name=*"];
        let mut pods = request(Verb::List, "pods");
        let wanted = Verdict::Unless("spec.nodeName=node-a, or metadata.name=*".to_owned());
        assert_eq!(verdict(&rows, &pods), wanted);
        pods.fields.insert("spec.nodeName".to_owned(), "node-a".to_owned());
        assert_eq!(verdict(&rows, &pods), Verdict::Passes);
        pods.name = "a".to_owned();
        assert_eq!(verdict(&rows[..1], &pods), Verdict::Unless("spec.nodeName=node-a".to_owned()));
        let lease = ["patch coordination.k8s.io/leases where metadata.name={node},metadata.namespace=n"];
        let mut patch = request(Verb::Patch, "leases");
        patch.group = "coordination.k8s.io".to_owned();
        patch.name = "node-a".to_owned();
        assert!(matches!(verdict(&lease, &patch), Verdict::Unless(_)));
        patch.namespace = "n".to_owned();
        assert_eq!(verdict(&lease, &patch), Verdict::Passes);
    }

    #[test]
    fn a_node_without_a_name_owns_nothing() {
        let rule: ApiRule = "get core/nodes where metadata.name={node}".parse().unwrap();
        assert!(matches!(judge(&[rule], &request(Verb::Get, "nodes"), ""), Verdict::Unless(_)));
    }

    #[test]
    fn rows_that_mean_nothing_are_refused() {
        for row in [
            "",
            "get",
            "get pods",
            "get core/pods/",
            "get core/pods/status/x",
            "get,fetch core/pods",
            "* core/pods",
            "get  core/pods",
            "get core/pods if a=b",
            "get core/pods where",
            "get core/pods where a",
            "get core/pods where metadata.name=",
            "create core/nodes where metadata.name={node}",
            "get core/pods where spec.nodeName={node}",
        ] {
            assert!(row.parse::<ApiRule>().is_err(), "{row:?}");
        }
    }
}
