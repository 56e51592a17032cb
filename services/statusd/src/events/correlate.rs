//! What becomes of an Event: a new one, one more of an old one, or nothing. Pure.
//!
//! The rules are client-go's, which people know from `kubectl describe`: the same again counts; ten different texts for one
//! reason within ten minutes become one Event; an object that causes more than 25 at once gets one every five minutes.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;

use super::recent::Recent;
use super::tokens::{Rate, Tokens};
use super::{Happened, Regarding};

/// Objects, reasons and Events that are remembered.
const REMEMBERED: usize = 4096;
/// Texts of one reason that get an Event each.
const TEXTS: usize = 10;
/// How long after the last of them a reason starts afresh.
const AFRESH: Duration = Duration::from_secs(600);
/// What one object may cause.
const SPAM: Rate = Rate { per_second: 1.0 / 300.0, burst: 25 };
/// How a text begins that stands for others.
const COMBINED: &str = "(combined from similar events): ";

/// What there is to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// What happened; its text may stand for others.
    pub(super) happened: Happened,
    /// The Event's own name.
    pub(super) name: String,
    /// How often it happened, at least 1. More than 1: the Event is there, unless somebody removed it.
    pub(super) count: u32,
    /// When it happened first.
    pub(super) first: Timestamp,
}

/// What happened lately.
#[derive(Debug)]
pub(super) struct Correlator {
    spam: Recent<u64, Tokens>,
    similar: Recent<u64, Similar>,
    seen: Recent<u64, Seen>,
}

#[derive(Debug)]
struct Similar {
    texts: BTreeSet<u64>,
    last: Duration,
}

#[derive(Clone, Debug)]
struct Seen {
    name: String,
    first: Timestamp,
    count: u32,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            spam: Recent::new(REMEMBERED),
            similar: Recent::new(REMEMBERED),
            seen: Recent::new(REMEMBERED),
        }
    }
}

impl Correlator {
    /// What to write; `None`: nothing. `object` is the name of what it happened to.
    pub(super) fn take(&mut self, mut happened: Happened, object: &str, now: Duration) -> Option<Entry> {
        let (reason, text) = (reason_key(&happened), key(&happened.event.message));
        let similar = self.similar.or_insert_with(&reason, || Similar { texts: BTreeSet::new(), last: now });
        if now.saturating_sub(similar.last) > AFRESH {
            similar.texts.clear();
        }
        similar.last = now;
        similar.texts.insert(text);
        let combined = similar.texts.len() >= TEXTS;
        if combined {
            similar.texts.pop_first();
            happened.event.message.insert_str(0, COMBINED);
        }
        let (at, name) = (happened.at, || event_name(object, happened.at));
        let id = if combined { reason } else { key((reason, text)) };
        let seen = self.seen.or_insert_with(&id, || Seen { name: name(), first: at, count: 0 });
        seen.count = seen.count.saturating_add(1);
        let Seen { name, first, count } = seen.clone();
        let spam = self.spam.or_insert_with(&object_key(&happened), || Tokens::full(SPAM, now));
        spam.take(SPAM, now).ok()?;
        Some(Entry { happened, name, count, first })
    }
}

/// Names are at most 253 letters long, and this leaves place for the time, which makes them different.
fn event_name(object: &str, at: Timestamp) -> String {
    let mut object = object.to_owned();
    object.truncate(object.floor_char_boundary(236));
    let object = object.trim_end_matches(['.', '-']);
    format!("{object}.{:x}", at.as_nanosecond())
}

fn key(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// All but the text.
fn reason_key(Happened { regarding, event, .. }: &Happened) -> u64 {
    key((regarding, event.severity, &event.reason))
}

/// A pod counts as one, whatever part of it.
fn object_key(happened: &Happened) -> u64 {
    match &happened.regarding {
        Regarding::Node => 0,
        Regarding::Pod { uid, namespace, name, .. } => key((uid, namespace, name)),
    }
}
