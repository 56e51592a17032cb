//! The restart back-off of an earlier life, read off the containers that it left. Pure.

use std::time::Duration;

use bulkhead_model::names;
use bulkhead_model::runtime::{Container, RuntimePod};
use jiff::Timestamp;

/// How a container's back-off stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Earlier {
    /// How long its newest run waits when it ends.
    pub(super) delay: Duration,
    /// When that run was made.
    pub(super) made_at: Timestamp,
}

/// The back-off that container `name` of this definition was in; `None` for one that may start at once, which an edited one
/// may too. `bounds`: the first wait and the longest.
///
/// Each container carries its own wait. One that a kubelet made does not: its restart count bounds it from above, and a run
/// before it that went well says that it starts afresh.
pub(super) fn earlier(
    runtime: &RuntimePod,
    name: &str,
    hash: u32,
    bounds: (Duration, Duration),
) -> Option<Earlier> {
    let (first, longest) = (bounds.0.min(bounds.1), bounds.1);
    let mut runs = runtime.containers.iter().filter(|container| container.name == name);
    let newest = runs.next().filter(|container| container.hash == Some(hash))?;
    let carried = newest.annotations.get(names::RESTART_BACKOFF).and_then(|text| text.trim().parse().ok());
    let delay = match carried {
        Some(millis) => Duration::from_millis(millis).min(longest),
        None if newest.attempt == 0 => Duration::ZERO,
        None if runs.next().is_some_and(|before| ran(before) > longest.saturating_mul(2)) => first,
        None => first.saturating_mul(2_u32.saturating_pow(newest.attempt - 1)).min(longest),
    };
    (!delay.is_zero()).then_some(Earlier { delay, made_at: newest.created_at })
}

fn ran(container: &Container) -> Duration {
    let time = container.finished_at.map(|end| end.duration_since(container.created_at));
    time.and_then(|time| Duration::try_from(time).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bulkhead_model::runtime::ContainerState;

    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const BOUNDS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A run from second `from` for `seconds`.
    fn run(attempt: u32, carried: Option<&str>, from: i64, seconds: i64) -> Container {
        let carried = carried.map(|text| (names::RESTART_BACKOFF.to_owned(), text.to_owned()));
        Container {
            id: attempt.to_string(),
            name: "c".into(),
            sandbox_id: String::new(),
            attempt,
            state: ContainerState::Exited,
            created_at: at(from),
            started_at: Some(at(from)),
            finished_at: Some(at(from + seconds)),
            exit_code: 1,
            reason: String::new(),
            message: String::new(),
            image: String::new(),
            image_id: String::new(),
            log_path: String::new(),
            hash: Some(7),
            user: None,
            stop_signal: String::new(),
            annotations: carried.into_iter().collect(),
        }
    }

    #[test]
    fn each_container_carries_its_own_wait() {
        let table = [
            // never ran
            (vec![], None),
            // ran once: the first restart is at once
            (vec![run(0, Some("0"), 100, 1)], None),
            (vec![run(0, None, 100, 1)], None),
            (vec![run(3, Some("40000"), 100, 1)], Some(40)),
            // the longest wait was shortened since
            (vec![run(30, Some("999999"), 100, 1)], Some(300)),
            // made again for another reason than its end
            (vec![run(3, Some("0"), 100, 1)], None),
            // a kubelet's
            (vec![run(1, None, 100, 1)], Some(10)),
            (vec![run(3, None, 100, 1), run(2, None, 50, 1)], Some(40)),
            (vec![run(77, None, 100, 1)], Some(300)),
            (vec![run(77, None, 1000, 1), run(76, None, 10, 601)], Some(10)),
            (vec![run(2, Some("x"), 100, 1)], Some(20)),
        ];
        for (containers, wanted) in table {
            let pod = RuntimePod { containers, ..Default::default() };
            let found = earlier(&pod, "c", 7, BOUNDS);
            assert_eq!(found.map(|found| found.delay.as_secs()), wanted, "{:?}", pod.containers);
            assert!(found.is_none_or(|found| found.made_at == pod.containers[0].created_at));
        }
    }

    #[test]
    fn another_definition_and_another_name_start_afresh() {
        let pod = RuntimePod { containers: vec![run(3, Some("40000"), 1, 1)], ..Default::default() };
        assert_eq!(earlier(&pod, "c", 8, BOUNDS), None);
        assert_eq!(earlier(&pod, "d", 7, BOUNDS), None);
        let shorter = earlier(&pod, "c", 7, (S(10), S(5)));
        assert_eq!(shorter.map(|found| found.delay), Some(S(5)));
    }
}
