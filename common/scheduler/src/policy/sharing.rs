//! How ATA-Auto shares the tasks among the workers it has observed.

use super::SchedulerRng;
use super::speed::Speed;
use crate::allocation::{ras, ras_by_cost};

/// The cost factor on more tasks than a worker has done before: they go to other workers if possible.
const UNTRUSTED: f64 = 1e6;

/// RAS over the workers `among`, each of them observed.
pub(super) fn share(speeds: &[Speed], among: &[usize], budget: u64, rng: &mut SchedulerRng) -> Vec<u64> {
    let shares = share_by_mean(speeds, among, budget, rng).unwrap_or_else(|| {
        let cost = |j: usize, tasks: u64| {
            let speed: &Speed = &speeds[among[j]];
            speed.cautious_time_s(tasks) * if tasks > speed.observed { UNTRUSTED } else { 1.0 }
        };
        ras_by_cost(among.len(), budget, cost, rng)
    });
    let mut allocation = vec![0; speeds.len()];
    for (&i, tasks) in among.iter().zip(shares) {
        allocation[i] = tasks;
    }
    allocation
}

/// The faster rule, if costs are in proportion to tasks, and none gets more tasks by it than it has done before.
fn share_by_mean(speeds: &[Speed], among: &[usize], budget: u64, rng: &mut SchedulerRng) -> Option<Vec<u64>> {
    if among.iter().any(|&i| speeds[i].overhead_s + speeds[i].fixed_s > 0.0) {
        return None;
    }
    let means: Vec<f64> = among.iter().map(|&i| speeds[i].cautious_mean_s()).collect();
    let shares = ras(&means, budget, rng);
    among.iter().zip(&shares).all(|(&i, &tasks)| tasks <= speeds[i].observed).then_some(shares)
}
