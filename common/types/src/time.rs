//! Times that can be sorted.

use std::cmp::Ordering;

/// A time in seconds since the run began, ordered as a number.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub f64);

impl PartialEq for Time {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}
