//! What one process may call, and how often it did. The rule of the gate; pure but for its counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bulkhead_api::access::Access;
use bulkhead_api::crigate::v1::CallCount;
use bulkhead_ipc::caller::Caller;

use crate::error::Refusal;
use crate::limits;
use crate::methods::Method;
use crate::operations::{Operations, Totals, operation_type};

/// The name under which everything that is no method of runtime.v1 is counted.
const OTHER: &str = "other";

/// The rights of one process. Its size is that of runtime.v1, whatever callers ask for.
#[derive(Debug)]
pub struct Table {
    process: String,
    /// By path.
    rows: BTreeMap<String, Row>,
    other: Counts,
}

/// One method of runtime.v1.
#[derive(Debug)]
pub struct Row {
    /// The method.
    pub method: Method,
    /// How often it was called.
    pub counts: Counts,
    /// How its calls went at the runtime.
    pub operations: Operations,
    listed: bool,
}

/// How calls of one method went.
#[derive(Debug, Default)]
pub struct Counts {
    passed: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
}

impl Counts {
    /// One went on to the runtime.
    pub fn pass(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    /// One was refused.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// One that went on did not reach the runtime, or lost it.
    pub fn miss(&self) {
        self.unavailable.fetch_add(1, Ordering::Relaxed);
    }
}

impl Table {
    /// The rights of `process` by `access`.
    pub fn new(access: &Access, process: &str, methods: &[Method]) -> Self {
        let row = |method: &Method| Row {
            method: method.clone(),
            counts: Counts::default(),
            operations: Operations::default(),
            listed: access.may_use_cri(process, &method.label),
        };
        let rows = methods.iter().map(|method| (method.uri.path().to_owned(), row(method))).collect();
        Self { process: process.to_owned(), rows, other: Counts::default() }
    }

    /// The process.
    pub fn process(&self) -> &str {
        &self.process
    }

    /// Whether `caller` may call `called`, a path with whatever follows it. Only the exact path of a method is one.
    ///
    /// # Errors
    /// With the reason for the caller.
    pub fn judge(&self, caller: &Caller, called: &str) -> Result<&Row, Refusal> {
        if let Caller::Stranger(caller) = caller {
            return Err(Refusal::Stranger { caller: caller.clone(), process: self.process.clone() });
        }
        match self.rows.get(called) {
            Some(row) if row.listed => Ok(row),
            Some(row) => {
                Err(Refusal::NotListed { process: self.process.clone(), method: row.method.label.clone() })
            }
            None => {
                let called = called.get(..called.floor_char_boundary(limits::TEXT)).unwrap_or_default();
                Err(Refusal::NotCri { process: self.process.clone(), called: called.to_owned() })
            }
        }
    }

    /// Where calls of `called` are counted.
    pub fn counts(&self, called: &str) -> &Counts {
        self.rows.get(called).map_or(&self.other, |row| &row.counts)
    }

    /// Adds how calls went at the runtime to the sums by the kubelet's names. Streams have no duration.
    pub fn add_operations(&self, totals: &mut BTreeMap<String, Totals>) {
        for row in self.rows.values().filter(|row| row.listed && !row.method.streaming) {
            row.operations.add_to(totals.entry(operation_type(&row.method.label)).or_default());
        }
    }

