//! Which process this program is this time: the processes are libraries, and `bulkhead` holds them all.
//!
//! Owns the table of processes. Must never know what one of them does.

use std::ffi::OsString;
use std::path::Path;

use bulkhead_service::{Exit, Service, run_to_exit};

/// How the processes are run, for `--help`.
pub const HELP: &str = "`bulkhead PROCESS ARGS...` runs one process of the node, as a link with the process' name does: \
see `bulkhead PROCESS --help`.";

macro_rules! processes {
    ($($process:ty),* $(,)?) => {
        /// Names of all processes that are built in.
        pub const NAMES: &[&str] = &[$(<$process as Service>::NAME),*];

        fn run(name: &str, arguments: impl IntoIterator<Item = OsString>) -> Option<Exit> {
            $(if name == <$process as Service>::NAME {
                return Some(run_to_exit::<$process>(arguments));
            })*
            None
        }
    };
}

// In the order in which they are started.
processes![
    crigate::Crigate,
    apigate::Apigate,
    pleg::Pleg,
    volumed::Volumed,
    imaged::Imaged,
    prober::Prober,
    syncd::Syncd,
    statusd::Statusd,
    evictd::Evictd,
    gateway::Gateway,
];

/// Runs the process that the program's name or the first argument names, to its end. `None`: neither does.
pub fn dispatch(arguments: impl IntoIterator<Item = OsString>) -> Option<Exit> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let (name, skip) = choose(&arguments)?;
    run(name, arguments.iter().skip(skip).cloned())
}

/// The process, and how many arguments come before its own name.
fn choose(arguments: &[OsString]) -> Option<(&'static str, usize)> {
    let called = |index: usize| {
        let word = arguments.get(index)?;
        let name = if index == 0 { Path::new(word).file_name()? } else { word.as_os_str() };
        NAMES.iter().copied().find(|known| name == *known)
    };
    called(0).map(|name| (name, 0)).or_else(|| called(1).map(|name| (name, 1)))
}

#[cfg(test)]
mod tests {
    use bulkhead_api::access::ACCESS;

    use super::*;

    #[test]
    fn the_program_name_comes_before_the_first_argument() {
        let choose = |line: &str| choose(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(choose("/x/crigate --help"), Some(("crigate", 0)));
        assert_eq!(choose("/x/bulkhead crigate --help"), Some(("crigate", 1)));
        assert_eq!(choose("crigate pleg"), Some(("crigate", 0)));
        assert_eq!(choose("/x/bulkhead ./crigate"), None, "an argument is a name, not a path");
        assert_eq!(choose("/x/bulkhead up crigate"), None);
    }

    #[test]
    fn every_process_of_the_access_file_is_built_in() {
        let mut names: Vec<_> = NAMES.to_vec();
        names.sort_unstable();
        let access: Vec<_> = ACCESS.process.keys().collect();
        assert_eq!(names, access);
    }
}
