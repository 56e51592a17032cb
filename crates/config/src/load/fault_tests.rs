//! Faults that users of the kubelet met.

use super::*;
use crate::Flag;

const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// A node's files, each with the header; the main one is `main.yaml`, the others its drop-ins.
struct Node(tempfile::TempDir);

impl Node {
    fn new(files: &[(&str, &str)]) -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        fs::create_dir(node.dir()).unwrap();
        for (name, text) in files {
            let folder = if *name == "main.yaml" { node.0.path().to_owned() } else { node.dir() };
            fs::write(folder.join(name), format!("{HEADER}{text}")).unwrap();
        }
        node
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("conf.d")
    }

    fn examine(&self, flags: &[Given]) -> Result<Examined, ConfigError> {
        Files::read(Some(&self.0.path().join("main.yaml")), Some(&self.dir()))?.examine(flags)
    }
}

fn fields(problems: &[Problem]) -> Vec<&str> {
    problems.iter().map(|problem| problem.field.as_str()).collect()
}

/// kubernetes/kubernetes PR 83204, PR 119390: misspelt and wrongly cased keys, duplicates, several drop-ins.
#[test]
fn strict_configuration_and_drop_in_directory() {
    let node = Node::new(&[
        (
            "main.yaml",
            "maxPods: 50\nMaxPods: 60\nfoo: 1\nclusterDNS: [10.0.0.1]\nevictionHard: {memory.available: 100Mi}\n",
        ),
        ("10-a.conf", "clusterDNS: [10.0.0.2]\nevictionHard: {nodefs.available: 5%}\n"),
        ("20-b.conf", "maxPods: 70\n"),
        ("30-c.yaml", "maxPods: 80\n"),
    ]);
    let examined = node.examine(&[]).unwrap();
    assert_eq!(examined.config.max_pods, 70);
    assert_eq!(examined.config.cluster_dns, ["10.0.0.2".parse::<std::net::IpAddr>().unwrap()]);
    let eviction: Vec<_> =
        examined.config.eviction_hard.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(eviction, [("memory.available", "100Mi"), ("nodefs.available", "5%")]);
    assert_eq!(fields(&examined.ignored), ["MaxPods", "foo"]);
    assert!(examined.ignored.iter().all(|one| one.to_string().contains("main.yaml:")));
    assert!(examined.warnings.iter().any(|warning| warning.contains("30-c.yaml")), "{:?}", examined.warnings);

    let flag = Given { flag: Flag::find("max-pods").unwrap(), values: vec!["90".to_owned()] };
    assert_eq!(node.examine(&[flag]).unwrap().config.max_pods, 90, "flags win over files");

    let twice = Node::new(&[("main.yaml", "maxPods: 50\nmaxPods: 60\n")]);
    let loaded = twice.examine(&[]).unwrap().accept().unwrap();
    assert_eq!(loaded.config.max_pods, 60);
    assert_eq!(fields(&loaded.ignored), ["maxPods"]);

    let wrong = Node::new(&[("main.yaml", "maxPods: \"x\"\n")]).examine(&[]).unwrap_err().to_string();
    assert!(wrong.contains("main.yaml:3:10: field maxPods"), "{wrong}");
}

/// The eviction thresholds that come of a file, or the fields that keep it from being used (but for those that this
/// release does not implement).
fn thresholds(text: &str) -> Result<Vec<String>, Vec<String>> {
    let examined = Node::new(&[("main.yaml", text)]).examine(&[]).unwrap();
    let missing: Vec<_> = unimplemented(&examined.config).into_iter().map(|one| one.field).collect();
    let wrong = examined.problems.into_iter().map(|one| one.field).filter(|field| !missing.contains(field));
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() { Ok(examined.config.eviction_lines()) } else { Err(wrong) }
}

/// kubernetes/kubernetes PR 59681, kubernetes/website 36706: thresholds that switch a signal off, and partial maps.
#[test]
fn thresholds_of_0_and_100_percent_and_partial_maps() {
    let good = |text: &str| thresholds(text).unwrap();
    assert_eq!(good("evictionHard: {memory.available: \"0%\"}\n"), ["memory.available: switched off by 0%"]);
    assert_eq!(
        good("evictionHard: {nodefs.available: \"100%\"}\n"),
        ["nodefs.available: switched off by 100%"]
    );
    assert_eq!(good("evictionHard: {memory.available: 100Mi}\n"), ["memory.available < 100Mi: at once"]);
    let merged = [
        "imagefs.available < 15%: at once",
        "imagefs.inodesFree < 5%: at once",
        "memory.available < 100Mi: at once",
        "nodefs.available < 10%: at once",
        "nodefs.inodesFree < 5%: at once",
    ];
    assert_eq!(good("evictionHard: {memory.available: 100Mi}\nmergeDefaultEvictionSettings: true\n"), merged);
    assert_eq!(good(""), merged);
    assert_eq!(
        thresholds("evictionHard: {memory.available: \"10%%\"}\n").unwrap_err(),
        ["evictionHard.memory.available"]
    );
    assert_eq!(
        thresholds("evictionSoft: {memory.available: 1Gi}\n").unwrap_err(),
        ["evictionSoft.memory.available"]
    );
    let soft = "evictionHard: {}\nevictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 90s}\n";
    assert_eq!(good(soft), ["memory.available < 1Gi: after 90s"]);
}
