//! How many connections may be open, and how much each may send ahead.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::peer::Standing;
use crate::limits::{CONNECTION_WINDOWS, WINDOW_SHARE};

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

    /// Remembers a connection that belongs to no session yet.
    pub(crate) fn enter(&self, standing: &Arc<Standing>) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        while strangers.front().is_some_and(|first| first.upgrade().is_none_or(|first| first.is_known())) {
            strangers.pop_front();
        }
        strangers.push_back(Arc::downgrade(standing));
    }

    /// Makes the oldest stranger go.
    pub(crate) fn expel(&self) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(oldest) = strangers.pop_front() {
            if let Some(oldest) = oldest.upgrade().filter(|oldest| !oldest.is_known()) {
                oldest.close();
                return;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
            let peer = super::super::peer::Peer::new("127.0.0.1:1".parse().unwrap(), Arc::default());
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
}
