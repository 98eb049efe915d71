//! Reuses buffers.

use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::NoUninit;
use bytes::Bytes;

/// The maximum size of the unused buffers that are kept, in bytes. One buffer is kept whatever its size. A coordinator needs as many
/// buffers in its next iteration as in its last, which is 41 MB for 64 workers and a model of 640 kB.
const KEPT_BYTES: usize = 1 << 28;

/// Keeps vectors for reuse, since the pages of a large new vector cost more than writing to it. Clones share the vectors.
#[derive(Debug)]
pub struct Pool<T = f32>(Arc<Mutex<Vec<Vec<T>>>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Pool<T> {
    /// Returns an empty vector, with the capacity of a vector that was given back if there is one.
    pub fn take(&self) -> Vec<T> {
        self.idle().pop().unwrap_or_default()
    }

    /// Takes back a vector that is no longer needed.
    pub fn give(&self, mut values: Vec<T>) {
        if values.capacity() == 0 {
            return;
        }
        values.clear();
        let bytes = |values: &Vec<T>| values.capacity() * size_of::<T>();
        let mut idle = self.idle();
        let kept: usize = idle.iter().map(bytes).sum();
        if idle.is_empty() || kept + bytes(&values) <= KEPT_BYTES {
            idle.push(values);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Vec<T>>> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: NoUninit + Send + 'static> Pool<T> {
    /// Returns the vector as bytes, without copying it. The pool takes it back when the last of them is dropped.
    pub fn lend(&self, values: Vec<T>) -> Bytes {
        Bytes::from_owner(LentBuffer { values, pool: self.clone() })
    }
}

struct LentBuffer<T> {
    values: Vec<T>,
    pool: Pool<T>,
}

impl<T: NoUninit> AsRef<[u8]> for LentBuffer<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.values)
    }
}

impl<T> Drop for LentBuffer<T> {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.values));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let pool = Pool::<f32>::default();
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
        let pool = Pool::<i32>::default();
        for _ in 0..3 {
            pool.give(Vec::with_capacity(KEPT_BYTES / 4));
        }
        assert_eq!(pool.idle().len(), 1);
    }
}
