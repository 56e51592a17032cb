//! Faults on a real node, one after another, while pods come and go. As it is a short storm for every day; a longer one:
//!
//! `BULKHEAD_STORM_ROUNDS=100 BULKHEAD_STORM_SEED=1 cargo test -p bulkhead -p bulkhead-e2e --test storm -- --nocapture`
#![cfg(test)]

use std::path::Path;
use std::time::Duration;

use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::storm::plan::Length;
use bulkhead_e2e::storm::{Storm, Weather};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number")))
}

/// A few rounds with short faults, or as many as asked, with long ones among them.
fn weather() -> Weather {
    let seed = number("BULKHEAD_STORM_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let seconds = Duration::from_secs;
    match number("BULKHEAD_STORM_ROUNDS") {
        Some(rounds) => Weather {
            rounds: usize::try_from(rounds).unwrap(),
            seed,
            length: Length { short: seconds(8), long: seconds(60), longs: 8 },
            within: seconds(10),
        },
        // A machine that runs other tests as well is slow.
        None => Weather {
            rounds: 8,
            seed,
            length: Length { short: seconds(4), long: seconds(4), longs: 0 },
            within: seconds(60),
        },
    }
}

#[tokio::test]
async fn no_fault_is_seen_in_any_pod_nor_leaves_anything_behind() {
    let weather = weather();
    println!("{weather:?}; the same again: BULKHEAD_STORM_SEED={}", weather.seed);
    let node = RealNode::up(&[]).await;
    let keep = Path::new(env!("CARGO_TARGET_TMPDIR")).join("storm");
    let (outcome, mut node) = Storm::gather(node, weather, &keep).await.rage().await;
    println!("{}", outcome.summary());
    assert!(outcome.bad.is_empty(), "{}\n{}", outcome.summary(), outcome.bad.join("\n"));
    assert_eq!(outcome.recovered.len(), weather.rounds);
    let said = node.said();
    assert!(node.down().await, "{said}");
}
