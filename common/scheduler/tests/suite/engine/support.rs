//! An engine and its last decision, with helpers for tests that read like a script.

use std::collections::BTreeMap;
use std::sync::Arc;

use ata_policies::build_policy;
use ata_scheduler::{
    Collection, Decision, Effect, Engine, EngineConfig, Event, LeaseTime, Policy, PolicyContext, Refusal, Report,
    StepOutcome, Truth, WorkerStatistics,
};
use ata_types::{CollectionId, Iteration, Lease, LeaseId, MachineId, TaskOutcome, TaskRange, WorkerId};

/// Seconds that each task or batch takes in the reports of [`Cluster::done`].
pub(crate) const BUSY_S: f64 = 0.5;

pub(crate) fn worker(number: u32) -> WorkerId {
    WorkerId::new(number).unwrap()
}

/// A policy for three workers whose mean task times are known.
pub(crate) fn policy(name: &str) -> Box<dyn Policy> {
    let means = vec![1.0, 2.0, 4.0];
    let truth = Some(Arc::new(means.clone()) as Arc<dyn Truth>);
    build_policy(name, &PolicyContext { means: Some(means), workers: Some(3), truth }).unwrap()
}

pub(crate) fn config(budget: u64, min_workers: usize) -> EngineConfig {
    EngineConfig { budget, iterations: 3, min_workers, lease_timeout_s: Some(60.0), seed: 1, ..EngineConfig::default() }
}

/// Returns a cluster of as many workers as the run waits for, and what they begin with.
pub(crate) fn begun(policy: &str, config: EngineConfig) -> (Cluster, Vec<(u32, Lease)>) {
    let workers = config.min_workers as u32;
    let mut cluster = Cluster::with(policy, config);
    let leases = cluster.join_all(workers);
    (cluster, leases)
}

pub(crate) struct Cluster {
    pub(crate) engine: Engine,
    pub(crate) now_s: f64,
    /// The workers and the decision of the last iteration that began.
    started: Option<(Arc<[WorkerId]>, Arc<Decision>)>,
    /// Workers that compute a lease as one batch.
    fusing: Vec<u32>,
    open: BTreeMap<LeaseId, (WorkerId, Lease)>,
    /// The collections that each worker was last asked for, including lost workers.
    collections: BTreeMap<CollectionId, Collection>,
    ordered: Vec<CollectionId>,
    collected: Vec<(WorkerId, Lease)>,
}

impl Cluster {
    pub(crate) fn new(policy: &str, budget: u64, min_workers: usize) -> Self {
        Self::with(policy, config(budget, min_workers))
    }

    pub(crate) fn with(policy: &str, config: EngineConfig) -> Self {
        Self::of(Engine::new(config, self::policy(policy)))
    }

    pub(crate) fn of(engine: Engine) -> Self {
        let mut cluster = Self {
            engine,
            now_s: 0.0,
            started: None,
            fusing: Vec::new(),
            open: BTreeMap::new(),
            collections: BTreeMap::new(),
            ordered: Vec::new(),
            collected: Vec::new(),
        };
        cluster.tell(Event::Proceed);
        cluster
    }

    /// Returns all effects of an event, including those that [`plain`] leaves out.
    pub(crate) fn tell(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.engine.handle(self.now_s, event, &mut effects);
        self.remember(&effects);
        effects
    }

    pub(crate) fn report(&mut self, number: u32, lease: LeaseId, report: Report<'_>) -> Result<Vec<Effect>, Refusal> {
        let mut effects = Vec::new();
        self.engine.report(self.now_s, worker(number), lease, report, &mut effects)?;
        self.remember(&effects);
        Ok(effects)
    }

