use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinHandle;

use super::*;
use crate::logs::choose::{Choice, PodFacts};

const BOUND: Duration = Duration::from_secs(600);

/// A container's log as a runtime writes it.
struct Writer {
    dir: tempfile::TempDir,
    live: File,
    rotations: usize,
    next: usize,
}

impl Writer {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("ns_p_u/c")).unwrap();
        let live = File::create(dir.path().join("ns_p_u/c/0.log")).unwrap();
        Self { dir, live, rotations: 0, next: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("ns_p_u/c").join(name)
    }

    /// Writes the next numbers, one a line, every third in two pieces.
    fn lines(&mut self, count: usize) {
        for _ in 0..count {
            let (n, time) = (self.next, "2026-11-30T14:03:12.000000001Z");
            if n.is_multiple_of(3) {
                write!(self.live, "{time} stdout P {}\n{time} stdout F {}\n", n / 10, n % 10).unwrap();
            } else {
                writeln!(self.live, "{time} stdout F {}{}", n / 10, n % 10).unwrap();
            }
            self.next += 1;
        }
    }

    fn rename(&mut self) {
        self.rotations += 1;
        let name = format!("0.log.20261130-{:06}", self.rotations);
        std::fs::rename(self.path("0.log"), self.path(&name)).unwrap();
    }

    fn reopen(&mut self) {
        self.live = OpenOptions::new().create_new(true).append(true).open(self.path("0.log")).unwrap();
    }

    fn rotate(&mut self) {
        self.rename();
        self.reopen();
    }

    fn wanted(&self, from: usize) -> String {
        (from..self.next).map(|n| format!("{}{}\n", n / 10, n % 10)).collect()
    }
}

struct Reader {
    over: Arc<AtomicBool>,
    chunks: Receiver<Result<LogChunk, Status>>,
    task: JoinHandle<Result<(), Status>>,
}

impl Reader {
    async fn follow(writer: &Writer, tail: Option<u64>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = over.clone();
        let life = move || if told.load(Ordering::Relaxed) { Life::Over } else { Life::Lives };
        Self::begin(writer, tail, LineOptions::default(), Until::Over(Box::new(life)), over).await
    }