    /// The counts of everything that was called at all, by method.
    pub fn snapshot(&self) -> impl Iterator<Item = CallCount> {
        let rows = self.rows.values().map(|row| (row.method.label.as_str(), &row.counts));
        let counts = rows.chain([(OTHER, &self.other)]).map(|(method, counts)| CallCount {
            process: self.process.clone(),
            method: method.to_owned(),
            passed: counts.passed.load(Ordering::Relaxed),
            refused: counts.refused.load(Ordering::Relaxed),
            unavailable: counts.unavailable.load(Ordering::Relaxed),
        });
        counts.filter(|count| count.passed > 0 || count.refused > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use bulkhead_api::access::ACCESS;
    use proptest::prelude::*;

    use super::*;
    use crate::methods::of_runtime_v1;

    static PLEG: LazyLock<Table> = LazyLock::new(pleg);

    fn pleg() -> Table {
        Table::new(&ACCESS, "pleg", &of_runtime_v1().unwrap())
    }

    #[test]
    fn refusals_say_who_what_and_where_it_is_decided() {
        let table = pleg();
        let passed = table.judge(&Caller::Owner, "/runtime.v1.RuntimeService/Version").unwrap();
        assert_eq!(passed.method.label, "RuntimeService/Version");
        let refused = table.judge(&Caller::Owner, "/runtime.v1.RuntimeService/StopContainer").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "`pleg` may not call RuntimeService/StopContainer: proto/access.toml does not list it"
        );
        let stranger = Caller::Stranger("root (uid 0)".to_owned());
        let refused = table.judge(&stranger, "/runtime.v1.RuntimeService/Version").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "root (uid 0) may not use the CRI socket of `pleg`: only that process itself may"
        );
        let long = format!("/{}", "\u{e9}".repeat(4096));
        assert!(table.judge(&Caller::Owner, &long).unwrap_err().to_string().len() < 2 * limits::TEXT);
    }

    #[test]
    fn what_looks_like_a_listed_method_is_not_one() {
        let table = pleg();
        for called in [
            "",
            "/",
            "runtime.v1.RuntimeService/Version",
            "/RuntimeService/Version",
            "/runtime.v1alpha2.RuntimeService/Version",
            "/runtime.v1.RuntimeService",
            "/runtime.v1.RuntimeService/",
            "/runtime.v1.RuntimeService/version",
            "/runtime.v1.RuntimeService/Version/",
            "/runtime.v1.RuntimeService/Version?",
            "/runtime.v1.RuntimeService/Version?a=b",
            "/runtime.v1.RuntimeService/%56ersion",
            "//runtime.v1.RuntimeService/Version",
            "/runtime.v1.RuntimeService/StopContainer/../Version",
            "/runtime.v1.ImageService/Version",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "GET /runtime.v1.RuntimeService/Version",
        ] {
            assert!(matches!(table.judge(&Caller::Owner, called), Err(Refusal::NotCri { .. })), "{called}");
        }
    }

    #[test]
    fn counts_have_bounded_names() {
        let table = pleg();
        for called in ["/a", "/b", "/runtime.v1.RuntimeService/StopContainer"] {
            table.counts(called).refuse();
        }
        table.counts("/runtime.v1.RuntimeService/Version").pass();
        table.counts("/runtime.v1.RuntimeService/Version").miss();
        let seen: Vec<_> = table.snapshot().map(|c| (c.method, c.passed, c.refused, c.unavailable)).collect();
        assert_eq!(
            seen,
            [
                ("RuntimeService/StopContainer".to_owned(), 0, 1, 0),
                ("RuntimeService/Version".to_owned(), 1, 0, 1),
                ("other".to_owned(), 0, 2, 0)
            ]
        );
    }

    fn paths() -> impl Strategy<Value = String> {
        let known = prop::sample::select(PLEG.rows.keys().cloned().collect::<Vec<_>>());
        let close = (known.clone(), 0_usize..40, "[A-Za-z/ ]?").prop_map(|(mut path, at, with)| {
            path.insert_str(at.min(path.len()), &with);
            path
        });
        prop_oneof![known, close, "[ -~]{0,60}"]
    }

    proptest! {
        #[test]
        fn nothing_but_a_listed_path_passes(called in paths()) {
            let label = called.strip_prefix("/runtime.v1.").unwrap_or("");
            prop_assert_eq!(PLEG.judge(&Caller::Owner, &called).is_ok(), ACCESS.may_use_cri("pleg", label));
        }
    }
}
