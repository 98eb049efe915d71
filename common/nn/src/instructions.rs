//! Selects the instruction set of a kernel: the best that the CPU has, unless a test chooses.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use pulp::Arch;

use crate::tile::{Blocked, ByWidth};

/// An index into [`available`], plus one; 0 stands for the best instruction set of the CPU.
static FORCED: AtomicU8 = AtomicU8::new(0);

/// Returns every instruction set that this CPU has, with its name. The last one is ordinary code.
fn available() -> Vec<(&'static str, Arch)> {
    let mut all = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        all.extend(pulp::x86::V4::try_new().map(|found| ("AVX-512", Arch::V4(found))));
        all.extend(pulp::x86::V3::try_new().map(|found| ("AVX2", Arch::V3(found))));
    }
    #[cfg(not(target_arch = "x86_64"))]
    all.push(("best", Arch::new()));
    all.push(("ordinary code", Arch::Scalar));
    all
}

pub(crate) fn arch() -> Arch {
    match FORCED.load(Ordering::Relaxed) {
        0 => Arch::new(),
        index => available()[usize::from(index) - 1].1,
    }
}

/// Runs a kernel with the selected instruction set.
pub(crate) fn by_width<K: Blocked>(kernel: K) -> K::Output {
    arch().dispatch(ByWidth(kernel))
}

/// Runs `work`, compiled for the widest registers of this CPU.
///
/// The closure must be small or call functions that are `#[inline(always)]`: other functions keep their own instructions. If no
/// result depends on its neighbours, the bits are the same with every width.
#[inline(always)]
pub fn vectorized<T>(work: impl FnOnce() -> T) -> T {
    arch().dispatch(work)
}

/// Runs `work` once with each instruction set that this CPU has, and returns the results with the names of the sets,
/// for tests that results do not depend on it.
///
/// Kernels that other threads run at the same time use the same instructions, which does not change their results.
pub fn with_each_instruction_set<T>(mut work: impl FnMut() -> T) -> Vec<(&'static str, T)> {
    // Only one caller at a time may choose the instruction set.
    static CHOOSING: Mutex<()> = Mutex::new(());
    let _guard = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut results = Vec::new();
    for (index, (name, _)) in (1..).zip(available()) {
        FORCED.store(index, Ordering::Relaxed);
        results.push((name, work()));
    }
    FORCED.store(0, Ordering::Relaxed);
    results
}
