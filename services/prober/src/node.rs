//! The node's own address: where pods in the host's network are probed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address, as given or as the routes say now.
#[derive(Clone, Copy, Debug)]
pub struct NodeAddress(Option<IpAddr>);

impl NodeAddress {
    /// `given` is the first of `--node-ip`. Without it, or when it only names a family (`0.0.0.0`, `::`), it is found out.
    pub fn new(given: Option<IpAddr>) -> Self {
        Self(given)
    }

    /// The address. Found out anew each time: a node's address may change while it runs.
    pub fn current(&self) -> IpAddr {
        match self.0 {
            Some(address) if !address.is_unspecified() => address,
            Some(IpAddr::V6(_)) => outgoing(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)))
                .unwrap_or(Ipv6Addr::LOCALHOST.into()),
            // Reserved for documentation, so it takes the default route.
            Some(IpAddr::V4(_)) | None => {
                outgoing(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))).unwrap_or(Ipv4Addr::LOCALHOST.into())
            }
        }
    }
}

/// The source address that the kernel picks for `destination`. Connecting a datagram socket sends nothing.
fn outgoing(destination: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match destination {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(SocketAddr::new(destination, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|found| !found.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_address_is_used_and_a_missing_one_is_found() {
        let given: IpAddr = "192.0.2.10".parse().unwrap();
        assert_eq!(NodeAddress::new(Some(given)).current(), given);
        for found in [None, Some(Ipv4Addr::UNSPECIFIED.into())] {
            let address = NodeAddress::new(found).current();
            assert!(address.is_ipv4() && !address.is_unspecified(), "{address}");
        }
        assert!(NodeAddress::new(Some(Ipv6Addr::UNSPECIFIED.into())).current().is_ipv6());
    }
}
