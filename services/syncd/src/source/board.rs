//! Where the sources come together: what each of them holds, and what all of them ask for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

use super::plan::{Desired, Found, Kind, Place, combine};

/// All sources. Clones share it.
#[derive(Clone, Debug)]
pub struct Board(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// First dates of pods from an earlier life, by UID.
    seen: BTreeMap<String, Timestamp>,
    sources: Mutex<BTreeMap<Kind, Source>>,
    desired: watch::Sender<Option<Arc<Desired>>>,
}

#[derive(Debug, Default)]
struct Source {
    found: Found,
    /// What is wrong with the source as a whole; what was found before stands.
    fault: Option<(Place, String)>,
    /// It was read in this life, or what it last held was kept over the restart.
    read: bool,
    reported: bool,
}

impl Board {
    /// Of these sources. `seen`: first dates of pods from an earlier life, by UID.
    pub fn new(kinds: impl IntoIterator<Item = Kind>, seen: BTreeMap<String, Timestamp>) -> Self {
        let sources = kinds.into_iter().map(|kind| (kind, Source::default())).collect();
        Self(Arc::new(Shared { seen, sources: Mutex::new(sources), desired: watch::channel(None).0 }))
    }

    /// What all of them ask for; `None` until each has reported once, be it that it could not be read.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Desired>>> {
        self.0.desired.subscribe()
    }

    /// As [`Board::subscribe`] has it now.
    pub fn desired(&self) -> Option<Arc<Desired>> {
        self.0.desired.borrow().clone()
    }

    /// What this source held last.
    pub fn found(&self, kind: Kind) -> Found {
        let sources = self.0.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.get(&kind).map(|source| source.found.clone()).unwrap_or_default()
    }

    /// The source was read.
    pub fn read(&self, kind: Kind, found: Found) {
        self.report(kind, |source| *source = Source { found, fault: None, read: true, reported: true });
    }

    /// The source could not be read as a whole: what it held last stands.
    pub fn failed(&self, place: Place, reason: String) {
        self.report(place.kind, |source| {
            source.reported = true;
            source.fault = Some((place, reason));
        });
    }

    /// The source cannot be read yet; this is what an earlier life knew of it. What it does not name may be there all the same.
    pub fn kept(&self, kind: Kind, found: Found) {
        self.report(kind, |source| *source = Source { found, fault: None, read: false, reported: true });
    }

    /// The source cannot be read yet, which is no fault.
    pub fn unread(&self, kind: Kind) {
        self.report(kind, |source| source.reported = true);
    }

    fn report(&self, kind: Kind, change: impl FnOnce(&mut Source)) {
        let mut sources = self.0.sources.lock().unwrap_or_else(PoisonError::into_inner);
        change(sources.entry(kind).or_default());
        if sources.values().any(|source| !source.reported) {
            return;
        }
        // With the lock held: reports come out in the order in which they came in.
        let previous = self.desired().unwrap_or_default();
        let mut desired = combine(sources.values().map(|source| &source.found), &previous, &self.0.seen);
        desired.refused.extend(sources.values().filter_map(|source| source.fault.clone()));
        desired.unread = sources.iter().filter(|(_, source)| !source.read).map(|(kind, _)| *kind).collect();
        for (place, reason) in &desired.refused {
            // Each is logged once, not with every look at its source.
            if previous.refused.get(place) != Some(reason) {
                tracing::error!(source = %place, reason, "manifest refused");
            }
        }
        self.0.desired.send_if_modified(|current| {
            let same = current.as_ref().is_some_and(|current| **current == desired);
            if !same {
                *current = Some(Arc::new(desired));
            }
            !same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourcedPod;

    fn found(name: &str) -> Found {
        let json = serde_json::json!({"metadata": {"name": name, "namespace": "d", "uid": name}});
        let place = Place { kind: Kind::File, name: name.to_owned() };
        let pod = SourcedPod { pod: Arc::new(serde_json::from_value(json).unwrap()), place };
        Found { pods: vec![pod], ..Default::default() }
    }

    fn uids(board: &Board) -> Vec<String> {
        board.desired().map(|desired| desired.pods.keys().cloned().collect()).unwrap_or_default()
    }

    #[test]
    fn nothing_is_said_before_each_source_reported_and_nothing_is_forgotten_after() {
        let board = Board::new([Kind::File, Kind::Url, Kind::Submission], BTreeMap::new());
        board.read(Kind::File, found("a"));
        board.read(Kind::Submission, found("c"));
        assert_eq!(board.desired(), None);
        board.unread(Kind::Url);
        let unread = |board: &Board| board.desired().unwrap().unread.iter().copied().collect::<Vec<_>>();
        assert_eq!((uids(&board), unread(&board)), (vec!["a".into(), "c".into()], vec![Kind::Url]));
        let url = || Place { kind: Kind::Url, name: "http://h/".into() };
        board.failed(url(), "away".into());
        assert_eq!(unread(&board), [Kind::Url], "a failure is no reading");
        board.read(Kind::Url, found("b"));
        assert_eq!((uids(&board).len(), unread(&board)), (3, vec![]));
        assert!(board.desired().unwrap().refused.is_empty());
        board.failed(url(), "away".into());
        assert_eq!((uids(&board).len(), unread(&board)), (3, vec![]), "what was read stands");
        assert_eq!(board.desired().unwrap().refused[&url()], "away");
    }

    #[test]
    fn what_an_earlier_life_knew_counts_and_is_not_all() {
        let board = Board::new([Kind::File, Kind::Api], BTreeMap::new());
        board.read(Kind::File, found("a"));
        board.kept(Kind::Api, found("b"));
        let desired = board.desired().unwrap();
        assert_eq!((uids(&board), desired.disowns(("d", "c"))), (vec!["a".into(), "b".into()], false));
        board.read(Kind::Api, Found::default());
        assert_eq!((uids(&board), board.desired().unwrap().disowns(("d", "c"))), (vec!["a".into()], true));
    }

    #[test]
    fn what_did_not_change_wakes_nobody() {
        let board = Board::new([Kind::File], BTreeMap::new());
        let mut watch = board.subscribe();
        board.read(Kind::File, found("a"));
        assert!(watch.has_changed().unwrap());
        watch.mark_unchanged();
        board.read(Kind::File, found("a"));
        assert!(!watch.has_changed().unwrap());
    }
}
