//! Becoming a process of the node: `bulkhead exec-as --spec JSON -- PROGRAM ARGS...`.
//!
//! Owns the way from root to an unprivileged user. It is a program of its own, so that the launcher need not fork and do
//! all this between fork and exec. Must never exec when what is left is not exactly what was asked for.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, anyhow, bail};
use caps::{CapSet, Capability, CapsHashSet};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, getppid, setgroups, setresgid, setresuid};
use serde::{Deserialize, Serialize};

/// What the launcher asks for.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// A [`Jail`] as JSON.
    #[arg(long)]
    spec: String,
    /// Program and arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Where and as whom a program runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jail {
    /// Pid of the launcher. The program ends when the launcher does.
    pub parent: u32,
    /// File of the network namespace to be in; `None`: the launcher's.
    pub netns: Option<PathBuf>,
    /// As whom. `None`: as root with all that root has, which only the container runtime needs.
    pub user: Option<User>,
}

/// An unprivileged user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Its uid, not 0.
    pub uid: u32,
    /// Its gid, not 0.
    pub gid: u32,
    /// Supplementary groups, none of them 0.
    pub groups: Vec<u32>,
    /// Capabilities that it keeps, such as `CAP_SYS_ADMIN`.
    pub capabilities: Vec<String>,
}

/// Gives up what `flags.spec` does not grant, checks it, and becomes the program. Returns only to tell why not.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let [program, arguments @ ..] = flags.command.as_slice() else { bail!("exec-as: no program") };
    let jail: Jail = serde_json::from_str(&flags.spec).context("exec-as: --spec is not valid")?;
    let name = program.to_string_lossy();
    enter(&jail).with_context(|| format!("cannot start {name}"))?;
    let error = Command::new(program).args(arguments).exec();
    Err(anyhow::Error::new(error).context(format!("cannot start {name}")))
}

fn enter(jail: &Jail) -> anyhow::Result<()> {
    if let Some(path) = &jail.netns {
        let name = || format!("cannot enter the network namespace {}", path.display());
        let file = std::fs::File::open(path).with_context(name)?;
        setns(file, CloneFlags::CLONE_NEWNET).with_context(name)?;
    }
    std::env::set_current_dir("/").context("cannot change to /")?;
    if let Some(user) = &jail.user {
        let wanted = wanted(user)?;
        drop_privileges(user, &wanted)?;
        let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        let faults = faults(&status, user, mask(&wanted));
        if !faults.is_empty() {
            bail!("its privileges are not what they should be: {}", faults.join("; "));
        }
    }
    // A change of user clears it, so it comes last; and the launcher may have ended before it was set.
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot bind its life to the launcher's")?;
    if u32::try_from(getppid().as_raw()) != Ok(jail.parent) {
        bail!("the launcher is gone");
    }
    Ok(())
}

/// The order matters: each step takes away what the steps before it needed.
fn drop_privileges(user: &User, wanted: &CapsHashSet) -> anyhow::Result<()> {
    for capability in caps::all() {
        if !wanted.contains(&capability) {
            // One that this kernel does not know cannot be dropped; what stays is found by the check afterwards.
            let _ = caps::drop(None, CapSet::Bounding, capability);
        }
    }
    caps::clear(None, CapSet::Ambient)
        .map_err(|error| anyhow!("cannot clear ambient capabilities: {error}"))?;
    caps::clear(None, CapSet::Inheritable)
        .map_err(|error| anyhow!("cannot clear inheritable capabilities: {error}"))?;
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).context("cannot set its groups")?;
    let gid = Gid::from_raw(user.gid);
    setresgid(gid, gid, gid).context("cannot set its group")?;
    if !wanted.is_empty() {
        prctl::set_keepcaps(true).context("cannot keep its capabilities")?;
    }
    let uid = Uid::from_raw(user.uid);
    setresuid(uid, uid, uid).context("cannot set its user")?;
    if !wanted.is_empty() {
        for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted, CapSet::Ambient] {
            caps::set(None, set, wanted)
                .map_err(|error| anyhow!("cannot keep {}: {error}", user.capabilities.join(", ")))?;
        }
        prctl::set_keepcaps(false).context("cannot end keeping capabilities")?;
    }
    prctl::set_no_new_privs().context("cannot rule out new privileges")
}

