//! Whether what is there is what should be there. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A pod as its status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its UID.
    pub uid: String,
    /// Which content of its manifest it is; empty for one that has no more than one.
    pub revision: String,
    /// Its phase.
    pub phase: String,
    /// Its conditions, in their order.
    pub conditions: Vec<Condition>,
    /// Its containers, init containers among them, by name.
    pub containers: BTreeMap<String, Container>,
}

impl Pod {
    /// The state of its condition of this type; empty for none.
    pub fn condition(&self, kind: &str) -> &str {
        let found = self.conditions.iter().find(|condition| condition.kind == kind);
        found.map_or("", |condition| condition.status.as_str())
    }
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: String,
    /// Such as `True`.
    pub status: String,
    /// Its last transition.
    pub since: String,
}

/// A container as its status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its id, without the runtime's name.
    pub id: String,
    /// Whether it is ready.
    pub ready: bool,
    /// How often it was started again.
    pub restarts: i32,
    /// `running`, or why it does not run.
    pub state: String,
}

/// What the runtime holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// Sandboxes by id: the pod's UID, and whether it is ready.
    pub sandboxes: BTreeMap<String, (String, bool)>,
    /// Containers by id.
    pub containers: BTreeMap<String, Held>,
    /// Ids that containerd itself has beside CRI: its containers and the writable layers of their file systems.
    pub own: BTreeSet<String>,
}

/// A container that the runtime holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Its pod.
    pub uid: String,
    /// Its sandbox.
    pub sandbox: String,
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
}

/// All that was seen of a node at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Checks that are bad, health over HTTP among them.
    pub ill: Vec<String>,
    /// Pods by name, without the node's.
    pub pods: BTreeMap<String, Pod>,
    /// What the runtime holds.
    pub runtime: Runtime,
    /// Cgroups of the node, relative to its own, and how many processes are in each.
    pub cgroups: BTreeMap<String, usize>,
    /// Where something is mounted, in the node's folders.
    pub mounts: Vec<String>,
    /// Names in the folder of pods.
    pub folders: BTreeSet<String>,
    /// Names in the folder of pods' logs.
    pub logs: BTreeSet<String>,
    /// Processes of the node that are in no pod: programs' names, shims with their sandbox.
    pub processes: Vec<String>,
}

/// What should be there.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The node without any pod.
    pub baseline: Seen,
    /// Pods that stay as they are.
    pub stable: BTreeMap<String, Pod>,
    /// The others, with their revisions.
    pub churn: BTreeMap<String, String>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Something that may still come right by itself.
    Passing(String),
    /// Something that was lost.
    Final(String),
}

impl Fault {
    /// Whether waiting is in vain.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Final(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passing(text) => f.write_str(text),
            Self::Final(text) => write!(f, "lost: {text}"),
        }
    }
}

/// All that is wrong.
pub fn faults(expected: &Expected, seen: &Seen) -> Vec<Fault> {
    let mut faults: Vec<Fault> = seen.ill.iter().map(|text| Fault::Passing(format!("ill: {text}"))).collect();
    faults.extend(of_pods(expected, seen));
    let passing = [of_runtime(seen), of_cgroups(expected, seen), of_places(expected, seen)];
    faults.extend(passing.into_iter().flatten().map(Fault::Passing));
    faults
}

fn of_pods(expected: &Expected, seen: &Seen) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, before) in &expected.stable {
        match seen.pods.get(name) {
            None => faults.push(Fault::Passing(format!("{name} is not shown"))),
            Some(now) if now == before => {}
            Some(now) => faults.push(Fault::Final(format!("{name} was {before:?} and is {now:?}"))),
        }
    }
    for (name, revision) in &expected.churn {
        match seen.pods.get(name) {
            None => faults.push(Fault::Passing(format!("{name} is not shown"))),
            Some(pod) if pod.revision != *revision => {
                faults.push(Fault::Passing(format!("{name} is at {} instead of {revision}", pod.revision)));
            }
            Some(pod) if !is_up(pod) => faults.push(Fault::Passing(format!("{name} does not run: {pod:?}"))),
            Some(_) => {}
        }
    }
    let known = |name: &&String| expected.stable.contains_key(*name) || expected.churn.contains_key(*name);
    let more = seen.pods.keys().filter(|name| !known(name));
    faults.extend(more.map(|name| Fault::Passing(format!("{name} is there"))));
    faults
}

