//! Where the container runtime is, from flags and configuration.

use std::path::Path;
use std::sync::Arc;

use bulkhead_config::KubeletConfiguration;

/// The sockets of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// RuntimeService, and ImageService when that has no socket of its own.
    pub runtime: Arc<Path>,
    /// ImageService, when `imageServiceEndpoint` names another socket.
    pub images: Option<Arc<Path>>,
}

/// An endpoint that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{field} is {value:?}: write the runtime's Unix socket, such as unix:///run/containerd/containerd.sock"
)]
pub struct BadEndpoint {
    field: &'static str,
    value: String,
}

impl Endpoints {
    /// `flag` is `--cri-endpoint`; it takes the place of `containerRuntimeEndpoint`.
    ///
    /// # Errors
    /// When an endpoint is missing or is not a Unix socket with an absolute path.
    pub fn new(flag: Option<&Path>, config: &KubeletConfiguration) -> Result<Self, BadEndpoint> {
        let runtime = match flag {
            Some(flag) => socket("--cri-endpoint", &flag.to_string_lossy())?,
            None => socket("containerRuntimeEndpoint", &config.container_runtime_endpoint)?,
        };
        let images = match config.image_service_endpoint.as_str() {
            "" => None,
            endpoint => Some(socket("imageServiceEndpoint", endpoint)?).filter(|images| *images != runtime),
        };
        Ok(Self { runtime, images })
    }
}

/// The kubelet takes a path without scheme as well.
fn socket(field: &'static str, value: &str) -> Result<Arc<Path>, BadEndpoint> {
    let path = Path::new(value.strip_prefix("unix://").unwrap_or(value));
    if path.is_absolute() { Ok(path.into()) } else { Err(BadEndpoint { field, value: value.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(runtime: &str, images: &str) -> KubeletConfiguration {
        KubeletConfiguration {
            container_runtime_endpoint: runtime.to_owned(),
            image_service_endpoint: images.to_owned(),
            ..Default::default()
        }
    }

    #[test]
    fn flag_then_configuration_and_images_apart_only_when_they_are() {
        let both = |flag: Option<&str>, runtime: &str, images: &str| {
            let endpoints = Endpoints::new(flag.map(Path::new), &config(runtime, images)).unwrap();
            let text = |path: Arc<Path>| path.display().to_string();
            (text(endpoints.runtime), endpoints.images.map(text))
        };
        assert_eq!(both(None, "unix:///run/a.sock", ""), ("/run/a.sock".to_owned(), None));
        assert_eq!(both(None, "/run/a.sock", "unix:///run/a.sock"), ("/run/a.sock".to_owned(), None));
        let apart = ("/run/a.sock".to_owned(), Some("/run/b.sock".to_owned()));
        assert_eq!(both(None, "unix:///run/a.sock", "unix:///run/b.sock"), apart);
        assert_eq!(both(Some("/run/c.sock"), "tcp://ignored", ""), ("/run/c.sock".to_owned(), None));
        assert_eq!(both(Some("unix:///run/c.sock"), "", ""), ("/run/c.sock".to_owned(), None));
    }

    #[test]
    fn what_is_no_unix_socket_is_refused_by_name() {
        for (flag, runtime, images, field) in [
            (None, "", "", "containerRuntimeEndpoint"),
            (None, "tcp://127.0.0.1:1", "", "containerRuntimeEndpoint"),
            (None, "unix://relative.sock", "", "containerRuntimeEndpoint"),
            (None, "unix:///run/a.sock", "npipe:////./pipe/x", "imageServiceEndpoint"),
            (Some("a.sock"), "unix:///run/a.sock", "", "--cri-endpoint"),
        ] {
            let error = Endpoints::new(flag.map(Path::new), &config(runtime, images)).unwrap_err();
            assert!(error.to_string().starts_with(field), "{error}");
        }
    }
}
