//! Spans of several processes, put together to one picture. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bulkhead_api::process::v1::Span;

/// Columns of a bar.
const BAR: usize = 40;
/// Deepest indentation; deeper spans stay at it.
const DEPTH: usize = 12;

/// A span and the process that kept it.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The process.
    pub process: String,
    /// The span.
    pub span: Span,
}

/// The trace that began last among `spans`.
pub fn newest_trace(spans: &[Kept]) -> Option<String> {
    let mut begins: BTreeMap<&str, u64> = BTreeMap::new();
    for Kept { span, .. } in spans {
        let begin = begins.entry(&span.trace_id).or_insert(span.start_unix_nano);
        *begin = (*begin).min(span.start_unix_nano);
    }
    begins.into_iter().max_by_key(|(_, begin)| *begin).map(|(trace, _)| trace.to_owned())
}

/// Parents before children, siblings by start; with the depth of each. A span whose parent was not kept is a root.
pub fn tree(spans: &[Kept]) -> Vec<(usize, &Kept)> {
    let known: BTreeSet<&str> = spans.iter().map(|kept| kept.span.span_id.as_str()).collect();
    let mut children: BTreeMap<&str, Vec<&Kept>> = BTreeMap::new();
    for kept in spans {
        let parent = kept.span.parent_span_id.as_str();
        let root = parent == kept.span.span_id || !known.contains(parent);
        children.entry(if root { "" } else { parent }).or_default().push(kept);
    }
    for siblings in children.values_mut() {
        siblings.sort_by_key(|kept| (kept.span.start_unix_nano, kept.span.end_unix_nano));
    }
    let mut order = Vec::with_capacity(spans.len());
    let mut seen = BTreeSet::new();
    let mut next: Vec<(usize, &Kept)> =
        children.remove("").unwrap_or_default().into_iter().rev().map(|kept| (0, kept)).collect();
    while let Some((depth, kept)) = next.pop() {
        // The same span twice, or parents in a ring, must not hang a picture.
        if !seen.insert(kept.span.span_id.as_str()) {
            continue;
        }
        order.push((depth, kept));
        let below = children.remove(kept.span.span_id.as_str()).unwrap_or_default();
        next.extend(below.into_iter().rev().map(|kept| (depth + 1, kept)));
    }
    order
}

/// Draws a line for each span: name, process, when, how long.
pub fn waterfall(spans: &[Kept]) -> String {
    let order = tree(spans);
    let begin = order.iter().map(|(_, kept)| kept.span.start_unix_nano).min().unwrap_or(0);
    let end = order.iter().map(|(_, kept)| kept.span.end_unix_nano).max().unwrap_or(begin);
    let total = end.saturating_sub(begin).max(1);
    let name =
        |depth: usize, kept: &Kept| format!("{}{}", "  ".repeat(depth.min(DEPTH)), plain(&kept.span.name));
    let names = order.iter().map(|(depth, kept)| name(*depth, kept).chars().count()).max().unwrap_or(0);
    let processes = order.iter().map(|(_, kept)| kept.process.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (depth, kept) in &order {
        let span = &kept.span;
        let bar =
            bar(span.start_unix_nano.saturating_sub(begin), span.end_unix_nano.saturating_sub(begin), total);
        let took = millis(span.end_unix_nano.saturating_sub(span.start_unix_nano));
        let error =
            if span.error.is_empty() { String::new() } else { format!("  failed: {}", plain(&span.error)) };
        let line = format!(
            "{:<names$}  {:<processes$}  |{bar}| {took:>9} ms{error}",
            name(*depth, kept),
            kept.process
        );
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Nanoseconds as milliseconds with one digit.
pub fn millis(nanos: u64) -> String {
    format!("{}.{}", nanos / 1_000_000, nanos % 1_000_000 / 100_000)
}

/// At least one mark, so that short spans can be seen.
fn bar(start: u64, end: u64, total: u64) -> String {
    let column = |at: u64| {
        let scaled = u128::from(at) * u128::try_from(BAR).unwrap_or(0) / u128::from(total.max(1));
        usize::try_from(scaled).unwrap_or(BAR).min(BAR)
    };
    let first = column(start).min(BAR - 1);
    let last = column(end).clamp(first + 1, BAR);
    format!("{}{}{}", " ".repeat(first), "#".repeat(last - first), " ".repeat(BAR - last))
}

/// Names and errors come from elsewhere: no line breaks, no control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(process: &str, id: &str, parent: &str, from: u64, to: u64) -> Kept {
        let span = Span {
            trace_id: "t".into(),
            span_id: id.into(),
            parent_span_id: parent.into(),
            name: format!("do {id}"),
            start_unix_nano: from * 1_000_000,
            end_unix_nano: to * 1_000_000,
            ..Default::default()
        };
        Kept { process: process.into(), span }
    }

    #[test]
    fn a_trace_over_processes_is_one_picture() {
        let mut spans = vec![
            kept("crigate", "run", "sandbox", 100, 400),
            kept("syncd", "start", "", 0, 1000),
            kept("syncd", "container", "start", 500, 1000),
            kept("syncd", "sandbox", "start", 100, 450),
            kept("pleg", "seen", "lost", 990, 990),
        ];
        spans[2].span.error = "no\nimage".into();
        insta::assert_snapshot!(waterfall(&spans), @r"
        do start        syncd    |########################################|    1000.0 ms
          do sandbox    syncd    |    ##############                      |     350.0 ms
            do run      crigate  |    ############                        |     300.0 ms
          do container  syncd    |                    ####################|     500.0 ms  failed: no image
        do seen         pleg     |                                       #|       0.0 ms
        ");
    }

    #[test]
    fn rings_and_doubles_end() {
        let ring = [
            kept("a", "x", "y", 0, 1),
            kept("a", "y", "x", 0, 1),
            kept("a", "z", "z", 0, 1),
            kept("a", "z", "z", 0, 1),
        ];
        let order: Vec<_> = tree(&ring).into_iter().map(|(_, kept)| kept.span.span_id.clone()).collect();
        assert_eq!(order, ["z"], "a ring has no beginning");
        assert_eq!(waterfall(&[]), "");
    }

    #[test]
    fn the_newest_trace_is_the_one_that_began_last() {
        let mut spans =
            vec![kept("a", "1", "", 10, 500), kept("a", "2", "", 20, 30), kept("a", "3", "", 40, 45)];
        spans[0].span.trace_id = "old".into();
        spans[2].span.trace_id = "old".into();
        assert_eq!(newest_trace(&spans).as_deref(), Some("t"));
        assert_eq!(newest_trace(&[]), None);
    }

    #[test]
    fn any_times_make_a_bar_of_one_length() {
        for (start, end, total) in
            [(0, 0, 0), (0, 1, 1), (5, 2, 10), (u64::MAX, u64::MAX, 1), (0, u64::MAX, u64::MAX)]
        {
            let bar = bar(start, end, total);
            assert_eq!(bar.len(), BAR, "{start} {end} {total}");
            assert!(bar.contains('#'));
        }
    }
}
