//! `mkimage busybox|pause --ref NAME:TAG... --out FILE PROGRAM`: the standard images, for scripts; with options they hold and
//! run more.
//!
//! Prints the image id. The archive is complete before FILE is touched.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use bulkhead_imagetar::{Error, Image, ImageBuilder, standard};

const USAGE: &str = "usage: mkimage busybox|pause --ref NAME:TAG [--ref NAME:TAG]... --out FILE [--add FILE:PATH[:MODE]]... \
                     [--link PATH:TARGET]... [--entrypoint WORD]... [--cmd WORD]... [--user USER] PROGRAM";

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{USAGE}")]
    Usage,
    #[error("cannot list the applets of {}", path.display())]
    Applets { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}", path.display())]
    Out { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Image(#[from] Error),
}

#[derive(Clone, Copy)]
enum Kind {
    Busybox,
    Pause,
}

struct Wanted {
    kind: Kind,
    references: Vec<String>,
    out: PathBuf,
    program: PathBuf,
    more: More,
}

/// What is laid over the standard image; what is empty changes nothing.
#[derive(Default)]
struct More {
    files: Vec<Added>,
    links: Vec<(String, String)>,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    user: Option<String>,
}

struct Added {
    from: PathBuf,
    to: String,
    mode: u32,
}

fn main() -> ExitCode {
    let made = parse(std::env::args_os().skip(1)).and_then(|wanted| make(&wanted));
    match made {
        // What nobody reads any more (a closed pipe) is no failure: the file is there.
        Ok(image) => {
            let _ = writeln!(std::io::stdout(), "{}", image.id);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "mkimage: {}", chain(&failure));
            ExitCode::from(if matches!(failure, Failure::Usage) { 2 } else { 1 })
        }
    }
}

fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Wanted, Failure> {
    let mut words = words.into_iter();
    let kind = match words.next().as_deref().and_then(|word| word.to_str()) {
        Some("busybox") => Kind::Busybox,
        Some("pause") => Kind::Pause,
        _ => return Err(Failure::Usage),
    };
    let (mut references, mut out, mut program, mut more) = (Vec::new(), None, None, More::default());
    while let Some(word) = words.next() {
        let mut text = || words.next().and_then(|value| value.into_string().ok()).ok_or(Failure::Usage);
        if word == "--ref" {
            references.push(text()?);
        } else if word == "--add" {
            more.files.push(added(&text()?).ok_or(Failure::Usage)?);
        } else if word == "--link" {
            let link = text()?;
            let (path, target) = link.split_once(':').ok_or(Failure::Usage)?;
            more.links.push((path.to_owned(), target.to_owned()));
        } else if word == "--entrypoint" {
            more.entrypoint.push(text()?);
        } else if word == "--cmd" {
            more.cmd.push(text()?);
        } else if word == "--user" && more.user.is_none() {
            more.user = Some(text()?);
        } else if word == "--out" && out.is_none() {
            out = Some(PathBuf::from(words.next().ok_or(Failure::Usage)?));
        } else if program.is_none() && !word.to_string_lossy().starts_with('-') {
            // Absolute, so that a bare name is the file here and never looked up in PATH.
            program = Some(std::path::absolute(&word).map_err(|_| Failure::Usage)?);
        } else {
            return Err(Failure::Usage);
        }
    }
    let (Some(out), Some(program)) = (out, program) else { return Err(Failure::Usage) };
    if references.is_empty() {
        return Err(Failure::Usage);
    }
    Ok(Wanted { kind, references, out, program, more })
}

/// `FILE:PATH` or `FILE:PATH:MODE`, the mode in octal.
fn added(text: &str) -> Option<Added> {
    let mut parts = text.split(':');
    let (from, to) = (parts.next()?.into(), parts.next()?.to_owned());
    let mode = parts.next().map_or(Ok(0o755), |mode| u32::from_str_radix(mode, 8)).ok()?;
    parts.next().is_none().then_some(Added { from, to, mode })
}

