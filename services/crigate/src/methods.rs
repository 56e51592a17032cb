//! The methods of runtime.v1, from the descriptors of proto/: the names that exist at all.

use bulkhead_api::DESCRIPTORS;
use http::Uri;
use prost::Message;
use prost_types::FileDescriptorSet;

/// The package whose methods are CRI.
const PACKAGE: &str = "runtime.v1";

/// A method of the container runtime interface.
#[derive(Clone, Debug)]
pub struct Method {
    /// `Service/Method`, as access.toml names it.
    pub label: String,
    /// What is asked of the runtime: its path is `/runtime.v1.Service/Method`.
    pub uri: Uri,
    /// Which of the runtime's sockets it goes to.
    pub service: CriService,
    /// Whether its answer is a stream without an end.
    pub streaming: bool,
}

/// The two services of CRI, which may have a socket each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CriService {
    /// Sandboxes and containers.
    Runtime,
    /// Images.
    Image,
}

/// The descriptors are not what they must be. A test rules it out.
#[derive(Debug, thiserror::Error)]
pub enum MethodsError {
    /// They cannot be decoded.
    #[error("decoding the descriptors")]
    Decode(#[from] prost::DecodeError),
    /// A name is no path.
    #[error("a method's name is no path")]
    Name(#[from] http::uri::InvalidUri),
}

/// All methods of runtime.v1.
///
/// # Errors
/// When the built-in descriptors are broken.
pub fn of_runtime_v1() -> Result<Vec<Method>, MethodsError> {
    let set = FileDescriptorSet::decode(DESCRIPTORS)?;
    let services = set.file.iter().filter(|file| file.package() == PACKAGE).flat_map(|file| &file.service);
    let mut methods = Vec::new();
    for service in services {
        let kind = if service.name() == "ImageService" { CriService::Image } else { CriService::Runtime };
        for method in &service.method {
            let label = format!("{}/{}", service.name(), method.name());
            // Over a Unix socket the authority means nothing; gRPC clients write this one.
            let uri = Uri::try_from(format!("http://localhost/{PACKAGE}.{label}"))?;
            methods.push(Method { label, uri, service: kind, streaming: method.server_streaming() });
        }
    }
    Ok(methods)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_services_and_streams_are_those_of_the_interface() {
        let methods = of_runtime_v1().unwrap();
        let find = |label: &str| methods.iter().find(|method| method.label == label).unwrap();
        let version = find("RuntimeService/Version");
        assert_eq!(version.uri.path(), "/runtime.v1.RuntimeService/Version");
        assert_eq!((version.service, version.streaming), (CriService::Runtime, false));
        assert!(find("RuntimeService/GetContainerEvents").streaming);
        assert_eq!(find("ImageService/PullImage").service, CriService::Image);
        assert!(methods.iter().all(|method| !method.label.contains("Crigate")), "only the runtime's");
    }
}
