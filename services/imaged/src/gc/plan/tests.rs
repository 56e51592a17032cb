//! Which images go, by their ages, uses and sizes.

use proptest::prelude::*;

use super::*;

const S: fn(u64) -> Duration = Duration::from_secs;
const LIMITS: Limits =
    Limits { high: 80, low: 60, least_age: Duration::from_secs(120), longest_unused: None };

fn image(id: &str, size: u64) -> wire::Image {
    let repo_tags = vec![format!("docker.io/{id}:1")];
    wire::Image { id: id.to_owned(), repo_tags, size, ..Default::default() }
}

fn pinned(id: &str) -> wire::Image {
    wire::Image { pinned: true, ..image(id, 1) }
}

fn used(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn ids(candidates: Vec<Candidate>) -> Vec<String> {
    candidates.into_iter().map(|image| image.id).collect()
}

#[test]
fn a_disk_is_full_from_the_high_mark_on_and_is_emptied_to_the_low_one() {
    let missing =
        |high, low, available| Space { capacity: 1000, available }.missing(&Limits { high, low, ..LIMITS });
    for (high, low, available, expected) in [
        (80, 60, 1000, None),
        (80, 60, 201, None),
        (80, 60, 200, Some(200)),
        (80, 60, 0, Some(400)),
        (2, 1, 990, None),
        (2, 1, 980, Some(10)),
        (100, 80, 0, None),
        (0, 0, 1000, None),
    ] {
        assert_eq!(missing(high, low, available), expected, "{high} {low} {available}");
    }
    assert_eq!(Space { capacity: 0, available: 0 }.missing(&LIMITS), None, "a disk that tells nothing");
    let huge = Space { capacity: u64::MAX, available: 0 };
    assert!(huge.missing(&LIMITS).is_some());
}

#[test]
fn the_longest_unused_goes_first_and_no_more_than_is_needed() {
    let start = Instant::now();
    let mut ages = Ages::new(start);
    let images = [image("old", 10), image("older", 10), image("used", 10), pinned("pause")];
    ages.look(&images, &used(&["used", "older", "old"]), start);
    ages.look(&images, &used(&["used", "old"]), start + S(10));
    let now = start + S(20);
    // By a name, not by its id.
    ages.look(&images, &used(&["docker.io/used:1"]), now);
    let going = |bytes| ids(ages.candidates(&images, Cause::Space(bytes), &LIMITS, now));
    assert_eq!(going(1), ["older"]);
    assert_eq!(going(10), ["older"]);
    assert_eq!(going(11), ["older", "old"]);
    assert_eq!(going(1000), ["older", "old"]);
    assert_eq!(ids(ages.candidates(&images, Cause::Everything, &LIMITS, now)), ["older", "old"]);
}

#[test]
fn what_came_just_now_stays_and_what_was_there_before_is_old() {
    let start = Instant::now();
    let mut ages = Ages::new(start);
    ages.look(&[image("before", 1)], &used(&[]), start);
    let images = [image("before", 1), image("new", 1)];
    ages.look(&images, &used(&[]), start + S(60));
    let going = |ages: &mut Ages, after| {
        let now = start + S(after);
        ages.look(&images, &used(&[]), now);
        ids(ages.candidates(&images, Cause::Everything, &LIMITS, now))
    };
    assert_eq!(going(&mut ages, 61), ["before"]);
    assert_eq!(going(&mut ages, 179), ["before"]);
    assert_eq!(going(&mut ages, 180), ["before", "new"]);
    // One that went and came again is new.
    ages.look(&[image("new", 1)], &used(&[]), start + S(200));
    assert_eq!(going(&mut ages, 201), ["new"]);
}

#[test]
fn what_nobody_used_for_too_long_goes_however_empty_the_disk_is() {
    let start = Instant::now();
    let limits = Limits { longest_unused: Some(S(3600)), ..LIMITS };
    let mut ages = Ages::new(start);
    let images = [image("a", 1), image("b", 1), pinned("pause")];
    ages.look(&images, &used(&["b"]), start + S(1000));
    let mut outlived = |after, names: &[&str]| {
        let now = start + S(after);
        ages.look(&images, &used(names), now);
        ids(ages.outlived(&images, &limits, now))
    };
    assert_eq!(outlived(3600, &[]), [""; 0]);
    assert_eq!(outlived(3601, &[]), ["a"], "as long as this process runs is all that is known");
    assert_eq!(outlived(4601, &["a"]), ["b"]);
    assert_eq!(outlived(8202, &[]), ["a", "b"]);
    let never = Limits { longest_unused: None, ..limits };
    assert_eq!(ages.outlived(&images, &never, start + S(1_000_000)), []);
}

proptest! {
    #[test]
    fn neither_pinned_nor_used_nor_young_images_ever_go(
        kinds in prop::collection::vec((0u8..4, 0u64..100), 0..30),
        wanted in 0u64..2000,
    ) {
        let start = Instant::now();
        let mut ages = Ages::new(start);
        let all: Vec<_> = kinds.iter().enumerate().map(|(number, (kind, size))| {
            let id = format!("{kind}-{number}");
            wire::Image { pinned: *kind == 0, ..image(&id, *size) }
        }).collect();
        let here = |kind: u8| move |image: &&wire::Image| image.id.starts_with(&format!("{kind}-"));
        let before: Vec<_> = all.iter().filter(|image| !here(2)(image)).cloned().collect();
        ages.look(&before, &BTreeSet::new(), start);
        let in_use = all.iter().filter(here(1)).map(|image| image.id.clone()).collect();
        let now = start + S(1);
        ages.look(&all, &in_use, now);
        for cause in [Cause::Space(wanted), Cause::Everything] {
            let going = ages.candidates(&all, cause, &LIMITS, now);
            prop_assert!(going.iter().all(|image| image.id.starts_with("3-")), "{going:?}");
            let freed: u64 = going.iter().map(|image| image.size).sum();
            let last = going.last().map_or(0, |image| image.size);
            if let Cause::Space(bytes) = cause {
                prop_assert!(freed - last < bytes.max(1), "one too many: {going:?}");
            }
        }
    }
}