    fn remember(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Start { workers, decision, .. } => {
                    self.started = Some((Arc::clone(workers), Arc::clone(decision)));
                }
                Effect::Assign { worker, lease, .. } => {
                    assert_eq!(self.open.insert(lease.id, (*worker, *lease)), None, "a lease id is used once");
                    let own = |id| Collection { worker: *worker, id, leases: vec![*lease] };
                    self.collections.extend(lease.own.map(|id| (id, own(id))));
                }
                Effect::End { worker, lease, outcome, .. } => {
                    let open = self.open.remove(&lease.id);
                    assert_eq!(open, Some((*worker, *lease)), "a lease ends once, not again as {outcome:?}");
                }
                Effect::Collect { collections, .. } => {
                    self.collections.extend(collections.iter().map(|asked| (asked.id, asked.clone())));
                }
                Effect::Step { collections, collected, .. } => {
                    (self.ordered, self.collected) = (collections.clone(), collected.clone());
                }
                _ => {}
            }
        }
    }

    /// Returns the worker of each collection of the last step, ascending.
    pub(crate) fn contributors(&self) -> Vec<u32> {
        let mut workers: Vec<u32> = self.ordered.iter().map(|id| self.collections[id].worker.number()).collect();
        workers.sort_unstable();
        workers
    }

    pub(crate) fn collections(&self) -> Vec<Collection> {
        self.collections.values().cloned().collect()
    }

    pub(crate) fn decision(&self) -> &Decision {
        &self.started.as_ref().expect("an iteration began").1
    }

    pub(crate) fn workers(&self) -> &[WorkerId] {
        &self.started.as_ref().expect("an iteration began").0
    }

    pub(crate) fn join(&mut self, number: u32) -> Vec<Effect> {
        self.join_known(number, WorkerStatistics::default())
    }

    pub(crate) fn join_known(&mut self, number: u32, prior: WorkerStatistics) -> Vec<Effect> {
        self.tell(joined(number, MachineId::from(worker(number)), prior, false))
    }

    pub(crate) fn join_on(&mut self, number: u32, machine: MachineId) -> Vec<Effect> {
        self.tell(joined(number, machine, WorkerStatistics::default(), false))
    }

    pub(crate) fn join_fusing(&mut self, number: u32) -> Vec<Effect> {
        self.fusing.push(number);
        self.tell(joined(number, MachineId::from(worker(number)), WorkerStatistics::default(), true))
    }

    pub(crate) fn join_all(&mut self, number: u32) -> Vec<(u32, Lease)> {
        (1..=number).flat_map(|number| assigned(&self.join(number))).collect()
    }

    pub(crate) fn lose(&mut self, number: u32) -> Vec<Effect> {
        plain(self.tell(Event::WorkerLost { worker: worker(number) }))
    }

    /// Reports a lease as computed, and delivers its own collection, if it has one.
    pub(crate) fn done(&mut self, number: u32, lease: &Lease) -> Result<Vec<Effect>, Refusal> {
        let mut effects = self.computed(number, lease)?;
        effects.extend(lease.own.map(|_| self.deliver_own(number, lease)).into_iter().flatten());
        Ok(effects)
    }

    pub(crate) fn done_all(&mut self, leases: &[(u32, Lease)]) -> Vec<Effect> {
        leases.iter().flat_map(|(number, lease)| self.done(*number, lease).unwrap()).collect()
    }

    pub(crate) fn computed(&mut self, number: u32, lease: &Lease) -> Result<Vec<Effect>, Refusal> {
        self.computed_after(number, lease, 0.0)
    }

    /// Reports a lease as computed after the worker waited for parameters.
    pub(crate) fn computed_after(&mut self, number: u32, lease: &Lease, waited_s: f64) -> Result<Vec<Effect>, Refusal> {
        let times = if self.fusing.contains(&number) { 1 } else { lease.tasks.count as usize };
        let busy_s = vec![BUSY_S; times];
        self.report(number, lease.id, Report::Done { busy_s: &busy_s, waited_s }).map(plain)
    }

    pub(crate) fn deliver_own(&mut self, number: u32, lease: &Lease) -> Vec<Effect> {
        plain(self.tell(Event::Delivered { worker: worker(number), collection: lease.own.unwrap() }))
    }

    pub(crate) fn fail_own(&mut self, number: u32, lease: &Lease) -> Vec<Effect> {
        plain(self.tell(Event::CollectionFailed { worker: worker(number), collection: lease.own.unwrap() }))
    }

    pub(crate) fn deliver(&mut self, number: u32) {
        for Collection { worker, id: collection, .. } in self.collections() {
            if worker.number() == number {
                assert_eq!(self.tell(Event::Delivered { worker, collection }), []);
            }
        }
    }

    pub(crate) fn fail(&mut self, number: u32, lease: &Lease) -> Vec<Effect> {
        plain(self.report(number, lease.id, Report::Failed { uncomputable: false }).unwrap())
    }

    pub(crate) fn timeout(&mut self) -> Vec<Effect> {
        plain(self.tell(Event::Timeout))
    }

    pub(crate) fn commit(&mut self, iteration: u64) -> Vec<Effect> {
        self.commit_with(iteration, StepOutcome::default())
    }

    /// Commits a step, whose collected leases are then applied, and begins the next iteration.
    pub(crate) fn commit_with(&mut self, iteration: u64, outcome: StepOutcome) -> Vec<Effect> {
        let mut effects = self.tell(Event::StepCommitted { iteration: Iteration(iteration), outcome });
        let collected = std::mem::take(&mut self.collected);
        let ends = effects.extract_if(.., |effect| matches!(effect, Effect::End { .. }));
        let expected: Vec<Effect> =
            collected.iter().map(|(worker, lease)| end(worker.number(), lease, TaskOutcome::Applied)).collect();
        assert_eq!(plain(ends.collect()), expected);
        if !effects.iter().any(|effect| matches!(effect, Effect::Finish { .. })) {
            effects.extend(self.tell(Event::Proceed));
        }
        plain(effects)
    }

    pub(crate) fn applied_and_wasted(&self) -> (u64, u64) {
        (self.engine.ledger().tasks_applied, self.engine.ledger().tasks_wasted)
    }
}

