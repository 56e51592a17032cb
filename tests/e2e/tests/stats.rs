//! Statistics end to end, on a real containerd: what a pod really takes, as `/stats/summary` and the metrics' pages tell it.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

/// Port of the node's statistics, in the node's own network.
const PORT: u16 = 10255;
/// The runtime measures layers every 10 s and volumed volumes every 60 s.
const MEASURED: Duration = Duration::from_secs(180);

/// One page of the read-only port.
fn get(node: &RealNode, path: &str) -> Option<String> {
    let network = format!("/run/netns/{}", node.id());
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    let asked = std::thread::spawn(move || -> std::io::Result<String> {
        // Of this thread alone, which ends here.
        setns(File::open(network)?, CloneFlags::CLONE_NEWNET)?;
        let mut stream = TcpStream::connect(("127.0.0.1", PORT))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    let answer = asked.join().unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

fn summary(node: &RealNode) -> Option<Value> {
    serde_json::from_str(&get(node, "/stats/summary")?).ok()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// A pod that takes a fifth of a processor, 20 MB of memory, 3 MB of its root, 5 MB of a volume, 2 MB of one in memory and
/// 1 MB of its log.
fn greedy() -> Value {
    let script = "head -c 3000000 /dev/urandom >/big; head -c 5000000 /dev/urandom >/data/big
        head -c 2000000 /dev/urandom >/memory/big; head -c 1000000 /dev/zero | tr '\\0' y; echo
        mkdir /w; echo hi >/w/index.html; httpd -p 8080 -h /w
        held=$(head -c 20000000 /dev/zero | tr '\\0' x); while :; do :; done";
    let mut pod = pods::simple("greedy");
    let mut container = pods::container("c", script);
    container["resources"] = json!({"limits": {"cpu": "200m", "memory": "100Mi"}});
    container["readinessProbe"] = json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1});
    container["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}, {"name": "memory", "mountPath": "/memory"}]);
    pod["spec"]["containers"] = json!([container]);
    pod["spec"]["volumes"] = json!([
        {"name": "data", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "10Mi"}},
    ]);
    pod
}

fn pod<'a>(summary: &'a Value, name: &str) -> Option<&'a Value> {
    summary["pods"].as_array()?.iter().find(|pod| pod["podRef"]["name"] == format!("{name}-node-a"))
}

fn volume(pod: &Value, name: &str) -> u64 {
    let volumes = pod["volume"].as_array().into_iter().flatten();
    volumes.into_iter().find(|volume| volume["name"] == name).map_or(0, |volume| number(&volume["usedBytes"]))
}

#[tokio::test]
async fn what_a_pod_takes_is_told_within_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    let text = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "readOnlyPort": PORT});
    std::fs::write(&config, text.to_string()).unwrap();
    let mut node = RealNode::up(&["--config", &config.to_string_lossy()]).await;
    node.put("greedy.yaml", &greedy());
    node.put("host.yaml", &pods::with_spec(pods::simple("host"), "hostNetwork", json!(true)));
    node.ready("greedy").await;
    node.ready("host").await;

    // Everything is there, and what is measured now and then is measured.
    let whole = wait::within(MEASURED, "layers and volumes are measured", async || {
        let summary = summary(&node)?;
        let greedy = pod(&summary, "greedy")?;
        let rootfs = number(&greedy["containers"][0]["rootfs"]["usedBytes"]);
        let told = rootfs >= 3_000_000
            && volume(greedy, "data") >= 5_000_000
            && volume(greedy, "memory") >= 2_000_000;
        told.then_some(summary)
    })
    .await;
    within_bounds(&whole);
    assert!(pod(&whole, "host").unwrap().get("network").is_none(), "the node's network is not the pod's");

    let few: Value =
        serde_json::from_str(&get(&node, "/stats/summary?only_cpu_and_memory=true").unwrap()).unwrap();
    let greedy = pod(&few, "greedy").unwrap();
    assert!(greedy.get("network").is_none() && greedy["containers"][0].get("rootfs").is_none());
    pages_are_well_formed(&node);
    assert!(node.down().await, "{}", node.said());
}

