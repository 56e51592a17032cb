use super::*;
use proptest::prelude::*;

fn problem(text: &str) -> Problem {
    read(text.as_bytes(), 0, "f").unwrap_err().remove(0)
}

fn value(text: &str) -> Value {
    let mut root = read(format!("a: {text}").as_bytes(), 0, "f").unwrap();
    root.remove("a").unwrap().node.value
}

#[test]
fn every_value_knows_its_place() {
    let root = read(b"# c\na: 1\nm:\n  k: [x, y]\n", 7, "f").unwrap();
    let place = |path: &str| {
        let entry = root.entry(path).unwrap();
        let of = |place: Place| (place.file, place.line, place.column);
        (of(entry.place), of(entry.node.place))
    };
    assert_eq!(place("a"), ((7, 2, 1), (7, 2, 4)));
    assert_eq!(place("m.k"), ((7, 4, 3), (7, 4, 6)));
    let Value::List(items) = &root.entry("m.k").unwrap().node.value else { panic!("not a list") };
    assert_eq!((items[1].place.line, items[1].place.column), (4, 10));
}

#[test]
fn scalars_are_read_as_the_api_reads_them() {
    let text = |text: &str| Value::Text(text.to_owned());
    let table = [
        ("1", Value::Unsigned(1)),
        ("-1", Value::Signed(-1)),
        ("0644", Value::Unsigned(420)),
        ("1.5", Value::Float(1.5)),
        ("true", Value::Bool(true)),
        ("yes", Value::Bool(true)),
        ("'true'", text("true")),
        ("\"1\"", text("1")),
        ("1m0s", text("1m0s")),
        ("10%", text("10%")),
        ("~", Value::Null),
        ("", Value::Null),
        ("[]", Value::List(Vec::new())),
        ("{}", Value::Map(Vec::new())),
    ];
    for (yaml, expected) in table {
        assert_eq!(value(yaml), expected, "{yaml:?}");
    }
}

#[test]
fn json_is_read_too() {
    let root = read(b"{\n\t\"a\": {\"b\": \"c\"},\n\t\"d\": [1]\n}\n", 0, "f").unwrap();
    assert_eq!(root.entry("a.b").unwrap().node.value, Value::Text("c".into()));
}

#[test]
fn a_duplicate_key_is_named_with_both_lines_and_the_last_counts() {
    let mut root = read(b"a: 1\nm:\n  x: 1\n  y: 2\n  x: {a: 1, a: 2}\nl: [{k: 1, k: 2}]\n", 0, "f").unwrap();
    let found = without_duplicates(&mut root, "f");
    let told: Vec<_> =
        found.iter().map(|one| (one.field.as_str(), one.at.as_ref().map(|at| at.line))).collect();
    assert_eq!(told, [("m.x", Some(5)), ("m.x.a", Some(5)), ("l[0].k", Some(6))]);
    assert!(found[0].message.contains("line 3"), "{}", found[0].message);
    assert_eq!(root.entry("m.x.a").unwrap().node.value, Value::Unsigned(2));
    let Value::Map(entries) = &root.entry("m").unwrap().node.value else { panic!("not a map") };
    assert_eq!(entries.len(), 2);
    assert_eq!(without_duplicates(&mut root, "f"), []);
}

#[test]
fn values_are_put_where_they_belong() {
    let mut root = read(b"a: 1\nm: {x: 1}\n", 0, "f").unwrap();
    let node = |number| Node { place: Place { file: 3, line: 0, column: 0 }, value: Value::Unsigned(number) };
    for (path, number) in [("a", 2), ("m.y", 3), ("n.o.p", 4)] {
        root.set(path, node(number));
        assert_eq!(root.entry(path).unwrap().node, node(number), "{path}");
    }
    assert_eq!(root.entry("m.x").unwrap().node.value, Value::Unsigned(1));
}

#[test]
fn broken_and_hostile_texts_are_refused_with_their_place() {
    let bomb = {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let uses = vec![format!("*a{}", level - 1); 9].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{uses}]\n"));
        }
        text
    };
    let table: &[(&str, String)] = &[
        ("syntax", "a: [1\nb: 2\n".into()),
        ("tab", "a:\n\t- 1\n".into()),
        ("alias bomb", bomb),
        ("deep flow", format!("a: {}{}", "[".repeat(5_000), "]".repeat(5_000))),
        ("deep block", (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect()),
        ("many nodes", format!("a: [{}]", "1,".repeat(50_000))),
        ("two documents", "a: 1\n---\na: 2\n".into()),
        ("unknown alias", "a: *b\n".into()),
        ("map as key", "{a: 1}: 2\n".into()),
        ("infinite", "a: .inf\n".into()),
    ];
    for (name, text) in table {
        let found = read(text.as_bytes(), 0, "f").err().unwrap_or_else(|| panic!("{name} was accepted"));
        assert!(found[0].message.len() < 300, "{name}: {}", found[0].message);
        assert!(
            !found[0].message.contains(" line "),
            "{name}: the place is said twice: {}",
            found[0].message
        );
    }
    assert_eq!(problem("a: 1\nb: [1\nc: 2\n").at.map(|at| at.line > 1), Some(true));
    assert!(read(&[0xff, 0xfe, 0x00, 0x61], 0, "f").is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = read(&bytes, 0, "f");
    }

    #[test]
    fn any_yaml_like_text_is_read_or_refused(text in "([a-c]: |- |[0-9]|\\[|\\]|\\{|\\}|,|&x |\\*x|<<: |\n|  |'|\"|!!str |#|\\||---){0,40}") {
        let _ = read(text.as_bytes(), 0, "f");
    }
}
