//! Which uid is which process. A launcher writes it down; with system accounts /etc/passwd says it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bulkhead_api::access::{ACCESS, CLI};
use serde::{Deserialize, Serialize};

/// A process' ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Its user.
    pub uid: u32,
    /// Its own group.
    pub gid: u32,
}

/// All processes of access.toml, and the shared groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identities {
    /// By process name.
    pub process: BTreeMap<String, Identity>,
    /// Gids of `bulkhead` and `bulkhead-logs`.
    pub groups: BTreeMap<String, u32>,
}

/// Why the identities are not known.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read.
    #[error("reading the identities file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("the identities file {path} is not valid; delete it and start the launcher again")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Two processes would be one.
    #[error("{first} and {second} have the same uid {uid}: every process needs one of its own")]
    Shared {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// The uid.
        uid: u32,
    },
    /// A system account is missing.
    #[error("there is no user or group `{name}`: install the sysusers.d file, or pass --identities")]
    Missing {
        /// Its name.
        name: String,
    },
}

impl Identities {
    /// Uids and gids `base`, `base + 1`, ... in the order of access.toml's names, then the shared groups.
    pub fn from_base(base: u32) -> Self {
        let process: BTreeMap<String, Identity> = (base..)
            .zip(ACCESS.process.keys())
            .map(|(id, name)| (name.clone(), Identity { uid: id, gid: id }))
            .collect();
        let next = base.saturating_add(u32::try_from(process.len()).unwrap_or(u32::MAX));
        let groups = [bulkhead_api::access::GROUP, bulkhead_api::access::LOG_GROUP];
        let groups = (next..).zip(groups).map(|(gid, name)| (name.to_owned(), gid)).collect();
        Self { process, groups }
    }

    /// Reads the launcher's file.
    ///
    /// # Errors
    /// When it cannot be read or understood, or gives two processes one uid.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        let text = std::fs::read(path).map_err(|source| IdentityError::Read { path: path.into(), source })?;
        let this: Self = serde_json::from_slice(&text)
            .map_err(|source| IdentityError::Parse { path: path.into(), source })?;
        this.checked()
    }

    /// Looks the users and groups of access.toml up in the texts of passwd(5) and group(5).
    ///
    /// # Errors
    /// When one is missing, or two share a uid.
    pub fn from_accounts(passwd: &str, group: &str) -> Result<Self, IdentityError> {
        let missing = |name: &str| IdentityError::Missing { name: name.to_owned() };
        let mut process = BTreeMap::new();
        for (name, row) in &ACCESS.process {
            let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let identity = fields
                .filter(|f| f.first() == Some(&row.user.as_str()))
                .find_map(|f| Some(Identity { uid: f.get(2)?.parse().ok()?, gid: f.get(3)?.parse().ok()? }))
                .ok_or_else(|| missing(&row.user))?;
            process.insert(name.clone(), identity);
        }
        let mut groups = BTreeMap::new();
        for name in [bulkhead_api::access::GROUP, bulkhead_api::access::LOG_GROUP] {
            let fields = group.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let gid = fields
                .filter(|f| f.first() == Some(&name))
                .find_map(|f| f.get(2)?.parse().ok())
                .ok_or_else(|| missing(name))?;
            groups.insert(name.to_owned(), gid);
        }
        Self { process, groups }.checked()
    }

    /// The caller name of a uid: a process, or `cli` for root. `None` for everybody else.
    pub fn name_of(&self, uid: u32) -> Option<&str> {
        if uid == 0 {
            return Some(CLI);
        }
        self.process.iter().find(|(_, identity)| identity.uid == uid).map(|(name, _)| name.as_str())
    }

    /// The uid of a process.
    pub fn uid_of(&self, process: &str) -> Option<u32> {
        self.process.get(process).map(|identity| identity.uid)
    }

    fn checked(self) -> Result<Self, IdentityError> {
        let mut seen: BTreeMap<u32, &str> = BTreeMap::new();
        for (name, identity) in &self.process {
            if let Some(first) = seen.insert(identity.uid, name) {
                let (first, second) = (first.to_owned(), name.clone());
                return Err(IdentityError::Shared { first, second, uid: identity.uid });
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_gives_everyone_an_id_of_their_own() {
        let ids = Identities::from_base(60_000).checked().unwrap();
        assert_eq!(ids.process.len(), ACCESS.process.len());
        let all: std::collections::BTreeSet<u32> =
            ids.process.values().map(|i| i.gid).chain(ids.groups.values().copied()).collect();
        assert_eq!(all.len(), ids.process.len() + 2);
        let pleg = ids.uid_of("pleg").unwrap();
        assert_eq!(ids.name_of(pleg), Some("pleg"));
        assert_eq!(ids.name_of(0), Some("cli"));
        assert_eq!(ids.name_of(1), None);
    }

    #[test]
    fn accounts_are_read_and_doubles_refused() {
        let mut passwd = String::from("root:x:0:0::/:/bin/sh\nbroken\n");
        for (uid, name) in (900..).zip(ACCESS.process.keys()) {
            passwd += &format!("{name}:x:{uid}:{uid}::/:/bin/false\n");
        }
        let group = "bulkhead:x:800:\nbulkhead-logs:x:801:\n";
        let ids = Identities::from_accounts(&passwd, group).unwrap();
        assert_eq!(ids.groups["bulkhead-logs"], 801);
        assert!(matches!(Identities::from_accounts("", group), Err(IdentityError::Missing { .. })));
        assert!(matches!(Identities::from_accounts(&passwd, ""), Err(IdentityError::Missing { .. })));
        let doubled = passwd.replace("901:901", "900:900");
        assert!(matches!(
            Identities::from_accounts(&doubled, group),
            Err(IdentityError::Shared { uid: 900, .. })
        ));
    }
}
