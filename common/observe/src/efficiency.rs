//! What a run achieves, compared with its fastest worker alone, and what it would cost without some workers: estimates from the noise of
//! gradients and the times of tasks.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use ata_record::{RunState, WorkerState};
use ata_scheduler::{Goodput, Release};
use ata_types::WorkerId;
use serde::{Deserialize, Serialize};

use crate::task_time::MeanTaskTime;

/// What a second of a run achieves, compared with one of the fastest worker alone, which takes a step for each task and exchanges nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Efficiency {
    /// The worker that computes a task soonest.
    pub fastest: WorkerId,
    /// What a second of the run achieves, relative to one of that worker alone.
    pub speed_up: f64,
    /// The sum of the speeds of all workers, relative to its speed: the most that the speed-up can be.
    pub speeds: f64,
    /// What a second would achieve with half as many tasks in an iteration, relative to now.
    pub with_half: f64,
    /// The same with twice as many.
    pub with_twice: f64,
}

impl Efficiency {
    /// Returns the efficiency of a run so far. It is unknown without the noise of gradients, and if the first results count.
    pub fn of(run: &RunState) -> Option<Self> {
        let known = Known::of(run, run.totals.noise_scale?)?;
        let (goodput, tasks) = (&known.goodput, known.tasks);
        let now = goodput.of(tasks);
        let fastest = known.workers.iter().zip(&goodput.means_s).min_by(|(_, a), (_, b)| a.total_cmp(b));
        Some(Self {
            fastest: *fastest?.0,
            speed_up: now / goodput.alone(),
            speeds: goodput.speeds(),
            with_half: goodput.of((tasks / 2).max(1)) / now,
            with_twice: goodput.of(tasks.saturating_mul(2)) / now,
        })
    }
}

impl fmt::Display for Efficiency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fastest, speed_up, speeds, .. } = self;
        let percent = 100.0 * speed_up / speeds;
        write!(
            f,
            "a second achieves {speed_up:.2} times what worker {fastest} alone would, {percent:.0} % of the sum of speeds, {speeds:.2}"
        )
    }
}

/// Returns the share of what a second achieves that would be missing without each worker, as far as it is known.
pub fn contributions(run: &RunState) -> BTreeMap<WorkerId, f64> {
    let known = run.totals.noise_scale.and_then(|noise| Known::of(run, noise));
    let Some(Known { workers, goodput, tasks }) = known else { return BTreeMap::new() };
    let share = |(at, worker): (usize, &WorkerId)| (*worker, goodput.share_of(at, tasks));
    workers.iter().enumerate().map(share).collect()
}

/// What the steps of a run would cost, and how long they would take, without some workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReleasedWorkers {
    /// The workers that are gone in addition to those of the entries before this one.
    pub workers: Vec<WorkerId>,
    /// The price of a step, relative to that with all workers.
    pub price: f64,
    /// The time of a step, likewise.
    pub time: f64,
}

impl fmt::Display for ReleasedWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.workers.iter().map(WorkerId::to_string).collect();
        let (less, longer) = (100.0 * (1.0 - self.price), 100.0 * (self.time - 1.0));
        // Adding zero turns a rounded -0 into 0.
        let longer = longer.round() + 0.0;
        write!(f, "{}: a step costs {less:.0} % less and takes {longer} % longer", numbers.join(", "))
    }
}

/// Returns which workers could be released, those that cost most for what they compute first. Without prices, none.
pub fn releases(run: &RunState) -> Vec<ReleasedWorkers> {
    let prices: BTreeMap<WorkerId, f64> =
        run.workers.iter().filter_map(|(id, worker)| Some((*id, run.price_per_hour(worker)?))).collect();
    // As long as the number of tasks is the same, so is what a step achieves, whatever the noise.
    let Some(Known { workers, goodput, tasks }) = Known::of(run, 0.0).filter(|_| !prices.is_empty()) else {
        return Vec::new();
    };
    let prices: Vec<f64> = workers.iter().map(|id| prices.get(id).copied().unwrap_or(0.0)).collect();
    let named = |Release { workers: places, price, time }: Release| ReleasedWorkers {
        workers: places.into_iter().map(|place| workers[place]).collect(),
        price,
        time,
    };
    goodput.releases(&prices, tasks).into_iter().map(named).collect()
}

/// The mean times that count, in seconds. A journal may contain any number.
const TIMES_S: Range<f64> = 1e-9..1e9;

/// What is known of a run whose workers are timed.
#[derive(Debug)]
struct Known {
    /// The workers that are present and timed, in the order of the goodput's times.
    workers: Vec<WorkerId>,
    goodput: Goodput,
    /// The number of tasks of an iteration now.
    tasks: u64,
}