fn within_bounds(whole: &Value) {
    let greedy = pod(whole, "greedy").unwrap();
    let container = &greedy["containers"][0];
    let data = volume(greedy, "data");
    let (logs, rootfs) = (&container["logs"], &container["rootfs"]);
    let table = [
        ("rate", &container["cpu"]["usageNanoCores"], 20_000_000..300_000_000),
        ("rate of the pod", &greedy["cpu"]["usageNanoCores"], 20_000_000..300_000_000),
        ("rss", &container["memory"]["rssBytes"], 20_000_000..80_000_000),
        ("working set of the pod", &greedy["memory"]["workingSetBytes"], 20_000_000..100_000_000),
        ("room", &container["memory"]["availableBytes"], 1..85_000_000),
        ("root", &rootfs["usedBytes"], 3_000_000..3_500_000),
        ("files in the root", &rootfs["inodesUsed"], 2..100),
        ("log", &logs["usedBytes"], 1_000_000..1_300_000),
        ("log files", &logs["inodesUsed"], 1..2),
        ("all on disk", &greedy["ephemeral-storage"]["usedBytes"], 9_000_000..10_500_000),
        ("received", &greedy["network"]["rxBytes"], 100..100_000_000),
        ("sent", &greedy["network"]["txBytes"], 100..100_000_000),
        ("processes", &greedy["process_stats"]["process_count"], 2..20),
        ("images", &whole["node"]["runtime"]["imageFs"]["usedBytes"], 500_000..1_000_000_000),
        ("disk of images", &whole["node"]["runtime"]["imageFs"]["capacityBytes"], 1_000_000..u64::MAX),
        ("disk of layers", &whole["node"]["runtime"]["containerFs"]["capacityBytes"], 1_000_000..u64::MAX),
        ("disk", &whole["node"]["fs"]["usedBytes"], 1_000_000..u64::MAX),
        ("threads", &whole["node"]["rlimit"]["curproc"], 10..100_000),
    ];
    for (what, value, bounds) in table {
        assert!(bounds.contains(&number(value)), "{what}: {value} is not within {bounds:?} in {greedy:#}");
    }
    assert!((5_000_000..5_300_000).contains(&data), "{data}");
    assert!((2_000_000..2_200_000).contains(&volume(greedy, "memory")));
    assert_eq!(greedy["network"]["name"], "eth0");
    let parts = whole["node"]["systemContainers"].as_array().unwrap();
    let pods = parts.iter().find(|part| part["name"] == "pods").unwrap();
    assert!(number(&pods["memory"]["workingSetBytes"]) >= number(&greedy["memory"]["rssBytes"]));
}

fn pages_are_well_formed(node: &RealNode) {
    for page in ["/metrics", "/metrics/probes", "/metrics/slis"] {
        assert!(!parse(&get(node, page).unwrap()).is_empty(), "{page}");
    }
    let one = |page: &Page, name: &str, labels: &[(&str, &str)]| -> f64 {
        let family = page.get(name).unwrap_or_else(|| panic!("no {name}"));
        let fits = |of: &Labels| {
            labels.iter().all(|(name, value)| of.get(*name).map(String::as_str) == Some(*value))
        };
        let found: Vec<_> = family.iter().filter(|(of, _)| fits(of)).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0].1
    };
    let of_pod = [("namespace", "default"), ("pod", "greedy-node-a")];
    let container = [of_pod[0], of_pod[1], ("container", "c")];
    let page = parse(&get(node, "/metrics/resource").unwrap());
    assert_eq!(one(&page, "scrape_error", &[]), 0.0);
    assert!(one(&page, "container_cpu_usage_seconds_total", &container) > 0.1);
    let used = one(&page, "container_memory_working_set_bytes", &container);
    assert!((20e6..100e6).contains(&used), "{used}");
    assert!(one(&page, "pod_cpu_usage_seconds_total", &of_pod) > 0.1);
    assert!(one(&page, "node_memory_working_set_bytes", &[]) > used);

    let page = parse(&get(node, "/metrics/cadvisor").unwrap());
    let rss = one(&page, "container_memory_rss", &container);
    assert!((20e6..80e6).contains(&rss), "{rss}");
    assert!(one(&page, "container_cpu_usage_seconds_total", &container) > 0.1);
    assert!(one(&page, "container_cpu_cfs_throttled_periods_total", &container) > 1.0, "it has a quota");
    assert_eq!(one(&page, "container_spec_memory_limit_bytes", &container), 100.0 * 1024.0 * 1024.0);
    let written = one(&page, "container_fs_usage_bytes", &container);
    assert!((3e6..3.5e6).contains(&written), "{written}");
    assert!(one(&page, "container_start_time_seconds", &container) > 1.7e9);
    let traffic = [of_pod[0], of_pod[1], ("interface", "eth0")];
    assert!(one(&page, "container_network_receive_bytes_total", &traffic) > 100.0);
    assert!(one(&page, "machine_memory_bytes", &[]) > used && one(&page, "machine_cpu_cores", &[]) >= 1.0);
    let root = [("id", "/")];
    assert!(one(&page, "container_cpu_usage_seconds_total", &root) > 1.0);
}

