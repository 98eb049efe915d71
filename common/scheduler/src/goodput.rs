//! What the steps of a second achieve, and what each worker contributes.
//!
//! The mean of B gradients achieves B/(B + N) of what the gradient without noise would, if N is their noise scale: with B = N, half of it.
//! Fewer take more steps, and more take more samples, than that is worth (McCandlish et al., "An Empirical Model of Large-Batch Training", 2018,
//! section 2.3). In a second, steps of B tasks achieve B/(B + N)/(T(B) + x), the goodput (Qiao et al., "Pollux", OSDI 2021). T is the time in
//! which unlike workers compute B tasks in the best shares, and x the rest of an iteration. T grows in jumps: four workers whose tasks take 1, 2,
//! 4 and 8 s need 8 s for 15 tasks, and 9 s for 16.
//!
//! Whom to release does not depend on the noise: without a worker, a step on as many tasks achieves as much, for another price, in another time.

use rand::SeedableRng;

use crate::allocation::ras;
use crate::policy::SchedulerRng;

/// What the goodput depends on, apart from the number of tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Goodput {
    /// The mean seconds of a task of each worker; at least one, and all positive.
    pub means_s: Vec<f64>,
    /// The seconds of an iteration in which the worker that computes for longest does not compute.
    pub exchange_s: f64,
    /// The gradient noise scale N, in tasks.
    pub noise: f64,
}

/// What steps cost without some workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// The workers that are gone in addition to those of the releases before this one, by their places in `means_s`.
    pub workers: Vec<usize>,
    /// The price of a step, relative to that with all workers.
    pub price: f64,
    /// The time of a step, likewise.
    pub time: f64,
}

/// The least share of the price of a step that a release has to save. Speeds are measured no more precisely than this.
const LEAST_SAVED: f64 = 0.01;

impl Goodput {
    /// Returns what a second of iterations of `tasks` tasks achieves, in steps without noise.
    pub fn of(&self, tasks: u64) -> f64 {
        progress(tasks as f64, self.noise) / (self.makespan_s(tasks) + self.exchange_s)
    }

    /// Returns what a second of the fastest worker alone achieves at best: a step for each task, and nothing but tasks takes time.
    pub fn alone(&self) -> f64 {
        progress(1.0, self.noise) / self.fastest_s()
    }

    /// Returns the sum of the speeds of all workers, relative to that of the fastest one.
    pub fn speeds(&self) -> f64 {
        self.means_s.iter().map(|mean_s| self.fastest_s() / mean_s).sum()
    }

    /// Returns the share of what a second achieves that would be missing without a worker, given by its place in `means_s`.
    pub fn share_of(&self, worker: usize, tasks: u64) -> f64 {
        let mut others = self.clone();
        others.means_s.remove(worker);
        if others.means_s.is_empty() { 1.0 } else { 1.0 - others.of(tasks) / self.of(tasks) }
    }

    /// Returns what steps of `tasks` tasks cost, and how long they take, without the workers whose tasks cost most, as long as they cost less
    /// the more of these are gone. `prices` are those of a second of each worker, whether it computes or waits.
    pub fn releases(&self, prices: &[f64], tasks: u64) -> Vec<Release> {
        let task_price = |worker: usize| prices[worker] * self.means_s[worker];
        let mut order: Vec<usize> = (0..prices.len()).collect();
        order.sort_by(|a, b| task_price(*b).total_cmp(&task_price(*a)));
        let cost = |workers: &[usize]| {
            let means_s = workers.iter().map(|worker| self.means_s[*worker]).collect();
            let step_s = Self { means_s, ..*self }.makespan_s(tasks) + self.exchange_s;
            (workers.iter().map(|worker| prices[*worker]).sum::<f64>() * step_s, step_s)
        };
        let (all, all_s) = cost(&order);
        let (mut least, mut releases, mut gone) = (all, Vec::new(), 0);
        for released in 1..order.len() {
            let (price, step_s) = cost(&order[released..]);
            if price < least - LEAST_SAVED * all {
                let workers = order[gone..released].to_vec();
                releases.push(Release { workers, price: price / all, time: step_s / all_s });
                (least, gone) = (price, released);
            }
        }
        releases
    }

