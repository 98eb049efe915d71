//! Limits how much data connections may send before it is read.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{CONNECTION_WINDOWS, WINDOW_SHARE};

/// The number of bytes that a permit stands for; all windows are multiples of it.
const UNIT_BYTES: u32 = 64 << 10;

/// How much data clients may send before it is read.
#[derive(Clone, Copy, Debug)]
pub struct SendAhead {
    /// The maximum memory for the data of all connections, in bytes. Each connection has the smallest of [`CONNECTION_WINDOWS`] in addition.
    pub memory_bytes: u64,
    /// The maximum for each call, in bytes.
    pub stream_bytes: u32,
}

impl SendAhead {
    /// Lets each call send as much as its connection's window has room for.
    pub fn up_to(memory_bytes: u64) -> Self {
        Self { memory_bytes, stream_bytes: u32::MAX }
    }
}

#[derive(Debug)]
pub(crate) struct ConnectionWindows(Arc<Semaphore>);

/// The window of an open connection. Dropping it frees its memory.
#[derive(Debug)]
pub(crate) struct ConnectionWindow {
    /// The index of its size in [`CONNECTION_WINDOWS`].
    pub(crate) size: usize,
    _memory: Option<OwnedSemaphorePermit>,
}

impl ConnectionWindows {
    /// Lets connections send `memory_bytes` ahead, in addition to the smallest windows.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let units = (memory_bytes / u64::from(UNIT_BYTES)).min(Semaphore::MAX_PERMITS as u64 / 2) as usize;
        Self(Arc::new(Semaphore::new(units)))
    }

    /// Returns the largest window of at most one part in [`WINDOW_SHARE`] of the memory left, or else the smallest.
    pub(crate) fn window(&self) -> ConnectionWindow {
        let left = self.0.available_permits();
        for (size, bytes) in CONNECTION_WINDOWS.iter().enumerate() {
            let units = bytes / UNIT_BYTES;
            if units as usize <= left / WINDOW_SHARE
                && let Ok(memory) = self.0.clone().try_acquire_many_owned(units)
            {
                return ConnectionWindow { size, _memory: Some(memory) };
            }
        }
        ConnectionWindow { size: CONNECTION_WINDOWS.len() - 1, _memory: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_fit_in_the_memory() {
        let memory_bytes = 1 << 30;
        let windows = ConnectionWindows::new(memory_bytes);
        let open: Vec<ConnectionWindow> = (0..1000).map(|_| windows.window()).collect();
        let smallest = CONNECTION_WINDOWS.len() - 1;
        let granted = open.iter().filter(|window| window.size < smallest);
        let bytes: u64 = granted.map(|window| u64::from(CONNECTION_WINDOWS[window.size])).sum();
        assert!(bytes <= memory_bytes && bytes > memory_bytes / 2, "{bytes}");
        assert!(open.is_sorted_by_key(|window| window.size), "first come, first served");
        assert_eq!((open[0].size, open[999].size), (0, smallest));
        drop(open);
        assert_eq!(windows.window().size, 0, "what is closed makes room");
    }
}
