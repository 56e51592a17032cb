//! Disks that are full or read-only, state files that are garbage, clocks that jump: nothing is lost, each is said once, and
//! all is well again when the cause is gone.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_e2e::fake_node::{FakeNode, ShiftedClock, is_ready};
use bulkhead_e2e::real_node::{PROCESSES, RealNode, signal};
use bulkhead_e2e::storm::check::Pod;
use bulkhead_e2e::storm::observe;
use bulkhead_e2e::{pods, wait};
use bulkhead_testkit::cri::{ExecAnswer, OnStart, Who};
use k8s_openapi::api::core::v1::PodStatus;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

static ONE_NODE: Mutex<()> = Mutex::const_new(());

async fn turn() -> MutexGuard<'static, ()> {
    ONE_NODE.lock().await
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

/// A pod that runs with probes and a volume on memory, one that never is ready, one that ended well and one that did not.
fn put_stable(node: &RealNode) {
    let probe = |command: &str| json!({"exec": {"command": [command]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5});
    let mut probed = pods::simple("probed");
    let container = &mut probed["spec"]["containers"][0];
    container["readinessProbe"] = probe("/bin/true");
    container["livenessProbe"] = probe("/bin/true");
    container["volumeMounts"] = json!([{"name": "m", "mountPath": "/m"}]);
    probed["spec"]["volumes"] = json!([{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "64Ki"}}]);
    node.put("probed.yaml", &probed);
    let mut unready = pods::simple("unready");
    unready["spec"]["containers"][0]["readinessProbe"] = probe("/bin/false");
    node.put("unready.yaml", &unready);
    for (name, code) in [("done", 0), ("failed", 3)] {
        let pod = pods::with_spec(pods::simple(name), "restartPolicy", json!("Never"));
        let containers = json!([pods::container("c", &format!("exit {code}"))]);
        node.put(&format!("{name}.yaml"), &pods::with_spec(pod, "containers", containers));
    }
}

const STABLE: [&str; 4] = ["probed", "unready", "done", "failed"];

fn stable(node: &RealNode) -> Option<BTreeMap<String, Pod>> {
    let mut pods = observe::pods(node).ok()?;
    pods.retain(|name, _| STABLE.contains(&name.as_str()));
    (pods.len() == STABLE.len()).then_some(pods)
}

/// The stable pods once they are what they are for.
async fn settled(node: &RealNode) -> BTreeMap<String, Pod> {
    put_stable(node);
    node.ready("probed").await;
    wait::until("the others are settled", async || {
        let pods = stable(node)?;
        let phases = ["unready", "done", "failed"].map(|name| pods[name].phase.clone());
        // The last that changes of a pod that is over: its sandbox is stopped.
        let over = |name: &str| pods[name].condition("PodReadyToStartContainers") == "False";
        let settled = phases == ["Running", "Succeeded", "Failed"] && over("done") && over("failed");
        (settled && is_kept(node, &pods)).then_some(pods)
    })
    .await
}

/// Whether statusd's file holds these conditions: what the disk refuses later is not theirs.
fn is_kept(node: &RealNode, pods: &BTreeMap<String, Pod>) -> bool {
    let kept = std::fs::read(node.state().join("state/statusd/statuses.json")).unwrap_or_default();
    let kept: Value = serde_json::from_slice(&kept).unwrap_or_default();
    pods.values().all(|pod| {
        let conditions = kept["content"]["pods"][&pod.uid]["status"]["conditions"].as_array();
        pod.conditions.iter().all(|shown| {
            let same = |kept: &Value| {
                let since = kept["lastTransitionTime"].as_str().unwrap_or("none");
                kept["type"] == shown.kind.as_str()
                    && kept["status"] == shown.status.as_str()
                    && shown.since.contains(since)
            };
            conditions.is_some_and(|conditions| conditions.iter().any(same))
        })
    })
}

