//! The API as text, so that any change to it shows in review; and the rules that its comments keep.
#![cfg(test)]

use std::fmt::Write as _;
use std::path::Path;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

fn files() -> Vec<FileDescriptorProto> {
    let set = FileDescriptorSet::decode(bulkhead_api::DESCRIPTORS).unwrap();
    let ours = |file: &FileDescriptorProto| !file.package().starts_with("google.");
    let mut files: Vec<_> = set.file.into_iter().filter(ours).collect();
    files.sort_by(|a, b| a.package().cmp(b.package()));
    files
}

fn type_name(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_owned(),
        other => other.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

fn message(out: &mut String, prefix: &str, message_: &DescriptorProto) {
    let name = format!("{prefix}.{}", message_.name());
    let _ = writeln!(out, "message {name}");
    for field in &message_.field {
        let repeated = if field.label() == Label::Repeated { "repeated " } else { "" };
        let optional = if field.proto3_optional() { "optional " } else { "" };
        let _ =
            writeln!(out, "  {} {repeated}{optional}{} {}", field.number(), type_name(field), field.name());
    }
    for nested in &message_.nested_type {
        message(out, &name, nested);
    }
}

fn snapshot() -> String {
    let mut out = String::from("# Made by a test: docs/runbooks/change-the-api.md\n");
    for file in files() {
        for service in &file.service {
            let _ = writeln!(out, "service {}.{}", file.package(), service.name());
            for method in &service.method {
                let stream = |on| if on { "stream " } else { "" };
                let _ = writeln!(
                    out,
                    "  {}({}{}) -> {}{}",
                    method.name(),
                    stream(method.client_streaming()),
                    method.input_type().trim_start_matches('.'),
                    stream(method.server_streaming()),
                    method.output_type().trim_start_matches('.')
                );
            }
        }
        for message_ in &file.message_type {
            message(&mut out, file.package(), message_);
        }
        for enumeration in &file.enum_type {
            let _ = writeln!(out, "enum {}.{}", file.package(), enumeration.name());
            for value in &enumeration.value {
                let _ = writeln!(out, "  {} {}", value.number(), value.name());
            }
        }
    }
    out
}

#[test]
fn the_api_is_as_its_snapshot_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/api.snapshot.txt");
    let now = snapshot();
    if std::env::var_os("UPDATE_SNAPSHOT").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<_> = now.lines().filter(|line| !kept.lines().any(|k| k == *line)).take(10).collect();
    assert!(now == kept, "the API changed: docs/runbooks/change-the-api.md; first new lines: {changed:#?}");
}

#[test]
fn every_rpc_of_ours_says_how_it_may_be_used() {
    for file in files().iter().filter(|file| file.package().starts_with("bulkhead.")) {
        let comments = file.source_code_info.clone().unwrap_or_default();
        for (s, service) in file.service.iter().enumerate() {
            for (m, method) in service.method.iter().enumerate() {
                // 6 is `service` of a file, 2 is `method` of a service.
                let place = [6, i32::try_from(s).unwrap(), 2, i32::try_from(m).unwrap()];
                let comment = comments.location.iter().find(|location| location.path == place);
                let comment = comment
                    .map(|location| location.leading_comments().replace('\n', " "))
                    .unwrap_or_default();
                for word in ["Deadline:", "Idempotent:", "Ordering:", "Errors:"] {
                    assert!(comment.contains(word), "{}.{}: no `{word}`", service.name(), method.name());
                }
            }
        }
    }
}
