//! Tests invariants 4 and 5 under random faults. Whatever joins, leaves, fails or is repeated, in batches or not, each step takes as many
//! tasks as its policy says, each of them once, and the run reaches its end.

use std::collections::{BTreeMap, BTreeSet};

use crate::unruly::Unruly;
use ata_policies::build_policy;
use ata_scheduler::{
    Collect, Collection, Effect, Engine, EngineConfig, Event, Policy, PolicyContext, Refusal, Report, StepOutcome,
    Verify, WorkerStatistics,
};
use ata_types::{CollectionId, Iteration, Lease, LeaseId, MachineId, TaskOutcome, TaskRange, WorkerId};
use proptest::prelude::*;

const ITERATIONS: u64 = 8;

/// The limit on failures. Runs that are aborted early test little; evictions make further attempts fail.
const MAX_FAILURES: u32 = 2;

/// The longest pause after failures in which nothing is handed out: the length of a rest.
const LONGEST_PAUSE_S: f64 = 1.0;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Lose(u32),
    Join(u32),
    Fail,
    /// A collection is refused, or its worker gives it up.
    FailCollection,
    Repeat,
    /// Time passes, so that leases expire and rests end.
    Pass,
}

/// A fault, how many results arrive after it, and what selects among leases.
#[derive(Clone, Copy, Debug)]
struct Turn {
    fault: Fault,
    results: usize,
    pick: usize,
}

fn turn() -> impl Strategy<Value = Turn> {
    let fault = prop_oneof![
        (1u32..6).prop_map(Fault::Lose),
        (1u32..6).prop_map(Fault::Join),
        Just(Fault::Fail),
        Just(Fault::FailCollection),
        Just(Fault::Repeat),
        Just(Fault::Pass),
    ];
    (fault, 0usize..4, any::<usize>()).prop_map(|(fault, results, pick)| Turn { fault, results, pick })
}

/// The number of tasks that make a step.
#[derive(Clone, Copy, Debug)]
enum Takes {
    /// A step takes all B tasks, with the indices 0..B.
    All,
    /// A step takes the first B of more tasks.
    Budget,
    /// A step takes one task from each of k workers, or from all if there are fewer when the iteration begins.
    Workers(u64),
    /// A step takes one task, with a delay below this.
    One { max_delay: u64 },
}

const POLICIES: [(&str, f64, Takes); 24] = [
    ("ata", 0.0, Takes::All),
    ("ata-empirical", 0.0, Takes::All),
    ("uta", 0.0, Takes::All),
    ("ata-auto", 0.0, Takes::All),
    ("ema", 0.0, Takes::All),
    ("proportional:window=2", 0.0, Takes::All),
    ("controller", 0.0, Takes::All),
    ("affine", 0.0, Takes::All),
    ("pull", 0.0, Takes::All),
    ("gradient-coding:stragglers=2", 0.0, Takes::All),
    ("unruly", 0.0, Takes::All),
    ("uta", 0.5, Takes::Budget),
    ("ata-auto", 0.5, Takes::Budget),
    ("ata-empirical", 0.2, Takes::Budget),
    ("controller", 0.5, Takes::Budget),
    ("pull", 0.5, Takes::Budget),
    ("gta", 0.0, Takes::Budget),
    ("k-sync:k=3", 0.0, Takes::Workers(3)),
    ("cmab-kl:r=2", 0.0, Takes::Workers(2)),
    ("cmab-kl:r=2", 9.5, Takes::Workers(2)),
    ("asgd", 0.0, Takes::One { max_delay: u64::MAX }),
    ("ringmaster:R=1", 0.0, Takes::One { max_delay: 1 }),
    ("ringmaster:R=2", 0.0, Takes::One { max_delay: 2 }),
    ("ringmaster:R=2,stops=on", 0.0, Takes::One { max_delay: 2 }),
];

/// Worker 2 returns wrong results now and then, each time in a different way.
fn is_wrong(worker: WorkerId, lease: LeaseId) -> bool {
    worker.number() == 2 && lease.0.is_multiple_of(3)
}

