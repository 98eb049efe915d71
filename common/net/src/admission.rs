//! Limits how many connections are open, and closes some to make room for others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::MAX_STRANGERS;
use crate::peer::ConnectionState;
use crate::warnings::origin;

#[derive(Debug)]
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    /// The connections that nothing kept open when they arrived, oldest first. Those that closed or are kept open by now are skipped.
    strangers: Mutex<VecDeque<Stranger>>,
}

/// The [`origin`] of a connection, and its state.
type Stranger = (IpAddr, Weak<ConnectionState>);

impl Admission {
    pub(crate) fn new(connections: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(connections)), strangers: Mutex::default() }
    }

    /// Waits for a free place. If all are taken, a stranger is closed to make room.
    pub(crate) async fn place(&self) -> OwnedSemaphorePermit {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return place;
        }
        self.expel();
        self.places.clone().acquire_owned().await.expect("it is never closed")
    }

    /// Registers a connection that has just arrived. If there are too many strangers, one of them is closed.
    pub(crate) fn enter(&self, address: IpAddr, state: &Arc<ConnectionState>) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if strangers.len() >= MAX_STRANGERS {
            strangers.retain(is_stranger);
        }
        if strangers.len() >= MAX_STRANGERS {
            close_one(&mut strangers);
        }
        strangers.push_back((origin(address), Arc::downgrade(state)));
    }

    pub(crate) fn expel(&self) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(is_stranger);
        close_one(&mut strangers);
    }
}

/// Closes the oldest stranger of the origin that has the most, so that a flood from one origin costs no other origin a connection.
fn close_one(strangers: &mut VecDeque<Stranger>) {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for (origin, _) in &*strangers {
        *counts.entry(*origin).or_default() += 1;
    }
    let Some(most) = counts.values().copied().max() else { return };
    let oldest = strangers.iter().position(|(origin, _)| counts[origin] == most);
    if let Some(oldest) = oldest.and_then(|at| strangers.remove(at)?.1.upgrade()) {
        oldest.close();
    }
}

/// Returns whether the connection is open and nothing keeps it open.
fn is_stranger((_, connection): &Stranger) -> bool {
    connection.upgrade().is_some_and(|state| state.is_stranger())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Peer;
    use std::net::Ipv4Addr;

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn enter(admission: &Admission, address: IpAddr) -> Peer {
        let peer = Peer::default();
        admission.enter(address, peer.state());
        peer
    }

    fn is_closed(peer: &Peer) -> bool {
        peer.state().is_closed()
    }

    #[tokio::test]
    async fn the_oldest_stranger_makes_room() {
        let admission = Admission::new(3);
        let (known, _kept) = (enter(&admission, LOCALHOST), admission.place().await);
        let _stays = known.keep_open();
        let (oldest, place) = (enter(&admission, LOCALHOST), admission.place().await);
        let (_later, _kept_too) = (enter(&admission, LOCALHOST), admission.place().await);
        tokio::select! {
            _ = admission.place() => panic!("there is no place"),
            () = oldest.closed() => drop(place),
        }
        drop(admission.place().await);
    }

    /// A host with IPv6 has a whole network of addresses, and a host with IPv4 may connect through a dual-stack socket.
    #[test]
    fn a_flood_from_one_network_closes_no_connection_of_another() {
        let v6 = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host]);
        for elsewhere in [v6(1, 1), Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into(), LOCALHOST] {
            let admission = Admission::new(10_000);
            let (other, known) = (enter(&admission, elsewhere), enter(&admission, v6(2, 0)));
            let _stays = known.keep_open();
            let flood: Vec<Peer> = (0..2 * MAX_STRANGERS as u16).map(|host| enter(&admission, v6(2, host))).collect();
            assert!(!is_closed(&other) && !is_closed(&known), "{elsewhere}");
            assert!(admission.strangers.lock().unwrap().len() <= MAX_STRANGERS);
            assert!(!is_closed(flood.last().unwrap()), "the newest may try");
            assert_eq!(flood.iter().filter(|peer| !is_closed(peer)).count(), MAX_STRANGERS - 1);
        }
        let mapped = |address: Ipv4Addr| origin(address.to_ipv6_mapped().into());
        assert_eq!(mapped(Ipv4Addr::LOCALHOST), LOCALHOST);
        assert_ne!(mapped(Ipv4Addr::new(10, 0, 0, 1)), mapped(Ipv4Addr::new(10, 0, 0, 2)));
    }
}
