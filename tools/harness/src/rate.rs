//! Measures the speed of a run.

use std::fmt;
use std::time::{Duration, Instant};

use crate::Cluster;
use crate::memory::cpu_time;

/// The mean time of an iteration.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// The duration of an iteration, in seconds.
    pub iteration_s: f64,
    /// The CPU time of this process per iteration, in seconds.
    pub cpu_s: f64,
}

impl Rate {
    /// Measures a run for a while.
    pub async fn measure(cluster: &Cluster, time: Duration) -> Self {
        let iterations = || cluster.state.borrow().iterations;
        let (began, cpu, first) = (Instant::now(), cpu_time(), iterations());
        tokio::time::sleep(time).await;
        let done = (iterations() - first) as f64;
        let cpu_s = (cpu_time().saturating_sub(cpu)).as_secs_f64();
        Self { iteration_s: began.elapsed().as_secs_f64() / done, cpu_s: cpu_s / done }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ms per iteration ({:.2} ms of cores)", self.iteration_s * 1e3, self.cpu_s * 1e3)
    }
}