/// An engine, and the knowledge of an honest cluster around it.
struct World {
    engine: Engine,
    takes: Takes,
    budget: u64,
    now_s: f64,
    present: BTreeSet<WorkerId>,
    /// Bits that determine in turn whether a worker that joins computes a lease as one batch.
    join_fusing: u64,
    /// The workers that compute a lease as one batch.
    fusing: BTreeSet<WorkerId>,
    /// The number of workers that were available when the iteration began.
    began_with: u64,
    /// The number of tasks that it allocated; later ones are probes.
    allocated: u64,
    leases: u64,
    /// The leases that workers compute.
    out: BTreeMap<LeaseId, (WorkerId, Lease)>,
    /// The leases that were reported, and that the engine has not ended yet.
    reported: BTreeMap<LeaseId, (WorkerId, Lease)>,
    /// The collections that workers were asked for and have not delivered.
    collections: BTreeMap<(WorkerId, CollectionId), Vec<Lease>>,
    delivered: BTreeMap<CollectionId, Vec<Lease>>,
    /// The leases that have ended, in any way.
    over_leases: Vec<(WorkerId, Lease)>,
    joining: Option<WorkerId>,
    may_proceed: bool,
    taken: Vec<Lease>,
    applied: u64,
    /// The number of leases whose result entered no step.
    wasted: u64,
    to_commit: Option<u64>,
    /// Whether the step is being committed.
    committing: bool,
    /// The results that the engine wants compared.
    comparisons: Vec<(TaskRange, CollectionId, CollectionId)>,
    /// The share of leases that are checked, if any are.
    verify: Option<f64>,
    /// The workers that were expelled or mismatched in the current iteration.
    caught: BTreeSet<WorkerId>,
    failed: u32,
    evicted: u32,
    /// The time since which workers are present and none computes.
    idle_since_s: Option<f64>,
    /// The number of machines that the workers run on.
    machines: u32,
    over: bool,
}

impl World {
    fn new(policy: &str, config: EngineConfig, takes: Takes, join_fusing: u64, machines: u32) -> Self {
        let context = PolicyContext { workers: Some(5), ..PolicyContext::default() };
        let policy: Box<dyn Policy> = match policy {
            "unruly" => Box::new(Unruly::default()),
            policy => build_policy(policy, &context).unwrap(),
        };
        Self {
            engine: Engine::new(config, policy),
            takes,
            budget: config.budget,
            now_s: 0.0,
            present: BTreeSet::new(),
            join_fusing,
            fusing: BTreeSet::new(),
            began_with: 0,
            allocated: 0,
            leases: 0,
            out: BTreeMap::new(),
            reported: BTreeMap::new(),
            collections: BTreeMap::new(),
            delivered: BTreeMap::new(),
            over_leases: Vec::new(),
            joining: None,
            may_proceed: true,
            taken: Vec::new(),
            applied: 0,
            wasted: 0,
            to_commit: None,
            committing: false,
            comparisons: Vec::new(),
            verify: config.verify.map(|verify| verify.share),
            caught: BTreeSet::new(),
            failed: 0,
            evicted: 0,
            idle_since_s: None,
            machines,
            over: false,
        }
    }

    fn is_asynchronous(&self) -> bool {
        matches!(self.takes, Takes::One { .. })
    }

    /// Returns whether a lease is a probe, or another worker was faster.
    fn is_unneeded(&self, lease: Lease) -> bool {
        let mut kept = self.reported.values().filter(|(_, kept)| kept.own.is_none() || self.is_delivered(kept));
        self.is_probe(lease) || kept.any(|(_, kept)| lease.tasks.overlaps(kept.tasks))
    }

    fn tell(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.engine.handle(self.now_s, event, &mut effects);
        self.carry_out(effects);
    }

