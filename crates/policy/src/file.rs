//! The policy file: TOML, read once at the start. What it does not mention is allowed.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::values::{Capability, Device, Prefix, ProfileKind};
use crate::wish::Pod;

/// Largest file in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Most bytes of a line that an error shows.
const SHOWN: usize = 80;

/// A node's policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// For every pod.
    #[serde(default)]
    pub rules: Rules,
    /// For some pods. The first one that fits a pod counts.
    #[serde(default)]
    pub exception: Vec<Exception>,
}

/// Rules. `None`: this is not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Rules {
    /// Whether containers may be privileged.
    pub privileged: Option<bool>,
    /// Whether pods may be in the host's network.
    pub host_network: Option<bool>,
    /// Whether they may see the host's processes.
    #[serde(rename = "hostPID")]
    pub host_pid: Option<bool>,
    /// Whether they may share the host's IPC objects.
    #[serde(rename = "hostIPC")]
    pub host_ipc: Option<bool>,
    /// Paths of the node, outside the pod's own folder, that may be mounted.
    pub host_paths: Option<HostPaths>,
    /// Devices that a container may have beside the runtime's own.
    pub devices: Option<Vec<Device>>,
    /// Capabilities that a container may add to the runtime's own. With `ALL` every one.
    pub capabilities: Option<Vec<Capability>>,
    /// Kinds of seccomp profiles. A container without a profile is `Unconfined`.
    pub seccomp: Option<Vec<ProfileKind>>,
    /// Kinds of AppArmor profiles. A container without a profile has the runtime's.
    pub app_armor: Option<Vec<ProfileKind>>,
}

/// Which paths of the node may be mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPaths {
    /// These and what is beneath them. `None`: all but those denied.
    pub allow: Option<Vec<Prefix>>,
    /// Not these, nor what is beneath them, nor what they are in. Counts before `allow`.
    #[serde(default)]
    pub deny: Vec<Prefix>,
}

/// Other rules for some pods. Which pod it is is what syncd says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Exception {
    /// Pods of this namespace ...
    pub namespace: String,
    /// ... whose name begins so.
    #[serde(default)]
    pub name_prefix: String,
    /// Each field that is set takes the place of the node's.
    pub rules: Rules,
}

/// A policy file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read.
    #[error("cannot read the policy file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is too big.
    #[error("the policy file {} has more than {MAX_BYTES} bytes", path.display())]
    Size {
        /// The file.
        path: PathBuf,
    },
    /// It is not what it should be.
    #[error("the policy file {} is not valid: {problem}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, what is wrong, and the field.
        problem: String,
    },
}