/// Checks that are bad, by process, once there are some.
async fn complaints(node: &RealNode, text: &str) -> BTreeMap<String, Vec<String>> {
    wait::until(&format!("health says {text:?}"), async || {
        let status = node.status()?;
        let mut bad = BTreeMap::<String, Vec<String>>::new();
        for check in status["health"]["checks"].as_array()?.iter().filter(|check| check["ok"] != true) {
            let field = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
            if field("reason").contains(text) {
                bad.entry(field("process")).or_default().push(field("reason"));
            }
        }
        (!bad.is_empty()).then_some(bad)
    })
    .await
}

/// Bytes in the processes' logs.
fn logged(node: &RealNode) -> u64 {
    let files = std::fs::read_dir(node.state().join("logs")).into_iter().flatten().flatten();
    let sizes = files.filter_map(|file| file.metadata().ok()).filter(|meta| meta.is_file());
    sizes.map(|meta| meta.len()).sum()
}

/// Kills each of these and sees it come back with pods as they were.
async fn killed(node: &RealNode, processes: &[&str], before: &BTreeMap<String, Pod>) {
    for process in processes {
        let pid = node.kill(process);
        wait::until(&format!("{process} is back"), async || {
            node.processes().get(*process).filter(|(now, _)| *now != pid).map(drop)
        })
        .await;
        wait::until(&format!("pods after {process} was killed: {before:?}"), async || {
            (stable(node)? == *before).then_some(())
        })
        .await;
    }
}

/// The message of the only container of a pod that waits.
fn waits(node: &RealNode, pod: &str) -> Option<String> {
    node.containers(pod).into_iter().next()?.state?.waiting?.message
}

/// Pods come and go while the disk cannot be written: they wait, and nothing else happens to anybody.
async fn changes_wait(node: &RealNode, error: &str, before: &BTreeMap<String, Pod>) {
    node.put("new.yaml", &pods::simple("new"));
    let message = wait::until(&format!("the new pod says {error:?}"), async || {
        waits(node, "new").filter(|message| message.contains(error))
    })
    .await;
    assert!(message.len() < 1100, "{message}");
    let bad = complaints(node, error).await;
    assert!(bad.values().all(|reasons| reasons.len() == 1), "one each: {bad:?}");
    killed(node, &["syncd", "statusd", "prober"], before).await;
    // It goes on for a while; who tries again does not say so again.
    let (begin, from) = (Instant::now(), logged(node));
    wait::until("some time with a disk that cannot be written", async || {
        assert_eq!(stable(node).as_ref(), Some(before));
        (begin.elapsed() > Duration::from_secs(15)).then_some(())
    })
    .await;
    let more = logged(node) - from;
    assert!(more < 32 * 1024, "{more} bytes of log in {:?}", begin.elapsed());
    // What ends needs no room; it gives some back.
    node.take("old.yaml");
    wait::until("the old pod's container is stopped", async || {
        (!node.running().contains_key("old/c")).then_some(())
    })
    .await;
    assert_eq!(stable(node).as_ref(), Some(before));
}

/// All that was asked for meanwhile is there, and survives.
async fn changes_happen(node: &RealNode, before: &BTreeMap<String, Pod>) {
    node.ready("new").await;
    wait::until("the old pod is gone", async || {
        let left = std::fs::read_dir(node.state().join("root/pods")).ok()?.flatten().count();
        (!node.pods().contains_key("old") && left == STABLE.len() + 1).then_some(())
    })
    .await;
    node.healthy().await;
    killed(node, &PROCESSES, before).await;
    node.healthy().await;
    let names: BTreeSet<_> = node.pods().into_keys().collect();
    assert_eq!(names, STABLE.iter().chain(&["new"]).map(|name| (*name).to_owned()).collect());
}

