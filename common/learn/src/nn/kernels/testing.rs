//! Choosing the instructions, in tests.

use std::sync::atomic::{AtomicU8, Ordering};

use pulp::Arch;

/// An index into [`all`], plus one; 0: the best that the CPU has.
static FORCED: AtomicU8 = AtomicU8::new(0);

/// Every kind of instructions that this CPU has, with its name. The last one is ordinary code.
fn all() -> Vec<(&'static str, Arch)> {
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

pub(super) fn forced_arch() -> Option<Arch> {
    let index = FORCED.load(Ordering::Relaxed).checked_sub(1)?;
    Some(all()[usize::from(index)].1)
}

/// Checks that `work` gives the same with each kind of instructions. Other tests may run with them meanwhile, which makes no
/// difference to what they find.
pub(crate) fn same_with_all_instructions<T: PartialEq + std::fmt::Debug>(mut work: impl FnMut() -> T) {
    // One test at a time chooses.
    static CHOOSING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _guard = CHOOSING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let all = all();
    if cfg!(target_arch = "x86_64") && all.len() < 3 {
        println!(
            "this CPU lacks AVX-512 or AVX2: compared are {:?}",
            all.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );
    }
    let mut found = Vec::new();
    for (index, (name, _)) in (1..).zip(&all) {
        FORCED.store(index, Ordering::Relaxed);
        found.push((name, work()));
    }
    FORCED.store(0, Ordering::Relaxed);
    for pair in found.windows(2) {
        assert!(pair[0].1 == pair[1].1, "{} and {} differ", pair[0].0, pair[1].0);
    }
}