/// Runs and is ready.
fn is_up(pod: &Pod) -> bool {
    pod.phase == "Running" && pod.condition("Ready") == "True"
}

fn is_over(pod: &Pod) -> bool {
    pod.phase == "Succeeded" || pod.phase == "Failed"
}

/// The runtime holds what statuses say, once.
fn of_runtime(seen: &Seen) -> Vec<String> {
    let mut faults = Vec::new();
    let runtime = &seen.runtime;
    let by_uid: BTreeMap<&str, (&String, &Pod)> =
        seen.pods.iter().map(|(name, pod)| (pod.uid.as_str(), (name, pod))).collect();
    for (id, (uid, _)) in &runtime.sandboxes {
        if !by_uid.contains_key(uid.as_str()) {
            faults.push(format!("sandbox {id} is of no pod ({uid})"));
        }
    }
    for (uid, (name, pod)) in &by_uid {
        let own = runtime.sandboxes.values().filter(|(of, _)| of == uid);
        let ready = own.clone().filter(|(_, ready)| *ready).count();
        let wanted = usize::from(!is_over(pod));
        if ready != wanted || own.count() != 1 {
            faults.push(format!("{name} does not have one sandbox in its state: {ready} ready"));
        }
        let told: BTreeSet<&str> =
            pod.containers.values().filter(|c| c.state == "running").map(|c| c.id.as_str()).collect();
        let run = runtime.containers.iter().filter(|(_, held)| held.uid == *uid && held.running);
        let run: BTreeSet<&str> = run.map(|(id, _)| id.as_str()).collect();
        if told != run {
            faults.push(format!("{name} runs {run:?}, but its status says {told:?}"));
        }
    }
    for (id, held) in &runtime.containers {
        if !runtime.sandboxes.contains_key(&held.sandbox) {
            faults.push(format!("container {id} ({}) is in no sandbox", held.name));
        }
        let same =
            runtime.containers.values().filter(|other| other.uid == held.uid && other.name == held.name);
        if same.count() > 2 {
            faults.push(format!("more than two containers {} of {} are kept", held.name, held.uid));
        }
    }
    let known: BTreeSet<&String> = runtime.sandboxes.keys().chain(runtime.containers.keys()).collect();
    for id in runtime.own.iter().filter(|id| !known.contains(id)) {
        faults.push(format!("containerd has {id}, which CRI does not know"));
    }
    faults
}

/// Cgroups of pods that are there and of what runs in them, and no process too many in those of the stable ones.
fn of_cgroups(expected: &Expected, seen: &Seen) -> Vec<String> {
    let mut faults = Vec::new();
    let live = live_ids(&seen.runtime);
    let uids: BTreeSet<&str> = seen.pods.values().map(|pod| pod.uid.as_str()).collect();
    for path in seen.cgroups.keys().filter(|path| !expected.baseline.cgroups.contains_key(*path)) {
        let pod = path.split('/').find_map(|part| part.strip_prefix("pod"));
        let id = ids(path).next();
        let owned = pod.is_some_and(|uid| uids.contains(uid)) && id.is_none_or(|id| live.contains(id));
        if !owned {
            faults.push(format!("cgroup {path} is nobody's"));
        }
    }
    for id in &live {
        if !seen.cgroups.keys().any(|path| ids(path).any(|found| found == *id)) {
            faults.push(format!("{id} has no cgroup"));
        }
    }
    faults
}

fn of_places(expected: &Expected, seen: &Seen) -> Vec<String> {
    let mut faults = Vec::new();
    let live = live_ids(&seen.runtime);
    let uids: BTreeSet<&str> = seen.pods.values().map(|pod| pod.uid.as_str()).collect();
    let baseline: BTreeSet<&String> = expected.baseline.mounts.iter().collect();
    let mut netns = 0;
    for mount in seen.mounts.iter().filter(|mount| !baseline.contains(mount)) {
        if mount.contains("/netns/cni-") {
            netns += 1;
            continue;
        }
        let uid = mount.split_once("/root/pods/").and_then(|(_, rest)| rest.split('/').next());
        let owned = ids(mount).next().is_some_and(|id| live.contains(id));
        if !owned && !uid.is_some_and(|uid| uids.contains(uid)) {
            faults.push(format!("mount {mount} is nobody's"));
        }
    }
    let ready: BTreeSet<&String> =
        seen.runtime.sandboxes.iter().filter(|(_, (_, ready))| *ready).map(|(id, _)| id).collect();
    if netns != ready.len() {
        faults.push(format!("{netns} network namespaces for {} sandboxes", ready.len()));
    }
    for (what, names) in [("folder", &seen.folders), ("log folder", &seen.logs)] {
        let owners: BTreeSet<&str> =
            names.iter().map(|name| name.rsplit('_').next().unwrap_or(name)).collect();
        faults.extend(owners.difference(&uids).map(|uid| format!("{what} of {uid} is nobody's")));
        faults.extend(uids.difference(&owners).map(|uid| format!("{uid} has no {what}")));
    }
    let mut processes = seen.processes.clone();
    let mut shims = BTreeSet::new();
    processes.retain(|process| match process.strip_prefix("shim ") {
        Some(id) => {
            if !shims.insert(id.to_owned()) || !ready.contains(&id.to_owned()) {
                faults.push(format!("shim of {id} is too many"));
            }
            false
        }
        None => true,
    });
    if processes != expected.baseline.processes {
        faults.push(format!("processes are {processes:?} instead of {:?}", expected.baseline.processes));
    }
    faults
}

