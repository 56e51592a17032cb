//! Small texts of manifests and configurations: quantities, durations, images, `$(VAR)`.
#![no_main]

use bulkhead_config::Duration;
use bulkhead_model::image::{ImageRef, PullPolicy};
use bulkhead_model::quantity::Quantity;
use bulkhead_model::{env, ports, sysctl, termination_message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(quantity) = Quantity::parse(&text) {
        let _ = (quantity.value(), quantity.milli_value(), quantity.divided_by(quantity));
        let _ = quantity.plus(quantity);
        if let Ok(other) = Quantity::parse(&text[text.floor_char_boundary(text.len() / 2)..]) {
            let _ = (quantity.plus(other), quantity.divided_by(other), quantity.cmp(&other));
        }
    }
    if let Ok(duration) = text.parse::<Duration>() {
        assert_eq!(duration.to_string().parse(), Ok(duration), "{text:?}");
    }
    if let Ok(image) = ImageRef::parse(&text) {
        let _ = (image.default_pull_policy(), PullPolicy::default_for(&text));
    }
    let _ = (env::name_is_valid(&text), env::field_path_is_known(&text), env::resource_is_known(&text));
    let _ = (ports::Protocol::parse(&text), sysctl::pattern_is_of_pods(&text));
    assert!(termination_message::log_tail(bytes).len() <= 4096);
});
