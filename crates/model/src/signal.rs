//! Names of signals that a container may be stopped with: the API's `lifecycle.stopSignal`. Knows no numbers: those are
//! the runtime's.

use k8s_openapi::api::core::v1::Container;

/// Signals of one name each.
const PLAIN: [&str; 36] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGRTMIN",
    "SIGRTMAX",
];
/// `SIGRTMIN+1` to `SIGRTMIN+15`.
const ABOVE_MIN: u8 = 15;
/// `SIGRTMAX-14` to `SIGRTMAX-1`.
const BELOW_MAX: u8 = 14;

/// The signal that a container asks to be stopped with.
pub fn of(container: &Container) -> Option<&str> {
    let named = container.lifecycle.as_ref()?.stop_signal.as_deref();
    named.filter(|name| !name.is_empty())
}

/// Whether the API knows a signal of this name on Linux.
pub fn is_known(name: &str) -> bool {
    PLAIN.contains(&name) || real_time().any(|known| known == name)
}

/// Every name that [`is_known`] knows.
pub fn all() -> impl Iterator<Item = String> {
    PLAIN.into_iter().map(ToOwned::to_owned).chain(real_time())
}

fn real_time() -> impl Iterator<Item = String> {
    let above = (1..=ABOVE_MIN).map(|step| format!("SIGRTMIN+{step}"));
    above.chain((1..=BELOW_MAX).map(|step| format!("SIGRTMAX-{step}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_names_are_the_apis() {
        for name in ["SIGTERM", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX"] {
            assert!(is_known(name), "{name}");
        }
        for name in [
            "",
            "TERM",
            "sigterm",
            "15",
            "SIGNOPE",
            "SIGRTMIN+0",
            "SIGRTMIN+16",
            "SIGRTMAX-15",
            "SIGRTMIN+01",
        ] {
            assert!(!is_known(name), "{name}");
        }
        assert_eq!(all().collect::<BTreeSet<_>>().len(), 65, "none twice");
    }
}
