//! Buffers that are reused.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Bytes of unused buffers that are kept. One buffer is kept whatever its size. A coordinator needs as many buffers in its next
/// iteration as in its last, which is 41 MB for 64 workers and a model of 640 kB.
const KEPT_BYTES: usize = 1 << 28;

/// Reusable vectors of f32. The pages of a large new vector cost more than writing to it. Clones share the vectors.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<f32>>>>);

impl Pool {
    /// An empty vector, with the capacity of one that was given back if there is one.
    pub fn take(&self) -> Vec<f32> {
        self.idle().pop().unwrap_or_default()
    }

    /// Takes a vector back that is no longer needed.
    pub fn give(&self, mut values: Vec<f32>) {
        if values.capacity() == 0 {
            return;
        }
        values.clear();
        let mut idle = self.idle();
        let kept: usize = idle.iter().map(|values| 4 * values.capacity()).sum();
        if idle.is_empty() || kept + 4 * values.capacity() <= KEPT_BYTES {
            idle.push(values);
        }
    }

    /// The vector as bytes, without copying it; it is given back when the last of them is dropped.
    pub fn lend(&self, values: Vec<f32>) -> Bytes {
        Bytes::from_owner(LentBuffer { values, pool: self.clone() })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Vec<f32>>> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct LentBuffer {
    values: Vec<f32>,
    pool: Pool,
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.values)
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.values));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let pool = Pool::default();
        let mut values = pool.take();
        values.extend([1.0, 2.0]);
        let first = values.as_ptr();
        let bytes = pool.lend(values);
        assert_eq!(bytes[..4], 1.0_f32.to_le_bytes());
        assert!(pool.take().is_empty() && pool.idle().is_empty(), "it is in use");
        drop(bytes);
        let again = pool.take();
        assert_eq!((again.as_ptr(), again.len()), (first, 0));
    }

    #[test]
    fn the_memory_kept_is_limited() {
        let pool = Pool::default();
        for _ in 0..3 {
            pool.give(Vec::with_capacity(KEPT_BYTES / 4));
        }
        assert_eq!(pool.idle().len(), 1);
    }
}
