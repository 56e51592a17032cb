//! proto/cri/v1/api.proto against facts.tsv, the wire facts of CRI v1: nothing missing, nothing extra, no number or
//! type changed. The wire is other people's: a mistake here shows only against a real runtime.
//! And its comments against access.toml: who calls a method is said in one place, told in the other.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test: to panic is to fail")]

use std::collections::BTreeSet;

use bulkhead_api::access::ACCESS;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto,
};

/// Type names are compared without their package.
const PREFIX: &str = ".runtime.v1.";
const PROTO: &str = include_str!("../../../proto/cri/v1/api.proto");
const FACTS: &str = include_str!("../../../proto/cri/v1/facts.tsv");

fn compiled() -> FileDescriptorProto {
    let set = FileDescriptorSet::decode(bulkhead_api::DESCRIPTORS).expect("the build wrote it");
    set.file.into_iter().find(|file| file.package() == "runtime.v1").expect("api.proto is compiled")
}

/// One line per fact, as facts.tsv writes them.
fn facts_of(file: &FileDescriptorProto) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    for service in &file.service {
        facts.extend(service.method.iter().map(|method| rpc_fact(service.name(), method)));
    }
    for item in &file.enum_type {
        enum_facts("", item, &mut facts);
    }
    for message in &file.message_type {
        message_facts("", message, &mut facts);
    }
    facts
}

fn rpc_fact(service: &str, method: &MethodDescriptorProto) -> String {
    let side = |streams: bool, name: &str| format!("{}{}", if streams { "stream " } else { "" }, local(name));
    let input = side(method.client_streaming(), method.input_type());
    let output = side(method.server_streaming(), method.output_type());
    format!("rpc\t{service}\t-\t{}\t{input} -> {output}\t-", method.name())
}

fn enum_facts(outer: &str, item: &EnumDescriptorProto, facts: &mut BTreeSet<String>) {
    for value in &item.value {
        facts.insert(format!("enum\t{outer}{}\t{}\t{}\t-\t-", item.name(), value.number(), value.name()));
    }
}

fn message_facts(outer: &str, message: &DescriptorProto, facts: &mut BTreeSet<String>) {
    let name = format!("{outer}{}", message.name());
    if message.field.is_empty() {
        facts.insert(format!("message\t{name}\t-\t-\t-\t-"));
    }
    for field in &message.field {
        assert!(field.oneof_index.is_none(), "{name}.{}: CRI v1 has no oneof and no optional", field.name());
        let deprecated = field.options.as_ref().is_some_and(|options| options.deprecated());
        facts.insert(format!(
            "message\t{name}\t{}\t{}\t{}\t{}",
            field.number(),
            field.name(),
            type_of(field, message),
            if deprecated { "deprecated" } else { "-" }
        ));
    }
    let inner = format!("{name}.");
    for item in &message.enum_type {
        enum_facts(&inner, item, facts);
    }
    for nested in message.nested_type.iter().filter(|nested| !is_map(nested)) {
        message_facts(&inner, nested, facts);
    }
}

fn is_map(message: &DescriptorProto) -> bool {
    message.options.as_ref().is_some_and(|options| options.map_entry())
}

fn type_of(field: &FieldDescriptorProto, owner: &DescriptorProto) -> String {
    if let Some(entry) = owner
        .nested_type
        .iter()
        .find(|nested| is_map(nested) && field.type_name().ends_with(&format!(".{}", nested.name())))
    {
        let part = |at: usize| base_type(&entry.field[at]);
        return format!("map<{},{}>", part(0), part(1));
    }
    let repeated = if field.label() == Label::Repeated { "repeated " } else { "" };
    format!("{repeated}{}", base_type(field))
}

fn base_type(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => local(field.type_name()).to_owned(),
        // TYPE_INT64 and so on: the scalar types are named after their enum values.
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

fn local(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

fn written() -> BTreeSet<String> {
    FACTS.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_interface_is_exactly_the_facts() {
    let (file, facts) = (compiled(), written());
    assert_eq!(facts.len(), 634, "facts.tsv is whole: its lines are distinct and none was dropped");
    let ours = facts_of(&file);
    let missing: Vec<_> = facts.difference(&ours).collect();
    let extra: Vec<_> = ours.difference(&facts).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?}\nextra: {extra:#?}");
}

#[test]
fn every_rpc_says_whether_it_may_be_repeated_and_who_calls_it() {
    let (mut comment, mut service, mut rpcs) = (String::new(), "", 0);
    for line in PROTO.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("//") {
            comment.push_str(words);
        } else if let Some(rest) = line.strip_prefix("service ") {
            service = rest.trim_end_matches(" {");
        } else if let Some(rest) = line.strip_prefix("rpc ") {
            let method = format!("{service}/{}", rest.split_once('(').expect("rpc NAME(").0);
            let repeats = ["dempotent", "Read-only", "Each call"].iter().any(|word| comment.contains(word));
            assert!(repeats, "{method} does not say whether it may be repeated: {comment}");
            let told = comment.split_once("Called by: ").map(|(_, names)| names.trim_end_matches('.'));
            assert_eq!(told, Some(callers(&method).as_str()), "{method}: comment against access.toml");
            rpcs += 1;
        } else {
            comment.clear();
        }
    }
    assert_eq!(rpcs, 43);
}

fn callers(method: &str) -> String {
    let names: Vec<_> = ACCESS
        .process
        .iter()
        .filter(|(_, row)| row.cri.contains(method))
        .map(|(name, _)| name.as_str())
        .collect();
    if names.is_empty() { "nobody yet".to_owned() } else { names.join(", ") }
}