/// Ids of what runs.
fn live_ids(runtime: &Runtime) -> BTreeSet<&str> {
    let sandboxes = runtime.sandboxes.iter().filter(|(_, (_, ready))| *ready).map(|(id, _)| id.as_str());
    let containers = runtime.containers.iter().filter(|(_, held)| held.running).map(|(id, _)| id.as_str());
    sandboxes.chain(containers).collect()
}

/// Parts of a path that are ids of the runtime.
fn ids(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(letter: char) -> String {
        letter.to_string().repeat(64)
    }

    fn pod(uid: &str, container: char) -> Pod {
        let ready = Condition { kind: "Ready".into(), status: "True".into(), since: "1".into() };
        let running = Container { id: id(container), ready: true, restarts: 0, state: "running".into() };
        Pod {
            uid: uid.into(),
            revision: String::new(),
            phase: "Running".into(),
            conditions: vec![ready],
            containers: [("c".to_owned(), running)].into(),
        }
    }

    /// A node with one stable and one other pod, and what there should be.
    fn good() -> (Expected, Seen) {
        let mut other = pod("u2", 'd');
        other.revision = "5".into();
        let held = |uid: &str, sandbox| Held {
            uid: uid.into(),
            sandbox: id(sandbox),
            name: "c".into(),
            running: true,
        };
        let processes = vec!["containerd".to_owned(), "syncd".to_owned()];
        let seen = Seen {
            ill: Vec::new(),
            pods: [("s".to_owned(), pod("u1", 'c')), ("o".to_owned(), other)].into(),
            runtime: Runtime {
                sandboxes: [(id('a'), ("u1".to_owned(), true)), (id('b'), ("u2".to_owned(), true))].into(),
                containers: [(id('c'), held("u1", 'a')), (id('d'), held("u2", 'b'))].into(),
                own: [id('a'), id('b'), id('c'), id('d')].into(),
            },
            cgroups: [
                ("besteffort".to_owned(), 0),
                ("besteffort/podu1".to_owned(), 0),
                (format!("besteffort/podu1/{}", id('a')), 1),
                (format!("besteffort/podu1/{}", id('c')), 2),
                (format!("podu2/{}", id('b')), 1),
                (format!("podu2/{}", id('d')), 1),
            ]
            .into(),
            mounts: vec![
                "/s/x".to_owned(),
                "/s/root/pods/u1/volumes/e".to_owned(),
                format!("/run/n/state/{}/rootfs", id('c')),
                "/run/n/netns/cni-1".to_owned(),
                "/run/n/netns/cni-2".to_owned(),
            ],
            folders: ["u1".to_owned(), "u2".to_owned()].into(),
            logs: ["default_s_u1".to_owned(), "default_o_u2".to_owned()].into(),
            processes: processes
                .iter()
                .cloned()
                .chain([format!("shim {}", id('a')), format!("shim {}", id('b'))])
                .collect(),
        };
        let baseline = Seen {
            cgroups: [("besteffort".to_owned(), 0)].into(),
            mounts: vec!["/s/x".to_owned()],
            processes,
            ..Seen::default()
        };
        let expected = Expected {
            baseline,
            stable: [("s".to_owned(), pod("u1", 'c'))].into(),
            churn: [("o".to_owned(), "5".to_owned())].into(),
        };
        (expected, seen)
    }

    #[test]
    fn what_should_be_there_is_right() {
        let (expected, seen) = good();
        assert_eq!(faults(&expected, &seen), []);
    }

    /// What is found when the node is changed so.
    fn found(change: impl FnOnce(&mut Seen)) -> Vec<Fault> {
        let (expected, mut seen) = good();
        change(&mut seen);
        faults(&expected, &seen)
    }

    #[test]
    fn a_stable_pod_that_is_another_is_lost_for_good() {
        let stable = |change: fn(&mut Pod)| found(|seen| change(seen.pods.get_mut("s").unwrap()));
        for faults in [
            stable(|pod| pod.conditions[0].since = "2".into()),
            stable(|pod| pod.conditions[0].status = "False".into()),
            stable(|pod| pod.containers.get_mut("c").unwrap().restarts = 1),
            stable(|pod| pod.containers.get_mut("c").unwrap().ready = false),
        ] {
            assert!(faults.len() == 1 && faults[0].is_final(), "{faults:?}");
        }
        let faults = found(|seen| drop(seen.pods.remove("s")));
        assert!(!faults.is_empty() && !faults.iter().any(Fault::is_final), "not shown now: {faults:?}");
    }

    /// Adds what is nobody's.
    type Stray<'a> = &'a dyn Fn(&mut Seen);

    #[test]
    fn everything_that_is_nobodys_is_found() {
        let stray = "e".repeat(64);
        let strays: [(&str, Stray); 12] = [
            ("ill", &|seen| seen.ill.push("syncd".into())),
            ("is there", &|seen| {
                seen.pods.insert("x".into(), pod("u3", 'f'));
            }),
            ("instead of 5", &|seen| seen.pods.get_mut("o").unwrap().revision = "4".into()),
            ("does not run", &|seen| seen.pods.get_mut("o").unwrap().phase = "Pending".into()),
            ("is of no pod", &|seen| {
                seen.runtime.sandboxes.insert(stray.clone(), ("u9".into(), false));
            }),
            ("one sandbox", &|seen| {
                seen.runtime.sandboxes.insert(stray.clone(), ("u2".into(), false));
            }),
            ("in no sandbox", &|seen| {
                seen.runtime.containers.insert(stray.clone(), Held::default());
            }),
            ("CRI does not know", &|seen| {
                seen.runtime.own.insert(stray.clone());
            }),
            ("cgroup", &|seen| {
                seen.cgroups.insert("besteffort/podu9".into(), 0);
            }),
            ("mount", &|seen| seen.mounts.push("/s/root/pods/u9/volumes/e".into())),
            ("network namespaces", &|seen| seen.mounts.push("/run/n/netns/cni-3".into())),
            ("processes", &|seen| seen.processes.push("runc".into())),
        ];
        for (text, change) in strays {
            let faults = found(change);
            assert!(faults.iter().any(|fault| fault.to_string().contains(text)), "{text}: {faults:?}");
        }
        for change in [
            (&|seen: &mut Seen| {
                seen.folders.insert("u9".into());
            }) as &dyn Fn(&mut Seen),
            &|seen| {
                seen.folders.remove("u1");
            },
            &|seen| {
                seen.logs.insert("default_o_u9".into());
            },
            &|seen| seen.processes.push(format!("shim {stray}")),
            &|seen| {
                seen.cgroups.insert(format!("podu2/{stray}"), 1);
            },
            &|seen| {
                seen.cgroups.remove(&format!("podu2/{}", "d".repeat(64)));
            },
        ] {
            assert_eq!(found(change).len(), 1);
        }
    }

    #[test]
    fn a_pod_that_is_over_keeps_one_sandbox_that_is_stopped() {
        let (mut expected, mut seen) = good();
        let over = seen.pods.get_mut("s").unwrap();
        over.phase = "Succeeded".into();
        over.containers.get_mut("c").unwrap().state = "0".into();
        expected.stable.insert("s".into(), over.clone());
        seen.runtime.sandboxes.get_mut(&id('a')).unwrap().1 = false;
        seen.runtime.containers.get_mut(&id('c')).unwrap().running = false;
        seen.cgroups.retain(|path, _| !path.contains("podu1"));
        seen.mounts
            .retain(|mount| !mount.contains("u1") && !mount.contains("cni-2") && !mount.contains("rootfs"));
        seen.processes.retain(|process| !process.contains(&id('a')));
        assert_eq!(faults(&expected, &seen), []);
        seen.runtime.sandboxes.get_mut(&id('a')).unwrap().1 = true;
        assert!(!faults(&expected, &seen).is_empty());
    }
}
