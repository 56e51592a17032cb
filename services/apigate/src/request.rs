//! What a request asks for: method, path and query as verb, group, resource, subresource, namespace and name. Pure and
//! total: what is not written in the one usual way is no request.

use bulkhead_api::access::{ApiRequest, Verb};

use crate::limits;
use crate::query::Query;

/// A request that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// For the rules.
    pub request: ApiRequest,
    /// Path and query as the API server gets them.
    pub target: String,
    /// Whether its answer has no end.
    pub streaming: bool,
}

/// What stands in a path.
#[derive(Debug, Default)]
struct Place<'a> {
    group: &'a str,
    namespace: &'a str,
    resource: &'a str,
    name: &'a str,
    subresource: &'a str,
}

/// Reads a request.
///
/// # Errors
/// With what is wrong with it, as the end of a sentence that began with the request.
pub fn parse(method: &str, path: &str, query: Option<&str>) -> Result<Asked, String> {
    let segments = segments(path)?;
    let place = place(&segments)?;
    let query = Query::parse(query.unwrap_or_default())?;
    // Of a log, `follow` is what `watch` is of objects.
    let follows = query.switch("watch")? | query.switch("follow")?;
    let verb = verb(method, &place, follows)?;
    let request = ApiRequest {
        verb,
        group: place.group.to_owned(),
        resource: place.resource.to_owned(),
        subresource: place.subresource.to_owned(),
        namespace: place.namespace.to_owned(),
        name: place.name.to_owned(),
        fields: query.fields()?,
    };
    let query = query.render();
    let mark = if query.is_empty() { "" } else { "?" };
    Ok(Asked { request, target: format!("{path}{mark}{query}"), streaming: verb == Verb::Watch })
}

fn segments(path: &str) -> Result<Vec<&str>, String> {
    if path.len() > limits::PATH {
        return Err(format!("its path is longer than {} bytes", limits::PATH));
    }
    let rest = path.strip_prefix('/').ok_or("its path does not begin with /")?;
    let plain = |segment: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        !segment.is_empty() && segment != "." && segment != ".." && segment.chars().all(letters)
    };
    let segments: Vec<_> = rest.split('/').collect();
    if segments.iter().all(|segment| plain(segment)) {
        Ok(segments)
    } else {
        Err("its path is not written in the one usual way: no empty parts, dots or encoded letters"
            .to_owned())
    }
}

fn place<'a>(segments: &[&'a str]) -> Result<Place<'a>, String> {
    let (group, version, rest) = match segments {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Err("it is no resource: paths begin with /api/VERSION or /apis/GROUP/VERSION".to_owned()),
    };
    if !is_version(version) || !(group.is_empty() || is_group(group)) {
        return Err("it names no group and version of the API".to_owned());
    }
    let place = match rest {
        ["watch" | "proxy", ..] => return Err("that form of paths is no more".to_owned()),
        // These two belong to the namespace; everything else is in it.
        ["namespaces", name, subresource @ ("status" | "finalize")] => {
            Place { resource: "namespaces", name, subresource, ..Place::default() }
        }
        ["namespaces", namespace, resource, object @ ..] => {
            if !is_label(namespace) {
                return Err("its namespace is no name".to_owned());
            }
            Place { namespace, ..object_of(resource, object)? }
        }
        [resource, object @ ..] => object_of(resource, object)?,
        [] => return Err("it names no resource".to_owned()),
    };
    let word = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !word(place.resource) || !word(place.subresource) {
        return Err("its resource is no name".to_owned());
    }
    if place.subresource == "proxy" {
        return Err("nothing is proxied".to_owned());
    }
    Ok(Place { group, ..place })
}

fn object_of<'a>(resource: &'a str, object: &[&'a str]) -> Result<Place<'a>, String> {
    let (name, subresource) = match object {
        [] => ("", ""),
        [name] => (*name, ""),
        [name, subresource] => (*name, *subresource),
        _ => return Err("its path has more parts than a subresource has".to_owned()),
    };
    if name.len() > 253 {
        return Err("its name is longer than names are".to_owned());
    }
    Ok(Place { resource, name, subresource, ..Place::default() })
}

fn verb(method: &str, place: &Place<'_>, follows: bool) -> Result<Verb, String> {
    let one = !place.name.is_empty();
    Ok(match method {
        "GET" if follows && one && place.subresource != "log" => {
            return Err("one object is watched by a field selector on its kind".to_owned());
        }
        "GET" if follows => Verb::Watch,
        "GET" if one => Verb::Get,
        "GET" => Verb::List,
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" if one => Verb::Delete,
        "DELETE" => Verb::DeleteCollection,
        _ => return Err("its method is none of the API's".to_owned()),
    })
}

/// `v1`, `v2beta1`.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else { return false };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match rest.split_once("alpha").or_else(|| rest.split_once("beta")) {
        Some((major, minor)) => number(major) && number(minor),
        None => number(rest),
    }
}

fn is_group(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(letters)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests;
