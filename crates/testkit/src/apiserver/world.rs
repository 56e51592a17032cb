//! Objects of the fake API server, and what happened to them. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// All objects, by path.
#[derive(Debug, Default)]
pub(super) struct World {
    objects: BTreeMap<String, Value>,
    events: Vec<Event>,
    version: u64,
    /// Versions up to this one are forgotten.
    forgotten: u64,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub version: u64,
    pub kind: &'static str,
    pub path: String,
    pub object: Value,
}

/// A path in its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// `/api/v1` or `/apis/G/V`.
    pub prefix: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
}

impl Place {
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (prefix, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => (format!("/api/{version}"), rest),
            ["apis", group, version, rest @ ..] => (format!("/apis/{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => ((*namespace).to_owned(), rest),
            rest => (String::new(), rest),
        };
        let part = |at: usize| rest.get(at).map(|part| (*part).to_owned()).unwrap_or_default();
        Some(Self { prefix, namespace, resource: part(0), name: part(1), subresource: part(2) })
    }

    /// Of the object, without a subresource.
    pub fn path(&self) -> String {
        let namespace =
            if self.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", self.namespace) };
        format!("{}{namespace}/{}/{}", self.prefix, self.resource, self.name)
    }

    /// Whether an object at `path` is in this collection.
    fn holds(&self, path: &str) -> bool {
        Self::parse(path).is_some_and(|of| {
            of.prefix == self.prefix
                && of.resource == self.resource
                && (self.namespace.is_empty() || of.namespace == self.namespace)
        })
    }
}

impl World {
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.objects.get(path).cloned()
    }

    pub fn put(&mut self, path: &str, mut object: Value) -> Value {
        let kind = if self.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        self.version += 1;
        if let Some(place) = Place::parse(path) {
            object["metadata"]["name"] = json!(place.name);
            if !place.namespace.is_empty() {
                object["metadata"]["namespace"] = json!(place.namespace);
            }
        }
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        self.objects.insert(path.to_owned(), object.clone());
        self.note(kind, path, &object);
        object
    }

    pub fn remove(&mut self, path: &str) -> Option<Value> {
        let object = self.objects.remove(path)?;
        self.version += 1;
        self.note("DELETED", path, &object);
        Some(object)
    }

    pub fn compact(&mut self) {
        self.version += 1;
        self.forgotten = self.version;
        self.events.clear();
    }

    fn note(&mut self, kind: &'static str, path: &str, object: &Value) {
        let (path, object) = (path.to_owned(), object.clone());
        self.events.push(Event { version: self.version, kind, path, object });
    }

    /// Paths of all objects of a collection.
    pub fn paths(&self, place: &Place) -> Vec<String> {
        self.objects.keys().filter(|path| place.holds(path)).cloned().collect()
    }

    pub fn list(&self, place: &Place, selector: &str) -> Value {
        let found = self.objects.iter().filter(|(path, _)| place.holds(path)).map(|(_, object)| object);
        let items: Vec<&Value> = found.filter(|object| selected(object, selector)).collect();
        json!({
            "kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": self.version.to_string()},
            "items": items,
        })
    }

    /// All that there is, as if it had come just now.
    pub fn present(&self, place: &Place, selector: &str) -> Vec<Event> {
        let found =
            self.objects.iter().filter(|(path, object)| place.holds(path) && selected(object, selector));
        let event = |(path, object): (&String, &Value)| Event {
            version: self.version,
            kind: "ADDED",
            path: path.clone(),
            object: object.clone(),
        };
        found.map(event).collect()
    }

    /// What happened after `version`; `None`: that is forgotten.
    pub fn since(&self, place: &Place, selector: &str, version: u64) -> Option<Vec<Event>> {
        if version < self.forgotten {
            return None;
        }
        let events = self.events.iter().filter(|event| event.version > version && place.holds(&event.path));
        Some(events.filter(|event| selected(&event.object, selector)).cloned().collect())
    }
}

fn selected(object: &Value, selector: &str) -> bool {
    selector.split(',').filter(|term| !term.is_empty()).all(|term| {
        let (field, value) = term.split_once('=').unwrap_or((term, ""));
        let found = object.pointer(&format!("/{}", field.replace('.', "/")));
        found.and_then(Value::as_str).unwrap_or_default() == value
    })
}

/// RFC 7386.
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            if let Some(into) = into.as_object_mut() {
                into.remove(key);
            }
        } else {
            merge(&mut into[key.as_str()], value);
        }
    }
}