type Labels = BTreeMap<String, String>;
/// Series by metric.
type Page = BTreeMap<String, Vec<(Labels, f64)>>;

/// Reads Prometheus' text format 0.0.4 and panics at whatever a strict reader would not take.
fn parse(text: &str) -> Page {
    assert!(text.ends_with('\n'), "the last line ends, too");
    let (mut page, mut seen) = (Page::new(), BTreeSet::new());
    let (mut types, mut family) = (BTreeMap::new(), String::new());
    let mut helped = BTreeSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, _) = help.split_once(' ').unwrap_or((help, ""));
            assert!(is_name(name) && helped.insert(name.to_owned()), "one help: {line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "one type: {line}");
            family = name.to_owned();
        } else {
            let (name, labels, rest) = series(line);
            let histogram = types.get(&family).map(String::as_str) == Some("histogram");
            let part = name.strip_prefix(family.as_str());
            let belongs = part == Some("") && !histogram
                || histogram && matches!(part, Some("_bucket" | "_sum" | "_count"));
            assert!(belongs, "{line} is not of the family before it, {family}");
            let mut words = rest.split(' ');
            let value = words.next().unwrap();
            let value: f64 =
                value.replace("+Inf", "inf").parse().unwrap_or_else(|_| panic!("a number: {line}"));
            assert!(
                words.next().is_none_or(|time| time.parse::<i64>().is_ok()) && words.next().is_none(),
                "{line}"
            );
            if types.get(&family).map(String::as_str) == Some("counter") {
                assert!(value >= 0.0, "{line}");
            }
            assert!(seen.insert((name.clone(), labels.clone())), "told twice: {line}");
            page.entry(name).or_default().push((labels, value));
        }
    }
    page
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':');
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// Name, labels, and what follows them.
fn series(line: &str) -> (String, Labels, String) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let Some(mut rest) = rest.strip_prefix('{') else {
        return (name.to_owned(), Labels::new(), rest[1..].to_owned());
    };
    let mut labels = Labels::new();
    loop {
        let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("a label: {line}"));
        assert!(is_name(label) && !label.contains(':'), "{line}");
        let (mut value, mut characters) = (String::new(), after.char_indices());
        let closed = loop {
            match characters.next().unwrap_or_else(|| panic!("an end: {line}")) {
                (at, '"') => break at,
                (_, '\\') => match characters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, c @ ('"' | '\\'))) => value.push(c),
                    other => panic!("escaped {other:?}: {line}"),
                },
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(label.to_owned(), value).is_none(), "a label twice: {line}");
        rest = &after[closed + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let rest = rest.strip_prefix("} ").unwrap_or_else(|| panic!("a value: {line}"));
    (name.to_owned(), labels, rest.to_owned())
}

#[test]
fn the_reader_is_strict() {
    let good = "# HELP a Help.\n# TYPE a counter\na{b=\"x\\\"\\n\",c=\"\"} 1 5\na 2\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n";
    let page = parse(good);
    assert_eq!(page["a"].len(), 2);
    assert_eq!(page["a"][0].0["b"], "x\"\n");
    let bad = [
        "a 1\n",
        "# TYPE a counter\na 1",
        "# TYPE a counter\na{b=\"x\"} 1\na{b=\"x\"} 2\n",
        "# TYPE a counter\na{b=x} 1\n",
        "# TYPE a counter\na{b=\"x} 1\n",
        "# TYPE a counter\na one\n",
        "# TYPE a counter\na -1\n",
        "# TYPE a counter\na 1 2 3\n",
        "# TYPE a counter\n# TYPE b gauge\na 1\n",
        "# TYPE a odd\na 1\n",
        "# TYPE a-b gauge\na-b 1\n",
    ];
    for text in bad {
        assert!(std::panic::catch_unwind(|| parse(text)).is_err(), "{text:?} was taken");
    }
}
