//! Binding the ports, before anything else is started: a node that cannot listen must say so at once.

use std::net::SocketAddr;

use bulkhead_service::ServiceError;
use tokio::net::TcpListener;

use crate::config::Settings;

/// The bound ports.
#[derive(Debug)]
pub struct Doors {
    pub(crate) healthz: Option<TcpListener>,
    pub(crate) read_only: Option<TcpListener>,
    pub(crate) secured: Option<TcpListener>,
}

impl Doors {
    /// Binds what is configured; port 0 lets the system choose.
    ///
    /// # Errors
    /// With `Exit::Socket` when a port cannot be bound; names it and what to do.
    pub async fn open(settings: &Settings) -> Result<Self, ServiceError> {
        Ok(Self {
            healthz: bind(settings.healthz, "healthz", "healthzBindAddress and healthzPort").await?,
            read_only: bind(settings.read_only, "the read-only server", "address and readOnlyPort").await?,
            secured: bind(settings.secured, "the secured server", "address and port").await?,
        })
    }

    /// Where `/healthz` listens.
    pub fn healthz_address(&self) -> Option<SocketAddr> {
        self.healthz.as_ref()?.local_addr().ok()
    }

    /// Where the read-only server listens.
    pub fn read_only_address(&self) -> Option<SocketAddr> {
        self.read_only.as_ref()?.local_addr().ok()
    }

    /// Where the secured server listens.
    pub fn secured_address(&self) -> Option<SocketAddr> {
        self.secured.as_ref()?.local_addr().ok()
    }
}

async fn bind(at: Option<SocketAddr>, what: &str, fields: &str) -> Result<Option<TcpListener>, ServiceError> {
    let Some(at) = at else { return Ok(None) };
    TcpListener::bind(at).await.map(Some).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::AddrInUse => "stop what listens there (another kubelet?), or",
            std::io::ErrorKind::PermissionDenied => {
                "ports below 1024 need a capability that gateway does not have:"
            }
            _ => "is it an address of this machine? If not,",
        };
        let what = format!("cannot listen on {at} for {what}: {advice} set {fields} to something else");
        ServiceError::socket(what, error)
    })
}

#[cfg(test)]
mod tests {
    use bulkhead_base::chain;
    use bulkhead_service::Exit;

    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_what_to_do() {
        let any = Some("127.0.0.1:0".parse().unwrap());
        let config = bulkhead_config::KubeletConfiguration::default();
        let all = Settings::new(&config, "node-a", std::path::Path::new("/nowhere"));
        let mut settings = Settings { healthz: any, read_only: None, secured: None, ..all };
        let first = Doors::open(&settings).await.unwrap();
        assert_eq!(first.read_only_address(), None);
        let taken = first.healthz_address().unwrap();
        settings.healthz = None;
        settings.read_only = Some(taken);
        let error = Doors::open(&settings).await.unwrap_err();
        assert_eq!(error.exit, Exit::Socket);
        let text = chain(&error).to_string();
        assert!(text.contains(&taken.to_string()) && text.contains("readOnlyPort"), "{text}");
    }
}
