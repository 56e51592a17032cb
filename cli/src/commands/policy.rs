//! `bulkhead policy check`: what a manifest would meet at a node with a policy file, before it is put there.
//!
//! What a pod asks for is what syncd would ask the runtime for; the rules are crigate's own (crates/policy).

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bulkhead_model::manifest;
use bulkhead_policy::{Asked, Host, HostNamespaces, Look, Part, Pod, Policy, Profile, Refusal, Wish};
use k8s_openapi::api::core::v1 as k8s;

use crate::output;

/// What to do with a policy.
#[derive(Debug, clap::Args)]
pub struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show which rules of a policy file a pod manifest does not meet.
    Check {
        /// The policy file.
        #[arg(long, value_name = "FILE")]
        policy: PathBuf,
        /// The kubelet's folder.
        #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
        root_dir: PathBuf,
        /// The pod's manifest.
        manifest: PathBuf,
    },
}

/// Checks. An error when the pod would be refused.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let Command::Check { policy: file, root_dir, manifest } = &flags.command;
    let policy = Policy::read(file)?;
    let bytes = read(manifest)?;
    let read = manifest::parse(&bytes)
        .with_context(|| format!("{} is refused by every node", manifest.display()))?;
    // Logs are syncd's to place, so no folder of theirs is needed.
    let host = Host::new(root_dir, Path::new("/var/log/pods"));
    let refusals = judge(&policy, &host, &read.pod);
    let name = format!("{}: pod {}", manifest.display(), full_name(&read.pod));
    if refusals.is_empty() {
        return output::print(&format!("{name} meets {}", file.display()));
    }
    let lines: Vec<_> = refusals.iter().map(|refusal| format!("\n  {refusal}")).collect();
    bail!("{name} does not meet {}:{}", file.display(), lines.concat());
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    use std::io::Read;
    let name = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    // One byte more than is taken, so that too big a file is refused as such.
    let most = u64::try_from(manifest::MAX_BYTES)? + 1;
    std::fs::File::open(path).with_context(name)?.take(most).read_to_end(&mut bytes).with_context(name)?;
    Ok(bytes)
}

fn full_name(pod: &k8s::Pod) -> String {
    let id = identity(pod);
    format!("{}/{}", id.namespace, id.name)
}

/// Every rule that the pod's sandbox and containers do not meet.
fn judge(policy: &Policy, host: &Host, pod: &k8s::Pod) -> Vec<Refusal> {
    let look = host.look();
    wishes(pod, &look).iter().flat_map(|wish| policy.judge(host.node(), wish)).collect()
}

/// The sandbox, then init containers, then containers: the order in which they are made.
fn wishes(pod: &k8s::Pod, look: &Look<'_>) -> Vec<Wish> {
    let spec = pod.spec.clone().unwrap_or_default();
    let containers: Vec<_> = spec.init_containers.iter().flatten().chain(&spec.containers).collect();
    let host = HostNamespaces {
        network: spec.host_network.unwrap_or(false),
        pid: spec.host_pid.unwrap_or(false),
        ipc: spec.host_ipc.unwrap_or(false),
    };
    let sandbox =
        Asked { privileged: containers.iter().any(|c| is_privileged(c)), host, ..Default::default() };
    let id = identity(pod);
    let wish = |part, asked| Wish { pod: id.clone(), part, asked };
    let made = containers.iter().map(|container| {
        let asked = Asked { host, ..container_asks(&spec, container, &id.uid, look) };
        wish(Part::Container(container.name.clone()), asked)
    });
    std::iter::once(wish(Part::Sandbox, sandbox)).chain(made).collect()
}

fn identity(pod: &k8s::Pod) -> Pod {
    let meta = &pod.metadata;
    let namespace = meta.namespace.clone().filter(|name| !name.is_empty());
    Pod {
        namespace: namespace.unwrap_or_else(|| "default".to_owned()),
        name: meta.name.clone().unwrap_or_default(),
        // A static pod has its UID from the node; no host path is beneath that pod's folder.
        uid: meta.uid.clone().unwrap_or_default(),
    }
}