#[tokio::test]
async fn a_full_disk_makes_changes_wait_and_harms_nothing_that_is_there() {
    let _turn = turn().await;
    let disks = ["root", "state", "logs/pods"];
    let mut node = RealNode::up_on_disks(&disks, &[]).await;
    node.put("old.yaml", &pods::simple("old"));
    node.ready("old").await;
    let before = settled(&node).await;
    for disk in disks {
        node.disk(disk).fill();
    }
    changes_wait(&node, "No space left", &before).await;
    for disk in disks {
        node.disk(disk).free();
    }
    changes_happen(&node, &before).await;
    assert!(node.down().await, "{}", node.said());
}

#[tokio::test]
async fn a_read_only_disk_makes_changes_wait_and_harms_nothing_that_is_there() {
    let _turn = turn().await;
    // Not the logs: the runtime has those of running containers open.
    let disks = ["root", "state"];
    let mut node = RealNode::up_on_disks(&disks, &[]).await;
    node.put("old.yaml", &pods::simple("old"));
    node.ready("old").await;
    let before = settled(&node).await;
    for disk in disks {
        node.disk(disk).forbid_writes();
    }
    changes_wait(&node, "Read-only file system", &before).await;
    for disk in disks {
        node.disk(disk).allow_writes();
    }
    changes_happen(&node, &before).await;
    assert!(node.down().await, "{}", node.said());
}

/// State files below `folder`.
fn state_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json")).collect()
}

/// What happens to a file.
type Spoil<'a> = &'a dyn Fn(&Path);

#[tokio::test]
async fn a_state_file_that_is_garbage_is_set_aside_and_named() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let mut before = settled(&node).await;
    let ids = |pods: &BTreeMap<String, Pod>| -> Vec<_> {
        let of = |pod: &Pod| {
            pod.containers.values().map(|c| (c.id.clone(), c.restarts, c.state.clone())).collect()
        };
        pods.iter()
            .map(|(name, pod)| (name.clone(), pod.phase.clone(), of(pod)))
            .collect::<Vec<(_, _, Vec<_>)>>()
    };
    let spoil: [(&str, Spoil); 4] = [
        ("garbage", &|path| std::fs::write(path, [0xff, 0, b'{', 7]).unwrap()),
        ("cut off", &|path| {
            let half = std::fs::metadata(path).unwrap().len() / 2;
            std::fs::File::options().write(true).open(path).unwrap().set_len(half).unwrap();
        }),
        ("empty", &|path| std::fs::write(path, "").unwrap()),
        ("a folder", &|path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir_all(path.join("in/it")).unwrap();
        }),
    ];
    let owners: Vec<&str> = PROCESSES
        .into_iter()
        .filter(|name| !state_files(&node.state().join("state").join(name)).is_empty())
        .collect();
    assert_eq!(owners, ["prober", "statusd", "syncd"]);
    for process in owners {
        for (how, spoil) in spoil {
            let files = state_files(&node.state().join("state").join(process));
            // It must not write a good one meanwhile.
            let (pid, _) = node.processes()[process];
            signal(pid, Signal::SIGSTOP);
            files.iter().for_each(|file| spoil(file));
            signal(pid, Signal::SIGKILL);
            node.back(process, pid, Duration::from_secs(30)).await;
            let what = format!("{process}'s file is {how}");
            wait::until(&format!("pods after {what}: {before:?}"), async || {
                (ids(&stable(&node)?) == ids(&before)).then_some(())
            })
            .await;
            let status = node.status().unwrap();
            let own = status["processes"].as_array().unwrap().iter().find(|p| p["name"] == process).unwrap();
            for file in &files {
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                let said = own["lastError"].as_str().unwrap_or_default();
                assert!(said.contains(&name), "{what}: {said}");
                assert!(file.with_extension("json.corrupt").exists(), "{what}");
            }
            // It is written anew; what was lost with it were transition times.
            node.put("after.yaml", &pods::simple("after"));
            node.ready("after").await;
            // A new pod is shown: so is what the process says of the others in its new life. What is lost with the file:
            // transition times, and of pods that are over that it is the same run.
            let now = stable(&node).unwrap();
            let same = |name: &&str| now[*name] == before[*name];
            assert!(
                process == "statusd" || ["probed", "unready"].iter().all(same),
                "{what}: {before:?} {now:?}"
            );
            assert!(process != "prober" || now == before, "{what}: {before:?} {now:?}");
            before = now;
            wait::until(&format!("{what} and is written again"), async || {
                files.iter().all(|file| file.is_file()).then_some(())
            })
            .await;
            node.take("after.yaml");
            wait::until("the other pod is gone", async || (!node.pods().contains_key("after")).then_some(()))
                .await;
        }
    }
    let now = stable(&node).unwrap();
    killed(&node, &PROCESSES, &now).await;
    assert!(node.down().await, "{}", node.said());
}

