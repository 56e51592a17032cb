//! Times of calls, and what is told of them.

use std::time::Duration;

/// Times of one kind of call, one way.
#[derive(Default)]
pub struct Figures(Vec<f64>);

impl Figures {
    /// Notes one.
    pub fn note(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e6);
    }

    /// A row of a table; with the direct way's figures, what was added to them.
    pub fn row(&self, call: &str, way: &str, direct: Option<&Figures>) -> String {
        let (p50, p99) = (self.quantile(0.5), self.quantile(0.99));
        let added = direct.map_or_else(
            || "| | |".to_owned(),
            |direct| {
                let (base, tail) = (direct.quantile(0.5), direct.quantile(0.99));
                let near = self.0.iter().filter(|time| **time - base < crate::TARGET_US).count();
                let total = self.0.len().max(1);
                format!("{:.0} | {:.0} | {:.1} % |", p50 - base, p99 - tail, 100.0 * ratio(near, total))
            },
        );
        format!("| {call} | {way} | {p50:.0} | {p99:.0} | {added}")
    }

    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
        let index = (ratio(sorted.len(), 1) * share) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    let float = |value: usize| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    float(part) / float(whole)
}
