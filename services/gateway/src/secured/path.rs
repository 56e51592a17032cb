//! The path of a request as it is decided on and served: decoded once, and with nothing in it that could be read in two ways.
//! Pure.

/// Longest path, in bytes.
const LONGEST: usize = 4096;

/// Such a path. It begins with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(String);

/// Reads what a client wrote. `None`: it is not written in the one usual way (`//`, `.`, `..`, an encoded `/`, a backslash, a
/// control character, no UTF-8), and nothing is served for it.
pub(crate) fn read(raw: &str) -> Option<Path> {
    if !raw.starts_with('/') || raw.len() > LONGEST {
        return None;
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => match hex(bytes.next()?)? << 4 | hex(bytes.next()?)? {
                // What would have a meaning if it were decoded, or decoded again.
                b'/' | b'%' => return None,
                byte => byte,
            },
            byte => byte,
        };
        if byte == b'\\' || byte.is_ascii_control() {
            return None;
        }
        decoded.push(byte);
    }
    let path = String::from_utf8(decoded).ok()?;
    let mut segments = path.get(1..)?.split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        if matches!(segment, "." | "..") || (segment.is_empty() && !last) {
            return None;
        }
    }
    Some(Path(path))
}

impl Path {
    /// All of it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Its parts, without an empty one at the end.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').skip(1).filter(|segment| !segment.is_empty())
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_usual_passes_and_is_decoded_once() {
        for (raw, path) in [
            ("/", "/"),
            ("/pods", "/pods"),
            ("/pods/", "/pods/"),
            ("/containerLogs/default/a.b-c/c", "/containerLogs/default/a.b-c/c"),
            ("/logs/a%20b.log", "/logs/a b.log"),
            ("/%70ods", "/pods"),
            ("/logs/%C3%A9", "/logs/é"),
            ("/logs/...", "/logs/..."),
        ] {
            assert_eq!(read(raw).as_ref().map(Path::as_str), Some(path), "{raw}");
        }
        assert_eq!(read("/a/b/").unwrap().segments().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(read("/").unwrap().segments().count(), 0);
    }

    #[test]
    fn tricks_are_refused() {
        for raw in [
            "",
            "pods",
            "*",
            "//",
            "//pods",
            "/pods//",
            "/a//b",
            "/.",
            "/..",
            "/./a",
            "/a/.",
            "/a/..",
            "/a/../b",
            "/%2e%2e/a",
            "/a/%2E./b",
            "/a%2fb",
            "/a%2Fb",
            "/%2f",
            "/a%252fb",
            "/a%25",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%+1",
            "/a\\b",
            "/a%5cb",
            "/a%00",
            "/a%0a",
            "/a%7f",
            "/%ff",
            "/%c0%ae%c0%ae/a",
        ] {
            assert_eq!(read(raw), None, "{raw}");
        }
        assert_eq!(read(&format!("/{}", "a".repeat(LONGEST))), None);
    }

    proptest! {
        #[test]
        fn what_passes_has_no_second_meaning(raw in "/([a-z./%0-9A-Fa-f\\\\]|%2[efEF5]){0,12}") {
            if let Some(path) = read(&raw) {
                prop_assert!(path.segments().all(|segment| !matches!(segment, "." | "..")));
                prop_assert!(!path.as_str().contains("//") && !path.as_str().contains(['%', '\\']));
            }
        }
    }
}