impl Policy {
    /// Reads a policy file. Its prefixes then also stand for where they lead at this time.
    ///
    /// # Errors
    /// When it cannot be read or is not valid, with line and field.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        use std::io::Read;
        let failed = |source| PolicyError::Read { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(PolicyError::Size { path: path.to_owned() });
        }
        let parsed = Self::parse(&text);
        let mut policy = parsed.map_err(|problem| PolicyError::Parse { path: path.to_owned(), problem })?;
        policy.follow_links(|prefix| prefix.canonicalize().ok());
        Ok(policy)
    }

    /// Parses the text of a policy file.
    ///
    /// # Errors
    /// With line and field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let policy: Self = toml::from_str(text).map_err(|error| {
            let Some(span) = error.span() else { return error.message().to_owned() };
            let before = text.get(..span.start).unwrap_or_default();
            let number = before.matches('\n').count() + 1;
            let line = text.lines().nth(number - 1).unwrap_or_default().trim();
            let shown = line.get(..line.floor_char_boundary(SHOWN)).unwrap_or_default();
            format!("line {number}: {}, at `{shown}`", error.message().replace('\n', " "))
        })?;
        match policy.exception.iter().position(|exception| exception.namespace.is_empty()) {
            Some(index) => Err(format!("exception {}: `namespace` is empty: name one", index + 1)),
            None => Ok(policy),
        }
    }

    /// Adds to each prefix where it leads.
    fn follow_links(&mut self, resolve: impl Fn(&Path) -> Option<PathBuf>) {
        let all = std::iter::once(&mut self.rules).chain(self.exception.iter_mut().map(|e| &mut e.rules));
        let follow = |list: &mut Vec<Prefix>| {
            let led: Vec<_> =
                list.iter().filter_map(|prefix| resolve(prefix.path())).map(Prefix::new).collect();
            list.extend(led);
        };
        for rules in all {
            if let Some(paths) = &mut rules.host_paths {
                paths.allow.iter_mut().for_each(follow);
                follow(&mut paths.deny);
            }
        }
    }

    /// The exception for a pod, with its number from 1.
    pub(crate) fn exception(&self, pod: &Pod) -> Option<(usize, &Rules)> {
        let fits = |e: &Exception| e.namespace == pod.namespace && pod.name.starts_with(&e.name_prefix);
        (1..).zip(&self.exception).find(|(_, e)| fits(e)).map(|(number, e)| (number, &e.rules))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_line_and_field() {
        for (text, line, field) in [
            ("[rules]\nprivileged = \"no\"\n", "line 2", "privileged"),
            ("[rules]\n\nprivilged = false\n", "line 3", "privilged"),
            ("[rules]\ncapabilities = [\n  \"NET_ADMIN\",\n  \"NET_ADMlN\",\n]\n", "line 2", "NET_ADMlN"),
            ("[rules.hostPaths]\nallow = [\"etc\"]\n", "line 2", "allow"),
            ("[rules.hostPaths]\ndeny = [\"/etc/../x\"]\n", "line 2", "deny"),
            ("[rules]\ndevices = [\"gpu\"]\n", "line 2", "devices"),
            ("[rules]\nseccomp = [\"Off\"]\n", "line 2", "seccomp"),
            ("[rules\n", "line 1", "[rules"),
            ("[[exception]]\nnamespace = \"x\"\nrules = { hostPid = false }\n", "line 3", "hostPid"),
            ("[[exception]]\nrules = {}\n", "line 1", "namespace"),
            ("[[exception]]\nnamespace = \"\"\nrules = {}\n", "exception 1", "namespace"),
        ] {
            let error = Policy::parse(text).unwrap_err();
            assert!(
                error.contains(line) && error.contains(field) && !error.contains('\n'),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn an_empty_file_rules_nothing() {
        assert_eq!(Policy::parse("").unwrap(), Policy::default());
        assert_eq!(Policy::parse("# nothing\n[rules]\n").unwrap(), Policy::default());
    }

    #[test]
    fn a_file_is_named_when_it_cannot_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        let error = Policy::read(&file).unwrap_err();
        assert!(error.to_string().contains("policy.toml"), "{error}");
        std::fs::write(&file, "x = 1\n").unwrap();
        let error = Policy::read(&file).unwrap_err().to_string();
        assert!(error.contains("policy.toml") && error.contains("line 1") && error.contains('x'), "{error}");
        std::fs::write(&file, vec![b'#'; 2 << 20]).unwrap();
        assert!(matches!(Policy::read(&file), Err(PolicyError::Size { .. })));
    }

    #[test]
    fn a_prefix_stands_for_where_it_leads_too() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink(base.join("real"), base.join("link")).unwrap();
        let file = base.join("policy.toml");
        std::fs::write(&file, format!("[rules.hostPaths]\ndeny = [{:?}]\n", base.join("link"))).unwrap();
        let policy = Policy::read(&file).unwrap();
        let deny = policy.rules.host_paths.unwrap().deny;
        assert!(deny.iter().any(|prefix| prefix.path() == base.join("real")), "{deny:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_policy_or_refused_in_few_words(
            text in "(\\[rules\\]\n|\\[\\[exception\\]\\]\n|(privileged|capabilities|devices|deny|namespace|rules) = (true|1|\"[ -~&&[^\"\\\\]]{0,12}\"|\\[\"[A-Z/a-z.]{0,9}\"\\]|\\{\\})\n|[ -~]{0,20}\n){0,6}",
        ) {
            if let Err(problem) = Policy::parse(&text) {
                prop_assert!(problem.len() < 2048, "{}", problem);
            }
        }
    }
}
