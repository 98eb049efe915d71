//! How many connections may be open, and how much each may send ahead.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::peer::Standing;
use crate::limits::{CONNECTION_WINDOWS, MAX_STRANGERS, WINDOW_SHARE};

/// Bytes of a window that a permit stands for; all windows are multiples of it.
const UNIT_BYTES: u32 = 64 << 10;

/// The places for connections, and the memory for what they send ahead.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    /// Units of windows.
    memory: Arc<Semaphore>,
    /// Connections in the order of their arrival; those that are known or closed are passed over.
    strangers: Mutex<VecDeque<Weak<Standing>>>,
}

/// Held by an open connection.
#[derive(Debug)]
pub(crate) struct Window {
    /// Its number in [`CONNECTION_WINDOWS`].
    pub(crate) size: usize,
    _memory: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// At most `connections`, which may send `memory_bytes` ahead, apart from the smallest windows.
    pub(crate) fn new(connections: usize, memory_bytes: u64) -> Self {
        let units = (memory_bytes / u64::from(UNIT_BYTES)).min(Semaphore::MAX_PERMITS as u64 / 2) as usize;
        Self {
            places: Arc::new(Semaphore::new(connections)),
            memory: Arc::new(Semaphore::new(units)),
            strangers: Mutex::default(),
        }
    }

    /// Waits for a place. If all are taken, the connection that has gone longest without a session makes room.
    pub(crate) async fn place(&self) -> OwnedSemaphorePermit {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return place;
        }
        self.expel();
        self.places.clone().acquire_owned().await.expect("it is never closed")
    }

    /// Remembers a connection that belongs to no session yet. If there are too many, the oldest has to go.
    pub(crate) fn enter(&self, standing: &Arc<Standing>) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if strangers.len() >= MAX_STRANGERS {
            strangers.retain(|stranger| is_stranger(stranger).is_some());
        }
        if strangers.len() >= MAX_STRANGERS {
            close_oldest(&mut strangers);
        }
        strangers.push_back(Arc::downgrade(standing));
    }

    /// Makes the oldest stranger go.
    pub(crate) fn expel(&self) {
        close_oldest(&mut self.strangers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The largest window that is at most [`WINDOW_SHARE`] of the memory left, or else the smallest.
    pub(crate) fn window(&self) -> Window {
        let left = self.memory.available_permits();
        for (size, bytes) in CONNECTION_WINDOWS.iter().enumerate() {
            let units = bytes / UNIT_BYTES;
            if units as usize <= left / WINDOW_SHARE
                && let Ok(memory) = self.memory.clone().try_acquire_many_owned(units)
            {
                return Window { size, _memory: Some(memory) };
            }
        }
        Window { size: CONNECTION_WINDOWS.len() - 1, _memory: None }
    }
}

/// The connection, if it is open and belongs to no session.
fn is_stranger(connection: &Weak<Standing>) -> Option<Arc<Standing>> {
    connection.upgrade().filter(|standing| !standing.is_known())
}

fn close_oldest(strangers: &mut VecDeque<Weak<Standing>>) {
    while let Some(oldest) = strangers.pop_front() {
        if let Some(oldest) = is_stranger(&oldest) {
            oldest.close();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Peer;

    #[test]
    fn windows_fit_in_the_memory() {
        let memory_bytes = 1 << 30;
        let admission = Admission::new(10, memory_bytes);
        let open: Vec<Window> = (0..1000).map(|_| admission.window()).collect();
        let smallest = CONNECTION_WINDOWS.len() - 1;
        let granted = open.iter().filter(|window| window.size < smallest);
        let bytes: u64 = granted.map(|window| u64::from(CONNECTION_WINDOWS[window.size])).sum();
        assert!(bytes <= memory_bytes && bytes > memory_bytes / 2, "{bytes}");
        assert!(open.is_sorted_by_key(|window| window.size), "first come, first served");
        assert_eq!((open[0].size, open[999].size), (0, smallest));
        drop(open);
        assert_eq!(admission.window().size, 0, "what is closed makes room");
    }

    #[tokio::test]
    async fn the_oldest_stranger_makes_room() {
        let admission = Admission::new(3, 0);
        let enter = async || {
            let place = admission.place().await;
            let peer = Peer::default();
            admission.enter(peer.standing());
            (peer, place)
        };
        let (known, _kept) = enter().await;
        known.mark_known();
        let (oldest, place) = enter().await;
        let (_later, _kept_too) = enter().await;
        tokio::select! {
            _ = enter() => panic!("there is no place"),
            () = oldest.standing().closed().cancelled() => drop(place),
        }
        drop(enter().await);
    }

    #[test]
    fn strangers_are_few() {
        let admission = Admission::new(10_000, 0);
        let peers: Vec<Peer> = (0..2 * MAX_STRANGERS).map(|_| Peer::default()).collect();
        peers[3].mark_known();
        for peer in &peers {
            admission.enter(peer.standing());
        }
        let closed: Vec<bool> = peers.iter().map(|peer| peer.standing().closed().is_cancelled()).collect();
        assert!(!closed[3], "it belongs to a session");
        assert!(closed[..MAX_STRANGERS].iter().filter(|closed| !**closed).count() <= 2, "the oldest are gone");
        assert!(closed[MAX_STRANGERS + 1..].iter().all(|closed| !closed));
        assert!(admission.strangers.lock().unwrap().len() <= MAX_STRANGERS);
    }
}