    async fn begin(
        writer: &Writer,
        tail: Option<u64>,
        options: LineOptions,
        until: Until,
        over: Arc<AtomicBool>,
    ) -> Self {
        let pod = PodFacts {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            ..PodFacts::default()
        };
        let choice = Choice { container: "c".to_owned(), previous: false };
        let history = History::open(writer.dir.path(), &pod, &choice).unwrap();
        let (to, chunks) = mpsc::channel(2);
        let reading = Reading::begin(history, tail, options, to).await.unwrap();
        Self { over, chunks, task: tokio::spawn(reading.run(until)) }
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    async fn rest(mut self) -> String {
        let all = async {
            let mut text = Vec::new();
            while let Some(chunk) = self.chunks.recv().await {
                let data = chunk.unwrap().data;
                assert!(!data.is_empty() && data.len() <= BLOCK);
                text.extend_from_slice(&data);
            }
            self.task.await.unwrap().unwrap();
            String::from_utf8(text).unwrap()
        };
        tokio::time::timeout(BOUND, all).await.expect("following ends")
    }
}

#[tokio::test(start_paused = true)]
async fn following_through_rotations_tells_every_line_once() {
    let mut writer = Writer::new();
    writer.lines(10);
    let reader = Reader::follow(&writer, None).await;
    let over = reader.over.clone();
    let read = tokio::spawn(reader.rest());
    for round in 0..40 {
        writer.lines(100);
        // Several rotations between two looks, rotations of empty files, and pauses of every length.
        for _ in 0..round % 4 {
            writer.rotate();
            writer.lines(round % 3 * 7);
        }
        sleep(Duration::from_millis(37 * (round as u64 % 11))).await;
    }
    over.store(true, Ordering::Relaxed);
    assert_eq!(read.await.unwrap(), writer.wanted(0));
}

#[tokio::test(start_paused = true)]
async fn what_is_written_to_the_old_file_after_the_new_one_exists_comes_first() {
    let mut writer = Writer::new();
    writer.lines(3);
    let reader = Reader::follow(&writer, None).await;
    let over = reader.over.clone();
    let read = tokio::spawn(reader.rest());
    sleep(POLL * 3).await;
    writer.rename();
    let new = OpenOptions::new().create_new(true).append(true).open(writer.path("0.log")).unwrap();
    // The new file is there and seen, and the runtime still writes to the old one.
    sleep(POLL + POLL / 2).await;
    writer.lines(5);
    writer.live = new;
    writer.lines(5);
    over.store(true, Ordering::Relaxed);
    assert_eq!(read.await.unwrap(), writer.wanted(0));
}

#[tokio::test(start_paused = true)]
async fn a_line_may_go_on_in_the_next_file() {
    let mut writer = Writer::new();
    let reader = Reader::follow(&writer, None).await;
    writer.live.write_all(b"2026-11-30T14:03:12Z stdout P be").unwrap();
    sleep(POLL * 2).await;
    writer.live.write_all(b"gin \n").unwrap();
    writer.rotate();
    writer.live.write_all(b"2026-11-30T14:03:12Z stdout F end\n").unwrap();
    sleep(POLL * 4).await;
    reader.end();
    assert_eq!(reader.rest().await, "begin end\n");
}

#[tokio::test(start_paused = true)]
async fn following_ends_with_the_container_and_not_before_its_last_line() {
    let mut writer = Writer::new();
    writer.lines(5);
    let reader = Reader::follow(&writer, Some(2)).await;
    sleep(BOUND / 2).await;
    assert!(!reader.task.is_finished(), "it lives");
    reader.end();
    // The runtime says "exited" a little before the last line is written.
    sleep(POLL).await;
    writer.lines(1);
    let wanted = writer.wanted(3);
    assert_eq!(reader.rest().await, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_emptied_is_begun_again() {
    let mut writer = Writer::new();
    writer.lines(50);
    let reader = Reader::follow(&writer, Some(0)).await;
    sleep(POLL * 2).await;
    writer.live.set_len(0).unwrap();
    writer.live = OpenOptions::new().append(true).open(writer.path("0.log")).unwrap();
    writer.lines(2);
    let wanted = writer.wanted(50);
    sleep(POLL * 4).await;
    reader.end();
    assert_eq!(reader.rest().await, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_holds_the_reading_up_and_one_that_is_gone_ends_it() {
    let mut writer = Writer::new();
    writer.lines(200_000);
    let mut reader = Reader::follow(&writer, None).await;
    sleep(BOUND).await;
    assert!(!reader.task.is_finished());
    assert_eq!(reader.chunks.len(), 2, "no more than the channel holds was made ahead");
    reader.chunks.close();
    while reader.chunks.recv().await.is_some() {}
    tokio::time::timeout(BOUND, reader.task).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn a_whole_log_is_what_rotation_has_left_of_it() {
    let mut writer = Writer::new();
    for _ in 0..3 {
        writer.lines(1000);
        writer.rotate();
    }
    writer.lines(10);
    let none = || Arc::new(AtomicBool::new(false));
    for (tail, from) in [(None, 0), (Some(5), 3005), (Some(15), 2995), (Some(2500), 510), (Some(99_999), 0)] {
        let reader = Reader::begin(&writer, tail, LineOptions::default(), Until::End, none()).await;
        assert_eq!(reader.rest().await, writer.wanted(from), "{tail:?}");
    }
    let options = LineOptions { timestamps: true, ..LineOptions::default() };
    let reader = Reader::begin(&writer, Some(1), options, Until::End, none()).await;
    assert_eq!(reader.rest().await, "2026-11-30T14:03:12.000000001Z 3009\n");
    let options =
        LineOptions { since: Some("2026-12-01T00:00:00Z".parse().unwrap()), ..LineOptions::default() };
    let reader = Reader::begin(&writer, None, options, Until::End, none()).await;
    assert_eq!(reader.rest().await, "", "all of it is older");
}
