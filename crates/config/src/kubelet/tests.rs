use super::*;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;

const EVERY_FIELD: &str = include_str!("../../tests/every-field.yaml");

/// A configuration in which no field has its default.
pub(crate) fn every_field_set() -> KubeletConfiguration {
    let root = crate::tree::read(EVERY_FIELD.as_bytes(), 0, "every-field.yaml").unwrap();
    crate::de::from_tree(&root, &["every-field.yaml"]).value.unwrap()
}

/// Finds out the names that a struct reads, which only its `Deserialize` knows.
struct FieldNames<'a>(&'a mut Vec<String>);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        unreachable!("the configuration is a struct")
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        struct Empty;
        impl<'de> MapAccess<'de> for Empty {
            type Error = de::value::Error;
            fn next_key_seed<K: DeserializeSeed<'de>>(
                &mut self,
                _: K,
            ) -> Result<Option<K::Value>, Self::Error> {
                Ok(None)
            }
            fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, _: V) -> Result<V::Value, Self::Error> {
                unreachable!("there is no key")
            }
        }
        self.0.extend(fields.iter().map(|field| (*field).to_owned()));
        visitor.visit_map(Empty)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[test]
fn the_file_with_every_field_has_them_all_and_no_default() {
    let mut names = Vec::new();
    KubeletConfiguration::deserialize(FieldNames(&mut names)).unwrap();
    let set = serde_json::to_value(every_field_set()).unwrap();
    let default = serde_json::to_value(KubeletConfiguration::default()).unwrap();
    for name in &names {
        assert_ne!(set.get(name), default.get(name), "{name}");
    }
    let root = crate::tree::read(EVERY_FIELD.as_bytes(), 0, "f").unwrap();
    assert!(names.iter().all(|name| root.entry(name).is_some()));
    assert!(names.len() > 100);
}

/// Compared with what a kubelet 1.37.2 answered, whose test cluster had set a few fields.
#[test]
fn the_defaults_print_as_the_kubelet_prints_them() {
    let mut expected: Json = serde_json::from_str(include_str!("../../tests/configz.json")).unwrap();
    let fields = expected["kubeletconfig"].as_object_mut().unwrap();
    for set_by_hand in ["staticPodPath", "readOnlyPort", "tlsCertFile", "tlsPrivateKeyFile", "cgroupRoot"] {
        assert!(fields.remove(set_by_hand).is_some(), "{set_by_hand}");
    }
    fields["authentication"]["x509"] = serde_json::json!({});
    fields["podLogsDir"] = "/var/log/pods".into();
    fields["containerRuntimeEndpoint"] = "unix:///run/containerd/containerd.sock".into();
    fields["failSwapOn"] = true.into();
    fields["failCgroupV1"] = true.into();
    let printed = KubeletConfiguration::default().to_configz_json().unwrap();
    assert_eq!(serde_json::from_str::<Json>(&printed).unwrap(), expected);
    assert!(printed.starts_with(r#"{"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"#));
}

#[test]
fn what_is_printed_reads_back() {
    for config in [KubeletConfiguration::default(), every_field_set()] {
        let text = serde_json::to_string(&config).unwrap();
        let root = crate::tree::read(text.as_bytes(), 0, "f").unwrap();
        assert_eq!(crate::de::from_tree::<KubeletConfiguration>(&root, &["f"]).value, Ok(config));
    }
}

#[test]
fn debug_output_holds_no_header() {
    let text = format!("{:?}", every_field_set());
    assert!(text.contains("Authorization") && !text.contains("hunter2"), "{text}");
}
