//! Invariants 4 and 5 under random faults: whatever joins, leaves, fails or is repeated, in batches or not, each step takes as many tasks
//! as its policy says, each of them once, and the run reaches its end.

use std::collections::{BTreeMap, BTreeSet};

mod unruly;

use ata_policies::build_policy;
use ata_scheduler::{
    Collect, Collection, Effect, Engine, EngineConfig, Event, Policy, PolicyContext, Refusal, Report, StepOutcome,
    Verify, WorkerStatistics,
};
use ata_types::{CollectionId, Iteration, Lease, LeaseId, MachineId, TaskOutcome, TaskRange, WorkerId};
use proptest::prelude::*;
use unruly::Unruly;

const ITERATIONS: u64 = 8;

/// Runs that are aborted early show little; evictions make further attempts fail.
const MAX_FAILURES: u32 = 2;

/// The longest that nothing may be handed out after failures: a rest.
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

/// How many tasks make a step.
#[derive(Clone, Copy, Debug)]
enum Takes {
    /// All B of them: the indices 0..B.
    All,
    /// The first B of more.
    Budget,
    /// One from each of k workers, or from all if there are fewer when the iteration begins.
    Workers(u64),
    /// One, with a delay below this.
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

/// Worker 2 returns wrong results now and then, each time in another way.
fn is_wrong(worker: WorkerId, lease: LeaseId) -> bool {
    worker.number() == 2 && lease.0.is_multiple_of(3)
}

/// An engine, and what an honest cluster around it would know.
struct World {
    engine: Engine,
    takes: Takes,
    budget: u64,
    now_s: f64,
    present: BTreeSet<WorkerId>,
    /// Bits that say in turn whether a worker that joins computes a lease as one batch…
    join_fusing: u64,
    /// …and which of them do.
    fusing: BTreeSet<WorkerId>,
    /// Available when the iteration began.
    began_with: u64,
    /// Tasks that it allocated; those after them are probes.
    allocated: u64,
    leases: u64,
    /// Leases that workers compute.
    out: BTreeMap<LeaseId, (WorkerId, Lease)>,
    /// Leases reported, which the engine has not ended yet.
    reported: BTreeMap<LeaseId, (WorkerId, Lease)>,
    /// What workers are asked for, and have not delivered.
    collections: BTreeMap<(WorkerId, CollectionId), Vec<Lease>>,
    delivered: BTreeMap<CollectionId, Vec<Lease>>,
    /// Leases that are over, however they ended.
    over_leases: Vec<(WorkerId, Lease)>,
    joining: Option<WorkerId>,
    may_proceed: bool,
    taken: Vec<Lease>,
    applied: u64,
    /// Leases whose result entered no step.
    wasted: u64,
    to_commit: Option<u64>,
    /// Whether the step is committed just now.
    committing: bool,
    /// Results that the engine wants compared.
    comparisons: Vec<(TaskRange, CollectionId, CollectionId)>,
    /// The share of leases that are checked, if any are.
    verify: Option<f64>,
    /// The workers that were expelled or mismatched in the iteration under way.
    caught: BTreeSet<WorkerId>,
    failed: u32,
    evicted: u32,
    /// Since when workers are present, and none computes.
    idle_since_s: Option<f64>,
    /// The workers are on so many machines.
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

    /// Whether a lease is a probe, or another worker was faster.
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
            // At the end of a pause there may be nobody to settle a dispute: that is a failure, too, after which there is another.
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
            // One that is cut short may be over.
            Effect::Rest { rest_s, strikes, .. } => assert!(rest_s >= 0.0 && strikes >= 1),
            // A worker that joins again is lost first.
            Effect::ProbeLink { .. } => {}
            Effect::Wait { .. } => assert!(self.present.len() <= 1 + usize::from(self.verify.is_some())),
            Effect::Finish { .. } | Effect::Abort { .. } => self.over = true,
        }
    }

    /// Every lease ends once, and in a way it may.
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
                // A step that waited for it is taken back.
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
        // Of a step of one task per worker, a batch may hold several that were lost, and be lost itself.
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

    /// A worker is asked for leases of its own that are in no other collection, or for fewer than before.
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

    /// Whether no step takes a lease, whatever its result.
    fn is_probe(&self, lease: Lease) -> bool {
        lease.tasks.first >= self.allocated.max(self.budget)
    }

    /// What was kept is in exactly one of the collections that the step waits for, or has.
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
        // One that is present is lost first.
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

    /// Whether nothing is computed, compared or committed, and no collection of one lease is sent.
    fn is_stalled(&self) -> bool {
        let is_sent = |(worker, lease): &(WorkerId, Lease)| {
            lease.own.is_some_and(|own| self.collections.contains_key(&(*worker, own)))
        };
        let is_idle = !self.over && self.to_commit.is_none() && self.comparisons.is_empty() && self.out.is_empty();
        is_idle && !self.reported.values().any(is_sent)
    }

    /// Whether the engine waits after several failures in a row.
    fn is_paused(&mut self) -> bool {
        self.failed + self.evicted >= 3 && self.is_stalled() && self.engine.poll_timeout().is_some()
    }

    /// Whether a result waits for a second worker to confirm it.
    fn waits_for_a_witness(&self) -> bool {
        self.verify.is_some() && self.is_stalled()
    }

    /// What a worker reports, or reported, on a lease.
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

    /// A lease that a worker computes.
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

    /// Collections of which the worker has computed all leases.
    fn deliverable(&self) -> Vec<(WorkerId, CollectionId)> {
        let is_computed = |leases: &[Lease]| leases.iter().all(|lease| self.reported.contains_key(&lease.id));
        self.collections.iter().filter(|(_, leases)| is_computed(leases)).map(|(key, _)| *key).collect()
    }

    /// A collection arrives.
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

    /// A step is committed, or a result arrives or is compared, if there is one.
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
        // Only what waits for all of its tasks can be checked.
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
