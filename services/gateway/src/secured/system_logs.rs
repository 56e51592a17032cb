//! `/logs/`: the folder of the system's logs, as far as this process' user may read it.
//!
//! Must never follow a link, nor leave the folder: whoever can write into it must not make the node read anything else.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::answer::text;
use super::body::{Answer, Failure};
use crate::http::answer::{HTML, TEXT};

/// Most entries of a folder that are shown.
const ENTRIES: usize = 10_000;
/// Bytes read at a time.
const BLOCK: usize = 64 * 1024;

/// What stands at a path.
enum Found {
    File { file: File, size: u64 },
    Folder(Vec<String>),
}

/// Answers with the folder or file at `below` of `root`; empty: the folder itself.
pub(super) async fn answer(root: PathBuf, below: String) -> Response<Answer> {
    let place = below.clone();
    let found = tokio::task::spawn_blocking(move || open(&root, &place)).await;
    match found.unwrap_or(Err(Errno::IO)) {
        Ok(Found::Folder(names)) => {
            let page = Full::new(Bytes::from(page(&below, &names))).map_err(|never| match never {});
            with(Response::new(page.boxed_unsync()), HTML)
        }
        Ok(Found::File { file, size }) => {
            let mut answer = with(Response::new(body(file, size)), TEXT);
            answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
            answer
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO) => {
            text(StatusCode::NOT_FOUND, "404: there is no such file or folder; links are not followed\n")
        }
        Err(Errno::ACCESS | Errno::PERM) => {
            text(StatusCode::FORBIDDEN, "403: gateway's user may not read it\n")
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn with(mut answer: Response<Answer>, content: HeaderValue) -> Response<Answer> {
    answer.headers_mut().insert(CONTENT_TYPE, content);
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn open(root: &Path, below: &str) -> Result<Found, Errno> {
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let place = match below.trim_end_matches('/') {
        "" => ".",
        place => place,
    };
    // NONBLOCK: opening a pipe must not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = openat2(root, place, flags, Mode::empty(), resolve)?;
    let stat = fstat(&fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            Ok(Found::File { file: File::from(fd), size })
        }
        FileType::Directory => {
            let mut names = Vec::new();
            for entry in Dir::read_from(&fd)?.take(ENTRIES) {
                let entry = entry?;
                let Ok(name) = entry.file_name().to_str() else { continue };
                match entry.file_type() {
                    _ if matches!(name, "." | "..") => {}
                    FileType::Directory => names.push(format!("{name}/")),
                    _ => names.push(name.to_owned()),
                }
            }
            names.sort_unstable();
            Ok(Found::Folder(names))
        }
        _ => Err(Errno::NOENT),
    }
}

fn page(below: &str, names: &[String]) -> String {
    let folder = below.trim_end_matches('/');
    let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let mut page = "<!doctype html>\n<pre>\n".to_owned();
    for name in names {
        page += &format!("<a href=\"/logs/{}\">{}</a>\n", encoded(&format!("{folder}{name}")), escaped(name));
    }
    page + "</pre>\n"
}

fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'/' | b'~');
    path.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;")
}

/// The file as long as it was when it was opened.
fn body(file: File, size: u64) -> Answer {
    let file = std::sync::Arc::new(file);
    let pieces = futures::stream::try_unfold(0_u64, move |offset| {
        let file = file.clone();
        async move {
            let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            if left == 0 {
                return Ok(None);
            }
            let read = move || {
                let mut block = vec![0; BLOCK.min(left)];
                let length = file.read_at(&mut block, offset)?;
                block.truncate(length);
                std::io::Result::Ok(block)
            };
            let block = tokio::task::spawn_blocking(read).await.map_err(Failure::from)??;
            if block.is_empty() {
                return Err(Failure::from("the file became shorter while it was sent"));
            }
            let next = offset + u64::try_from(block.len()).unwrap_or_default();
            Ok(Some((Frame::data(Bytes::from(block)), next)))
        }
    });
    BodyExt::boxed_unsync(StreamBody::new(pieces))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(root: &Path, below: &str) -> (u16, String) {
        let answer = answer(root.to_owned(), below.to_owned()).await;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn files_and_folders_are_shown_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("log");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        let long = "x".repeat(3 * BLOCK + 1);
        std::fs::write(root.join("sub/long"), &long).unwrap();
        std::fs::write(root.join("a <b>&.log"), "text").unwrap();
        std::fs::write(dir.path().join("outside"), "secret").unwrap();
        std::os::unix::fs::symlink("../outside", root.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("etc")).unwrap();
        let (code, page) = get(&root, "").await;
        assert_eq!(code, 200);
        assert!(page.contains("<a href=\"/logs/a%20%3Cb%3E%26.log\">a &lt;b&gt;&amp;.log</a>\n"), "{page}");
        assert!(page.contains("<a href=\"/logs/sub/\">sub/</a>\n"), "{page}");
        assert!(get(&root, "sub/").await.1.contains("href=\"/logs/sub/long\""));
        assert_eq!(get(&root, "a <b>&.log").await, (200, "text".to_owned()));
        assert_eq!(get(&root, "sub/long").await, (200, long));
        for below in
            ["link", "etc", "etc/passwd", "../outside", "sub/../../outside", "nope", "/etc/passwd", "query"]
        {
            assert_eq!(get(&root, below).await.0, 404, "{below}");
        }
    }
}
