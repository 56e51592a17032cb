//! The two images that tests and the demo are made of.

use std::path::{Path, PathBuf};

use crate::builder::{ImageBuilder, Source};
use crate::elf::{Linkage, linkage};
use crate::error::Error;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";

/// Where a [`busybox`] image names itself: the first of its references and a newline.
pub const IMAGE_NAME_FILE: &str = "/etc/image";

/// A small system around a static busybox: `/bin` with a link for each applet (`/sbin`, `/usr/bin` and `/usr/sbin` lead
/// there too), root and nobody in `/etc/passwd`, a writable `/tmp`. It runs `sh` unless told otherwise.
///
/// `applets` are the lines that `busybox --list` prints. [`IMAGE_NAME_FILE`] holds the first reference, so that images
/// under different names differ in content and id, and a container can tell which one it runs.
///
/// Fails when `busybox` cannot be read or is not a static program.
pub fn busybox<R: Into<String>, A: AsRef<str>>(
    references: impl IntoIterator<Item = R>,
    busybox: &Path,
    applets: impl IntoIterator<Item = A>,
) -> Result<ImageBuilder, Error> {
    let program = static_program(busybox)?;
    let references: Vec<String> = references.into_iter().map(Into::into).collect();
    let name = format!("{}\n", references.first().map_or("", String::as_str));

    let mut image = ImageBuilder::new(references).cmd(["sh"]);
    for directory in ["dev", "home", "proc", "root", "sys", "var"] {
        image = image.directory(directory, 0o755);
    }
    image = image.directory("tmp", 0o1777);
    for (link, target) in [("sbin", "bin"), ("usr/bin", "../bin"), ("usr/sbin", "../bin")] {
        image = image.symlink(link, target);
    }
    for applet in applets {
        image = image.symlink(format!("bin/{}", applet.as_ref()), "busybox");
    }
    // After the applets: some builds list busybox itself, and a link to itself would be left.
    Ok(image
        .file("bin/busybox", 0o755, program)
        .file("etc/passwd", 0o644, PASSWD.as_bytes())
        .file("etc/group", 0o644, GROUP.as_bytes())
        .file(IMAGE_NAME_FILE, 0o644, name.into_bytes()))
}

/// The sandbox image: one static program at `/pause`, run as user and group 65535.
///
/// Fails when `pause` cannot be read or is not a static program.
pub fn pause<R: Into<String>>(
    references: impl IntoIterator<Item = R>,
    pause: &Path,
) -> Result<ImageBuilder, Error> {
    let program = static_program(pause)?;
    Ok(ImageBuilder::new(references)
        .file("/pause", 0o755, program)
        .entrypoint(["/pause"])
        .user("65535:65535"))
}

/// A dynamic program fails in the image with "no such file", which points at the wrong thing; so say it here.
fn static_program(path: &Path) -> Result<Source, Error> {
    let path = PathBuf::from(path);
    let content = match std::fs::read(&path) {
        Ok(content) => content,
        Err(source) => return Err(Error::Read { path, source }),
    };
    match linkage(&content) {
        Some(Linkage::Static) => Ok(Source::Bytes(content)),
        Some(Linkage::Dynamic) => Err(Error::NotStatic { path }),
        None => Err(Error::NotProgram { path }),
    }
}
