//! The memory that this process may use.

use std::fs;
use std::path::Path;

/// The size assumed if the system does not report one. A head node has at least this much.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Returns the machine's memory, or the limit of this process's control group if that is lower.
pub fn memory_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(groups.lines().filter_map(group_bytes)).min().unwrap_or(UNKNOWN_BYTES)
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Returns the lowest limit of a control group and its ancestors, for a line of `/proc/self/cgroup`: `0::PATH` in
/// version 2, and `NUMBER:memory:PATH` in version 1.
fn group_bytes(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(':')?;
    let (root, file, path) = match rest.split_once(':')? {
        ("", path) => ("/sys/fs/cgroup", "memory.max", path),
        ("memory", path) => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", path),
        _ => return None,
    };
    // In a container the path may exist only on its host; the root is then the container's own group.
    let limit = |group: &Path| fs::read_to_string(Path::new(root).join(group).join(file)).ok()?.trim().parse().ok();
    Path::new(path.trim_start_matches('/')).ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_how_much_there_is() {
        assert_eq!(total_bytes("MemTotal:       24689764 kB\nMemFree: 1 kB\n"), Some(24_689_764 << 10));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        assert!(memory_bytes() >= 64 << 20, "{}", memory_bytes());
    }
}
