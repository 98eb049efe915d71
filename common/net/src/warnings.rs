//! Rate-limited warnings about peers.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, which workers speak.
    Grpc,
    /// HTTP/1.1, which browsers speak, for the dashboard.
    Http,
}

/// The minimum time between two warnings about the same address.
const INTERVAL: Duration = Duration::from_secs(10);

/// The maximum number of origins that are remembered. If there are more, those without a warning within the interval
/// are forgotten; if that is not enough, nothing is logged.
const MAX_ADDRESSES: usize = 1024;

/// Logs at most one warning per [`origin`] and interval, and counts the others.
#[derive(Debug)]
pub(crate) struct Warnings {
    protocol: Protocol,
    /// The time of the last warning, and how many were suppressed since.
    logged: Mutex<HashMap<IpAddr, (Instant, u64)>>,
}

impl Warnings {
    pub(crate) fn about(protocol: Protocol) -> Self {
        Self { protocol, logged: Mutex::default() }
    }

    pub(crate) fn warn(&self, address: IpAddr, what: fmt::Arguments<'_>) {
        let port = match self.protocol {
            Protocol::Grpc => "",
            Protocol::Http => " to the dashboard",
        };
        if let Some(suppressed) = self.is_due(origin(address), Instant::now()) {
            tracing::warn!(%address, suppressed, "a connection{port} {what}");
        }
    }

    /// Returns `Some` if a warning may be logged now, with the number of warnings suppressed since the last one.
    pub(crate) fn is_due(&self, address: IpAddr, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MAX_ADDRESSES && !logged.contains_key(&address) {
            logged.retain(|_, (last, _)| now.duration_since(*last) < INTERVAL);
            if logged.len() >= MAX_ADDRESSES {
                return None;
            }
        }
        match logged.get_mut(&address) {
            Some((last, suppressed)) if now.duration_since(*last) < INTERVAL => {
                *suppressed += 1;
                None
            }
            known => {
                let suppressed = known.map_or(0, |(_, suppressed)| *suppressed);
                logged.insert(address, (now, 0));
                Some(suppressed)
            }
        }
    }
}

/// Returns where a connection comes from, as far as an attacker cannot choose it: an IPv4 address, or the network of an
/// IPv6 address, whose lower half a host may choose freely.
pub(crate) fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn one_line_per_address_and_interval() {
        let (warnings, begin) = (Warnings::about(Protocol::Grpc), Instant::now());
        let address = |i: u32| IpAddr::from(Ipv4Addr::from(i));
        assert_eq!(warnings.is_due(address(1), begin), Some(0));
        assert_eq!(warnings.is_due(address(1), begin + INTERVAL / 2), None);
        assert_eq!(warnings.is_due(address(2), begin), Some(0));
        assert_eq!(warnings.is_due(address(1), begin + INTERVAL), Some(1));
        for i in 0..2 * MAX_ADDRESSES as u32 {
            warnings.is_due(address(i), begin + INTERVAL);
        }
        assert_eq!(warnings.logged.lock().unwrap().len(), MAX_ADDRESSES);
        assert_eq!(warnings.is_due(address(u32::MAX), begin + 3 * INTERVAL), Some(0));
    }
}
