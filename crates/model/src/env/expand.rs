//! `$(VAR)` and `$$`.

/// Most bytes of one expanded string: Linux takes no longer argument or variable (`MAX_ARG_STRLEN`).
pub const MAX_STRING: usize = 131_072;

/// Replaces each `$(NAME)` by what `lookup` gives for NAME, or leaves it as it is when that is `None`.
///
/// `$$` is one `$` that starts no reference; a `$` before anything else, or without a closing `)`, is itself. What
/// was put in is not looked at again. `None` when the result would have more than [`MAX_STRING`] bytes: references
/// to references double with every step, so a few lines could ask for more memory than a machine has.
pub fn expand<'v>(text: &str, lookup: &dyn Fn(&str) -> Option<&'v str>) -> Option<String> {
    // Of text and text nothing but text comes.
    bytes(text, &|name| lookup(name).map(str::as_bytes)).and_then(|bytes| String::from_utf8(bytes).ok())
}

/// As [`expand`], with values that need not be text.
pub(super) fn bytes<'v>(text: &str, lookup: &dyn Fn(&str) -> Option<&'v [u8]>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        push(&mut out, before.as_bytes())?;
        rest = after;
        if let Some(escaped) = after.strip_prefix('$') {
            push(&mut out, b"$")?;
            rest = escaped;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => push(&mut out, value)?,
                None => push(&mut out, format!("$({name})").as_bytes())?,
            }
            rest = tail;
        } else {
            push(&mut out, b"$")?;
        }
    }
    push(&mut out, rest.as_bytes())?;
    Some(out)
}

fn push(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    (out.len() + bytes.len() <= MAX_STRING).then(|| out.extend_from_slice(bytes))
}