fn wanted(user: &User) -> anyhow::Result<CapsHashSet> {
    if user.uid == 0 || user.gid == 0 || user.groups.contains(&0) {
        bail!("a process may not be root, nor in root's group");
    }
    let parse =
        |name: &String| name.parse::<Capability>().map_err(|_| anyhow!("there is no capability {name:?}"));
    user.capabilities.iter().map(parse).collect()
}

fn mask(capabilities: &CapsHashSet) -> u64 {
    capabilities.iter().fold(0, |mask, capability| mask | capability.bitmask())
}

/// What in `status` (the text of /proc/PID/status) is not as `user` and `capabilities` say.
fn faults(status: &str, user: &User, capabilities: u64) -> Vec<String> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let mut faults = Vec::new();
    let mut expect = |name: &str, wanted: Vec<String>, sort: fn(&mut Vec<String>)| {
        let mut wanted = wanted;
        let found = field(name).map(|mut found| {
            sort(&mut found);
            found
        });
        sort(&mut wanted);
        if found.as_ref() != Some(&wanted) {
            let found = found.map_or("unknown".to_owned(), |found| found.join(" "));
            faults.push(format!("{name} is {found} instead of {}", wanted.join(" ")));
        }
    };
    expect("Uid", vec![user.uid.to_string(); 4], |_| {});
    expect("Gid", vec![user.gid.to_string(); 4], |_| {});
    expect("Groups", user.groups.iter().map(u32::to_string).collect(), |list| list.sort_unstable());
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        expect(set, vec![format!("{capabilities:016x}")], |_| {});
    }
    expect("NoNewPrivs", vec!["1".to_owned()], |_| {});
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> User {
        User { uid: 7, gid: 8, groups: vec![10, 9], capabilities: vec!["CAP_SYS_ADMIN".to_owned()] }
    }

    const GOOD: &str = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t9 10 \nNoNewPrivs:\t1\n\
        CapInh:\t0000000000200000\nCapPrm:\t0000000000200000\nCapEff:\t0000000000200000\n\
        CapBnd:\t0000000000200000\nCapAmb:\t0000000000200000\n";

    #[test]
    fn exactly_what_was_asked_passes() {
        let user = user();
        let mask = mask(&wanted(&user).unwrap());
        assert_eq!(faults(GOOD, &user, mask), Vec::<String>::new());
    }

    #[test]
    fn anything_else_is_found_and_named() {
        let user = user();
        let mask = mask(&wanted(&user).unwrap());
        for (from, to, name) in [
            ("Uid:\t7\t7\t7\t7", "Uid:\t7\t0\t7\t7", "Uid"),
            ("Gid:\t8\t8\t8\t8", "Gid:\t8\t8\t8\t0", "Gid"),
            ("Groups:\t9 10 ", "Groups:\t0 9 10", "Groups"),
            ("Groups:\t9 10 ", "Groups:\t9", "Groups"),
            ("NoNewPrivs:\t1\n", "NoNewPrivs:\t0\n", "NoNewPrivs"),
            ("NoNewPrivs:\t1\n", "", "NoNewPrivs"),
            ("CapBnd:\t0000000000200000", "CapBnd:\t0000000000200001", "CapBnd"),
            ("CapEff:\t0000000000200000", "CapEff:\t0000000000000000", "CapEff"),
            ("CapAmb:\t0000000000200000", "CapAmb:\t0000010000200000", "CapAmb"),
        ] {
            let status = GOOD.replace(from, to);
            assert_ne!(status, GOOD, "{from}");
            let faults = faults(&status, &user, mask);
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].starts_with(name), "{faults:?}");
        }
    }

    #[test]
    fn root_and_unknown_capabilities_are_refused() {
        assert!(wanted(&User { uid: 0, ..user() }).is_err());
        assert!(wanted(&User { gid: 0, ..user() }).is_err());
        assert!(wanted(&User { groups: vec![5, 0], ..user() }).is_err());
        assert!(
            wanted(&User { capabilities: vec!["CAP_SYS_ADMIN".into(), "ALL".into()], ..user() }).is_err()
        );
    }

    #[test]
    fn a_spec_with_unknown_parts_is_refused() {
        let jail = Jail { parent: 1, netns: None, user: Some(user()) };
        let text = serde_json::to_string(&jail).unwrap();
        assert_eq!(serde_json::from_str::<Jail>(&text).unwrap(), jail);
        assert!(serde_json::from_str::<Jail>(&text.replace("\"groups\"", "\"group\"")).is_err());
    }
}
