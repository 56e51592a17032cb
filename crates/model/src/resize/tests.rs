use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(uid: &str, containers: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"uid": uid, "name": uid}, "spec": {"containers": containers}}))
        .unwrap()
}

/// One container `c` with these of CPU and memory; an empty text is none.
fn one(requests: (&str, &str), limits: (&str, &str)) -> Pod {
    let list = |(cpu, memory): (&str, &str)| {
        let named = [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, amount)| !amount.is_empty());
        named.map(|(name, amount)| (name, amount.to_owned())).collect::<BTreeMap<_, _>>()
    };
    pod("u", &json!([{"name": "c", "resources": {"requests": list(requests), "limits": list(limits)}}]))
}

fn container(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

fn applied(pod: &Pod) -> ResourceRequirements {
    container(pod).resources.clone().unwrap()
}

fn node() -> Node {
    let has = [("cpu", "2"), ("memory", "1Gi"), ("pods", "10")];
    Node {
        allocatable: has.map(|(name, amount)| (name.into(), ApiQuantity(amount.into()))).into(),
        ..Default::default()
    }
}

#[test]
fn a_change_is_accepted_waits_or_never_fits() {
    let accepted = one(("500m", "256Mi"), ("", ""));
    let other = pod("o", &json!([{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "512Mi"}}}]));
    let full = pod("f", &json!([{"name": "c", "resources": {"requests": {"cpu": "9", "memory": "9Gi"}}}]));
    let table = [
        (("1", "256Mi"), &other, Verdict::Accepted),
        (("500m", "512Mi"), &other, Verdict::Accepted),
        // What does not grow is not looked at, whatever others took.
        (("400m", "128Mi"), &full, Verdict::Accepted),
        (("500m", "256Mi"), &full, Verdict::Accepted),
        (
            ("1001m", "256Mi"),
            &other,
            Verdict::Deferred(
                "Node didn't have enough resource: cpu, requested: 1001, used: 1000, capacity: 2000".into(),
            ),
        ),
        (
            ("2001m", "256Mi"),
            &other,
            Verdict::Infeasible(
                "Node didn't have enough capacity: cpu, requested: 2001, capacity: 2000".into(),
            ),
        ),
        (
            ("1001m", "2Gi"),
            &other,
            Verdict::Infeasible(format!(
                "Node didn't have enough capacity: memory, requested: {}, capacity: {}",
                2_i64 << 30,
                1 << 30
            )),
        ),
    ];
    for (requests, other, expected) in table {
        let wanted = one(requests, ("", ""));
        assert_eq!(judge(&accepted, &wanted, [other, &accepted], &node()), expected, "{requests:?}");
    }
}

#[test]
fn only_what_its_policy_names_restarts_a_container() {
    use Change::{InPlace, None, Restart};
    let before = one(("100m", "64Mi"), ("200m", "128Mi"));
    // requests, limits -> without a policy, with one for CPU, with one for memory
    let table = [
        (("100m", "64Mi"), ("200m", "128Mi"), [None, None, None]),
        (("0.1", "65536Ki"), ("0.2", "128Mi"), [None, None, None]),
        (("150m", "64Mi"), ("200m", "128Mi"), [InPlace, Restart, InPlace]),
        (("100m", "64Mi"), ("300m", "128Mi"), [InPlace, Restart, InPlace]),
        (("100m", "64Mi"), ("200m", "256Mi"), [InPlace, InPlace, Restart]),
        // Known fault R1: a request of memory alone.
        (("100m", "96Mi"), ("200m", "128Mi"), [InPlace, InPlace, InPlace]),
        (("100m", "64Mi"), ("", "128Mi"), [InPlace, Restart, InPlace]),
    ];
    for (requests, limits, expected) in table {
        let mut wanted = container(&one(requests, limits)).clone();
        let mut seen = vec![change(&wanted, &applied(&before))];
        for name in ["cpu", "memory"] {
            let policy = json!([
                {"resourceName": "cpu", "restartPolicy": if name == "cpu" {RESTART} else {"NotRequired"}},
                {"resourceName": "memory", "restartPolicy": if name == "memory" {RESTART} else {"NotRequired"}},
            ]);
            wanted.resize_policy = serde_json::from_value(policy).unwrap();
            seen.push(change(&wanted, &applied(&before)));
        }
        assert_eq!(seen, expected, "{requests:?} {limits:?}");
    }
}