/// Known fault V3.
#[tokio::test]
async fn what_no_pod_owns_goes_and_never_through_a_mount() {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    node.put("a.yaml", &pods::simple("a"));
    node.ready("a").await;
    let running = node.running();
    let folder = node.state().join("root/pods");
    let uid = |digit: char| digit.to_string().repeat(32);
    let place = |digit, volume: &str| folder.join(uid(digit)).join("volumes").join(volume);
    // Left by a driver: a folder with nothing in it, one with a file, one that something is mounted on.
    std::fs::create_dir_all(place('1', "kubernetes.io~csi/v1")).unwrap();
    std::fs::create_dir_all(place('2', "kubernetes.io~csi/v1")).unwrap();
    std::fs::write(place('2', "kubernetes.io~csi/v1/vol_data.json"), "{}").unwrap();
    let (data, mounted) = (node.state().join("data"), place('3', "kubernetes.io~empty-dir/e"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("file"), "kept").unwrap();
    std::fs::create_dir_all(&mounted).unwrap();
    mount(Some(&data), &mounted, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let log = logged(&node);
    // It looks as soon as it knows what should be there.
    let pid = node.kill("syncd");
    node.back("syncd", pid, Duration::from_secs(30)).await;
    wait::until("what is left over is gone", async || {
        let left = std::fs::read_dir(&folder).ok()?.flatten().count();
        (left == 1).then_some(())
    })
    .await;
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let still = table.contains(&uid('3'));
    if still {
        let _ = umount2(&mounted, MntFlags::MNT_DETACH);
    }
    assert!(!still, "it is unmounted");
    assert_eq!(std::fs::read_to_string(data.join("file")).unwrap(), "kept");
    assert_eq!(node.running(), running);
    assert!(logged(&node) - log < 16 * 1024);
    assert!(node.down().await, "{}", node.said());
}

const HOUR: i64 = 3600;

fn exec(command: &str) -> Value {
    json!({"exec": {"command": [command]}, "periodSeconds": 1, "failureThreshold": 1})
}

/// Types, states and dates of the conditions.
fn conditions(status: &PodStatus) -> Vec<(String, String, String)> {
    let conditions = status.conditions.iter().flatten();
    conditions.map(|c| (c.type_.clone(), c.status.clone(), format!("{:?}", c.last_transition_time))).collect()
}

#[tokio::test]
async fn a_clock_that_jumps_an_hour_restarts_fails_and_delays_nothing() {
    let clock = ShiftedClock::default();
    let mut node = FakeNode::up_at(Arc::new(clock.clone())).await;
    node.runtime.answer_exec(|_, command| {
        Ok(ExecAnswer::exits(i32::from(command.first().is_some_and(|word| word == "no"))))
    });
    let container = pods::container("c", "sleep 100000 & wait");
    let probed = with(with(container.clone(), "readinessProbe", exec("yes")), "livenessProbe", exec("yes"));
    node.put("probed.yaml", &pods::with_spec(pods::simple("probed"), "containers", json!([probed])));
    let unready = with(container, "readinessProbe", exec("no"));
    node.put("unready.yaml", &pods::with_spec(pods::simple("unready"), "containers", json!([unready])));
    // More than is left of the test, less than the clock jumps.
    let deadline = pods::with_spec(pods::simple("deadline"), "activeDeadlineSeconds", json!(1800));
    node.put("deadline.yaml", &deadline);
    node.runtime.on_start(Who::Name("brief".to_owned()), OnStart::Exit(0));
    let crash = json!([pods::container("crash", "exit 1")]);
    node.runtime.on_start(Who::Name("crash".to_owned()), OnStart::Exit(1));
    node.put("crash.yaml", &pods::with_spec(pods::simple("crash"), "containers", crash));
    for name in ["probed", "deadline"] {
        node.ready(name).await;
    }
    let held = |s: &PodStatus| s.phase.as_deref() == Some("Running");
    node.status_where("unready", "runs", held).await;
    let names = ["probed", "unready", "deadline"];
    let before = names.map(|name| node.status(name).unwrap());
    let running = node.running();

    // Dead ones are removed but for two; their numbers go on.
    let crashes = |node: &FakeNode| {
        let all = node.runtime.containers();
        let attempts = all.iter().filter(|c| c.name() == "crash").filter_map(|c| c.config.metadata.clone());
        attempts.map(|metadata| metadata.attempt + 1).max().unwrap_or_default()
    };
    // It was started again at once, and now waits for ten seconds.
    wait::until("the crashing container waits", async || (crashes(&node) == 2).then_some(())).await;
    let waits = Instant::now();
    for (number, shift) in [HOUR, 0, -HOUR].into_iter().enumerate() {
        clock.shift(shift);
        if number == 0 {
            // A look at everything, with the new date.
            node.put("look.yaml", &pods::simple("look"));
            node.ready("look").await;
            assert!(crashes(&node) == 2 || waits.elapsed() > Duration::from_secs(9), "its back-off goes on");
            wait::until("its back-off is over", async || (crashes(&node) > 2).then_some(())).await;
            assert!(waits.elapsed() > Duration::from_secs(8), "after {:?}", waits.elapsed());
        }
        // What comes and goes does so in its time, and what ends is seen to.
        let (ok, brief) = (format!("ok{number}"), format!("brief{number}"));
        let begin = Instant::now();
        node.put("ok.yaml", &pods::simple(&ok));
        node.ready(&ok).await;
        let never = pods::with_spec(pods::simple(&brief), "restartPolicy", json!("Never"));
        let containers = json!([pods::container("brief", "exit 0")]);
        node.put("brief.yaml", &pods::with_spec(never, "containers", containers));
        node.status_where(&brief, "ended", |s| s.phase.as_deref() == Some("Succeeded")).await;
        node.take("ok.yaml");
        node.take("brief.yaml");
        wait::until("they are gone", async || {
            (node.status(&ok).is_none() && node.status(&brief).is_none()).then_some(())
        })
        .await;
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        for (name, before) in names.iter().zip(&before) {
            let now = node.status(name).unwrap();
            assert_eq!(conditions(&now), conditions(before), "{name} at {shift} s");
        }
        let now = node.running();
        assert!(running.iter().all(|(name, id)| now.get(name) == Some(id)), "{now:?} at {shift} s");
    }
    // A container that is started again after the clock was set back is the newest, whatever its date says.
    let id = running["probed/c"].clone();
    node.runtime.exit_container(&id, 1);
    let again = node
        .status_where("probed", "runs again", |s| {
            is_ready(s) && s.container_statuses.iter().flatten().all(|c| c.restart_count == 1)
        })
        .await;
    let since = |status: &PodStatus| {
        let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready").cloned();
        ready.and_then(|c| c.last_transition_time).map(|time| time.0)
    };
    assert!(since(&again) >= since(&before[0]), "no transition before the last one");
    assert_eq!(crashes(&node).min(9), crashes(&node), "no storm of restarts");
    node.kill("syncd");
    node.start("syncd");
    node.put("last.yaml", &pods::simple("last"));
    node.ready("last").await;
    assert_eq!(node.status("probed").map(|s| s.container_statuses), Some(again.container_statuses));
}
