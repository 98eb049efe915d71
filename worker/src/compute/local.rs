//! Local steps: a worker's own parameters, and the differences that stand for sums of gradients.
//!
//! Leases that are requested together are a chain of steps, which begins at the parameters of the round. Once the chain is over, its
//! difference is kept like a sum of gradients. Unlike these, it cannot be computed again.

use std::sync::Arc;

use ata_learn::{LearnerError, finite};
use ata_sums::{InnerSteps, LocalParameters, TensorSizes, Units, maxima};
use ata_types::{Iteration, Lease, TaskRange, TaskRanges, WireFormat};
use ata_wire::{ComputedLease, LeaseTimes};

use super::{ComputeEvent, Stop, Worker};
use crate::kept::KeptSum;

/// The own parameters of a worker that takes local steps.
pub(crate) struct LocalSteps {
    steps: InnerSteps,
    parameters: LocalParameters,
    /// The parameters of the round.
    base: Arc<Vec<f32>>,
    chain: Option<Chain>,
}

/// The leases whose steps the parameters include.
struct Chain {
    iteration: Iteration,
    /// The round of its leases, as in [`super::Job::Compute`].
    round: u64,
    tasks: TaskRanges,
}

impl LocalSteps {
    /// Begins a session, with the moments of the worker's last one of the same run.
    pub(super) fn new(steps: InnerSteps, sizes: TensorSizes, format: WireFormat, last: Option<Self>) -> Self {
        let base = Arc::new(vec![0.0; sizes.values()]);
        let parameters = if let Some(mut last) = last.filter(|last| last.steps == steps) {
            last.parameters.forget_rounding();
            last.parameters
        } else {
            LocalParameters::new(steps.clone(), sizes, format, base.clone())
        };
        Self { steps, parameters, base, chain: None }
    }

    /// Returns the parameters of the round, and those of a worker at them that has taken no steps.
    fn fresh(&self, sizes: TensorSizes) -> (Arc<Vec<f32>>, LocalParameters) {
        let format = WireFormat::F32Exact;
        (self.base.clone(), LocalParameters::new(self.steps.clone(), sizes, format, self.base.clone()))
    }
}

impl Worker<'_> {
    fn local(&mut self) -> &mut LocalSteps {
        self.local.as_mut().expect("only a worker that takes local steps calls this")
    }

    /// Loads the parameters of an iteration.
    pub(super) fn load(&mut self, parameters: Arc<Vec<f32>>) {
        self.learner.load(&parameters);
        if let Some(local) = &mut self.local {
            local.base = parameters;
        }
    }

    /// Takes the steps of a lease. An error means that the thread cannot continue.
    pub(super) fn take_steps(&mut self, lease: &Lease, round: u64, units: Option<Units>) -> Result<(), String> {
        let begun = self.begin_chain(lease.iteration, round, units);
        match begun.and_then(|()| self.chain(lease)) {
            Ok(computed) => {
                self.report(ComputeEvent::Computed(computed));
                Ok(())
            }
            Err(stop) => {
                let lease = lease.id;
                self.stopped(stop, |reason, uncomputable| ComputeEvent::Failed { lease, reason, uncomputable })
            }
        }
    }

    /// Begins a chain, unless the current one goes on. The difference of that is kept.
    fn begin_chain(&mut self, iteration: Iteration, round: u64, units: Option<Units>) -> Result<(), Stop> {
        if let Some(chain) = &self.local().chain {
            if (chain.iteration, chain.round) == (iteration, round) {
                return Ok(());
            }
            let tasks = chain.tasks.clone();
            if chain.iteration == iteration && !tasks.is_empty() {
                self.keep_difference(iteration, tasks, units)?;
            }
        }
        let local = self.local();
        local.parameters.begin(local.base.clone());
        local.chain = Some(Chain { iteration, round, tasks: TaskRanges::default() });
        self.load_own();
        Ok(())
    }

    /// Adds a lease to the chain, or takes its steps back.
    fn chain(&mut self, lease: &Lease) -> Result<ComputedLease, Stop> {
        let before = self.local().parameters.clone();
        let computed = self.steps(lease);
        let local = self.local();
        if computed.is_err() {
            local.parameters = before;
            self.load_own();
        } else if let Some(chain) = &mut local.chain {
            chain.tasks.insert(lease.tasks);
        }
        computed
    }

    fn steps(&mut self, lease: &Lease) -> Result<ComputedLease, Stop> {
        let (mut times, mut losses) = (LeaseTimes::default(), Vec::new());
        for first in lease.tasks.indices() {
            self.learner.announce(lease.iteration, TaskRange { first, count: lease.tasks.end() - first }, 1);
            let measured = self.timed(lease.iteration, 1, |worker| worker.step(lease.iteration, first))?;
            times.busy_s.push(measured.busy.as_secs_f64());
            times.outlasted += u64::from(measured.is_outlasted);
            losses.push(measured.loss);
        }
        let computed = ComputedLease { lease: lease.id, times, losses };
        if self.cancelled.is_set() { Err(Stop::Cancelled) } else { Ok(computed) }
    }

    /// Takes a step, and returns the loss before it.
    fn step(&mut self, iteration: Iteration, task: u64) -> Result<f64, LearnerError> {
        let task = self.task_gradient(iteration, task)?;
        let loss = finite(task.loss)?;
        self.local().parameters.step(iteration, task.gradient)?;
        self.load_own();
        Ok(loss)
    }

    fn load_own(&mut self) {
        if let Some(local) = &self.local {
            self.learner.load(local.parameters.values());
        }
    }

    /// Keeps the difference of the current chain for a requested vector of these tasks, if there are some of the chain.
    pub(super) fn keep_for(
        &mut self,
        iteration: Iteration,
        tasks: &TaskRanges,
        units: Option<Units>,
    ) -> Result<(), Stop> {
        let Some(chain) = self.local().chain.as_ref().filter(|chain| chain.iteration == iteration) else {
            return Ok(());
        };
        // A step that is not requested stays a step of the worker, and has no weight.
        let requested = tasks.minus(&tasks.minus(&chain.tasks));
        if requested.is_empty() { Ok(()) } else { self.keep_difference(iteration, requested, units) }
    }

    fn keep_difference(&mut self, iteration: Iteration, tasks: TaskRanges, units: Option<Units>) -> Result<(), Stop> {
        let quantizer = self.quantizer(iteration, units)?;
        let mut sum = self.kept.empty_sum(&self.sizes);
        if let Err(error) = self.local().parameters.add_to(&mut sum, tasks.count(), &quantizer) {
            self.kept.give_back(sum);
            return Err(self.stop(&error.into()));
        }
        self.kept.add(iteration, quantizer.units(), KeptSum { tasks, lease: None, round: None, sum: Arc::new(sum) });
        Ok(())
    }

    /// Returns the largest magnitudes of the first step of a worker without moments, along the iteration's first task.
    pub(super) fn first_step_maxima(&mut self, iteration: Iteration) -> Result<Vec<f32>, LearnerError> {
        let sizes = self.sizes.clone();
        let (base, mut fresh) = self.local().fresh(sizes.clone());
        self.learner.load(&base);
        let first = self.task_gradient(iteration, 0);
        self.load_own();
        fresh.step(iteration, first?.gradient)?;
        Ok(maxima(&fresh.difference(1), &sizes)?)
    }
}