#[test]
fn a_pod_has_room_for_both_while_it_changes() {
    let text = |pod: &Pod| {
        let Resources { requests, limits } = resources::pod(pod);
        let text = |amount: Option<Quantity>| amount.map(|amount| amount.to_string()).unwrap_or_default();
        [requests.cpu, requests.memory, limits.cpu, limits.memory].map(text).join(" ")
    };
    let table = [
        (one(("200m", "64Mi"), ("1", "64Mi")), one(("100m", "96Mi"), ("2", "32Mi")), "200m 96Mi 2 64Mi"),
        (one(("200m", ""), ("", "64Mi")), one(("100m", ""), ("2", "32Mi")), "200m 64Mi  64Mi"),
    ];
    for (accepted, before, expected) in table {
        assert_eq!(text(&roomier(&accepted, &Allocation::of(&before))), expected);
    }
    let mut pod = one(("1", "1Gi"), ("", ""));
    assert_eq!(roomier(&pod, &Allocation::default()), pod);
    // As a whole.
    let whole =
        |limit: &str| serde_json::from_value(json!({"limits": {"cpu": limit, "memory": "2Gi"}})).unwrap();
    pod.spec.as_mut().unwrap().resources = Some(whole("2"));
    for (before, expected) in [("1", "1 1Gi 2 2Gi"), ("3", "1 1Gi 3 2Gi")] {
        let applied = Allocation { pod: Some(whole(before)), ..Allocation::default() };
        assert!(text(&roomier(&pod, &applied)).ends_with(expected.split_once("Gi ").unwrap().1), "{before}");
    }
}

#[test]
fn what_was_accepted_survives_the_disk_and_takes_the_place_of_what_is_asked_for() {
    let accepted = Allocation::of(&one(("100m", "64Mi"), ("200m", "128Mi")));
    let kept: Allocation = serde_json::from_str(&serde_json::to_string(&accepted).unwrap()).unwrap();
    assert_eq!(kept, accepted);
    let asked = one(("1", "64Mi"), ("1", "128Mi"));
    assert!(!accepted.is_same(&Allocation::of(&asked)));
    let mut pod = asked;
    kept.put_into(&mut pod);
    assert!(accepted.is_same(&Allocation::of(&pod)));
    assert!(
        accepted.is_same(&Allocation::of(&one(("0.1", "65536Ki"), ("200m", "0.125Gi")))),
        "written otherwise"
    );
    let more = self::pod("u", &json!([{"name": "c"}, {"name": "d"}]));
    assert!(!accepted.is_same(&Allocation::of(&more)));
}

#[test]
fn a_change_is_told_as_the_kubelet_tells_it() {
    let mut pod = one(("20m", "200Mi"), ("20m", "200Mi"));
    pod.metadata.generation = Some(2);
    // From kubernetes/kubernetes#141606.
    let text = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"20m","memory":"200Mi"},"requests":{"cpu":"20m","memory":"200Mi"}}}],"generation":2}"#;
    let same = |one: &str, other: &str| {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(parse(one), parse(other));
    };
    same(&summary(&pod, ""), text);
    assert!(summary(&pod, "no room").contains(r#""error":"no room""#));
}

proptest! {
    /// Whatever is asked for: what is done comes to rest, and no room was too small on the way.
    #[test]
    fn a_change_comes_to_rest(before in (1_u32..4000, 1_u32..4000), after in (1_u32..4000, 1_u32..4000)) {
        let text = |(cpu, memory): (u32, u32)| {
            let (cpu, memory) = (format!("{cpu}m"), format!("{memory}Mi"));
            one((&cpu, &memory), (&cpu, &memory))
        };
        let (before, after) = (text(before), text(after));
        prop_assert_eq!(change(container(&after), &applied(&after)), Change::None);
        let room = roomier(&after, &Allocation::of(&before));
        for pod in [&before, &after] {
            let (own, room) = (resources::pod(pod), resources::pod(&room));
            prop_assert!(own.requests.cpu <= room.requests.cpu && own.limits.memory <= room.limits.memory);
        }
    }
}