fn make(wanted: &Wanted) -> Result<Image, Failure> {
    let builder = builder(wanted)?;
    let mut archive = Vec::new();
    let image = builder.write_to(&mut archive)?;
    std::fs::write(&wanted.out, archive)
        .map_err(|source| Failure::Out { path: wanted.out.clone(), source })?;
    Ok(image)
}

fn builder(wanted: &Wanted) -> Result<ImageBuilder, Failure> {
    let references = wanted.references.iter().cloned();
    let mut image = match wanted.kind {
        Kind::Busybox => standard::busybox(references, &wanted.program, applets(&wanted.program)?)?,
        Kind::Pause => standard::pause(references, &wanted.program)?,
    };
    let More { files, links, entrypoint, cmd, user } = &wanted.more;
    for Added { from, to, mode } in files {
        image = image.file(to, *mode, from.as_path());
    }
    for (path, target) in links {
        image = image.symlink(path, target);
    }
    if !entrypoint.is_empty() {
        image = image.entrypoint(entrypoint);
    }
    if !cmd.is_empty() {
        image = image.cmd(cmd);
    }
    Ok(match user {
        Some(user) => image.user(user),
        None => image,
    })
}

fn applets(busybox: &Path) -> Result<Vec<String>, Failure> {
    let failed = |source| Failure::Applets { path: busybox.to_owned(), source };
    let listed = Command::new(busybox).arg("--list").output().map_err(failed)?;
    if !listed.status.success() {
        return Err(failed(std::io::Error::other(format!("--list ended with {}", listed.status))));
    }
    let text = String::from_utf8(listed.stdout).map_err(|error| failed(std::io::Error::other(error)))?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn chain(failure: &Failure) -> String {
    let mut text = failure.to_string();
    let mut cause = std::error::Error::source(failure);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::{Failure, parse};

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn takes_options_in_any_order() {
        for line in ["busybox --ref a:1 --ref b:1 --out o /p", "busybox /p --out o --ref a:1 --ref b:1"] {
            let wanted = parse(words(line)).unwrap();
            assert_eq!(wanted.references, ["a:1", "b:1"], "{line}");
            assert_eq!(
                (wanted.out.as_path(), wanted.program.as_path()),
                (Path::new("o"), Path::new("/p")),
                "{line}"
            );
        }
    }

    #[test]
    fn an_image_holds_and_runs_what_it_is_told_to() {
        let line = "busybox --ref a:1 --out o --add /f:/t --add /g:/u:4755 --link /l:t --entrypoint /t \
                    --cmd a --cmd --cmd --user 1000 /p";
        let more = parse(words(line)).unwrap().more;
        let files: Vec<_> = more.files.iter().map(|file| (file.to.as_str(), file.mode)).collect();
        assert_eq!(files, [("/t", 0o755), ("/u", 0o4755)]);
        assert_eq!(more.links, [("/l".to_owned(), "t".to_owned())]);
        assert_eq!(
            (more.entrypoint, more.cmd),
            (vec!["/t".to_owned()], vec!["a".to_owned(), "--cmd".to_owned()])
        );
        assert_eq!(more.user.as_deref(), Some("1000"));
    }

    #[test]
    fn refuses_what_is_incomplete_or_unknown() {
        let lines = [
            "",
            "ubuntu --ref a:1 --out o /p",
            "pause --out o /p",
            "pause --ref a:1 /p",
            "pause --ref a:1 --out o",
            "pause --ref a:1 --out o /p /q",
            "pause --ref a:1 --out o --out o /p",
            "pause /p --out o --ref",
            "pause --ref a:1 --out o --help",
            "pause --ref a:1 --out o --add /f /p",
            "pause --ref a:1 --out o --add /f:/t:9 /p",
            "pause --ref a:1 --out o --add /f:/t:755:x /p",
            "pause --ref a:1 --out o --link /l /p",
            "pause --ref a:1 --out o --user a --user b /p",
        ];
        for line in lines {
            assert!(matches!(parse(words(line)), Err(Failure::Usage)), "{line}");
        }
    }
}
