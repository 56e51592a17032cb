//! Who is at the other end of a connection to a socket that belongs to one process alone. Pure: the kernel's answer comes in
//! as a uid.

use bulkhead_api::access::CLI;

use crate::identity::Identities;

/// Who connected to a process' own socket at a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The process whose socket it is.
    Owner,
    /// Somebody else, named for people.
    Stranger(String),
}

/// Tells who `uid` is on the socket of `process`. Root is nobody special here: the operator's command line asks the
/// gateway, and a process that should have another's rights must get them in access.toml.
pub fn identify(identities: &Identities, process: &str, uid: u32) -> Caller {
    if identities.uid_of(process) == Some(uid) {
        return Caller::Owner;
    }
    Caller::Stranger(match identities.name_of(uid) {
        Some(CLI) => format!("root (uid {uid})"),
        Some(name) => format!("`{name}` (uid {uid})"),
        None => format!("uid {uid}, which is no process of this node,"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_itself_is_the_owner() {
        let mut identities = Identities::from_base(60_000);
        let pleg = identities.uid_of("pleg").unwrap();
        let prober = identities.uid_of("prober").unwrap();
        assert_eq!(identify(&identities, "pleg", pleg), Caller::Owner);
        let stranger = |uid| match identify(&identities, "pleg", uid) {
            Caller::Stranger(name) => name,
            Caller::Owner => panic!("uid {uid} is not pleg"),
        };
        assert_eq!(stranger(prober), format!("`prober` (uid {prober})"));
        assert_eq!(stranger(0), "root (uid 0)");
        assert_eq!(stranger(7), "uid 7, which is no process of this node,");
        identities.process.get_mut("pleg").unwrap().uid = 0;
        assert_eq!(identify(&identities, "pleg", 0), Caller::Owner, "a node where pleg is root");
        identities.process.remove("pleg");
        assert!(matches!(identify(&identities, "pleg", pleg), Caller::Stranger(_)), "nobody knows pleg");
    }
}
