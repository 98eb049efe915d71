//! Warnings about peers, as few as are read.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::admission::origin;
use super::entrance::Protocol;

/// Time between two lines about the same address.
const INTERVAL: Duration = Duration::from_secs(10);

/// Origins that are told apart; beyond, those that were quiet for the interval are forgotten, or else nothing is logged.
const MAX_ADDRESSES: usize = 1024;

/// Logs at most one line per [`origin`] and interval, and counts the others.
#[derive(Debug)]
pub(crate) struct Warnings {
    protocol: Protocol,
    told: Mutex<HashMap<IpAddr, (Instant, u64)>>,
}

impl Warnings {
    /// About the connections of a port.
    pub(crate) fn about(protocol: Protocol) -> Self {
        Self { protocol, told: Mutex::default() }
    }

    pub(crate) fn warn(&self, address: IpAddr, what: fmt::Arguments<'_>) {
        let port = match self.protocol {
            Protocol::Grpc => "",
            Protocol::Http => " to the dashboard",
        };
        if let Some(untold) = self.is_due(origin(address), Instant::now()) {
            tracing::warn!(%address, untold, "a connection{port} {what}");
        }
    }

    /// Whether a line may be written now, and how many were not since the last one.
    pub(super) fn is_due(&self, address: IpAddr, now: Instant) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MAX_ADDRESSES && !told.contains_key(&address) {
            told.retain(|_, (last, _)| now.duration_since(*last) < INTERVAL);
            if told.len() >= MAX_ADDRESSES {
                return None;
            }
        }
        match told.get_mut(&address) {
            Some((last, untold)) if now.duration_since(*last) < INTERVAL => {
                *untold += 1;
                None
            }
            known => {
                let untold = known.map_or(0, |(_, untold)| *untold);
                told.insert(address, (now, 0));
                Some(untold)
            }
        }
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
        assert_eq!(warnings.told.lock().unwrap().len(), MAX_ADDRESSES);
        assert_eq!(warnings.is_due(address(u32::MAX), begin + 3 * INTERVAL), Some(0));
    }
}
