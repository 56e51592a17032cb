//! Archives are read back with the tar crate and serde_json alone, as a runtime would.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Archive, EntryType};

use crate::{Error, Image, ImageBuilder, standard};

fn written(builder: &ImageBuilder) -> (Image, Vec<u8>) {
    let mut archive = Vec::new();
    let image = builder.write_to(&mut archive).unwrap();
    (image, archive)
}

fn refused(builder: &ImageBuilder) -> Error {
    let mut archive = Vec::new();
    let error = builder.write_to(&mut archive).unwrap_err();
    assert!(archive.is_empty(), "something was written: {error}");
    error
}

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

#[derive(Debug, PartialEq, Eq)]
struct Part {
    kind: EntryType,
    mode: u32,
    content: Vec<u8>,
    link: Option<String>,
}

/// The entries of a tar in their order; also checks that they say nothing of the machine.
fn entries(tar: &[u8]) -> Vec<(String, Part)> {
    let mut read = Vec::new();
    for entry in Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let header = entry.header();
        assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
        let (kind, mode) = (header.entry_type(), header.mode().unwrap());
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let link = entry.link_name().unwrap().map(|target| target.to_str().unwrap().to_owned());
        read.push((path, Part { kind, mode, content, link }));
    }
    read
}

/// Follows manifest.json to the configuration and the layer.
fn opened(archive: &[u8]) -> (Value, Value, Vec<u8>) {
    let files: BTreeMap<String, Part> = entries(archive).into_iter().collect();
    let manifest: Value = serde_json::from_slice(&files["manifest.json"].content).unwrap();
    let named = |pointer| &files[manifest.pointer(pointer).unwrap().as_str().unwrap()].content;
    let config = serde_json::from_slice(named("/0/Config")).unwrap();
    let layer = named("/0/Layers/0").clone();
    (manifest, config, layer)
}

fn local(content: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    file
}

/// The least that counts as a static 64-bit ELF file: a header without program headers.
fn static_program() -> tempfile::NamedTempFile {
    let mut header = b"\x7fELF\x02\x01".to_vec();
    header.resize(64, 0);
    local(&header)
}

#[test]
fn an_archive_reads_back_and_its_digests_match() {
    let file = local(b"from disk");
    let builder = ImageBuilder::new(["local/a:1", "registry.example:5000/b/c:v2.0-x"])
        .entrypoint(["/app", "--serve"])
        .cmd(["now"])
        .user("10:20")
        .env("Z", "26")
        .env("A", "1=1")
        .directory("tmp", 0o1777)
        .file("/opt/app/data", 0o640, file.path())
        .file("app", 0o4755, b"bytes".as_slice())
        .symlink("/bin/app", "../app");
    let (image, archive) = written(&builder);
    let (manifest, config, layer) = opened(&archive);

    assert_eq!(manifest[0]["RepoTags"], json!(["local/a:1", "registry.example:5000/b/c:v2.0-x"]));
    assert_eq!(image.references, ["local/a:1", "registry.example:5000/b/c:v2.0-x"]);
    assert_eq!(
        config["config"],
        json!({
            "User": "10:20",
            "Env": ["A=1=1", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "Z=26"],
            "Entrypoint": ["/app", "--serve"],
            "Cmd": ["now"],
            "WorkingDir": "/",
        })
    );
    assert_eq!(config["os"], "linux");

    let config_path = manifest[0]["Config"].as_str().unwrap();
    let config_bytes =
        &entries(&archive).into_iter().find(|(path, _)| path == config_path).unwrap().1.content;
    assert_eq!(image.id, sha256(config_bytes));
    assert_eq!(image.layer, sha256(&layer));
    assert_eq!(config["rootfs"], json!({"type": "layers", "diff_ids": [image.layer]}));

    let directory = |mode| Part { kind: EntryType::Directory, mode, content: Vec::new(), link: None };
    let regular =
        |mode, content: &[u8]| Part { kind: EntryType::Regular, mode, content: content.to_vec(), link: None };
    let link =
        Part { kind: EntryType::Symlink, mode: 0o777, content: Vec::new(), link: Some("../app".into()) };
    let want = [
        ("app", regular(0o4755, b"bytes")),
        ("bin", directory(0o755)),
        ("bin/app", link),
        ("opt", directory(0o755)),
        ("opt/app", directory(0o755)),
        ("opt/app/data", regular(0o640, b"from disk")),
        ("tmp", directory(0o1777)),
    ];
    assert_eq!(entries(&layer), want.map(|(path, entry)| (path.to_owned(), entry)));
}

