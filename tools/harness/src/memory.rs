//! The memory and CPU time of this process, as reported by Linux. All values are 0 on other systems.

use std::time::Duration;

/// Returns the resident memory, in kB.
pub fn resident_kb() -> u64 {
    status_kb("VmRSS:")
}

/// Returns the address space, in kB.
pub fn address_space_kb() -> u64 {
    status_kb("VmSize:")
}

/// Returns the CPU time of this process's threads.
pub fn cpu_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

fn status_kb(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
