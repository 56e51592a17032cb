//! The rules. Pure.

use std::path::Path;

use crate::file::{HostPaths, Policy, Rules};
use crate::values::{Capability, Device, ProfileKind, is_plain};
use crate::wish::{Asked, DeviceWish, LogFile, Mount, Node, Part, Profile, Wish};

/// Most refusals that a text lists.
const LISTED: usize = 4;
/// Most bytes of a pod's own text in a refusal.
const QUOTED: usize = 200;

/// One rule that a wish does not meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (rule {rule})")]
pub struct Refusal {
    /// The rule, by its place in the policy file: `rules.privileged`, `exception[1].rules.hostPaths`.
    pub rule: String,
    /// Who asks for what.
    pub what: String,
}

/// Refusals in one bounded line.
pub fn summary(refusals: &[Refusal]) -> String {
    let mut texts: Vec<_> = refusals.iter().take(LISTED).map(ToString::to_string).collect();
    if refusals.len() > LISTED {
        texts.push(format!("and {} more", refusals.len() - LISTED));
    }
    texts.join("; ")
}

/// A rule that is yes or no.
type Field = fn(&Rules) -> Option<&bool>;

/// The rules that count for one pod, and where each comes from.
struct Effective<'a> {
    base: &'a Rules,
    exception: Option<(usize, &'a Rules)>,
}

impl<'a> Effective<'a> {
    /// A field, if it is set, with its name.
    fn get<T>(&self, name: &str, field: impl Fn(&'a Rules) -> Option<&'a T>) -> Option<(String, &'a T)> {
        if let Some((number, rules)) = self.exception
            && let Some(value) = field(rules)
        {
            return Some((format!("exception[{number}].rules.{name}"), value));
        }
        field(self.base).map(|value| (format!("rules.{name}"), value))
    }
}

impl Policy {
    /// Whether any rule looks at paths, which takes finding out where they lead.
    pub fn looks_at_paths(&self) -> bool {
        let looks = |rules: &Rules| rules.host_paths.is_some() || rules.devices.is_some();
        looks(&self.rules) || self.exception.iter().any(|e| looks(&e.rules))
    }