#[test]
fn the_same_parts_in_another_order_give_the_same_archive() {
    let one = ImageBuilder::new(["local/a:1"])
        .file("b", 0o755, b"b".as_slice())
        .symlink("a", "b")
        .directory("d/e", 0o700)
        .env("X", "1")
        .env("Y", "2");
    let two = ImageBuilder::new(["local/a:1"])
        .env("Y", "2")
        .env("X", "1")
        .directory("/d/e", 0o700)
        .symlink("/a", "b")
        .file("/b", 0o755, b"b".as_slice());
    assert_eq!(written(&one), written(&two));
    assert_eq!(written(&one), written(&one));
}

#[test]
fn a_difference_anywhere_inside_gives_another_id_and_a_name_does_not() {
    let base = || ImageBuilder::new(["local/a:1"]).file("f", 0o644, b"one".as_slice());
    let id = written(&base()).0.id;
    let others = [
        base().file("f", 0o644, b"two".as_slice()),
        base().file("f", 0o755, b"one".as_slice()),
        base().symlink("g", "f"),
        base().env("A", "1"),
        base().cmd(["/f"]),
        base().user("1"),
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(written(other).0.id, id, "{index}");
    }
    let renamed = ImageBuilder::new(["local/b:1"]).file("f", 0o644, b"one".as_slice());
    assert_eq!(written(&renamed).0.id, id);
}

#[test]
fn a_later_entry_replaces_an_earlier_one() {
    let builder = ImageBuilder::new(["local/a:1"]).symlink("f", "g").file("/f", 0o600, b"file".as_slice());
    let layer = entries(&opened(&written(&builder).1).2);
    assert_eq!(layer.len(), 1);
    assert_eq!((layer[0].1.kind, layer[0].1.content.as_slice()), (EntryType::Regular, b"file".as_slice()));
}

#[test]
fn long_names_survive() {
    let path = format!("{}/{}", "d".repeat(120), "f".repeat(150));
    let target = format!("/{path}");
    let builder = ImageBuilder::new(["local/a:1"])
        .file(path.as_str(), 0o644, b"x".as_slice())
        .symlink("l", target.as_str());
    let layer: BTreeMap<String, Part> = entries(&opened(&written(&builder).1).2).into_iter().collect();
    assert_eq!(layer[&path].content, b"x");
    assert_eq!(layer["l"].link.as_deref(), Some(target.as_str()));
}

#[test]
fn bad_references_are_refused() {
    assert!(matches!(refused(&ImageBuilder::new(Vec::<String>::new())), Error::NoReference));
    let bad = [
        "",
        ":",
        "a",
        "a:",
        ":1",
        "A:1",
        "a b:1",
        "a:1 ",
        "a:-x",
        "/a:1",
        "a/:1",
        "a//b:1",
        "a/../b:1",
        "a:b:1",
        "host:5000/a",
        "a\n:1",
        "-a:1",
    ];
    for reference in bad {
        let error = refused(&ImageBuilder::new(["local/fine:1", reference]));
        assert!(matches!(&error, Error::BadReference { reference: named } if named == reference), "{error}");
    }
    for good in ["a:1", "registry.k8s.io/pause:3.10.2", "host:5000/a/b_c:V1", "a-b:latest", "a:5000"] {
        written(&ImageBuilder::new([good]));
    }
}

#[test]
fn paths_that_leave_the_image_or_name_nothing_are_refused() {
    for path in ["", "/", "//a", "a/", "a//b", ".", "..", "../a", "/a/../b", "a/./b", "a/..", "a\0b"] {
        let error = refused(&ImageBuilder::new(["local/a:1"]).file(path, 0o644, b"".as_slice()));
        assert!(matches!(&error, Error::BadPath { path: named } if named == path), "{path:?}: {error}");
        let error = refused(&ImageBuilder::new(["local/a:1"]).symlink(path, "x"));
        assert!(matches!(error, Error::BadPath { .. }), "{path:?}");
    }
}

