use std::path::PathBuf;

use super::*;

/// Names and texts.
type Files = &'static [(&'static str, &'static str)];

struct Bench {
    dir: tempfile::TempDir,
    pod: PodFacts,
}

impl Bench {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pod = PodFacts {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            app: vec!["c".to_owned()],
            ..PodFacts::default()
        };
        let bench = Self { dir, pod };
        std::fs::create_dir_all(bench.path("")).unwrap();
        for (name, text) in files {
            std::fs::write(bench.path(name), text).unwrap();
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("ns_p_u/c").join(name)
    }

    fn rotate(&self, stamp: &str) {
        std::fs::rename(self.path("0.log"), self.path(&format!("0.log.{stamp}"))).unwrap();
    }

    fn open(&self) -> Result<History, LogError> {
        History::open(self.dir.path(), &self.pod, &Choice { container: "c".to_owned(), previous: false })
    }
}

fn text(file: &LogFile) -> String {
    let mut buffer = vec![0; 64];
    let length = file.read(0, &mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

fn texts(history: &History) -> Vec<String> {
    history.files.iter().map(|file| text(file)).collect()
}

/// What a follower reads from here on.
fn followed(history: History) -> Vec<String> {
    let (spot, files, mut mark) = history.into_parts();
    let mut current = files.last().unwrap().clone();
    let mut read = Vec::new();
    while let Some((file, next)) = spot.after(current.id(), &mark).unwrap() {
        read.push(text(&file));
        (current, mark) = (Arc::new(file), next);
        assert!(read.len() < 20, "it ends: {read:?}");
    }
    read
}

#[test]
fn what_is_kept_is_one_log() {
    let table: [(Files, &[&str]); 5] = [
        (&[("0.log", "a")], &["a"]),
        (&[("0.log.2-2", "b"), ("0.log", "c"), ("0.log.2-1", "a")], &["a", "b", "c"]),
        // Compressed ones end it: no gap is read over.
        (&[("0.log.1.gz", "z"), ("0.log.2", "b"), ("0.log", "c")], &["b", "c"]),
        (&[("0.log.1", "a"), ("0.log.2.gz", "z"), ("0.log", "c")], &["c"]),
        // Between renaming and reopening.
        (&[("0.log.1", "a"), ("0.log.2", "b"), ("0.log.2.tmp", "x")], &["a", "b"]),
    ];
    for (files, wanted) in table {
        assert_eq!(texts(&Bench::new(files).open().unwrap()), wanted, "{files:?}");
    }
    let newest =
        Bench::new(&[("0.log", "a"), ("0.log.1", "x"), ("1.log", "b"), ("1.log.1", "y")]).open().unwrap();
    assert_eq!((newest.attempt(), texts(&newest)), (1, vec!["y".to_owned(), "b".to_owned()]));
    let gone = Bench::new(&[("0.log.1.gz", "z")]).open();
    assert!(matches!(gone, Err(LogError::NoLog { .. })), "{gone:?}");
}

#[test]
fn a_follower_goes_through_every_file_once() {
    // One rotation; two within one look; one whose new file is not there yet.
    for rotations in 0..4 {
        for older in 0..3 {
            let bench = Bench::new(&[]);
            for n in 0..older {
                std::fs::write(bench.path(&format!("0.log.1-{n}")), format!("old{n}")).unwrap();
            }
            std::fs::write(bench.path("0.log"), "start").unwrap();
            let history = bench.open().unwrap();
            assert_eq!(history.files.len(), older + 1);
            let mut wanted = Vec::new();
            for n in 0..rotations {
                bench.rotate(&format!("2-{n}"));
                std::fs::write(bench.path("0.log"), format!("new{n}")).unwrap();
                wanted.push(format!("new{n}"));
            }
            assert_eq!(followed(history), wanted, "{rotations} rotations after {older}");
        }
    }
    let bench = Bench::new(&[("0.log", "a")]);
    let history = bench.open().unwrap();
    bench.rotate("1");
    let (spot, files, mark) = history.into_parts();
    let current = files[0].id();
    assert!(spot.after(current, &mark).unwrap().is_none(), "not reopened yet");
    std::fs::write(bench.path("0.log"), "").unwrap();
    assert!(spot.after(current, &mark).unwrap().is_none(), "not turned to yet");
    std::fs::write(bench.path("0.log"), "b").unwrap();
    assert!(spot.after(current, &mark).unwrap().is_some());
}

#[test]
fn a_log_opened_between_renaming_and_reopening_goes_on() {
    let bench = Bench::new(&[("0.log.1", "a"), ("0.log", "b")]);
    bench.rotate("2");
    let history = bench.open().unwrap();
    assert_eq!(texts(&history), ["a", "b"]);
    std::fs::write(bench.path("0.log"), "c").unwrap();
    assert_eq!(followed(history), ["c"]);
}

#[test]
fn files_that_were_compressed_or_removed_meanwhile_are_passed_over() {
    let bench = Bench::new(&[("0.log.1", "a"), ("0.log", "b")]);
    let history = bench.open().unwrap();
    bench.rotate("2");
    std::fs::rename(bench.path("0.log.2"), bench.path("0.log.2.gz")).unwrap();
    std::fs::write(bench.path("0.log.3.gz"), "lost").unwrap();
    std::fs::write(bench.path("0.log.4"), "d").unwrap();
    std::fs::write(bench.path("0.log"), "e").unwrap();
    std::fs::remove_file(bench.path("0.log.1")).unwrap();
    assert_eq!(followed(history), ["d", "e"]);
}
