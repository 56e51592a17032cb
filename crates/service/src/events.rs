//! Tells statusd what happened, so that the cluster shows it as an Event.
//!
//! Owns the queue between a process' work and statusd. Must never make anybody wait: what there is no place for is dropped and
//! counted.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::statusd::v1 as wire;
use bulkhead_api::statusd::v1::events_client::EventsClient;
use bulkhead_base::{Backoff, Clock};
use bulkhead_ipc::PeerChannel;
use bulkhead_ipc::status::{Reaction, reaction, with_deadline};
use bulkhead_model::event::{Event, Severity};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::metrics::{Counter, Desc, Metrics};

/// Events that may wait for statusd.
const QUEUE: usize = 512;
/// Events of one call.
const BATCH: usize = 64;
/// Longest wait for its answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// Between two tries while statusd is away; it doubles.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Tries before the oldest are dropped: ten minutes.
const TRIES: u32 = 64;

const DROPPED: Desc = Desc {
    name: "bulkhead_events_dropped_total",
    help: "Events that never reached statusd, since it was away or took none.",
    labels: &[],
};

/// Takes events. Clones share the queue.
#[derive(Clone)]
pub struct Recorder {
    /// `None`: nobody wants to know.
    queue: Option<mpsc::Sender<wire::Event>>,
    clock: Arc<dyn Clock>,
    dropped: Counter,
}

/// A pod, or a part of one, that something happened to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// UID of the pod.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The part, as [`bulkhead_model::event::field_path`] writes it; empty: the whole pod.
    pub field_path: String,
}

impl Recorder {
    /// Tells statusd, if there is a cluster to tell.
    pub(crate) fn start(context: &Context) -> Self {
        if context.flags.kubeconfig().is_none() {
            return Self::silent(context.clock.clone(), &context.metrics);
        }
        let (recorder, events) = Self::pair(context.clock.clone(), &context.metrics);
        let channel = context.peer("statusd");
        tokio::spawn(forward(channel, events, recorder.dropped.clone(), context.shutdown.clone()));
        recorder
    }

    /// For nobody.
    pub fn silent(clock: Arc<dyn Clock>, metrics: &Metrics) -> Self {
        Self { queue: None, clock, dropped: metrics.counter(DROPPED) }
    }

    /// For whoever reads the other end.
    pub fn pair(clock: Arc<dyn Clock>, metrics: &Metrics) -> (Self, mpsc::Receiver<wire::Event>) {
        let (queue, events) = mpsc::channel(QUEUE);
        (Self { queue: Some(queue), clock, dropped: metrics.counter(DROPPED) }, events)
    }

    /// Something happened to a pod.
    pub fn pod(&self, subject: &Subject, event: Event) {
        let Subject { uid, namespace, name, field_path } = subject.clone();
        self.tell(Some(wire::EventPod { uid, namespace, name, field_path }), event);
    }

    /// Something happened to the node.
    pub fn node(&self, event: Event) {
        self.tell(None, event);
    }

    fn tell(&self, pod: Option<wire::EventPod>, event: Event) {
        let Some(queue) = &self.queue else { return };
        let severity = match event.severity {
            Severity::Normal => wire::EventSeverity::Normal,
            Severity::Warning => wire::EventSeverity::Warning,
        };
        let event = wire::Event {
            pod,
            severity: severity.into(),
            reason: event.reason.into_owned(),
            message: event.message,
            time: Some(bulkhead_api::convert::timestamp_to_wire(self.clock.now())),
        };
        if queue.try_send(event).is_err() {
            self.dropped.add_one(&[]);
        }
    }
}

/// Hands events over in their order until the shutdown.
async fn forward(
    channel: PeerChannel,
    mut events: mpsc::Receiver<wire::Event>,
    dropped: Counter,
    shutdown: CancellationToken,
) {
    let client = EventsClient::new(channel);
    let mut batch = Vec::with_capacity(BATCH);
    let hand_over = async {
        while events.recv_many(&mut batch, BATCH).await > 0 {
            let told = std::mem::take(&mut batch);
            let count = told.len();
            if !deliver(&client, told).await {
                (0..count).for_each(|_| dropped.add_one(&[]));
            }
        }
    };
    shutdown.run_until_cancelled(hand_over).await;
}

/// Whether statusd took them.
async fn deliver(client: &EventsClient<PeerChannel>, events: Vec<wire::Event>) -> bool {
    let request = wire::RecordRequest { events };
    let mut pauses = Backoff::new(PAUSE, LONGEST_PAUSE);
    for _ in 0..TRIES {
        let mut client = client.clone();
        match client.record(with_deadline(request.clone(), DEADLINE)).await {
            Ok(_) => return true,
            Err(status) if reaction(&status) == Reaction::Retry => {
                tokio::time::sleep(pauses.next_delay()).await;
            }
            Err(status) => {
                tracing::warn!(error = status.message(), "events are not taken");
                return false;
            }
        }
    }
    tracing::warn!(events = request.events.len(), "events are dropped: statusd took none for minutes");
    false
}

#[cfg(test)]
mod tests {
    use bulkhead_base::FakeClock;
    use bulkhead_model::event;
    use jiff::Timestamp;

    use super::*;

    fn clock() -> Arc<dyn Clock> {
        Arc::new(FakeClock::new(Timestamp::from_second(1_700_000_000).unwrap()))
    }

    fn dropped(metrics: &Metrics) -> f64 {
        let families = metrics.gather();
        let family = families.iter().find(|family| family.name == DROPPED.name).unwrap();
        family.series[0].value
    }

    #[test]
    fn an_event_goes_out_as_it_was_told() {
        let (recorder, mut events) = Recorder::pair(clock(), &Metrics::default());
        let subject = Subject { uid: "u".into(), name: "n".into(), ..Subject::default() };
        recorder.pod(&subject, event::created());
        recorder.node(event::no_sandbox("x"));
        let (pod, node) = (events.try_recv().unwrap(), events.try_recv().unwrap());
        assert_eq!(pod.pod.as_ref().map(|pod| (&*pod.uid, &*pod.name)), Some(("u", "n")));
        assert_eq!((pod.severity(), &*pod.reason), (wire::EventSeverity::Normal, "Created"));
        assert_eq!(pod.time.unwrap().seconds, 1_700_000_000);
        assert_eq!((node.pod.is_none(), node.severity()), (true, wire::EventSeverity::Warning));
    }

    #[test]
    fn what_there_is_no_place_for_is_dropped_and_counted() {
        let metrics = Metrics::default();
        let (recorder, events) = Recorder::pair(clock(), &metrics);
        (0..QUEUE + 3).for_each(|_| recorder.node(event::created()));
        assert!((dropped(&metrics) - 3.0).abs() < f64::EPSILON);
        assert_eq!(events.len(), QUEUE);

        let metrics = Metrics::default();
        (0..QUEUE + 3).for_each(|_| Recorder::silent(clock(), &metrics).node(event::created()));
        assert!(dropped(&metrics).abs() < f64::EPSILON, "nobody wanted to know");
    }
}