fn joined(number: u32, machine: MachineId, prior: WorkerStatistics, fuses: bool) -> Event {
    Event::WorkerJoined { worker: worker(number), machine, prior, fuses }
}

pub(crate) fn is_start(effect: &Effect, k: u64) -> bool {
    matches!(effect, Effect::Start { iteration, .. } if iteration.number() == k)
}

pub(crate) fn assigned(effects: &[Effect]) -> Vec<(u32, Lease)> {
    let assigned = effects.iter().filter_map(|effect| match effect {
        Effect::Assign { worker, lease, .. } => Some((worker.number(), *lease)),
        _ => None,
    });
    assigned.collect()
}

pub(crate) fn lease_of(leases: &[(u32, Lease)], number: u32) -> Lease {
    leases.iter().find(|(holder, _)| *holder == number).unwrap().1
}

pub(crate) fn ranges(leases: &[(u32, Lease)]) -> Vec<(u32, TaskRange)> {
    leases.iter().map(|(number, lease)| (*number, lease.tasks)).collect()
}

pub(crate) fn holders(leases: &[(u32, Lease)]) -> Vec<u32> {
    leases.iter().map(|(number, _)| *number).collect()
}

pub(crate) fn evicted(effects: &[Effect]) -> Vec<u32> {
    let evicted = effects.iter().filter_map(|effect| match effect {
        Effect::Evict { worker, .. } => Some(worker.number()),
        _ => None,
    });
    evicted.collect()
}

pub(crate) fn outcomes(effects: &[Effect]) -> Vec<(u32, TaskOutcome)> {
    let outcome = |effect: &Effect| match *effect {
        Effect::End { worker, outcome, .. } => Some((worker.number(), outcome)),
        _ => None,
    };
    effects.iter().filter_map(outcome).collect()
}

pub(crate) fn is_aborted(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Abort { .. }))
}

pub(crate) fn indices(leases: &[(u32, Lease)]) -> Vec<u64> {
    let mut indices: Vec<u64> = leases.iter().flat_map(|(_, lease)| lease.tasks.indices()).collect();
    indices.sort_unstable();
    indices
}

/// Returns the effects without their times and collections, and without those that require no action: costs, rests, and the ends of
/// lost and failed leases.
fn plain(effects: Vec<Effect>) -> Vec<Effect> {
    let plain = |effect| match effect {
        Effect::End {
            worker,
            lease,
            outcome: outcome @ (TaskOutcome::Applied | TaskOutcome::Ignored | TaskOutcome::Cancelled),
            ..
        } => Some(end(worker.number(), &lease, outcome)),
        Effect::End { outcome: TaskOutcome::Lost | TaskOutcome::Failed, .. }
        | Effect::Committed { .. }
        | Effect::Collect { .. }
        | Effect::Rest { .. } => None,
        Effect::Step { iteration, tasks, lr_factor, with_product, .. } => {
            let (collections, collected) = (Vec::new(), Vec::new());
            Some(Effect::Step { iteration, tasks, collections, collected, lr_factor, with_product })
        }
        other => Some(other),
    };
    effects.into_iter().filter_map(plain).collect()
}

fn end(number: u32, lease: &Lease, outcome: TaskOutcome) -> Effect {
    let time = match outcome {
        TaskOutcome::Cancelled => LeaseTime::Censored { elapsed_s: None },
        _ => LeaseTime::Reported { factor: 1.0, overhead_s: None },
    };
    Effect::End { worker: worker(number), lease: *lease, outcome, time }
}

/// Returns the end of a lease whose result enters no step.
pub(crate) fn discard(number: u32, lease: &Lease) -> Effect {
    end(number, lease, TaskOutcome::Ignored)
}

pub(crate) fn cancel(number: u32, lease: &Lease) -> Effect {
    end(number, lease, TaskOutcome::Cancelled)
}

pub(crate) fn step(iteration: u64, tasks: Vec<TaskRange>) -> Effect {
    let (iteration, collections, collected) = (Iteration(iteration), Vec::new(), Vec::new());
    Effect::Step { iteration, tasks, collections, collected, lr_factor: 1.0, with_product: false }
}

pub(crate) fn steps(effects: &[Effect]) -> Vec<(u64, Vec<TaskRange>)> {
    let steps = effects.iter().filter_map(|effect| match effect {
        Effect::Step { iteration, tasks, .. } => Some((iteration.number(), tasks.clone())),
        _ => None,
    });
    steps.collect()
}
