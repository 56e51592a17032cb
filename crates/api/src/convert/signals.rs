//! Signals by the API's names and in the CRI.

use crate::cri::v1::Signal;

/// The signal of this name; the runtime's own choice for one that is not known.
pub fn signal_to_cri(name: &str) -> Signal {
    let name = name.replace('+', "PLUS").replace('-', "MINUS");
    Signal::from_str_name(&format!("SIGNAL_{name}"))
        .filter(|_| name.starts_with("SIG"))
        .unwrap_or(Signal::RuntimeDefault)
}

/// The API's name; `None` when the runtime does not tell the signal.
pub fn signal_from_cri(signal: Signal) -> Option<String> {
    let name = signal.as_str_name().strip_prefix("SIGNAL_").filter(|name| name.starts_with("SIG"))?;
    Some(name.replace("PLUS", "+").replace("MINUS", "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_signal_of_its_own_and_back() {
        let known: Vec<String> = bulkhead_model::signal::all().collect();
        let mut signals: Vec<i32> = known.iter().map(|name| signal_to_cri(name).into()).collect();
        signals.sort_unstable();
        assert_eq!(signals, (1..=65).collect::<Vec<_>>());
        for name in known {
            assert_eq!(signal_from_cri(signal_to_cri(&name)), Some(name));
        }
        assert_eq!(signal_from_cri(Signal::RuntimeDefault), None);
        for name in ["", "RUNTIME_DEFAULT", "SIGNOPE"] {
            assert_eq!(signal_to_cri(name), Signal::RuntimeDefault, "{name}");
        }
    }
}
