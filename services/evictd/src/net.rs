//! Traffic of network interfaces, from the folder `net` of `/proc` or of a process: that of the network which the process is
//! in. Must never fail the rest: what cannot be
//! read is absent.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest file taken, in bytes: some two thousand interfaces.
const LIMIT: u64 = 256 * 1024;
/// Interfaces kept.
const INTERFACES: usize = 256;
/// The loopback and the node's ends of pods' networks: their traffic is told elsewhere or is none of the node's.
const LEFT_OUT: [&str; 3] = ["lo", "veth", "docker"];

/// What the interfaces moved since they are up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetFigures {
    /// The interface with the default route; empty if none has it.
    pub(crate) default_interface: String,
    /// In the kernel's order.
    pub(crate) interfaces: Vec<Interface>,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: String,
    /// Bytes received.
    pub(crate) rx_bytes: u64,
    /// Errors on receiving.
    pub(crate) rx_errors: u64,
    /// Bytes sent.
    pub(crate) tx_bytes: u64,
    /// Errors on sending.
    pub(crate) tx_errors: u64,
    /// Packets received.
    pub(crate) rx_packets: u64,
    /// Packets received and dropped.
    pub(crate) rx_dropped: u64,
    /// Packets sent.
    pub(crate) tx_packets: u64,
    /// Packets dropped instead of sent.
    pub(crate) tx_dropped: u64,
}

/// Reads them from `dir`: `/proc` for the node's own, `/proc/PID` for those of a process. `None` when there is no such file.
pub(crate) fn read(dir: &Path) -> Option<NetFigures> {
    let interfaces = text(&dir.join("net/dev"))?;
    let routes = text(&dir.join("net/route")).unwrap_or_default();
    Some(figures(&interfaces, &routes))
}

/// From the texts of `dev` and `route`.
pub(crate) fn figures(interfaces: &str, routes: &str) -> NetFigures {
    let interfaces = interfaces.lines().filter_map(interface);
    let interfaces = interfaces.filter(|one| !LEFT_OUT.iter().any(|prefix| one.name.starts_with(prefix)));
    NetFigures {
        default_interface: default_interface(routes),
        interfaces: interfaces.take(INTERFACES).collect(),
    }
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LIMIT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// `NAME: ` and eight numbers for receiving, then eight for sending: bytes, packets, errors, and others.
fn interface(line: &str) -> Option<Interface> {
    let (name, numbers) = line.rsplit_once(':')?;
    let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    let at = |index: usize| numbers.get(index).copied();
    Some(Interface {
        name: name.trim().to_owned(),
        rx_bytes: at(0)?,
        rx_errors: at(2)?,
        tx_bytes: at(8)?,
        tx_errors: at(10)?,
        rx_packets: at(1)?,
        rx_dropped: at(3)?,
        tx_packets: at(9)?,
        tx_dropped: at(11)?,
    })
}

/// The first route to everywhere: destination and mask are zero.
fn default_interface(routes: &str) -> String {
    let route = routes.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            [name, "00000000", _, _, _, _, _, "00000000", ..] => Some((*name).to_owned()),
            _ => None,
        }
    });
    route.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  100 1 0 0 0 0 0 0  100 1 0 0 0 0 0 0
veth1a2b: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
  eth0:2094501058 9 1 0 0 0 0 0 5889846 8 2 0 0 0 0 0
 ifb0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
broken: 1 2 x
";
    const ROUTE: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
ifb0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
";

    #[test]
    fn interfaces_of_the_node_are_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), None, "no such file is no figure");
        fs::create_dir(dir.path().join("net")).unwrap();
        fs::write(dir.path().join("net/dev"), DEV).unwrap();
        assert_eq!(read(dir.path()).unwrap().default_interface, "");
        fs::write(dir.path().join("net/route"), ROUTE).unwrap();
        let figures = read(dir.path()).unwrap();
        let names: Vec<_> = figures.interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((figures.default_interface.as_str(), names), ("eth0", vec!["eth0", "ifb0"]));
        let eth0 = Interface {
            name: "eth0".to_owned(),
            rx_bytes: 2_094_501_058,
            rx_errors: 1,
            tx_bytes: 5_889_846,
            tx_errors: 2,
            rx_packets: 9,
            rx_dropped: 0,
            tx_packets: 8,
            tx_dropped: 0,
        };
        assert_eq!(figures.interfaces[0], eth0);
    }

    #[test]
    fn this_machine_is_read() {
        assert!(read(Path::new("/proc")).is_some());
    }
}