    fn report(&mut self, worker: WorkerId, lease: LeaseId, report: Report<'_>) -> Result<(), Refusal> {
        let mut effects = Vec::new();
        let told = self.engine.report(self.now_s, worker, lease, report, &mut effects);
        self.carry_out(effects);
        told
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.apply(effect);
        }
        if self.may_proceed && !self.over {
            self.may_proceed = false;
            self.tell(Event::Proceed);
        }
        // A result that must be confirmed may wait for a second worker.
        let fewest = usize::from(self.verify.is_some());
        if self.present.len() <= fewest || !self.is_stalled() {
            self.idle_since_s = None;
            return;
        }
        self.idle_since_s.get_or_insert(self.now_s);
        assert!(self.is_paused(), "workers are present, and none computes");
    }

    fn apply(&mut self, effect: Effect) {
        assert!(!self.over, "{effect:?} after the end");
        if matches!(effect, Effect::End { outcome: TaskOutcome::Disputed, .. }) {
            // At the end of a pause, no worker may be available to settle a dispute: that is a failure as well, and another pause follows.
            self.idle_since_s = None;
        }
        match effect {
            Effect::Start { workers, decision, .. } => {
                self.caught.clear();
                self.began_with = workers.len() as u64;
                self.allocated = match decision.collect {
                    Collect::InParts { tasks } => tasks,
                    Collect::First { .. } => u64::MAX,
                    _ => decision.allocation.iter().sum(),
                };
            }
            Effect::Assign { worker, lease } => self.assigned(worker, lease),
            Effect::End { worker, lease, outcome, .. } => self.ended(worker, lease, outcome),
            Effect::Collect { collections, .. } => collections.into_iter().for_each(|asked| self.asked(asked)),
            Effect::Step { iteration, tasks, collections, collected, .. } => {
                self.step(iteration.number(), &tasks, &collections, &collected);
            }
            Effect::Committed { .. } => self.committed(),
            Effect::Evict { worker, .. } => {
                self.evicted += 1;
                self.gone(worker);
            }
            Effect::Expel { worker, strikes, mismatches } => {
                assert!(strikes > 0 || mismatches > 0);
                self.gone(worker);
            }
            Effect::Compare { tasks, first, second } => self.comparisons.push((tasks, first, second)),
            // A rest that is shortened may already be over.
            Effect::Rest { rest_s, strikes, .. } => assert!(rest_s >= 0.0 && strikes >= 1),
            // A worker that joins again is lost first.
            Effect::ProbeLink { .. } => {}
            Effect::Wait { .. } => assert!(self.present.len() <= 1 + usize::from(self.verify.is_some())),
            Effect::Finish { .. } | Effect::Abort { .. } => self.over = true,
        }
    }

    /// Every lease ends once, and in an allowed way.
    fn ended(&mut self, worker: WorkerId, lease: Lease, outcome: TaskOutcome) {
        let was_kept = self.reported.contains_key(&lease.id) && lease.own.is_none();
        let held = if self.reported.contains_key(&lease.id) { &mut self.reported } else { &mut self.out };
        assert_eq!(held.remove(&lease.id), Some((worker, lease)), "{outcome:?}");
        if let Some(own) = lease.own {
            self.collections.remove(&(worker, own));
        }
        match outcome {
            TaskOutcome::Applied => {
                assert!(self.verify != Some(1.0) || !is_wrong(worker, lease.id), "a lie is taken");
                assert!(self.committing, "a result is applied once the step is taken");
                self.taken.push(lease);
            }
            TaskOutcome::Ignored => assert!(self.is_asynchronous() || self.is_unneeded(lease)),
            TaskOutcome::Cancelled => {
                let needed = matches!(self.takes, Takes::All) && !self.is_unneeded(lease);
                assert!(!needed || self.caught.contains(&worker), "a barrier policy takes everything except probes");
            }
            TaskOutcome::Mismatched => {
                assert!(is_wrong(worker, lease.id), "a correct result is mismatched");
                self.caught.insert(worker);
            }
            TaskOutcome::Disputed => self.failed += 1,
            TaskOutcome::Lost => assert!(!self.present.contains(&worker) || self.joining == Some(worker)),
            TaskOutcome::Failed => assert!(self.failed > 0),
        }
        if matches!(outcome, TaskOutcome::Lost | TaskOutcome::Failed) {
            assert!(!self.is_delivered(&lease), "what was delivered is not lost");
            if was_kept {
                // A step that waited for it is withdrawn.
                self.to_commit = None;
            }
        }
        self.wasted += u64::from(outcome != TaskOutcome::Applied);
        self.over_leases.push((worker, lease));
    }

    fn assigned(&mut self, worker: WorkerId, lease: Lease) {
        assert!(self.present.contains(&worker), "only workers that are present get tasks");
        assert_eq!(lease.id, LeaseId(self.leases), "a lease id is used once");
        self.leases += 1;
        assert!(lease.own.is_some() || !self.is_asynchronous());
        assert!(lease.own.is_none() || self.is_asynchronous() || self.verify.is_some());
        // In a step of one task per worker, a batch may contain several tasks that were lost, and be lost itself.
        let is_retried = matches!(self.takes, Takes::Workers(_)) && self.join_fusing != 0;
        assert!(lease.tasks.count == 1 || matches!(self.takes, Takes::All) || is_retried);
        if self.is_asynchronous() {
            let busy = |leases: &BTreeMap<_, (WorkerId, Lease)>| leases.values().any(|(holder, _)| *holder == worker);
            assert!(!busy(&self.out) && !busy(&self.reported), "one task at a time");
            assert_eq!(lease.iteration, self.engine.iteration());
        }
        self.out.insert(lease.id, (worker, lease));
        self.collections.extend(lease.own.map(|own| ((worker, own), vec![lease])));
    }

    /// A worker is asked for its own leases that are in no other collection, or for fewer leases than before.
    fn asked(&mut self, Collection { worker, id, leases }: Collection) {
        assert!(self.present.contains(&worker), "only workers that are present are asked");
        for lease in &leases {
            let held = self.out.get(&lease.id).or_else(|| self.reported.get(&lease.id));
            assert_eq!(held, Some(&(worker, *lease)), "only leases that have not ended are collected");
            assert!(!self.is_probe(*lease));
        }
        let before = self.collections.remove(&(worker, id));
        let is_in_another = self.collections.values().flatten().any(|lease| leases.contains(lease));
        assert!(!is_in_another && !leases.iter().any(|lease| self.is_delivered(lease)), "collected twice");
        match before {
            Some(before) => assert!(leases.len() < before.len() && leases.iter().all(|lease| before.contains(lease))),
            None => assert!(!leases.is_empty()),
        }
        if !leases.is_empty() {
            self.collections.insert((worker, id), leases);
        }
    }

    fn is_delivered(&self, lease: &Lease) -> bool {
        self.delivered.values().flatten().any(|delivered| delivered == lease)
    }

    /// Returns whether no step takes a lease, whatever its result.
    fn is_probe(&self, lease: Lease) -> bool {
        lease.tasks.first >= self.allocated.max(self.budget)
    }

    /// Each result that was kept is in exactly one of the collections that the step waits for or has.
    fn check_collected(&self, collections: &[CollectionId], collected: &[(WorkerId, Lease)]) {
        let open = self.collections.iter().map(|((_, id), leases)| (id, leases));
        let all: BTreeMap<&CollectionId, &Vec<Lease>> = open.chain(&self.delivered).collect();
        let mut asked: Vec<LeaseId> = collections.iter().flat_map(|id| all[id]).map(|lease| lease.id).collect();
        let mut kept: Vec<LeaseId> = collected.iter().map(|(_, lease)| lease.id).collect();
        asked.sort_unstable();
        kept.sort_unstable();
        assert_eq!(asked, kept);
        assert!(collected.iter().all(|(worker, lease)| self.reported.get(&lease.id) == Some(&(*worker, *lease))));
    }

    fn committed(&mut self) {
        self.applied += self.taken.drain(..).map(|lease| lease.tasks.count).sum::<u64>();
        let is_open = |leases: &Vec<Lease>| {
            leases.iter().any(|lease| self.out.contains_key(&lease.id) || self.reported.contains_key(&lease.id))
        };
        self.collections.retain(|_, leases| is_open(leases));
        self.delivered.retain(|_, leases| is_open(leases));
        self.committing = false;
        self.may_proceed = true;
    }

    fn step(
        &mut self,
        iteration: u64,
        tasks: &[TaskRange],
        collections: &[CollectionId],
        collected: &[(WorkerId, Lease)],
    ) {
        assert_eq!(self.to_commit, None, "a step is ordered again only if it was taken back");
        self.check_collected(collections, collected);
        let indices = |ranges: &mut dyn Iterator<Item = TaskRange>| {
            let mut indices: Vec<u64> = ranges.flat_map(TaskRange::indices).collect();
            indices.sort_unstable();
            indices
        };
        let expected = indices(&mut collected.iter().map(|(_, lease)| lease.tasks));
        assert_eq!(indices(&mut tasks.iter().copied()), expected, "the step takes what was collected");
        assert!(expected.is_sorted_by(|a, b| a < b), "each task once");
        let count = expected.len() as u64;
        match self.takes {
            Takes::All => assert_eq!(tasks, [TaskRange { first: 0, count: self.budget }]),
            Takes::Budget => assert_eq!(count, self.budget),
            Takes::Workers(k) => assert_eq!(count, k.min(self.began_with)),
            Takes::One { max_delay } => {
                assert!(count == 1 && iteration - collected[0].1.iteration.number() < max_delay);
            }
        }
        self.to_commit = Some(iteration);
    }

    fn gone(&mut self, worker: WorkerId) {
        self.present.remove(&worker);
        self.collections.retain(|(holder, _), _| *holder != worker);
    }

    fn join(&mut self, worker: WorkerId) {
        // A worker that is present is lost first.
        self.gone(worker);
        self.present.insert(worker);
        self.joining = Some(worker);
        self.join_fusing = self.join_fusing.rotate_left(1);
        let fuses = self.join_fusing & 1 == 1;
        if fuses {
            self.fusing.insert(worker)
        } else {
            self.fusing.remove(&worker)
        };
        let machine = MachineId(u64::from(worker.number() % self.machines));
        let prior = WorkerStatistics::default();
        self.tell(Event::WorkerJoined { worker, machine, prior, fuses });
        self.joining = None;
    }

    /// Returns whether nothing is computed, compared or committed, and no collection of one lease is sent.
    fn is_stalled(&self) -> bool {
        let is_sent = |(worker, lease): &(WorkerId, Lease)| {
            lease.own.is_some_and(|own| self.collections.contains_key(&(*worker, own)))
        };
        let is_idle = !self.over && self.to_commit.is_none() && self.comparisons.is_empty() && self.out.is_empty();
        is_idle && !self.reported.values().any(is_sent)
    }

    /// Returns whether the engine waits after several failures in a row.
    fn is_paused(&mut self) -> bool {
        self.failed + self.evicted >= 3 && self.is_stalled() && self.engine.poll_timeout().is_some()
    }

    /// Returns whether a result waits for a second worker to confirm it.
    fn waits_for_a_witness(&self) -> bool {
        self.verify.is_some() && self.is_stalled()
    }

    /// Returns the times that a worker reports, or reported, for a lease.
    fn times(&self, worker: WorkerId, lease: Lease, busy_s: f64) -> Vec<f64> {
        vec![busy_s; if self.fusing.contains(&worker) { 1 } else { lease.tasks.count as usize }]
    }

    fn compared(&mut self, (tasks, first, second): (TaskRange, CollectionId, CollectionId)) {
        let is_honest = |collection| {
            let lease = self.delivered[&collection][0].id;
            !is_wrong(self.reported[&lease].0, lease)
        };
        let agree = is_honest(first) && is_honest(second);
        self.tell(Event::Compared { tasks, first, second, agree });
    }

    /// Returns a lease that a worker computes.
    fn pick(&self, pick: usize) -> (WorkerId, Lease) {
        *self.out.values().nth(pick % self.out.len()).unwrap()
    }

    fn suffer(&mut self, fault: Fault, pick: usize) {
        match fault {
            Fault::Lose(number) => {
                let worker = WorkerId::new(number).unwrap();
                self.gone(worker);
                self.tell(Event::WorkerLost { worker });
            }
            Fault::Join(number) => self.join(WorkerId::new(number).unwrap()),
            Fault::Fail if self.failed < MAX_FAILURES && !self.out.is_empty() => {
                self.failed += 1;
                let (worker, lease) = self.pick(pick);
                self.report(worker, lease.id, Report::Failed { uncomputable: false }).unwrap();
            }
            Fault::FailCollection if self.failed < MAX_FAILURES && !self.collections.is_empty() => {
                self.failed += 1;
                let (worker, collection) = *self.collections.keys().nth(pick % self.collections.len()).unwrap();
                self.collections.remove(&(worker, collection));
                self.tell(Event::CollectionFailed { worker, collection });
            }
            Fault::Repeat if !self.over_leases.is_empty() => {
                let (worker, lease) = self.over_leases[pick % self.over_leases.len()];
                let busy_s = self.times(worker, lease, 1.0);
                let told = self.report(worker, lease.id, Report::Done { busy_s: &busy_s });
                assert_eq!(told, Err(Refusal::NotHeld(lease.id)));
                lease.own.into_iter().for_each(|collection| self.tell(Event::Delivered { worker, collection }));
            }
            Fault::Pass | Fault::Fail | Fault::FailCollection | Fault::Repeat => {
                self.now_s = self.engine.poll_timeout().map_or(self.now_s, |at_s| self.now_s.max(at_s)) + 0.1;
                self.tell(Event::Timeout);
                let idle_s = self.idle_since_s.map_or(0.0, |since_s| self.now_s - since_s);
                assert!(idle_s <= LONGEST_PAUSE_S, "workers are present, and none has computed for {idle_s} s");
            }
        }
    }

    /// Returns the collections of which the worker has computed all leases.
    fn deliverable(&self) -> Vec<(WorkerId, CollectionId)> {
        let is_computed = |leases: &[Lease]| leases.iter().all(|lease| self.reported.contains_key(&lease.id));
        self.collections.iter().filter(|(_, leases)| is_computed(leases)).map(|(key, _)| *key).collect()
    }

    /// Delivers a collection.
    fn deliver(&mut self, (worker, collection): (WorkerId, CollectionId)) {
        let leases = self.collections.remove(&(worker, collection)).unwrap();
        self.delivered.insert(collection, leases);
        self.tell(Event::Delivered { worker, collection });
    }

    fn commit(&mut self, iteration: u64) {
        self.to_commit = None;
        self.committing = true;
        self.tell(Event::StepCommitted { iteration: Iteration(iteration), outcome: StepOutcome::default() });
    }

    /// Commits a step, or lets a result arrive or be compared, if there is one.
    fn go_on(&mut self, pick: usize) {
        let deliverable = self.deliverable();
        if !self.comparisons.is_empty() && (self.out.is_empty() || pick.is_multiple_of(3)) {
            let comparison = self.comparisons.swap_remove(pick % self.comparisons.len());
            self.compared(comparison);
        } else if pick % 4 == 1 && !deliverable.is_empty() {
            self.deliver(deliverable[pick / 4 % deliverable.len()]);
        } else if let Some(iteration) = self.to_commit.filter(|_| self.out.is_empty() || pick.is_multiple_of(2)) {
            self.commit(iteration);
        } else if !self.out.is_empty() {
            let (worker, lease) = self.pick(pick);
            self.out.remove(&lease.id);
            self.reported.insert(lease.id, (worker, lease));
            let busy_s = self.times(worker, lease, 0.1);
            self.report(worker, lease.id, Report::Done { busy_s: &busy_s }).unwrap();
        } else if let Some(collection) = deliverable.first() {
            self.deliver(*collection);
        }
    }
}

