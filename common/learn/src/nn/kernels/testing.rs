//! Choosing the instructions, in tests.

use std::sync::atomic::{AtomicU8, Ordering};

use pulp::Arch;

static FORCED: AtomicU8 = AtomicU8::new(0);

pub(super) fn forced_arch() -> Option<Arch> {
    (FORCED.load(Ordering::Relaxed) == 1).then_some(Arch::Scalar)
}