fn container_asks(spec: &k8s::PodSpec, container: &k8s::Container, uid: &str, look: &Look<'_>) -> Asked {
    let own = container.security_context.clone().unwrap_or_default();
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let seccomp = own.seccomp_profile.or(of_pod.seccomp_profile).map_or(Profile::Unconfined, |profile| {
        let file = profile.localhost_profile.unwrap_or_default();
        // The kubelet's rule: a name beneath its folder of profiles.
        named(&profile.type_, look.seccomp_profile(&file))
    });
    let app_armor =
        own.app_armor_profile.or(of_pod.app_armor_profile).map_or(Profile::RuntimeDefault, |profile| {
            named(&profile.type_, profile.localhost_profile.unwrap_or_default())
        });
    let sources = container.volume_mounts.iter().flatten().filter_map(|mount| host_source(spec, mount));
    Asked {
        privileged: is_privileged(container),
        mounts: sources.map(|source| look.mount(uid, &source)).collect(),
        capabilities: own.capabilities.and_then(|capabilities| capabilities.add).unwrap_or_default(),
        seccomp: Some(seccomp),
        app_armor: Some(app_armor),
        ..Default::default()
    }
}

/// The path of the node that a mount shows. Volumes of other kinds are in the pod's own folder.
fn host_source(spec: &k8s::PodSpec, mount: &k8s::VolumeMount) -> Option<String> {
    let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
    let path = volume.host_path.as_ref()?.path.clone();
    // What subPathExpr comes to is not known before the container is made: the volume itself is judged.
    Some(match mount.sub_path.as_deref().filter(|sub| !sub.is_empty()) {
        Some(sub) => format!("{}/{sub}", path.trim_end_matches('/')),
        None => path,
    })
}

fn is_privileged(container: &k8s::Container) -> bool {
    container.security_context.as_ref().and_then(|security| security.privileged).unwrap_or(false)
}

fn named(kind: &str, local: String) -> Profile {
    match kind {
        "RuntimeDefault" => Profile::RuntimeDefault,
        "Localhost" => Profile::Localhost(local),
        _ => Profile::Unconfined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
[rules]
privileged = false
hostPID = false
capabilities = []
seccomp = ["RuntimeDefault"]
hostPaths = { allow = ["/srv"] }
"#;

    fn refused(spec: &str) -> Vec<String> {
        let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {spec}\n");
        let pod = manifest::parse(text.as_bytes()).unwrap().pod;
        let host = Host::new(Path::new("/k"), Path::new("/var/log/pods"));
        let refusals = judge(&Policy::parse(POLICY).unwrap(), &host, &pod);
        refusals.into_iter().map(|refusal| refusal.to_string()).collect()
    }

    #[test]
    fn each_rule_that_is_not_met_is_named_with_the_container() {
        let plain = "securityContext: {seccompProfile: {type: RuntimeDefault}}";
        assert!(refused(&format!("{{{plain}, containers: [{{name: c, image: i}}]}}")).is_empty());
        let bad = refused(
            "{hostPID: true, containers: [{name: c, image: i, \
             securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN]}}}, \
             {name: d, image: i, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]}",
        );
        assert_eq!(
            bad,
            [
                "the sandbox is privileged (rule rules.privileged)",
                "the sandbox uses the host's PID namespace (rule rules.hostPID)",
                "container c is privileged (rule rules.privileged)",
                "container c uses the host's PID namespace (rule rules.hostPID)",
                "container d uses the host's PID namespace (rule rules.hostPID)",
                "container d adds the capability SYS_ADMIN, which is not listed (rule rules.capabilities)",
                "container d has the seccomp profile Unconfined, which is not listed (rule rules.seccomp)",
            ]
        );
    }

    #[test]
    fn host_paths_are_judged_where_they_are_mounted() {
        let with = |volume: &str, mount: &str| {
            refused(&format!(
                "{{securityContext: {{seccompProfile: {{type: RuntimeDefault}}}}, volumes: [{{name: v, {volume}}}], \
                 containers: [{{name: c, image: i, volumeMounts: [{{name: v, mountPath: /m{mount}}}]}}]}}"
            ))
        };
        assert_eq!(with("hostPath: {path: /etc}", "").len(), 1);
        assert_eq!(with("hostPath: {path: /}", ", subPath: srv/x"), Vec::<String>::new());
        assert_eq!(with("hostPath: {path: /}", ", subPath: etc").len(), 1);
        assert!(with("hostPath: {path: /srv/new}", "").is_empty());
        assert!(with("emptyDir: {}", "").is_empty());
    }
}
