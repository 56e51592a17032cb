//! When following ends: the container is over, and what it wrote last has arrived. Pure but for the mirror it asks.

use std::time::Duration;

use bulkhead_ipc::Mirror;
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use tokio::time::Instant;

/// How long the file is still read after the container ended: the runtime tells the end before its last line is written.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long a container may be unknown before it counts as gone: one that is just made is seen by the next relist.
const UNKNOWN: Duration = Duration::from_secs(3);

/// How the instance fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Nobody can tell now. Nothing ends because a stream broke.
    Untold,
    /// It runs, or will.
    Lives,
    /// It ended.
    Over,
    /// The runtime knows no such container.
    Absent,
}

/// Decides when to stop.
#[derive(Debug, Default)]
pub(super) struct Ending {
    since: Option<(Life, Instant)>,
}

impl Life {
    /// What pleg's mirror says of an instance.
    pub(super) fn of(runtime: &Mirror<String, RuntimePod>, uid: &str, container: &str, attempt: u32) -> Self {
        if !runtime.status().live {
            return Self::Untold;
        }
        let pod = runtime.get(&uid.to_owned());
        let own =
            pod.iter().flat_map(|pod| &pod.containers).find(|c| c.name == container && c.attempt == attempt);
        match own.map(|container| container.state) {
            None => Self::Absent,
            Some(ContainerState::Exited) => Self::Over,
            Some(ContainerState::Created | ContainerState::Running | ContainerState::Unknown) => Self::Lives,
        }
    }
}

impl Ending {
    /// Whether a reader that is at the end of everything may stop now.
    pub(super) fn is_due(&mut self, life: Life, now: Instant) -> bool {
        let patience = match life {
            Life::Untold | Life::Lives => {
                self.since = None;
                return false;
            }
            Life::Over => LAST_WORDS,
            Life::Absent => UNKNOWN,
        };
        match self.since {
            Some((same, since)) if same == life => now.duration_since(since) >= patience,
            _ => {
                self.since = Some((life, now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::common::v1::Part;
    use bulkhead_ipc::Update;
    use bulkhead_model::runtime::Container;
    use bulkhead_testkit::peers;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn it_ends_only_when_the_end_has_lasted() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut ending = Ending::default();
        let table = [
            (0, Life::Lives, false),
            (100, Life::Over, false),
            (500, Life::Over, false),
            // Told otherwise meanwhile: from the beginning.
            (550, Life::Untold, false),
            (9000, Life::Over, false),
            (9499, Life::Over, false),
            (9500, Life::Over, true),
            (9600, Life::Absent, false),
            (12_599, Life::Absent, false),
            (12_600, Life::Absent, true),
        ];
        for (millis, life, wanted) in table {
            assert_eq!(ending.is_due(life, at(millis)), wanted, "{millis}");
        }
    }

    #[test]
    fn the_runtime_is_believed_only_while_its_stream_lives() {
        let mirror: Mirror<String, RuntimePod> = Mirror::detached();
        assert_eq!(Life::of(&mirror, "u", "c", 1), Life::Untold);
        let container = |attempt, state| Container {
            attempt,
            ..peers::container(&format!("id{attempt}"), "c", state, Timestamp::UNIX_EPOCH)
        };
        let containers = vec![
            container(2, ContainerState::Created),
            container(1, ContainerState::Running),
            container(0, ContainerState::Exited),
        ];
        let pod = RuntimePod { uid: "u".to_owned(), containers, ..RuntimePod::default() };
        mirror.apply(Update {
            epoch: "e".to_owned(),
            generation: 1,
            part: Part::SnapshotEnd,
            upserts: vec![("u".to_owned(), pod)],
            removed: Vec::new(),
        });
        let of = |uid, name, attempt| Life::of(&mirror, uid, name, attempt);
        assert_eq!(of("u", "c", 0), Life::Over);
        assert_eq!(of("u", "c", 1), Life::Lives);
        assert_eq!(of("u", "c", 2), Life::Lives);
        assert_eq!(of("u", "c", 3), Life::Absent);
        assert_eq!(of("u", "d", 1), Life::Absent);
        assert_eq!(of("v", "c", 1), Life::Absent);
    }
}
