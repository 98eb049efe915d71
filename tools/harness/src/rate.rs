//! How fast a run goes.

use std::fmt;
use std::time::{Duration, Instant};

use crate::Cluster;
use crate::memory::cpu_time;

/// What an iteration takes, on average over some time.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Seconds per iteration.
    pub iteration_s: f64,
    /// Seconds of this process's cores per iteration.
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
