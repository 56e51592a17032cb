//! `$(VAR)` and `$$`.

/// Most bytes of one expanded string: Linux takes no longer argument or variable (`MAX_ARG_STRLEN`).
pub const MAX_STRING: usize = 131_072;

/// Replaces each `$(NAME)` by what `lookup` gives for NAME, or leaves it as it is when that is `None`.
///
/// `$$` is one `$` that starts no reference; a `$` before anything else, or without a closing `)`, is itself. What
/// was put in is not looked at again. `None` when the result would have more than [`MAX_STRING`] bytes: references
/// to references double with every step, so a few lines could ask for more memory than a machine has.
pub fn expand<'v>(text: &str, lookup: &dyn Fn(&str) -> Option<&'v str>) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        push(&mut out, before)?;
        rest = after;
        if let Some(escaped) = after.strip_prefix('$') {
            push(&mut out, "$")?;
            rest = escaped;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => push(&mut out, value)?,
                None => push(&mut out, &format!("$({name})"))?,
            }
            rest = tail;
        } else {
            push(&mut out, "$")?;
        }
    }
    push(&mut out, rest)?;
    Some(out)
}

fn push(out: &mut String, text: &str) -> Option<()> {
    (out.len() + text.len() <= MAX_STRING).then(|| out.push_str(text))
}
