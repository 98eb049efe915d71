//! Checks open files and memory, for a model and a number of workers.

use std::fs;

use ata_net::limits::MAX_UPLOADS;
use ata_net::{files_for, memory_bytes, raise_file_limit};

use crate::finding::{Finding, Status, bytes};

/// The number of values per parameter that a coordinator keeps: the parameter and the optimizer's two moments; the same
/// for the copy that is being saved; and four versions of the parameters, of which one is sent, one comes next, one is
/// evaluated and one is kept for the slowest reader.
const COORDINATOR_VECTORS: u64 = 3 + 3 + 4;

/// The memory of the program itself, with its threads, and of the test images of CIFAR-100, in bytes.
const COORDINATOR_BYTES: u64 = 96 << 20;

/// The memory that a connected worker costs the coordinator in addition to its gradient, in bytes, as measured with 10,000 workers.
const CONNECTED_BYTES: u64 = 40 << 10;

/// The number of values per parameter that a worker keeps in addition to those of a task: parameters that arrive, and
/// gradients that are being sent.
const WORKER_VECTORS: u64 = 2 + MAX_UPLOADS as u64;

const VALUE_BYTES: u64 = 4;

/// Checks how many files may be open at a coordinator of this many workers.
pub fn open_files(workers: usize) -> Finding {
    let needed = files_for(workers);
    // A coordinator raises its limit in the same way at its start.
    let allowed = raise_file_limit() as u64 + files_for(0);
    files(allowed, needed, workers)
}

fn files(allowed: u64, needed: u64, workers: usize) -> Finding {
    const CHECK: &str = "open files";
    let found =
        format!("a coordinator of {workers} workers opens up to {needed} files, and {allowed} or more are allowed");
    if allowed >= needed {
        return Finding::ok(CHECK, found);
    }
    // Half of the connections are for workers that come back before their old ones are closed.
    let least = needed.midpoint(files_for(0));
    let status = if allowed < least { Status::Problem } else { Status::Warning };
    let found =
        format!("a coordinator of {workers} workers opens up to {needed} files, and only {allowed} are allowed");
    let fix = format!(
        "raise the limit to {needed}: ulimit -n, LimitNOFILE= in a systemd unit, or docker run --ulimit nofile={needed}"
    );
    Finding::bad(CHECK, status, found, fix)
}

/// The known needs of a run.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// The number of the model's parameters.
    pub parameters: u64,
    /// The number of workers in the run.
    pub workers: u64,
    /// The size of the training data that a worker will read in addition to that read by this process, in bytes.
    pub data_bytes: u64,
    /// The memory that this process needed to compute tasks, with the data, in bytes; `None` if it computed none, or
    /// the system does not report it.
    pub computing_bytes: Option<u64>,
}

impl Needs {
    fn coordinator_bytes(&self) -> u64 {
        let vectors = COORDINATOR_VECTORS + self.workers.max(2);
        VALUE_BYTES * self.parameters * vectors + COORDINATOR_BYTES + CONNECTED_BYTES * self.workers
    }

    fn worker_bytes(&self) -> Option<u64> {
        Some(self.computing_bytes? + VALUE_BYTES * self.parameters * WORKER_VECTORS + self.data_bytes)
    }
}

/// The memory of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The memory that this process may use.
    total_bytes: u64,
    /// The memory that no other program uses.
    free_bytes: u64,
}

impl Memory {
    /// Reads the memory of this machine from the system.
    pub fn of_this_machine() -> Self {
        let total_bytes = memory_bytes();
        let free = kilobytes_in("/proc/meminfo", "MemAvailable:");
        Self { total_bytes, free_bytes: free.unwrap_or(total_bytes).min(total_bytes) }
    }
}

const MEMORY: &str = "memory";

/// Checks the memory for a coordinator, and for a cluster on this machine alone.
pub fn cluster_memory(needs: Needs, memory: Memory) -> Vec<Finding> {
    let (coordinator, model) = (needs.coordinator_bytes(), bytes(VALUE_BYTES * needs.parameters));
    let what = format!("a coordinator of {} workers (parameters: {model})", needs.workers);
    let mut findings = vec![compare(&what, coordinator, memory, "fewer workers, a smaller --model, or more memory")];
    if let Some(worker) = needs.worker_bytes() {
        let what = format!("the same with {} workers on this machine (ata up)", needs.workers);
        let fix = "fewer --workers with ata up, or workers on other machines";
        let cluster = compare(&what, coordinator + needs.workers * worker, memory, fix);
        // The coordinator may run on a separate machine.
        findings.push(Finding { status: cluster.status.min(Status::Warning), ..cluster });
    }
    findings
}

/// Checks the memory for one worker.
pub fn worker_memory(needs: Needs, memory: Memory) -> Vec<Finding> {
    let Some(worker) = needs.worker_bytes() else { return Vec::new() };
    let what = format!("a worker (parameters: {})", bytes(VALUE_BYTES * needs.parameters));
    vec![compare(&what, worker, memory, "a smaller --task-batch at the coordinator, or a machine with more memory")]
}

fn compare(what: &str, needed: u64, memory: Memory, fix: &str) -> Finding {
    let Memory { total_bytes, free_bytes } = memory;
    let found =
        format!("{what} needs about {}; {} of {} are free", bytes(needed), bytes(free_bytes), bytes(total_bytes));
    if needed > total_bytes {
        Finding::problem(MEMORY, found, fix)
    } else if needed > free_bytes {
        Finding::warning(MEMORY, found, format!("end other programs; {fix}"))
    } else {
        Finding::ok(MEMORY, found)
    }
}

/// Returns the peak memory of this process, if the system reports it.
pub fn most_resident_bytes() -> Option<u64> {
    kilobytes_in("/proc/self/status", "VmHWM:")
}

/// Returns the bytes in a line such as `MemAvailable:   1234 kB`.
fn kilobytes_in(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::Status::{Ok, Problem, Warning};
    use super::*;

    #[test]
    fn few_open_files_are_few_workers() {
        let needed = files_for(1000);
        let status = |allowed| files(allowed, needed, 1000).status;
        let limits = [100, 1024, 2383, 2384, 4383, needed].map(status);
        assert_eq!(limits, [Problem, Problem, Problem, Warning, Warning, Ok]);
        let fix = files(1024, needed, 1000).fix.unwrap();
        assert!(fix.contains("LimitNOFILE=") && fix.contains(&needed.to_string()), "{fix}");
        assert_eq!(open_files(4).status, Ok);
    }

    #[test]
    fn memory_grows_with_the_model_and_the_workers() {
        let memory = Memory { total_bytes: 8 << 30, free_bytes: 4 << 30 };
        let statuses = |parameters: u64, workers| {
            let needs = Needs { parameters, workers, data_bytes: 0, computing_bytes: Some(100 << 20) };
            cluster_memory(needs, memory).iter().map(|finding| finding.status).collect::<Vec<_>>()
        };
        assert_eq!(statuses(158_684, 4), [Ok, Ok]);
        assert_eq!(statuses(158_684, 100), [Ok, Warning], "100 workers next to it");
        assert_eq!(statuses(100_000_000, 4), [Warning, Warning]);
        assert_eq!(statuses(1 << 28, 64), [Problem, Warning]);
        let worker = Needs { parameters: 1 << 28, workers: 4, data_bytes: 3 << 30, computing_bytes: Some(1 << 30) };
        assert_eq!(worker_memory(worker, memory)[0].status, Problem);
        assert!(worker_memory(Needs { computing_bytes: None, ..worker }, memory).is_empty());
    }
}
