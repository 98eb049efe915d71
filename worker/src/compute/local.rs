//! Local steps: a worker's own parameters, and the differences that stand for sums of gradients.
//!
//! Leases that are requested together are a chain of steps, which begins at the parameters of the round. Once the chain is over, its
//! difference is kept like a sum of gradients. Unlike these, it cannot be computed again.
//!
//! If the parameters of a round have not arrived when it begins, the worker goes on from its own, which are the end of the last chain. When
//! they arrive, the steps since then are taken from there: each step counts in one difference. Source: Shen et al., "Faster Distributed Deep
//! Net Training: Computation and Communication Decoupled Stochastic Gradient Descent", IJCAI 2019.

use std::collections::BTreeSet;
use std::sync::Arc;

use ata_learn::{LearnerError, finite};
use ata_sums::{InnerSteps, LocalParameters, TensorSizes, Units, maxima};
use ata_types::{Iteration, Lease, LeaseId, TaskRange, TaskRanges, WireFormat};
use ata_wire::{ComputedLease, LeaseTimes, RunSpec};

use super::{Stop, Worker};
use crate::kept::KeptSum;

pub(crate) struct LocalSteps {
    steps: InnerSteps,
    parameters: LocalParameters,
    /// The parameters that arrived last, and their iteration.
    loaded: (Iteration, Arc<Vec<f32>>),
    chain: Option<Chain>,
    /// B, and the number of tasks of the run before the round.
    budget: u64,
    position: u64,
}

/// The leases whose steps the parameters include.
struct Chain {
    iteration: Iteration,
    /// The round of its leases, as in [`super::Job::Compute`].
    round: u64,
    tasks: TaskRanges,
    leases: BTreeSet<LeaseId>,
    /// Whether it began before the parameters of the round arrived.
    is_ahead: bool,
}

impl LocalSteps {
    /// Begins a session of a run, if workers take local steps in it, with the moments of the worker's last session of the run.
    pub(super) fn of(run: &RunSpec, sizes: &TensorSizes, last: Option<Self>) -> Option<Self> {
        let steps = run.inner_steps.as_deref()?.clone();
        let base = Arc::new(vec![0.0; sizes.values()]);
        let parameters = if let Some(mut last) = last.filter(|last| last.steps == steps) {
            last.parameters.forget_rounding();
            last.parameters
        } else {
            LocalParameters::new(steps.clone(), sizes.clone(), run.format, base.clone())
        };
        Some(Self { steps, parameters, loaded: (Iteration(0), base), chain: None, budget: run.budget, position: 0 })
    }

    /// Returns the iteration and the index that a task of the round has if each iteration has B tasks.
    fn place(&self, task: u64) -> (Iteration, u64) {
        Iteration::of_task(self.position.saturating_add(task), self.budget)
    }

    fn began(&self) -> Iteration {
        self.place(0).0
    }

    /// Returns the parameters of the round, and those of a worker at them that has taken no steps.
    fn fresh(&self, sizes: TensorSizes) -> (Arc<Vec<f32>>, LocalParameters) {
        let format = WireFormat::F32Exact;
        let base = self.loaded.1.clone();
        (base.clone(), LocalParameters::new(self.steps.clone(), sizes, format, base))
    }
}

impl Worker<'_> {
    fn local(&mut self) -> &mut LocalSteps {
        self.local.as_mut().expect("only a worker that takes local steps calls this")
    }

    pub(super) fn load(&mut self, iteration: Iteration, parameters: Arc<Vec<f32>>) {
        let Some(local) = &mut self.local else { return self.learner.load(&parameters) };
        local.loaded = (iteration, parameters.clone());
        if let Some(chain) = local.chain.as_mut().filter(|chain| chain.is_ahead && chain.iteration == iteration) {
            chain.is_ahead = false;
            local.parameters.move_to(parameters);
            self.load_own();
        }
    }

    pub(super) fn take_steps(
        &mut self,
        lease: &Lease,
        position: u64,
        round: u64,
        units: Option<Units>,
    ) -> Result<ComputedLease, Stop> {
        self.begin_chain(lease.iteration, position, round, units)?;
        self.chain(lease)
    }

    /// Begins a chain, unless the current one goes on. The difference of that is kept.
    fn begin_chain(
        &mut self,
        iteration: Iteration,
        position: u64,
        round: u64,
        units: Option<Units>,
    ) -> Result<(), Stop> {
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
        let (loaded, parameters) = local.loaded.clone();
        let is_ahead = loaded != iteration;
        // Steps that no difference includes are dropped with the parameters of the round.
        let goes_on = is_ahead && local.chain.as_ref().is_some_and(|chain| chain.iteration == loaded);
        let base = if goes_on { local.parameters.values().to_vec().into() } else { parameters };
        local.position = position;
        local.parameters.begin(base);
        let (tasks, leases) = (TaskRanges::default(), BTreeSet::new());
        local.chain = Some(Chain { iteration, round, tasks, leases, is_ahead });
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
            chain.leases.insert(lease.id);
        }
        computed
    }

    /// Drops a chain of which no lease is left, as when an iteration that began ahead is given up.
    pub(super) fn drop_steps(&mut self, lease: LeaseId) {
        if let Some(local) = &mut self.local {
            local.chain.take_if(|chain| chain.leases.remove(&lease) && chain.leases.is_empty());
        }
    }

    fn steps(&mut self, lease: &Lease) -> Result<ComputedLease, Stop> {
        let (mut times, mut losses) = (LeaseTimes::default(), Vec::new());
        for first in lease.tasks.indices() {
            let (of, place) = (self.local().budget, self.local().place(first));
            let announced = TaskRange { first: place.1, count: (lease.tasks.end() - first).min(of - place.1) };
            self.learner.announce(place.0, announced, 1);
            let measured = self.timed(lease.iteration, 1, |worker| worker.step(place))?;
            times.busy_s.push(measured.busy.as_secs_f64());
            times.outlasted += u64::from(measured.is_outlasted);
            losses.push(measured.loss);
        }
        times.ahead = self.local().chain.as_ref().is_some_and(|chain| chain.is_ahead);
        let computed = ComputedLease { lease: lease.id, times, losses };
        if self.cancelled.is_set() { Err(Stop::Cancelled) } else { Ok(computed) }
    }

    fn step(&mut self, (iteration, task): (Iteration, u64)) -> Result<f64, LearnerError> {
        let task = self.task_gradient(iteration, task)?;
        let loss = finite(task.loss)?;
        let local = self.local();
        local.parameters.step(local.began(), task.gradient)?;
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

    /// Returns the largest magnitudes of the first step of a worker without moments, along the round's first task.
    pub(super) fn first_step_maxima(&mut self) -> Result<Vec<f32>, LearnerError> {
        let sizes = self.sizes.clone();
        let (base, mut fresh) = self.local().fresh(sizes.clone());
        self.learner.load(&base);
        let (began, index) = self.local().place(0);
        let first = self.task_gradient(began, index);
        self.load_own();
        fresh.step(began, first?.gradient)?;
        Ok(maxima(&fresh.difference(1), &sizes)?)
    }
}