fn check(policy: &str, config: EngineConfig, takes: Takes, (join_fusing, machines): (u64, u32), turns: Vec<Turn>) {
    let mut world = World::new(policy, config, takes, join_fusing, machines);
    world.carry_out(Vec::new());
    world.join(WorkerId::from_slot(0));
    let mut turns = turns.into_iter();
    for round in 0.. {
        if world.over {
            break;
        }
        assert!(round < 100_000, "the run does not end");
        world.now_s += 1.0;
        match turns.next() {
            Some(Turn { fault, results, pick }) => {
                world.suffer(fault, pick);
                for result in 0..results {
                    if !world.over {
                        world.go_on(pick / (result + 2));
                    }
                }
            }
            // All workers were lost: without a new one the run would not continue.
            None if world.present.is_empty() && world.to_commit.is_none() => world.join(WorkerId::from_slot(8)),
            None if world.is_paused() => world.suffer(Fault::Pass, 0),
            None if world.waits_for_a_witness() => {
                let absent = (8..20).map(WorkerId::from_slot).find(|worker| !world.present.contains(worker));
                world.join(absent.unwrap());
            }
            None => world.go_on(0),
        }
    }
    let ledger = world.engine.ledger();
    if ledger.iterations < ITERATIONS {
        assert!(world.evicted + world.failed >= 3, "aborted too early");
        return;
    }
    assert_eq!(ledger.tasks_applied, world.applied);
    if world.is_asynchronous() {
        assert_eq!(ledger.tasks_wasted, world.wasted, "whatever was begun and entered no step");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn every_step_takes_what_its_policy_says_once(
        (policy, overcommit, takes) in prop::sample::select(&POLICIES),
        budget in 1u64..20,
        join_fusing in prop_oneof![Just(0), any::<u64>()],
        turns in prop::collection::vec(turn(), 0..60),
        seed: u64,
        machines in prop::sample::select(&[100, 1, 2, 3]),
        share in prop_oneof![Just(None), Just(Some(0.3)), Just(Some(1.0))],
        expel_after in prop_oneof![Just(None), Just(Some(2))],
    ) {
        // Only policies that wait for all of their tasks can be checked.
        let share = share.filter(|_| matches!(takes, Takes::All));
        let verify = share.map(|share| Verify { share, secret: !seed });
        let config = EngineConfig {
            budget, iterations: ITERATIONS, min_workers: 1, lease_timeout_s: Some(5.0), rest_s: LONGEST_PAUSE_S, seed, overcommit,
            verify, expel_after,
            ..EngineConfig::default()
        };
        check(policy, config, takes, (join_fusing, machines), turns);
    }
}
