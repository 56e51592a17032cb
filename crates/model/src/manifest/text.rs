//! Names and values that the API allows: RFC 1123 labels and subdomains, label keys, service names, paths.

use super::path::{At, Fault};

/// Lower-case letters, digits and `-`, not at the ends, at most 63.
pub(super) fn is_dns_label(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(is_lower_alnum);
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|b| is_lower_alnum(b) || b == b'-')
}

/// DNS labels of any length joined by dots, at most 253 together.
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let edge = |b: Option<u8>| b.is_some_and(is_lower_alnum);
        edge(label.bytes().next())
            && edge(label.bytes().last())
            && label.bytes().all(|b| is_lower_alnum(b) || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// `name` or `prefix.example/name`: the key of a label, annotation or resource.
pub(super) fn is_qualified_name(text: &str) -> bool {
    let name = match text.split_once('/') {
        Some((prefix, name)) if is_dns_subdomain(&prefix.to_ascii_lowercase()) => name,
        Some(_) => return false,
        None => text,
    };
    !name.is_empty() && is_label_value(name)
}

/// Letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, at most 63; may be empty.
pub(super) fn is_label_value(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_none_or(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The name of a port: at most 15 lower-case letters, digits and single `-`, with a letter among them.
pub(super) fn is_port_name(text: &str) -> bool {
    text.len() <= 15
        && is_dns_label(text)
        && !text.contains("--")
        && text.bytes().any(|b| b.is_ascii_lowercase())
}

/// A pod's UID becomes the name of a folder.
pub(super) fn is_uid(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The name of an HTTP header.
pub(super) fn is_header_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

pub(super) fn dns_label(at: &At<'_>, text: &str) -> Result<(), Fault> {
    let rule =
        "must be 1 to 63 lower-case letters, digits or `-`, beginning and ending with a letter or digit";
    at.require(is_dns_label(text), rule)
}

/// An absolute path that does not leave where it points by `..`.
pub(super) fn absolute_path(at: &At<'_>, path: &str) -> Result<(), Fault> {
    at.require(path.starts_with('/'), "must be an absolute path")?;
    no_parent(at, path)
}

/// A path below something: relative, without `..`.
pub(super) fn relative_path(at: &At<'_>, path: &str) -> Result<(), Fault> {
    at.require(!path.starts_with('/'), "must be a relative path")?;
    no_parent(at, path)
}

pub(super) fn no_parent(at: &At<'_>, path: &str) -> Result<(), Fault> {
    at.require(path.len() < 4096, "must be shorter than 4096 bytes")?;
    at.require(!path.contains('\0'), "must not hold a NUL byte")?;
    at.require(path.split('/').all(|part| part != ".."), "must not hold `..`")
}

/// One of the texts that the API knows; nothing at all is right as well.
pub(super) fn one_of(at: &At<'_>, text: Option<&str>, known: &[&str]) -> Result<(), Fault> {
    match text {
        None | Some("") => Ok(()),
        Some(text) if known.contains(&text) => Ok(()),
        Some(_) => Err(at.fault(format!("must be one of {}", known.join(", ")))),
    }
}

/// Not more than `most` of something that the manifest could repeat.
pub(super) fn at_most<T>(at: &At<'_>, list: Option<&Vec<T>>, most: usize) -> Result<(), Fault> {
    let count = list.map_or(0, Vec::len);
    if count <= most {
        Ok(())
    } else {
        Err(at.fault(format!("has {count} entries: at most {most} are allowed")))
    }
}

fn is_lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}