impl Known {
    fn of(run: &RunState, noise: f64) -> Option<Self> {
        if run.allocation.is_race || run.iterations == 0 {
            return None;
        }
        let timed = |(id, worker): (&WorkerId, &WorkerState)| {
            let mean_s = MeanTaskTime::of(worker).mean_s.filter(|mean_s| TIMES_S.contains(mean_s) && worker.present);
            Some((*id, mean_s?))
        };
        let (workers, means_s): (Vec<_>, Vec<_>) = run.workers.iter().filter_map(timed).unzip();
        workers.first()?;
        let mut goodput = Goodput { means_s, exchange_s: 0.0, noise };
        let (iterations, mean_tasks) = (run.iterations as f64, run.totals.tasks_applied / run.iterations);
        goodput.exchange_s = (run.runtime_s() / iterations - goodput.makespan_s(possible(mean_tasks))).max(0.0);
        let tasks = possible(run.budgets.last().map_or(run.budget, |(tasks, _)| *tasks));
        Some(Self { workers, goodput, tasks })
    }
}

/// Returns the nearest number of tasks that an iteration can have.
fn possible(tasks: u64) -> u64 {
    tasks.clamp(1, u32::MAX.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests as testing;
    use ata_record::{RunEvent, WorkerPrice};
    use ata_types::TaskOutcome;

    /// Returns a run of 4 iterations of 3 tasks, of 1.25 s each, on workers of 0.5 and 1 s a task.
    fn run(noise: Option<f64>) -> RunState {
        let mut run = testing::begun("ata-auto", 3);
        for (number, task_s) in [(1, 1.0), (2, 0.5)] {
            run.apply(&testing::join(number));
            run.apply(&testing::task(1, number, Some(task_s), TaskOutcome::Applied));
        }
        for iteration in 1..=4 {
            let mut event = testing::step(iteration, 1.25 * iteration as f64);
            let RunEvent::Step(step) = &mut event else { unreachable!() };
            (step.noise_scale, step.runtime_s, step.tasks) = (noise, 1.25, 3);
            run.apply(&event);
        }
        run
    }

    /// A step on 3 tasks achieves a quarter in 1.25 s if N = 9, and one on a single task a tenth in 0.5 s.
    #[test]
    fn a_second_of_all_is_compared_with_one_of_the_fastest_alone() {
        let run = run(Some(9.0));
        let found = Efficiency::of(&run).unwrap();
        assert_eq!((found.fastest.number(), found.speeds), (2, 1.5));
        let says = "a second achieves 1.00 times what worker 2 alone would, 67 % of the sum of speeds, 1.50";
        assert_eq!(found.to_string(), says);
        // 1 task takes 0.5 s, 6 take 2 s, and the rest 0.25 s.
        assert!((found.with_half - (0.1 / 0.75) / 0.2).abs() < 1e-9, "{found:?}");
        assert!((found.with_twice - (0.4 / 2.25) / 0.2).abs() < 1e-9, "{found:?}");
        let shares: Vec<_> = contributions(&run).into_iter().map(|(id, share)| (id.number(), share)).collect();
        assert_eq!(shares.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
        assert!((shares[0].1 - (1.0 - 1.25 / 1.75)).abs() < 1e-9 && (shares[1].1 - (1.0 - 1.25 / 3.25)).abs() < 1e-9);
    }

    #[test]
    fn any_number_may_be_in_a_journal() {
        for extreme in [5e-324, 1e-12, 1e12, f64::MAX] {
            let mut run = run(Some(extreme));
            run.budget = u64::MAX;
            run.apply(&testing::task(5, 1, Some(extreme), TaskOutcome::Applied));
            run.apply(&testing::task(5, 1, Some(extreme), TaskOutcome::Applied));
            assert!(Efficiency::of(&run).is_some(), "{extreme}");
        }
    }

    #[test]
    fn whom_to_release_is_known_with_prices() {
        let price = |price_per_hour| WorkerPrice { price_per_hour: Some(price_per_hour), watts: None };
        let priced = |prices: &[(&str, f64)]| {
            let prices = prices.iter().map(|(name, of)| ((*name).to_owned(), price(*of))).collect();
            run(None).priced_as(&RunState::new(prices))
        };
        let mut dear = priced(&[("worker-1", 1.0), ("worker-2", 1.0)]);
        let found: Vec<String> = releases(&dear).iter().map(ToString::to_string).collect();
        // 3 tasks take 1.5 s on the fast one, and the rest of a step 0.25 s.
        assert_eq!(found, ["1: a step costs 30 % less and takes 40 % longer"]);
        let rented = &releases(&priced(&[("worker-2", 1.0)]))[0];
        assert_eq!(rented.to_string(), "2: a step costs 100 % less and takes 160 % longer");
        assert_eq!(releases(&run(None)), []);
        dear.allocation.is_race = true;
        assert_eq!(releases(&dear), []);
    }

    #[test]
    fn nothing_is_known_without_noise_or_in_a_race() {
        let mut run = run(None);
        assert_eq!((Efficiency::of(&run), contributions(&run).len()), (None, 0));
        run.totals.noise_scale = Some(9.0);
        assert!(Efficiency::of(&run).is_some());
        run.allocation.is_race = true;
        assert_eq!(Efficiency::of(&run), None);
        let mut run = testing::begun("ata-auto", 3);
        run.totals.noise_scale = Some(9.0);
        assert_eq!(Efficiency::of(&run), None);
    }
}
