//! The schedule of a worker's heartbeats, and the usage of its machine that they report.

use std::time::{Duration, Instant};

use ata_wire::ProcessUsage;

/// The schedule of a session's heartbeats, which become less frequent once the worker has had no work for a while.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    interval: Duration,
    idle_interval: Duration,
    worked: Instant,
    /// The time of the last heartbeat, and whether it said that the worker is idle.
    last: Option<(Instant, bool)>,
}

impl Heartbeats {
    pub(crate) fn new(now: Instant, interval: Duration, idle_interval: Duration) -> Self {
        Self { interval, idle_interval, worked: now, last: None }
    }

    /// Returns `Some` if a heartbeat must be sent now; the value says whether the worker is idle. Must be called every `interval`. The
    /// coordinator waits longer for the next heartbeat only after an idle one.
    pub(crate) fn due(&mut self, now: Instant, has_work: bool) -> Option<bool> {
        if has_work {
            self.worked = now;
        }
        let idle = now - self.worked >= self.idle_interval;
        // The margin is needed because ticks are a little early or late.
        let may_wait = |sent: Instant| now - sent + self.interval / 2 < self.idle_interval;
        if idle && self.last.is_some_and(|(sent, was_idle)| was_idle && may_wait(sent)) {
            return None;
        }
        self.last = Some((now, idle));
        Some(idle)
    }
}

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

    const INTERVAL: Duration = Duration::from_millis(500);
    const IDLE_INTERVAL: Duration = Duration::from_millis(2500);

    /// No heartbeat is later than the previous one made the coordinator expect, whatever the ticks' jitter.
    #[test]
    fn none_comes_later_than_the_last_one_said() {
        for jitter_ms in [0, 1, 20] {
            let start = Instant::now();
            let mut heartbeats = Heartbeats::new(start, INTERVAL, IDLE_INTERVAL);
            let mut sent: Vec<(Duration, bool)> = Vec::new();
            for tick in 0..200_u32 {
                let at = tick * INTERVAL + Duration::from_millis(u64::from(tick * 7 % (jitter_ms + 1)));
                let has_work = (60..70).contains(&tick);
                sent.extend(heartbeats.due(start + at, has_work).map(|idle| (at, idle)));
            }
            let late = Duration::from_millis(jitter_ms.into());
            for pair in sent.windows(2) {
                let expected = if pair[0].1 { IDLE_INTERVAL } else { INTERVAL };
                assert!(pair[1].0 <= pair[0].0 + expected + late, "{pair:?}");
            }
            assert!(sent.len() < 80, "an idle worker sends few: {}", sent.len());
            assert!(sent.iter().any(|(_, idle)| *idle));
        }
    }

    #[test]
    fn the_kernels_texts_are_read() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 1 2 3";
        assert_eq!((cpu_s(stat), cpu_s("7 (a) R 1"), cpu_s("")), (Some(3.0), None, None));
        assert_eq!(resident_bytes("VmPeak:\t 9 kB\nVmRSS:\t    5 kB\n"), Some(5120));
        assert_eq!((resident_bytes("VmRSS: 5 MB"), resident_bytes("")), (None, None));
    }
}
