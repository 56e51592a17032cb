//! Who is connected to the secured port. Bounded: whoever comes when it is full takes the place of a connection on which
//! nothing goes on, of those who never showed who they are first, and is sent away when there is none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// All connections.
#[derive(Debug)]
pub(super) struct Crowd {
    most: usize,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    next: u64,
    present: BTreeMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    leave: CancellationToken,
    /// Requests that are being answered.
    busy: usize,
    /// Whether somebody who may come in asked something.
    known: bool,
    /// When it last changed from or to idle.
    since: Instant,
}

/// A connection's place; it is free again when this goes.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Arc<Crowd>,
    id: u64,
    /// Cancelled when somebody else needs the place.
    pub(super) leave: CancellationToken,
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy(Arc<Place>);

impl Crowd {
    /// Of at most so many.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, members: Mutex::default() })
    }

    /// A place for one more; `None`: all are in use.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Arc<Place>> {
        let mut members = self.members();
        if members.present.len() >= self.most {
            let idle = members.present.iter().filter(|(_, member)| member.busy == 0);
            let (id, _) = idle.min_by_key(|(_, member)| (member.known, member.since))?;
            let id = *id;
            if let Some(member) = members.present.remove(&id) {
                member.leave.cancel();
            }
        }
        let (id, leave) = (members.next, CancellationToken::new());
        members.next += 1;
        let member = Member { leave: leave.clone(), busy: 0, known: false, since: Instant::now() };
        members.present.insert(id, member);
        Some(Arc::new(Place { crowd: self.clone(), id, leave }))
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A request begins.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.change(|member| member.busy += 1);
        Busy(self.clone())
    }

    /// It is somebody who may come in.
    pub(super) fn known(&self) {
        self.change(|member| member.known = true);
    }

    /// Since when nothing goes on; `None`: something does.
    pub(super) fn idle(&self) -> Option<(Instant, bool)> {
        let members = self.crowd.members();
        let own = members.present.get(&self.id).filter(|member| member.busy == 0)?;
        Some((own.since, own.known))
    }

    fn change(&self, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.crowd.members().present.get_mut(&self.id) {
            change(member);
            member.since = Instant::now();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.members().present.remove(&self.id);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|member| member.busy = member.busy.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn strangers_that_do_nothing_make_room_first() {
        let crowd = Crowd::new(3);
        let (known, stranger, working) =
            (crowd.enter().unwrap(), crowd.enter().unwrap(), crowd.enter().unwrap());
        known.known();
        let busy = working.begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        let next = crowd.enter().unwrap();
        assert!(
            stranger.leave.is_cancelled() && !known.leave.is_cancelled() && !working.leave.is_cancelled()
        );
        drop(stranger);
        let _busy = next.begin();
        let another = crowd.enter().unwrap();
        assert!(known.leave.is_cancelled(), "then those that are known");
        let _more = another.begin();
        assert!(crowd.enter().is_none(), "who is at work stays");
        drop(busy);
        assert!(working.idle().is_some());
        assert!(crowd.enter().is_some());
        assert!(working.leave.is_cancelled());
    }

    #[test]
    fn places_come_back() {
        let crowd = Crowd::new(2);
        for _ in 0..10 {
            let (_a, _b) = (crowd.enter().unwrap(), crowd.enter().unwrap());
        }
        assert!(crowd.members().present.is_empty());
    }
}