#[test]
fn wrong_parts_are_refused_by_name() {
    let new = || ImageBuilder::new(["local/a:1"]);
    let missing = Path::new("/nonexistent/part");
    let table = [
        (new().file("f", 0o10000, b"".as_slice()), "mode 10000 of f"),
        (new().directory("d", 0o100755), "mode 100755 of d"),
        (new().symlink("l", ""), "the link l"),
        (new().symlink("l", "a\0"), "the link l"),
        (new().env("", "v"), "\"\""),
        (new().env("A=B", "v"), "\"A=B\""),
        (new().env("A", "secret\0"), "\"A\""),
        (new().symlink("a", "b").file("a/f", 0o644, b"".as_slice()), "a/f in the image lies below a,"),
        (new().file("a/b/c", 0o644, b"".as_slice()).file("a/b", 0o644, b"".as_slice()), "below a/b,"),
        (new().file("f", 0o644, missing), "/nonexistent/part"),
    ];
    for (builder, names) in table {
        let text = refused(&builder).to_string();
        assert!(text.contains(names), "{text:?} does not name {names:?}");
        assert!(!text.contains("secret"), "{text:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(matches!(ImageBuilder::new(["local/a:1"]).write_to(Full), Err(Error::Write { .. })));
}

#[test]
fn busybox_has_its_applets_and_tells_its_name() {
    let program = static_program();
    let image = |reference: &str| {
        let applets = ["busybox", "ls", "sh", "["];
        written(&standard::busybox([reference, "local/other:1"], program.path(), applets).unwrap())
    };
    let (first, archive) = image("local/busybox:1");
    let (_, config, layer) = opened(&archive);
    let layer: BTreeMap<String, Part> = entries(&layer).into_iter().collect();

    assert_eq!(config["config"]["Cmd"], json!(["sh"]));
    assert_eq!(layer["bin/busybox"].kind, EntryType::Regular);
    assert_eq!(layer["bin/busybox"].mode, 0o755);
    for applet in ["bin/ls", "bin/sh", "bin/["] {
        assert_eq!(layer[applet].link.as_deref(), Some("busybox"), "{applet}");
    }
    assert_eq!(layer["usr/bin"].link.as_deref(), Some("../bin"));
    assert_eq!(layer["tmp"].mode, 0o1777);
    assert_eq!(layer["etc/image"].content, b"local/busybox:1\n");
    assert!(String::from_utf8_lossy(&layer["etc/passwd"].content).starts_with("root:x:0:0:"));

    let (second, _) = image("local/busybox:2");
    assert_ne!(first.id, second.id);
}

#[test]
fn an_applet_cannot_leave_bin() {
    let builder = standard::busybox(["local/a:1"], static_program().path(), ["../../etc/passwd"]).unwrap();
    assert!(matches!(refused(&builder), Error::BadPath { .. }));
}

#[test]
fn pause_is_one_file_run_by_nobody_in_particular() {
    let (_, archive) =
        written(&standard::pause(["registry.k8s.io/pause:3.10.2"], static_program().path()).unwrap());
    let (_, config, layer) = opened(&archive);
    assert_eq!(config["config"]["Entrypoint"], json!(["/pause"]));
    assert_eq!(config["config"]["User"], "65535:65535");
    let paths: Vec<_> = entries(&layer).into_iter().map(|(path, entry)| (path, entry.mode)).collect();
    assert_eq!(paths, [("pause".to_owned(), 0o755)]);
}

#[test]
fn a_program_that_would_not_start_in_the_image_is_refused() {
    let script = local(b"#!/bin/sh\n");
    let error = standard::pause(["local/a:1"], script.path()).err().unwrap();
    assert!(matches!(&error, Error::NotProgram { path } if path == script.path()), "{error}");

    let mut dynamic = b"\x7fELF\x02\x01".to_vec();
    dynamic.resize(64, 0);
    dynamic[32] = 64; // the table follows the header
    dynamic[54] = 56;
    dynamic[56] = 1;
    dynamic.resize(120, 0);
    dynamic[64] = 3; // PT_INTERP
    let dynamic = local(&dynamic);
    let error = standard::busybox(["local/a:1"], dynamic.path(), ["sh"]).err().unwrap();
    assert!(matches!(&error, Error::NotStatic { path } if path == dynamic.path()), "{error}");

    let error = standard::pause(["local/a:1"], Path::new("/nonexistent/pause")).err().unwrap();
    assert!(matches!(error, Error::Read { .. }), "{error}");
}
