//! What this process uses of its machine, as Linux counts it.

use ata_wire::ProcessUsage;

/// The unit of processor times in `/proc`, which user space always sees as hundredths of a second.
const TICKS_PER_S: f64 = 100.0;

/// Returns the usage of this process so far; zeros where the system does not count it.
pub(crate) fn process_usage() -> ProcessUsage {
    let text = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    ProcessUsage {
        cpu_s: cpu_s(&text("stat")).unwrap_or(0.0),
        memory_bytes: resident_bytes(&text("status")).unwrap_or(0),
    }
}

/// Returns the processor time of a line of `/proc/PID/stat`, in seconds. The name in it may contain spaces and parentheses.
fn cpu_s(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    // The state is the third field of the line, and times as user and in the kernel are the 14th and the 15th.
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 1 2 3";
        assert_eq!((cpu_s(stat), cpu_s("7 (a) R 1"), cpu_s("")), (Some(3.0), None, None));
        assert_eq!(resident_bytes("VmPeak:\t 9 kB\nVmRSS:\t    5 kB\n"), Some(5120));
        assert_eq!((resident_bytes("VmRSS: 5 MB"), resident_bytes("")), (None, None));
    }
}