    /// Every rule that `wish` does not meet; none: it is granted.
    pub fn judge(&self, node: &Node, wish: &Wish) -> Vec<Refusal> {
        let rules = Effective { base: &self.rules, exception: self.exception(&wish.pod) };
        let mut refusals = Vec::new();
        let who = match &wish.part {
            Part::Sandbox => "the sandbox".to_owned(),
            Part::Container(name) => format!("container {}", quoted(name)),
        };
        let mut refuse = |rule: String, what: String| {
            refusals.push(Refusal { rule, what: format!("{who} {what}") });
        };
        let asked = &wish.asked;
        let flags: [(&str, bool, Field, &str); 4] = [
            ("privileged", asked.privileged, |r| r.privileged.as_ref(), "is privileged"),
            ("hostNetwork", asked.host.network, |r| r.host_network.as_ref(), "uses the host's network"),
            ("hostPID", asked.host.pid, |r| r.host_pid.as_ref(), "uses the host's PID namespace"),
            ("hostIPC", asked.host.ipc, |r| r.host_ipc.as_ref(), "uses the host's IPC namespace"),
        ];
        for (name, wanted, field, what) in flags {
            if wanted && let Some((rule, false)) = rules.get(name, field) {
                refuse(rule, what.to_owned());
            }
        }
        if let Some((rule, paths)) = rules.get("hostPaths", |r| r.host_paths.as_ref()) {
            let own = node.pod_folder(&wish.pod.uid);
            for mount in &asked.mounts {
                if let Some(why) = path_refused(paths, own.as_deref(), mount) {
                    refuse(rule.clone(), format!("mounts {} {why}", quoted(&mount.source)));
                }
            }
            if let Some(why) = asked.log.as_ref().and_then(|log| log_refused(node, log)) {
                refuse(rule, why);
            }
        }
        // A privileged container has every device and capability, and no profile: the rule about that is above.
        if !asked.privileged {
            confinement(&rules, node, asked, refuse);
        }
        refusals
    }
}

fn confinement(rules: &Effective<'_>, node: &Node, asked: &Asked, mut refuse: impl FnMut(String, String)) {
    if let Some((rule, allowed)) = rules.get("devices", |r| r.devices.as_ref()) {
        for device in asked.devices.iter().filter(|device| !device_allowed(allowed, device)) {
            let name = match device {
                DeviceWish::Path(mount) => &mount.source,
                DeviceWish::Cdi(name) => name,
            };
            refuse(rule.clone(), format!("has the device {}, which is not listed", quoted(name)));
        }
    }
    if let Some((rule, allowed)) = rules.get("capabilities", |r| r.capabilities.as_ref()) {
        let may = |name: &String| allowed.iter().any(|c: &Capability| c.is("ALL") || c.is(name));
        for name in asked.capabilities.iter().filter(|name| !may(name)) {
            refuse(rule.clone(), format!("adds the capability {}, which is not listed", quoted(name)));
        }
    }
    if let Some((rule, allowed)) = rules.get("seccomp", |r| r.seccomp.as_ref())
        && let Some(profile) = &asked.seccomp
    {
        match profile {
            _ if !allowed.contains(&kind(profile)) => {
                refuse(rule, format!("has the seccomp profile {}, which is not listed", shown(profile)));
            }
            Profile::Localhost(path) if !node.is_seccomp_profile(path) => {
                let folder = node.root.join("seccomp");
                refuse(
                    rule,
                    format!("has the seccomp profile {}, which is not in {}", quoted(path), folder.display()),
                );
            }
            _ => {}
        }
    }
    if let Some((rule, allowed)) = rules.get("appArmor", |r| r.app_armor.as_ref())
        && let Some(profile) = asked.app_armor.as_ref().filter(|profile| !allowed.contains(&kind(profile)))
    {
        refuse(rule, format!("has the AppArmor profile {}, which is not listed", shown(profile)));
    }
}

/// Why a path may not be mounted.
fn path_refused(paths: &HostPaths, own: Option<&Path>, mount: &Mount) -> Option<String> {
    let places = match &mount.places {
        Ok(places) => places,
        Err(why) => return Some(format!("and it cannot be told where that leads: {why}")),
    };
    let beneath_own = |place: &Path| own.is_some_and(|own| place != own && place.starts_with(own));
    if places.iter().any(|place| beneath_own(place)) {
        return None;
    }
    let at = |place: &Path| {
        let same = place == Path::new(&mount.source);
        if same { String::new() } else { format!("(that is {}) ", quoted(&place.to_string_lossy())) }
    };
    for place in places {
        if let Some(denied) = paths.deny.iter().find(|denied| denied.meets(place)) {
            return Some(format!(
                "{}which is in or around {}, a denied path",
                at(place),
                denied.path().display()
            ));
        }
    }
    let allow = paths.allow.as_ref()?;
    if places.iter().any(|place| allow.iter().any(|prefix| prefix.holds(place))) {
        return None;
    }
    let place = places.first().map(|place| at(place)).unwrap_or_default();
    Some(format!("{place}which is neither in the pod's own folder nor in `allow`"))
}

/// Why the runtime, which is root, may not write this file.
fn log_refused(node: &Node, log: &LogFile) -> Option<String> {
    let file = Path::new(&log.file);
    let beneath = file.as_os_str().is_empty() || (file.is_relative() && is_plain(&Path::new("/").join(file)));
    if !beneath {
        return Some(format!(
            "logs to {}, which is no name beneath the pod's folder of logs",
            quoted(&log.file)
        ));
    }
    let is_log_folder = |places: &Vec<std::path::PathBuf>| {
        places.iter().any(|place| *place != node.logs && place.starts_with(&node.logs))
    };
    if log.folder.source.is_empty() || log.folder.places.as_ref().is_ok_and(is_log_folder) {
        return None;
    }
    Some(format!("logs into {}, which is not in {}", quoted(&log.folder.source), node.logs.display()))
}

fn device_allowed(allowed: &[Device], device: &DeviceWish) -> bool {
    allowed.iter().any(|allowed| match (allowed, device) {
        (Device::Path(prefix), DeviceWish::Path(mount)) => {
            mount.places.as_ref().is_ok_and(|places| places.iter().any(|place| prefix.holds(place)))
        }
        (Device::Cdi(begin), DeviceWish::Cdi(name)) => name.starts_with(begin),
        _ => false,
    })
}

fn kind(profile: &Profile) -> ProfileKind {
    match profile {
        Profile::RuntimeDefault => ProfileKind::RuntimeDefault,
        Profile::Localhost(_) => ProfileKind::Localhost,
        Profile::Unconfined => ProfileKind::Unconfined,
    }
}

fn shown(profile: &Profile) -> String {
    match profile {
        Profile::RuntimeDefault => "RuntimeDefault".to_owned(),
        Profile::Localhost(name) => format!("Localhost {}", quoted(name)),
        Profile::Unconfined => "Unconfined".to_owned(),
    }
}

/// A pod's own text: one line, bounded.
fn quoted(text: &str) -> String {
    let cut = text.get(..text.floor_char_boundary(QUOTED)).unwrap_or_default();
    cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
