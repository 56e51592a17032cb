//! A disk of a few MiB, which a test can fill and make read-only.

#![expect(clippy::expect_used, reason = "a harness: what fails here fails the test that uses it")]

use std::fs::{File, create_dir_all};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

const OPTIONS: &str = "size=8m,nr_inodes=2000,mode=755";
const FILLER: &str = ".filler";

/// A mounted disk; unmounted when it is dropped.
#[derive(Debug)]
pub struct Disk {
    /// Where it is.
    pub at: PathBuf,
}

impl Disk {
    /// Makes the folder and mounts a disk there.
    pub fn mount(at: &Path) -> Self {
        create_dir_all(at).expect("a folder to mount at");
        let kind = Some("tmpfs");
        mount(Some("tmpfs"), at, kind, MsFlags::empty(), Some(OPTIONS)).expect("a small disk");
        Self { at: at.to_owned() }
    }

    /// Takes the last byte and the last file.
    pub fn fill(&self) {
        let filler = self.at.join(FILLER);
        create_dir_all(&filler).expect("a folder for the filler");
        let mut file = File::create(filler.join("bytes")).expect("a filler");
        while file.write_all(&[0; 4096]).is_ok() {}
        while file.write_all(&[0]).is_ok() {}
        let mut number = 0;
        while File::create_new(filler.join(number.to_string())).is_ok() {
            number += 1;
        }
    }

    /// Gives back what [`Disk::fill`] took.
    pub fn free(&self) {
        std::fs::remove_dir_all(self.at.join(FILLER)).expect("the filler goes");
    }

    /// Makes it read-only.
    pub fn forbid_writes(&self) {
        self.remount(MsFlags::MS_RDONLY).expect("the disk takes it");
    }

    /// Makes it writable again.
    pub fn allow_writes(&self) {
        self.remount(MsFlags::empty()).expect("the disk takes it");
    }

    /// Makes it what it was at first, as far as that goes.
    pub fn mend(&self) {
        let _ = self.remount(MsFlags::empty());
        let _ = std::fs::remove_dir_all(self.at.join(FILLER));
    }

    fn remount(&self, flags: MsFlags) -> nix::Result<()> {
        mount(None::<&str>, &self.at, None::<&str>, MsFlags::MS_REMOUNT | flags, Some(OPTIONS))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.at, MntFlags::MNT_DETACH);
    }
}
