//! Which of many addresses a status shows.

use std::net::IpAddr;

/// At most one address of each family, that of `primary` first; without a primary one, in the order given. What is no
/// address is left out, and what is one is written the way the API writes it.
///
/// A runtime may list IPv6 first on a node whose primary family is IPv4; `status.podIP` has to follow the node.
pub fn one_per_family(addresses: &[String], primary: Option<&String>) -> Vec<String> {
    let parsed = addresses.iter().filter_map(|text| parse(text));
    let mut shown: Vec<IpAddr> = Vec::new();
    for address in parsed {
        if !shown.iter().any(|seen| seen.is_ipv4() == address.is_ipv4()) {
            shown.push(address);
        }
    }
    if let Some(primary) = primary.and_then(|text| parse(text)) {
        shown.sort_by_key(|address| address.is_ipv4() != primary.is_ipv4());
    }
    shown.iter().map(ToString::to_string).collect()
}

/// IPv4 within IPv6 is IPv4, as for the API.
fn parse(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known fault T2.
    #[test]
    fn one_address_of_each_family_the_primary_first() {
        let (v4, v6) = ("10.0.0.1", "fd00::1");
        let table: [(&[&str], Option<&str>, &[&str]); 11] = [
            (&[], Some(v4), &[]),
            (&["10.1.0.5"], Some(v4), &["10.1.0.5"]),
            (&["fd00::5", "10.1.0.5"], Some(v4), &["10.1.0.5", "fd00::5"]),
            (&["10.1.0.5", "fd00::5"], Some(v4), &["10.1.0.5", "fd00::5"]),
            (&["10.1.0.5", "fd00::5"], Some(v6), &["fd00::5", "10.1.0.5"]),
            (&["10.1.0.5", "10.1.0.6", "fd00::5", "fd00::6"], Some(v4), &["10.1.0.5", "fd00::5"]),
            (&["10.1.0.5", "10.1.0.5"], Some(v4), &["10.1.0.5"]),
            (&["fd00::5"], Some(v4), &["fd00::5"]),
            (&["fd00::5", "10.1.0.5"], None, &["fd00::5", "10.1.0.5"]),
            (&["no address", "", "10.1.0.5/24", "10.1.0.6"], Some("nor this"), &["10.1.0.6"]),
            (&["FD00:0::0005", "::ffff:10.1.0.5"], Some(v4), &["10.1.0.5", "fd00::5"]),
        ];
        for (given, primary, expected) in table {
            let given: Vec<String> = given.iter().map(ToString::to_string).collect();
            let primary = primary.map(ToString::to_string);
            assert_eq!(one_per_family(&given, primary.as_ref()), expected, "{given:?} {primary:?}");
        }
    }
}
