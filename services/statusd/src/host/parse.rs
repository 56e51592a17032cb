//! The texts of /proc, /sys and /etc. Pure.

pub(super) use bulkhead_model::capacity::{cpu_count, huge_page_size, memory_total};

/// `PRETTY_NAME` of os-release(5).
pub(super) fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.trim_start().strip_prefix("PRETTY_NAME="))?.trim();
    let quoted = |quote: char| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    if let Some(text) = quoted('\'') {
        return Some(text.to_owned());
    }
    let mut name = String::new();
    let mut characters = quoted('"').unwrap_or(value).chars();
    while let Some(character) = characters.next() {
        // A backslash protects the character after it.
        name.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    Some(name)
}

/// Whether /proc/self/uid_map is another one than the machine's own, in which every id is itself.
pub(super) fn is_mapped(uid_map: &str) -> bool {
    let words: Vec<&str> = uid_map.split_whitespace().collect();
    words != ["0", "0", "4294967295"]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_systems() {
        for (text, name) in [
            (
                "NAME=\"x\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
                Some("Debian GNU/Linux 12 (bookworm)"),
            ),
            ("PRETTY_NAME='A \\ b'", Some("A \\ b")),
            ("PRETTY_NAME=plain", Some("plain")),
            (r#"PRETTY_NAME="a \"b\" \$c \\""#, Some(r#"a "b" $c \"#)),
            ("PRETTY_NAME=", Some("")),
            ("PRETTY_NAME=\"", Some("\"")),
            ("NAME=x", None),
        ] {
            assert_eq!(pretty_name(text).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn user_namespaces() {
        assert!(!is_mapped("         0          0 4294967295\n"));
        assert!(is_mapped("         0     100000      65536\n"));
        assert!(is_mapped("0 0 65536\n"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(MemTotal:|PRETTY_NAME=|hugepages-)?[-0-9,kB \"'\\\\\n]{0,40}") {
            let _ = (pretty_name(&text), is_mapped(&text));
        }
    }
}
