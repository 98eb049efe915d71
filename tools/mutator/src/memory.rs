//! The memory of this process, as Linux reports it.

use std::fs;

/// Returns the current memory of this process in bytes, or `None` if the system does not report it.
pub fn resident_bytes() -> Option<u64> {
    of_status("VmRSS:")
}

/// Returns the address space of this process in bytes, or `None` if the system does not report it.
pub fn address_space_bytes() -> Option<u64> {
    of_status("VmSize:")
}

/// Returns the peak memory of this process since [`reset_peak`] in bytes, or `None` if the system does not report it.
pub fn peak_bytes() -> Option<u64> {
    of_status("VmHWM:")
}

/// Resets the peak. Returns whether the system supports this.
pub fn reset_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

fn of_status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix(" kB")?;
    Some(kib.parse::<u64>().ok()? * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_noticed() {
        assert!(reset_peak());
        let before = peak_bytes().unwrap();
        let large = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(peak_bytes().unwrap() - before > 60 << 20);
        drop(large);
        assert!(resident_bytes().unwrap() < peak_bytes().unwrap());
    }
}
