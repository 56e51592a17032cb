//! Which container and which of its instances a request means. Pure. What is refused names what exists.

use bulkhead_model::names;

use crate::error::LogError;

/// Most names listed in a message.
const LISTED: usize = 20;

/// What has to be known of a pod to find its logs and streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodFacts {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its UID.
    pub(crate) uid: String,
    /// Containers of the app, in order.
    pub(crate) app: Vec<String>,
    /// Init containers and sidecars, then ephemeral ones.
    pub(crate) others: Vec<String>,
    /// Those of them with a terminal, as far as that is known.
    pub(crate) terminals: Vec<String>,
    /// Whether it is being deleted: a successor of the same name is meant rather than it.
    pub(crate) going: bool,
}

/// What was chosen of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The container.
    pub(super) container: String,
    /// Whether the instance before the newest is wanted.
    pub(super) previous: bool,
}

impl PodFacts {
    /// `namespace/name`.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Name of its folder beneath the pods' log folder.
    pub(super) fn folder(&self) -> String {
        names::pod_log_folder(&self.namespace, &self.name, &self.uid)
    }
}

/// The container that `wanted` means; empty means the only one of the app.
pub(crate) fn container<'a>(pod: &'a PodFacts, wanted: &str) -> Result<&'a str, LogError> {
    let all = || pod.app.iter().chain(&pod.others);
    if !wanted.is_empty() {
        let found = all().find(|name| *name == wanted);
        return found.map(String::as_str).ok_or_else(|| LogError::NoContainer {
            pod: pod.title(),
            container: wanted.to_owned(),
            has: list(all()),
        });
    }
    match pod.app.as_slice() {
        [only] => Ok(only),
        _ => Err(LogError::Several { pod: pod.title(), has: list(all()) }),
    }
}

/// The attempt that is meant, of those that have a log (sorted or not).
pub(super) fn attempt(pod: &PodFacts, choice: &Choice, attempts: &[u32]) -> Result<u32, LogError> {
    let mut attempts = attempts.to_vec();
    attempts.sort_unstable();
    attempts.dedup();
    let (title, container) = (pod.title(), choice.container.clone());
    match (attempts.as_slice(), choice.previous) {
        ([], _) => Err(LogError::NoLog { pod: title, container }),
        ([.., newest], false) => Ok(*newest),
        ([.., before, _], true) => Ok(*before),
        ([only], true) => Err(LogError::NoPrevious { pod: title, container, attempt: *only }),
    }
}

/// The pod that is meant, of those with the same name: not one that is going, and else the last one listed.
pub(super) fn pod(same_name: Vec<PodFacts>) -> Option<PodFacts> {
    let (going, staying): (Vec<_>, Vec<_>) = same_name.into_iter().partition(|pod| pod.going);
    staying.into_iter().next_back().or(going.into_iter().next_back())
}

/// That there is no such pod, and what there is in its namespace.
pub(super) fn no_pod(namespace: &str, name: &str, neighbours: &[String]) -> LogError {
    let others = match neighbours {
        [] => format!("there is none in namespace {namespace}"),
        some => format!("namespace {namespace} has {}", list(some.iter())),
    };
    LogError::NoPod { namespace: namespace.to_owned(), pod: name.to_owned(), others }
}

fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    let more = names.len() > LISTED;
    names.truncate(LISTED);
    match (names.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, false) => names.join(", "),
        (false, true) => format!("{}, ...", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod_with(app: &[&str], others: &[&str]) -> PodFacts {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        PodFacts {
            namespace: "default".to_owned(),
            name: "x".to_owned(),
            uid: "u".to_owned(),
            app: names(app),
            others: names(others),
            terminals: Vec::new(),
            going: false,
        }
    }

    #[test]
    fn containers() {
        let two = pod_with(&["a", "b"], &["i"]);
        assert_eq!(container(&two, "b").unwrap(), "b");
        assert_eq!(container(&two, "i").unwrap(), "i");
        let text = |result: Result<&str, LogError>| result.unwrap_err().to_string();
        assert_eq!(text(container(&two, "y")), "pod default/x has no container y; it has a, b, i");
        assert_eq!(text(container(&two, "")), "pod default/x has several containers: name one of a, b, i");
        let one = pod_with(&["a"], &["i", "j"]);
        assert_eq!(container(&one, "").unwrap(), "a", "the only one of the app");
        let many: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        let many = pod_with(&many.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        assert!(text(container(&many, "y")).ends_with("19, ..."));
    }

    #[test]
    fn attempts() {
        let pod = pod_with(&["a"], &[]);
        let of = |previous, attempts: &[u32]| {
            attempt(&pod, &Choice { container: "a".to_owned(), previous }, attempts)
                .map_err(|error| error.to_string())
        };
        assert_eq!(of(false, &[0]), Ok(0));
        assert_eq!(of(false, &[10, 9, 2]), Ok(10), "by number, not by name");
        assert_eq!(of(true, &[10, 9, 2]), Ok(9));
        assert_eq!(of(true, &[10, 10, 2]), Ok(2));
        assert!(of(false, &[]).unwrap_err().contains("has no log"));
        assert!(of(true, &[]).unwrap_err().contains("has no log"));
        assert!(of(true, &[3]).unwrap_err().contains("only attempt 3"));
    }

    #[test]
    fn a_pod_that_goes_makes_way_for_its_successor() {
        let named = |uid: &str, going| PodFacts { uid: uid.to_owned(), going, ..PodFacts::default() };
        let uid = |pods| pod(pods).map(|pod| pod.uid);
        assert_eq!(uid(vec![named("new", false), named("old", true)]).as_deref(), Some("new"));
        assert_eq!(uid(vec![named("old", true), named("older", true)]).as_deref(), Some("older"));
        assert_eq!(uid(Vec::new()), None);
        let text = no_pod("ns", "x", &["p".to_owned(), "q".to_owned()]).to_string();
        assert_eq!(text, "there is no pod ns/x on this node; namespace ns has p, q");
        assert!(no_pod("ns", "x", &[]).to_string().ends_with("there is none in namespace ns"));
    }
}
