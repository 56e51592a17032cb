//! The texts of /proc, /sys and /etc. Pure.

/// Bytes of `MemTotal` in /proc/meminfo.
pub(super) fn memory_total(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"))?;
    total.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// How many CPUs a list such as `0-3,8` names.
pub(super) fn cpu_count(list: &str) -> Option<u64> {
    let mut count = 0_u64;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        count += u64::from(last.checked_sub(first)?) + 1;
    }
    Some(count)
}

/// Bytes of a page by the name of its folder, `hugepages-2048kB`.
pub(super) fn huge_page_size(folder: &str) -> Option<u64> {
    folder.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

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
    fn memory() {
        for (text, bytes) in [
            ("MemTotal:       24684084 kB\nMemFree:  1 kB\n", Some(24_684_084 * 1024)),
            ("MemFree: 1 kB\nMemTotal: 2 kB", Some(2048)),
            ("MemTotal: 2", None),
            ("MemTotal: -2 kB", None),
            ("MemTotal: 18446744073709551615 kB", None),
            ("", None),
        ] {
            assert_eq!(memory_total(text), bytes, "{text}");
        }
    }

    #[test]
    fn cpus() {
        for (text, count) in [
            ("0\n", Some(1)),
            ("0-1\n", Some(2)),
            ("0-3,8,10-11", Some(7)),
            ("3-1", None),
            ("", None),
            ("a", None),
            ("0-4294967295", Some(1 << 32)),
            ("0,", None),
        ] {
            assert_eq!(cpu_count(text), count, "{text}");
        }
    }

    #[test]
    fn page_sizes() {
        for (folder, size) in [
            ("hugepages-2048kB", Some(2 << 20)),
            ("hugepages-1048576kB", Some(1 << 30)),
            ("hugepages-kB", None),
            ("hugepages-2048", None),
            ("other", None),
        ] {
            assert_eq!(huge_page_size(folder), size, "{folder}");
        }
    }

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
            let _ = (memory_total(&text), cpu_count(&text), huge_page_size(&text), pretty_name(&text), is_mapped(&text));
        }
    }
}