    /// Returns the time in which the workers compute tasks in the best shares, in seconds.
    pub fn makespan_s(&self, tasks: u64) -> f64 {
        // Which of several best shares it is does not change their time.
        let shares = ras(&self.means_s, tasks, &mut SchedulerRng::seed_from_u64(0));
        shares.iter().zip(&self.means_s).map(|(share, mean_s)| *share as f64 * mean_s).fold(0.0, f64::max)
    }

    fn fastest_s(&self) -> f64 {
        self.means_s.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Returns what a step on `tasks` tasks achieves, relative to one without noise.
pub fn progress(tasks: f64, noise: f64) -> f64 {
    tasks / (tasks + noise)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four workers, all busy to the end with 15 tasks, and three of them with 7.
    fn goodput(exchange_s: f64, noise: f64) -> Goodput {
        Goodput { means_s: vec![0.02, 0.04, 0.08, 0.16], exchange_s, noise }
    }

    #[test]
    fn tasks_are_shared_in_the_best_way() {
        let makespans = [15, 16, 7].map(|tasks| (goodput(0.0, 1.0).makespan_s(tasks) * 1e3).round());
        assert_eq!(makespans, [160.0, 180.0, 80.0]);
    }

    /// Without noise to speak of, one task is worth as much as many; with very much of it, speeds add up.
    #[test]
    fn the_noise_decides_what_many_workers_are_worth() {
        let speed_up = |noise| goodput(0.0, noise).of(15) / goodput(0.0, noise).alone();
        assert!((speed_up(0.0) - 0.125).abs() < 1e-12, "a step takes eight times as long");
        assert!((speed_up(1e9) - 1.875).abs() < 1e-6 && (goodput(0.0, 1.0).speeds() - 1.875).abs() < 1e-12);
    }

    #[test]
    fn a_worker_is_worth_what_would_be_missing() {
        let goodput = goodput(0.0, 30.0);
        // Without the first, the other three need 320 ms for 14 tasks.
        assert!((goodput.share_of(0, 14) - (1.0 - 160.0 / 320.0)).abs() < 1e-12);
        assert!(goodput.share_of(3, 7).abs() < 1e-12, "it has none of 7 tasks");
        assert_eq!(Goodput { means_s: vec![1.0], ..goodput }.share_of(0, 7), 1.0);
    }

    #[test]
    fn workers_are_released_whose_tasks_cost_most() {
        let released = |exchange_s, prices: &[f64]| -> Vec<_> {
            let releases = goodput(exchange_s, 1.0).releases(prices, 15).into_iter();
            let percent = |of: f64| (100.0 * of).round();
            releases.map(|Release { workers, price, time }| (workers, percent(price), percent(time))).collect()
        };
        // Steps take 160, 180, 200 and 300 ms with 4, 3, 2 and 1 workers of one price.
        let equal = [(vec![3], 84.0, 113.0), (vec![2], 63.0, 125.0), (vec![1], 47.0, 188.0)];
        assert_eq!(released(0.0, &[1.0; 4]), equal);
        // Tasks of the first one cost twice as much as others.
        assert_eq!(released(0.0, &[16.0, 4.0, 2.0, 1.0]), [(vec![0], 68.0, 225.0), (vec![1], 65.0, 500.0)]);
        assert_eq!(released(0.0, &[8.0, 4.0, 2.0, 1.0]), []);
        // What is one's own costs nothing, and is kept.
        assert_eq!(released(0.0, &[0.0, 0.0, 0.0, 1.0]), [(vec![3], 0.0, 113.0)]);
        assert_eq!(released(0.0, &[0.0; 4]), []);
        assert_eq!(Goodput { means_s: vec![1.0], ..goodput(0.0, 1.0) }.releases(&[1.0], 15), []);
    }
}
