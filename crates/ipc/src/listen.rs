//! Binding a Unix socket so that only the right group can even connect, and only a dead owner's socket is replaced.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// Mode of every socket: its owner and its group may connect.
pub const SOCKET_MODE: u32 = 0o660;

/// Why a socket could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody answers on it.
    #[error("socket {path} is in use by another process: stop that one first")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// It could not be bound, or its mode or group not be set.
    #[error("cannot {action} socket {path}")]
    Io {
        /// What failed.
        action: &'static str,
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Binds `path` with mode 0660 and, when given, the group `gid`.
///
/// A socket file that nobody answers on is the leaving of an earlier life and is replaced.
///
/// # Errors
/// [`ListenError::InUse`] when it is answered; [`ListenError::Io`] otherwise.
pub async fn listen(path: &Path, gid: Option<u32>) -> Result<UnixListener, ListenError> {
    let io = |action| move |source| ListenError::Io { action, path: path.to_owned(), source };
    if path.exists() {
        if UnixStream::connect(path).await.is_ok() {
            return Err(ListenError::InUse { path: path.to_owned() });
        }
        std::fs::remove_file(path).map_err(io("replace"))?;
    }
    let listener = UnixListener::bind(path).map_err(io("bind"))?;
    if let Some(gid) = gid {
        std::os::unix::fs::chown(path, None, Some(gid)).map_err(io("set the group of"))?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))
        .map_err(io("set the mode of"))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let first = listen(&path, None).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        assert!(matches!(listen(&path, None).await, Err(ListenError::InUse { .. })));
        drop(first);
        listen(&path, None).await.unwrap();
        let error = listen(&dir.path().join("no/such/dir.sock"), None).await.unwrap_err();
        assert!(error.to_string().contains("no/such/dir.sock"), "{error}");
    }
}
