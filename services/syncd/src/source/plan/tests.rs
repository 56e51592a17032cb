use bulkhead_model::manifest;
use bulkhead_model::static_pod::Origin;

use super::*;

fn place(kind: Kind, name: &str) -> Place {
    Place { kind, name: name.to_owned() }
}

fn item(kind: Kind, name: &str, text: &str) -> Item {
    let origin = match kind {
        Kind::File => Origin::File(name),
        Kind::Url => Origin::Url(name),
        Kind::Submission => Origin::Submission,
        Kind::Api => unreachable!("its pods are no manifests"),
    };
    let pod = take(manifest::parse(text.as_bytes()), &StaticSource { origin, node_name: "node-a" }, at(100));
    Item { place: place(kind, name), pod }
}

fn file(name: &str, text: &str) -> Item {
    item(Kind::File, name, text)
}

fn whole(items: Vec<Item>) -> Reading {
    Reading { items, complete: true }
}

fn pod(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: \"{image}\"}}]}}\n"
    )
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn images(desired: &Desired) -> Vec<String> {
    let image = |p: &SourcedPod| p.pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
    let mut images: Vec<_> = desired.pods.values().map(image).collect();
    images.sort();
    images
}

fn together(sources: &[&Found]) -> Desired {
    combine(sources.iter().copied(), &Desired::default(), &BTreeMap::new())
}

#[test]
fn the_first_of_two_manifests_with_one_pod_wins_until_it_is_gone() {
    let bak = || file("/m/x.yaml.bak", &pod("x", "bb:1"));
    let both = keep(whole(vec![file("/m/x.yaml", &pod("x", "bb:2")), bak()]), &Found::default());
    let desired = together(&[&both]);
    assert_eq!(images(&desired), ["bb:2"]);
    let reason = &desired.refused[&place(Kind::File, "/m/x.yaml.bak")];
    assert!(reason.contains("/m/x.yaml.bak") && reason.contains("/m/x.yaml "), "{reason}");
    let one = together(&[&keep(whole(vec![bak()]), &both)]);
    assert_eq!(images(&one), ["bb:1"]);
    assert!(one.refused.is_empty());
}

#[test]
fn sources_win_in_their_order_and_the_loser_is_named() {
    let of = |kind, name: &str, image: &str| {
        keep(whole(vec![item(kind, name, &pod("x", image))]), &Found::default())
    };
    let (files, url) = (of(Kind::File, "/m/x", "bb:1"), of(Kind::Url, "http://h/, pod default/x", "bb:2"));
    let by_hand = of(Kind::Submission, "submitted pod default/x", "bb:3");
    let all = together(&[&files, &url, &by_hand]);
    assert_eq!(images(&all), ["bb:1"]);
    let losers: Vec<_> = all.refused.keys().map(|place| place.kind).collect();
    assert_eq!(losers, [Kind::Url, Kind::Submission]);
    assert!(
        all.refused.values().all(|reason| reason.contains("comes from /m/x already")),
        "{:?}",
        all.refused
    );
    assert_eq!(images(&together(&[&Found::default(), &url, &by_hand])), ["bb:2"]);
    // One UID in two manifests is one pod too.
    let with_uid = |name: &str| pod(name, "bb:1").replace("{name: ", "{uid: u-1, name: ");
    let items = vec![file("/m/a", &with_uid("a")), file("/m/b", &with_uid("b"))];
    let desired = together(&[&keep(whole(items), &Found::default())]);
    assert_eq!((desired.pods.len(), desired.refused.len()), (1, 1));
}

#[test]
fn a_manifest_that_broke_keeps_its_pod_and_disturbs_no_other() {
    let items = vec![file("/m/a", &pod("a", "bb:1")), file("/m/b", &pod("b", "bb:2"))];
    let good = keep(whole(items), &Found::default());
    let items = vec![file("/m/a", "apiVersion: v1\nki"), file("/m/b", &pod("b", "bb:2"))];
    let broken = keep(whole(items), &good);
    assert_eq!(broken.pods, good.pods);
    assert!(broken.refused[&place(Kind::File, "/m/a")].contains("goes on"));
    let never_good = keep(whole(vec![file("/m/c", "{")]), &Found::default());
    assert!(never_good.pods.is_empty());
    assert_eq!(never_good.refused.len(), 1);
    let unreadable = Item { place: place(Kind::File, "/m/a"), pod: Err("denied".into()) };
    assert_eq!(keep(whole(vec![unreadable]), &good).pods.len(), 1, "only a file that is gone ends its pod");
}

#[test]
fn a_pod_that_seems_to_be_missing_stays_while_it_may_be_the_one_that_cannot_be_told() {
    let url = |name: &str| item(Kind::Url, name, &pod(name, "bb:1"));
    let both = keep(whole(vec![url("a"), url("b")]), &Found::default());
    let odd = || Item { place: place(Kind::Url, "item 2"), pod: Err("no name".into()) };
    let unclear = keep(Reading { items: vec![url("a"), odd()], complete: false }, &both);
    assert_eq!(images(&together(&[&unclear])).len(), 2);
    assert_eq!(keep(whole(vec![url("a")]), &unclear).pods.len(), 1);
}

#[test]
fn an_unchanged_manifest_gives_the_very_same_pod_later_and_after_a_restart() {
    let found = |image: &str| keep(whole(vec![file("/m/a", &pod("a", image))]), &Found::default());
    let first = together(&[&found("bb:1")]);
    let again = combine([&found("bb:1")], &first, &BTreeMap::new());
    let only = |desired: &Desired| desired.pods.values().next().unwrap().pod.clone();
    assert!(Arc::ptr_eq(&only(&first), &only(&again)));
    let seen = first.pods.keys().map(|uid| (uid.clone(), at(1))).collect();
    let restarted = combine([&found("bb:1")], &Desired::default(), &seen);
    let date = only(&restarted).metadata.annotations.clone().unwrap()[names::CONFIG_SEEN].clone();
    assert!(date.starts_with("1970-01-01T00:00:01"), "{date}");
    let changed = combine([&found("bb:2")], &first, &BTreeMap::new());
    assert_ne!(first.pods.keys().next(), changed.pods.keys().next(), "another manifest is another pod");
}

#[test]
fn what_this_release_cannot_do_is_refused_by_name() {
    let text = pod("a", "bb:1").replace("spec: {", "spec: {runtimeClassName: kata, ");
    let found = keep(whole(vec![file("/m/a", &text)]), &Found::default());
    assert!(found.refused[&place(Kind::File, "/m/a")].contains("runtimeClassName"), "{:?}", found.refused);
}

#[test]
fn a_pod_is_disowned_only_when_no_unread_source_can_hold_it() {
    let desired = |kind, unread: &[Kind]| {
        let found = keep(whole(vec![item(kind, "p", &pod("a", "bb:1"))]), &Found::default());
        Desired { unread: unread.iter().copied().collect(), ..together(&[&found]) }
    };
    let (same, other) = (("default", "a-node-a"), ("default", "b-node-a"));
    for (kind, unread, wanted) in [
        (Kind::File, [].as_slice(), (true, true)),
        (Kind::File, &[Kind::Url], (true, false)),
        (Kind::Url, &[Kind::File], (false, false)),
        (Kind::Submission, &[Kind::Url], (false, false)),
        (Kind::Url, &[Kind::File, Kind::Submission], (false, false)),
    ] {
        let desired = desired(kind, unread);
        assert_eq!((desired.disowns(same), desired.disowns(other)), wanted, "{kind:?} {unread:?}");
    }
}
