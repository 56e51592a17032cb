//! An image service in memory, for tests on a paused clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bulkhead_cri::{CriError, Images, wire};
use tokio::time::Instant;
use tonic::Status;

/// Where images are.
pub(crate) const STORE: &str = "/store";
/// Bytes of every image.
pub(crate) const SIZE: u64 = 7;

/// Clones share everything.
#[derive(Clone, Default)]
pub(crate) struct FakeImages(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    present: BTreeSet<String>,
    away: Option<Status>,
    status_faults: BTreeMap<String, Status>,
    pull_faults: BTreeMap<String, (Status, usize)>,
    pull_time: Duration,
    open_to: BTreeMap<String, String>,
    users: Vec<String>,
    pulls: Vec<(String, Instant)>,
    running: usize,
    most_running: usize,
    fs_infos: usize,
    pinned: BTreeSet<String>,
    kept: BTreeSet<String>,
    removed: Vec<String>,
}

impl FakeImages {
    /// The image is there.
    pub(crate) fn add(&self, image: &str) {
        self.state().present.insert(image.to_owned());
    }

    /// It is not any more.
    pub(crate) fn remove(&self, image: &str) {
        self.state().present.remove(image);
    }

    /// It is there, and the runtime says that it must stay.
    pub(crate) fn pin(&self, image: &str) {
        self.add(image);
        self.state().pinned.insert(image.to_owned());
    }

    /// It cannot be removed.
    pub(crate) fn keep(&self, image: &str) {
        self.add(image);
        self.state().kept.insert(image.to_owned());
    }

    /// The images removed so far, in this order.
    pub(crate) fn removed(&self) -> Vec<String> {
        self.state().removed.clone()
    }

    /// All calls fail with this.
    pub(crate) fn go_away(&self, status: Status) {
        self.state().away = Some(status);
    }

    /// They do not any more.
    pub(crate) fn come_back(&self) {
        self.state().away = None;
    }

    /// ImageStatus of this image fails.
    pub(crate) fn fail_status(&self, image: &str, status: Status) {
        self.state().status_faults.insert(image.to_owned(), status);
    }

    /// The next pulls of this image fail.
    pub(crate) fn fail_pulls(&self, image: &str, status: Status, times: usize) {
        self.state().pull_faults.insert(image.to_owned(), (status, times));
    }

    /// Only this user may pull it.
    pub(crate) fn open_to(&self, image: &str, user: &str) {
        self.state().open_to.insert(image.to_owned(), user.to_owned());
    }

    /// As whom images were pulled so far; empty: without credentials.
    pub(crate) fn users(&self) -> Vec<String> {
        self.state().users.clone()
    }

    /// How long a pull takes.
    pub(crate) fn pulls_take(&self, time: Duration) {
        self.state().pull_time = time;
    }

    /// The images pulled so far, in the order of their start.
    pub(crate) fn pulled(&self) -> Vec<String> {
        self.state().pulls.iter().map(|(image, _)| image.clone()).collect()
    }

    /// When those pulls started, in seconds since `start`.
    pub(crate) fn pull_seconds(&self, start: Instant) -> Vec<u64> {
        self.state().pulls.iter().map(|(_, at)| (*at - start).as_secs()).collect()
    }

    /// Most pulls that ever ran at once.
    pub(crate) fn most_running(&self) -> usize {
        self.state().most_running
    }

    /// Calls of ImageFsInfo so far.
    pub(crate) fn fs_infos(&self) -> usize {
        self.state().fs_infos
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn failed(method: &'static str, image: &str, status: Status) -> CriError {
    CriError { method, subject: image.to_owned(), status }
}

/// The id that an image has here.
pub(crate) fn id_of(image: &str) -> String {
    format!("id-of-{image}")
}

impl Images for FakeImages {
    async fn image_status(&self, image: &str) -> Result<Option<wire::Image>, CriError> {
        let state = self.state();
        let name = image.strip_prefix("id-of-").unwrap_or(image);
        if let Some(status) = state.away.as_ref().or(state.status_faults.get(name)) {
            return Err(failed("ImageStatus", image, status.clone()));
        }
        let found =
            || wire::Image { id: id_of(name), size: SIZE, username: "me".to_owned(), ..Default::default() };
        Ok(state.present.contains(name).then(found))
    }

    async fn list_images(&self) -> Result<Vec<wire::Image>, CriError> {
        let state = self.state();
        if let Some(status) = &state.away {
            return Err(failed("ListImages", "all images", status.clone()));
        }
        let image = |name: &String| wire::Image {
            id: id_of(name),
            repo_tags: vec![name.clone()],
            size: SIZE,
            pinned: state.pinned.contains(name),
            ..Default::default()
        };
        Ok(state.present.iter().map(image).collect())
    }

    async fn pull_image(&self, image: &str, auth: Option<wire::AuthConfig>) -> Result<String, CriError> {
        let user = auth.map(|auth| auth.username).unwrap_or_default();
        let time = {
            let mut state = self.state();
            state.pulls.push((image.to_owned(), Instant::now()));
            state.users.push(user.clone());
            state.running += 1;
            state.most_running = state.most_running.max(state.running);
            state.pull_time
        };
        tokio::time::sleep(time).await;
        let mut state = self.state();
        state.running -= 1;
        if let Some(status) = state.away.clone() {
            return Err(failed("PullImage", image, status));
        }
        if let Some((status, times)) = state.pull_faults.get_mut(image)
            && *times > 0
        {
            *times -= 1;
            return Err(failed("PullImage", image, status.clone()));
        }
        if state.open_to.get(image).is_some_and(|open_to| *open_to != user) {
            return Err(failed("PullImage", image, Status::unknown("401 Unauthorized")));
        }
        state.present.insert(image.to_owned());
        Ok(id_of(image))
    }

    async fn remove_image(&self, image: &str) -> Result<(), CriError> {
        let mut state = self.state();
        let name = image.strip_prefix("id-of-").unwrap_or(image);
        if state.kept.contains(name) {
            return Err(failed("RemoveImage", image, Status::internal("it is busy")));
        }
        state.present.remove(name);
        state.removed.push(name.to_owned());
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<wire::ImageFsInfoResponse, CriError> {
        let mut state = self.state();
        state.fs_infos += 1;
        match state.away.clone() {
            Some(status) => Err(failed("ImageFsInfo", "the image store", status)),
            None => {
                let fs_id = Some(wire::FilesystemIdentifier { mountpoint: STORE.to_owned() });
                let store = wire::FilesystemUsage { fs_id, ..Default::default() };
                Ok(wire::ImageFsInfoResponse { image_filesystems: vec![store], ..Default::default() })
            }
        }
    }
}
