//! How much connections may send ahead of being read.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{CONNECTION_WINDOWS, WINDOW_SHARE};

/// Bytes of a window that a permit stands for; all windows are multiples of it.
const UNIT_BYTES: u32 = 64 << 10;

/// The memory for data that connections send ahead.
#[derive(Debug)]
pub(crate) struct Windows(Arc<Semaphore>);

/// The window of an open connection, whose memory is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Window {
    /// Its index in [`CONNECTION_WINDOWS`].
    pub(crate) size: usize,
    _memory: Option<OwnedSemaphorePermit>,
}

impl Windows {
    /// Connections may send `memory_bytes` ahead, apart from the smallest windows.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let units = (memory_bytes / u64::from(UNIT_BYTES)).min(Semaphore::MAX_PERMITS as u64 / 2) as usize;
        Self(Arc::new(Semaphore::new(units)))
    }

    /// The largest window that is at most [`WINDOW_SHARE`] of the memory left, or else the smallest.
    pub(crate) fn window(&self) -> Window {
        let left = self.0.available_permits();
        for (size, bytes) in CONNECTION_WINDOWS.iter().enumerate() {
            let units = bytes / UNIT_BYTES;
            if units as usize <= left / WINDOW_SHARE
                && let Ok(memory) = self.0.clone().try_acquire_many_owned(units)
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
        let windows = Windows::new(memory_bytes);
        let open: Vec<Window> = (0..1000).map(|_| windows.window()).collect();
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
