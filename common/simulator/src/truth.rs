//! The true times of a virtual cluster, for the policies that may know them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ata_scheduler::Truth;
use ata_types::WorkerId;

use crate::times::{LawTimes, TaskTimes, TimeSource};

/// Times drawn from laws that can be looked up before they are drawn. The draws are those of [`LawTimes`], but take more
/// time and memory: only runs whose policy looks them up use this.
#[derive(Clone, Debug)]
pub struct OracleTimes(Arc<Mutex<TruthState>>);

/// The state of the times. The lists are built when they are first needed, because they take a while with a million workers.
#[derive(Debug)]
struct TruthState {
    times: LawTimes,
    /// The worker from whose law each worker draws, and the factor on its times, by worker.
    speeds: Vec<(WorkerId, f64)>,
    /// The times looked up ahead, by the worker whose law it is; `None` until they are asked for, and again once a time is drawn.
    ahead: Vec<Option<Box<Ahead>>>,
}

#[derive(Debug)]
struct Ahead {
    /// The law and its stream, after the times looked up so far.
    source: TimeSource,
    /// The sums of the next 1, 2, … times.
    sums: Vec<f64>,
}

impl OracleTimes {
    /// Makes the times of a run known beforehand. Clones share them.
    pub fn new(times: LawTimes) -> Self {
        Self(Arc::new(Mutex::new(TruthState { times, speeds: Vec::new(), ahead: Vec::new() })))
    }

    fn into_times(self) -> Result<LawTimes, Self> {
        let alone = Arc::try_unwrap(self.0).map_err(Self)?;
        Ok(alone.into_inner().unwrap_or_else(PoisonError::into_inner).times)
    }

    /// Returns how long a worker's next tasks will take if it begins them now.
    fn coming(&self, worker: WorkerId, tasks: u64) -> f64 {
        let TruthState { times, speeds, ahead } = &mut *self.state();
        let (law, slowness) = speeds[worker.slot()];
        let source = &times.workers[law.slot()];
        if tasks > 1 && times.fuses(worker) {
            return slowness * source.clone().draw_batch(tasks);
        }
        let Ahead { source, sums } = &mut **ahead[law.slot()]
            .get_or_insert_with(|| Box::new(Ahead { source: source.clone(), sums: Vec::new() }));
        while sums.len() < tasks as usize {
            sums.push(sums.last().copied().unwrap_or(0.0) + source.draw());
        }
        slowness * sums[tasks as usize - 1]
    }

    fn state(&self) -> MutexGuard<'_, TruthState> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let workers = state.times.workers.len();
        if state.ahead.len() < workers {
            state.speeds = (0..workers).map(|slot| (WorkerId::from_slot(slot), 1.0)).collect();
            state.ahead.resize_with(workers, || None);
        }
        state
    }
}

impl TaskTimes for OracleTimes {
    fn draw(&mut self, worker: WorkerId) -> f64 {
        let mut state = self.state();
        state.ahead[worker.slot()] = None;
        state.times.draw(worker)
    }

    fn draw_batch(&mut self, worker: WorkerId, tasks: u64) -> f64 {
        let mut state = self.state();
        state.ahead[worker.slot()] = None;
        state.times.draw_batch(worker, tasks)
    }

    fn fuses(&self, worker: WorkerId) -> bool {
        self.state().times.fuses(worker)
    }

    fn begins(&mut self, iteration: u64) {
        let TruthState { times, ahead, .. } = &mut *self.state();
        times.begins(iteration);
        for ahead in ahead.iter_mut() {
            ahead.take_if(|ahead| ahead.source.law.is_by_iteration());
        }
    }

    fn changed(&mut self, worker: WorkerId, law: WorkerId, slowness: f64) {
        self.state().speeds[worker.slot()] = (law, slowness);
    }
}

/// The true times of a run.
#[derive(Clone, Debug)]
pub struct ClusterTruth {
    /// The times of tasks.
    pub times: OracleTimes,
    /// The cost of each assignment before computation begins, if there is any.
    pub overhead: Option<OracleTimes>,
}

impl ClusterTruth {
    /// Returns the times and those of the overhead, if no policy keeps the truth.
    pub fn into_times(self) -> Result<(LawTimes, Option<LawTimes>), Self> {
        let Self { times, overhead } = self;
        match times.into_times() {
            Ok(times) => Ok((times, overhead.and_then(|overhead| overhead.into_times().ok()))),
            Err(times) => Err(Self { times, overhead }),
        }
    }
}

impl Truth for ClusterTruth {
    fn mean_s(&self, worker: WorkerId) -> f64 {
        let state = self.times.state();
        let (law, slowness) = state.speeds[worker.slot()];
        slowness * state.times.workers[law.slot()].law.mean()
    }

    fn coming_s(&self, worker: WorkerId, tasks: u64) -> f64 {
        if tasks == 0 {
            return 0.0;
        }
        let overhead = self.overhead.as_ref().map_or(0.0, |overhead| overhead.coming(worker, 1));
        overhead + self.times.coming(worker, tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::TimeLaws;
    use proptest::prelude::*;

    fn times(law: &str) -> LawTimes {
        LawTimes::new(&law.parse::<TimeLaws>().unwrap(), 3, 7).unwrap()
    }

    proptest! {
        /// Whenever future times are looked up, the times drawn are the same, and match the prediction.
        #[test]
        fn what_comes_is_what_was_looked_up(
            law in prop::sample::select(vec!["exp(i)", "affine(2*i, 1, 0.5)", "gamma(0, 0.5, i); const(4)"]),
            asked in prop::collection::vec((0usize..3, 1u64..9, any::<bool>()), 1..40),
        ) {
            let (mut plain, mut oracle) = (times(law), OracleTimes::new(times(law)));
            let truth = ClusterTruth { times: oracle.clone(), overhead: None };
            for (slot, tasks, computes) in asked {
                let worker = WorkerId::from_slot(slot);
                let expected = truth.coming_s(worker, tasks);
                prop_assert!(expected >= truth.coming_s(worker, tasks - 1));
                if computes {
                    let draw = |times: &mut dyn TaskTimes| match tasks {
                        1 => times.draw(worker),
                        _ if times.fuses(worker) => times.draw_batch(worker, tasks),
                        _ => (0..tasks).map(|_| times.draw(worker)).sum(),
                    };
                    let drawn = draw(&mut oracle);
                    prop_assert_eq!(drawn, draw(&mut plain));
                    prop_assert!((drawn - expected).abs() <= 1e-12 * expected, "{drawn} for {expected}");
                }
            }
        }
    }
}
