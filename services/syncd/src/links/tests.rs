use bulkhead_api::common::v1::Part;
use bulkhead_ipc::Update;

use super::*;

fn container(name: &str, id: &str, state: ContainerState, log: &Path) -> Container {
    Container {
        id: id.into(),
        name: name.into(),
        sandbox_id: String::new(),
        attempt: 0,
        state,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        started_at: None,
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_id: String::new(),
        log_path: log.display().to_string(),
        hash: None,
        user: None,
        stop_signal: String::new(),
        annotations: BTreeMap::new(),
    }
}

fn pod(uid: &str, containers: Vec<Container>) -> RuntimePod {
    RuntimePod {
        uid: uid.into(),
        name: "web-n".into(),
        namespace: "shop".into(),
        containers,
        ..Default::default()
    }
}

#[test]
fn only_started_containers_with_a_log_of_ours_are_linked() {
    use ContainerState::{Created, Exited, Running, Unknown};
    let logs = Path::new("/var/log/pods");
    let log = Path::new("/var/log/pods/shop_web-n_u/c/0.log");
    let table = [
        (container("c", "i1", Running, log), true),
        (container("c", "i2", Exited, log), true),
        (container("c", "i3", Created, log), false),
        (container("c", "i4", Unknown, log), false),
        (container("c", "i5", Running, Path::new("")), false),
        (container("c", "i6", Running, Path::new("/etc/shadow")), false),
        (container("c", "i7", Running, Path::new("/var/log/pods/../x")), false),
        (container("c/../x", "i8", Running, log), false),
    ];
    for (container, linked) in table {
        let found = links(&pod("u", vec![container.clone()]), logs);
        let wanted = linked.then(|| (format!("web-n_shop_c-{}.log", container.id), log.to_owned()));
        assert_eq!(found, wanted.into_iter().collect(), "{container:?}");
    }
    let long = container(&"c".repeat(300), "i", Running, log);
    let name = links(&pod("u", vec![long]), logs).into_keys().next().unwrap();
    assert_eq!((name.len(), name.ends_with("c.log")), (255, true));
}

#[test]
fn left_over_is_what_leads_nowhere_or_to_logs_of_nobody() {
    let present =
        |name: &str, target: &str, broken| Present { name: name.into(), target: target.into(), broken };
    let wanted = Links::from([("w.log".to_owned(), "/l/w".into())]);
    let found = surplus(
        &[
            present("w.log", "/l/w", true),
            present("gone.log", "/l/gone", true),
            present("old.log", "/l/old", false),
            present("others.log", "/elsewhere/x", false),
            present("others-gone.log", "/elsewhere/y", true),
            present("note", "/l/x", true),
        ],
        &wanted,
        Path::new("/l"),
    );
    assert_eq!(found, ["gone.log", "old.log", "others-gone.log"]);
}

struct Folder {
    dir: tempfile::TempDir,
    mirror: Mirror<String, RuntimePod>,
    generation: u64,
}

impl Folder {
    fn logs(&self) -> PathBuf {
        self.dir.path().join("pods")
    }

    fn say(&mut self, part: Part, pods: Vec<RuntimePod>, removed: &[&str]) {
        self.generation += 1;
        self.mirror.apply(Update {
            epoch: "e".into(),
            generation: self.generation,
            part,
            upserts: pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect(),
            removed: removed.iter().map(|uid| (*uid).to_owned()).collect(),
        });
    }

    async fn holds(&self, wanted: &[&str]) {
        let look = async {
            loop {
                let entries =
                    std::fs::read_dir(self.dir.path().join("containers")).into_iter().flatten().flatten();
                let mut names: Vec<_> =
                    entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
                names.sort();
                if names == wanted {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), look).await.unwrap_or_else(|_| panic!("{wanted:?}"));
    }
}

#[tokio::test]
async fn links_follow_what_the_runtime_holds() {
    let mut folder = Folder { dir: tempfile::tempdir().unwrap(), mirror: Mirror::detached(), generation: 0 };
    let (logs, dir) = (folder.logs(), folder.dir.path().join("containers"));
    std::fs::create_dir_all(&logs).unwrap();
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(logs.join("0.log"), "hello").unwrap();
    std::os::unix::fs::symlink(logs.join("gone"), dir.join("left.log")).unwrap();
    std::fs::write(dir.join("own.log"), "somebody's").unwrap();
    let shutdown = CancellationToken::new();
    let links = LogLinks::beside(&logs).unwrap();
    let task = tokio::spawn(links.follow(folder.mirror.clone(), shutdown.clone()));
    let running = |id: &str| container("c", id, ContainerState::Running, &logs.join("0.log"));
    folder.say(Part::SnapshotEnd, vec![pod("u", vec![running("1")])], &[]);
    folder.holds(&["own.log", "web-n_shop_c-1.log"]).await;
    assert_eq!(std::fs::read_to_string(dir.join("web-n_shop_c-1.log")).unwrap(), "hello");
    folder.say(
        Part::Delta,
        vec![pod("u", vec![running("2"), running("1")]), pod("v", vec![running("3")])],
        &[],
    );
    folder.holds(&["own.log", "web-n_shop_c-1.log", "web-n_shop_c-2.log", "web-n_shop_c-3.log"]).await;
    folder.say(Part::Delta, vec![pod("u", vec![running("2")])], &["v"]);
    folder.holds(&["own.log", "web-n_shop_c-2.log"]).await;
    // A disk that refuses loses nothing: what is somebody's own file stands in the way, until it is gone.
    std::fs::write(dir.join("web-n_shop_c-4.log"), "in the way").unwrap();
    folder.say(Part::Delta, vec![pod("u", vec![running("5"), running("4"), running("2")])], &[]);
    folder.holds(&["own.log", "web-n_shop_c-2.log", "web-n_shop_c-4.log", "web-n_shop_c-5.log"]).await;
    std::fs::remove_file(dir.join("web-n_shop_c-4.log")).unwrap();
    folder.say(Part::Delta, vec![pod("v", Vec::new())], &[]);
    folder.holds(&["own.log", "web-n_shop_c-2.log", "web-n_shop_c-4.log", "web-n_shop_c-5.log"]).await;
    assert_eq!(std::fs::read_link(dir.join("web-n_shop_c-4.log")).unwrap(), logs.join("0.log"));
    shutdown.cancel();
    task.await.unwrap();
}
