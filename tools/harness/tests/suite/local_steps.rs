//! Tests local steps: workers that train by themselves, and whose parameters are averaged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ata_data::{DataSource, Split, Tasks};
use ata_harness::{Cluster, Condition, Ended, FaultProxy, Settings, WorkerSettings};
use ata_learn::{DeviceChoice, Learner};
use ata_record::RunEvent;
use ata_scheduler::TaskChoice;
use ata_sums::{
    GradientSum, InnerSteps, LearningRate, LocalParameters, Optimizer, Quantizer, Rule, TensorSizes, TrainingConfig,
    TrainingState, Units, decode_model, maxima, sha256_of_parameters,
};
use ata_types::{Iteration, LeaseId, TaskOutcome, WireFormat, WorkerId};

use crate::{applied, count, each, is_loss, run, start};

fn steps(rule: Rule) -> InnerSteps {
    let optimizer = Optimizer { rule, ..Optimizer::default() };
    InnerSteps { optimizer, learning_rate: LearningRate::constant(0.01), difference_bits: 6, overlap: true }
}

fn settings(policy: &'static str, format: WireFormat) -> Settings {
    Settings {
        policy,
        format,
        inner_steps: Some(steps(Rule::Adam)),
        model: "toy:40000",
        budget: 24,
        iterations: 8,
        ..Settings::default()
    }
}

fn workers() -> [WorkerSettings; 3] {
    [("one", 1), ("two", 2), ("three", 5)].map(|(name, task_ms)| WorkerSettings {
        task_time: Duration::from_millis(task_ms),
        ..WorkerSettings::new(name)
    })
}

/// Repeats a run in one thread, from the tasks of each worker in the journal.
struct Repetition {
    learner: Box<dyn Learner>,
    state: TrainingState,
    own: BTreeMap<WorkerId, LocalParameters>,
    /// The parameters of the round before, and its workers.
    before: (Arc<Vec<f32>>, BTreeSet<WorkerId>),
    settings: Settings,
    position: u64,
}

/// The tasks of a lease, and whether its worker did not have the parameters of the round yet.
#[derive(Default)]
struct Steps {
    tasks: Vec<u64>,
    ahead: bool,
}

impl Repetition {
    fn new(settings: &Settings) -> Self {
        let model = (settings.models)(settings.model).unwrap();
        let data = model.open(&DataSource::Generated { seed: 1 }, Split::Train).unwrap();
        let tasks = Tasks { seed: 1, budget: settings.budget, task_batch: settings.task_batch };
        let learner = data.learner(&DeviceChoice::Cpu.open().unwrap(), tasks);
        let config = TrainingConfig {
            optimizer: settings.optimizer().0,
            sizes: (&model.table()).into(),
            format: settings.format,
            budget: settings.choice.as_ref().map_or(settings.budget, |choice| choice.most),
        };
        let state = TrainingState::new(config, model.initial_parameters(1).unwrap());
        Self {
            learner,
            state,
            own: BTreeMap::new(),
            before: Default::default(),
            settings: settings.clone(),
            position: 0,
        }
    }

    fn sizes(&self) -> TensorSizes {
        self.state.config().sizes.clone()
    }

    fn base(&self) -> Arc<Vec<f32>> {
        Arc::new(self.state.working_parameters().to_vec())
    }

    fn worker(&self) -> LocalParameters {
        let base = self.base();
        LocalParameters::new(self.settings.inner_steps.clone().unwrap(), self.sizes(), self.settings.format, base)
    }

    fn step(&mut self, own: &mut LocalParameters, task: u64) {
        self.learner.load(own.values());
        let place = |task| Iteration::of_task(self.position + task, self.settings.budget);
        let ((began, _), (iteration, index)) = (place(0), place(task));
        own.step(began, self.learner.gradient(iteration, index).unwrap().gradient).unwrap();
    }

    fn steps_of(&mut self, worker: WorkerId, own: &mut LocalParameters, leases: &[&Steps]) -> u64 {
        let base = self.base();
        let mut is_ahead = leases[0].ahead;
        let goes_on = self.before.1.contains(&worker);
        own.begin(match is_ahead {
            true if goes_on => Arc::new(own.values().to_vec()),
            true => self.before.0.clone(),
            false => base.clone(),
        });
        for lease in leases {
            if std::mem::replace(&mut is_ahead, lease.ahead) && !lease.ahead {
                own.move_to(base.clone());
            }
            lease.tasks.iter().for_each(|task| self.step(own, *task));
        }
        if is_ahead {
            own.move_to(base);
        }
        leases.iter().map(|lease| lease.tasks.len() as u64).sum()
    }

    /// Repeats a round, in which each worker takes the steps of these leases.
    fn round(&mut self, leases: &BTreeMap<(WorkerId, LeaseId), Steps>) {
        let most = self.state.config().budget;
        if self.state.units().is_none() {
            let mut fresh = self.worker();
            self.step(&mut fresh, 0);
            let first = maxima(&fresh.difference(1), &self.sizes()).unwrap();
            self.state.set_units(Units::first(&first, most));
        }
        let units = self.state.units().unwrap().clone();
        let quantizer = Quantizer::new(units.clone(), self.sizes(), most, self.settings.format);
        let mut total = GradientSum::new(&self.sizes());
        let workers: BTreeSet<WorkerId> = leases.keys().map(|(worker, _)| *worker).collect();
        for worker in &workers {
            let mut own = self.own.remove(worker).unwrap_or_else(|| self.worker());
            let of_worker = leases.iter().filter(|((holder, _), _)| holder == worker).map(|(_, steps)| steps);
            let taken = self.steps_of(*worker, &mut own, &of_worker.collect::<Vec<_>>());
            let mut sum = GradientSum::new(&self.sizes());
            own.add_to(&mut sum, taken, &quantizer).unwrap();
            total.merge(&sum);
            self.own.insert(*worker, own);
        }
        self.before = (self.base(), workers);
        let mean = units.values(&self.sizes(), &total.values);
        let all = leases.values().map(|lease| lease.tasks.len() as u64).sum();
        self.state.step_whole(mean, all, 1.0, false).unwrap();
        self.position += all;
        self.state.commit_step(&self.state.believed(&total.maxima));
    }
}

fn repeated(settings: &Settings, ended: &Ended) -> [u8; 32] {
    let mut repetition = Repetition::new(settings);
    let mut rounds: BTreeMap<Iteration, BTreeMap<_, Steps>> = BTreeMap::new();
    for event in &ended.events {
        if let RunEvent::Task { iteration, task, worker, lease, outcome: TaskOutcome::Applied, ahead, .. } = event {
            let steps = rounds.entry(*iteration).or_default().entry((*worker, *lease)).or_default();
            steps.tasks.push(*task);
            steps.ahead = *ahead;
        }
    }
    for leases in rounds.values() {
        repetition.round(leases);
    }
    sha256_of_parameters(repetition.state.parameters())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tasks_of_each_worker_determine_the_bits_of_a_run() {
    for (policy, format, most_tasks) in [
        ("uta", WireFormat::F32Exact, None),
        ("ata-auto", WireFormat::F32Exact, None),
        ("ata-auto", WireFormat::Compact, None),
        ("ata-auto", WireFormat::Compact, Some(100)),
    ] {
        let settings = Settings { min_workers: 3, ..settings(policy, format) };
        let choice = most_tasks.map(|most| TaskChoice::of_rounds(settings.budget, most));
        let settings = Settings { choice, ..settings };
        let ended = run(&settings, workers()).await;
        assert_eq!(applied(&ended), settings.budget * settings.iterations, "{policy}");
        assert_eq!(ended.report.parameters_sha256, repeated(&settings, &ended), "{policy} {format}");
    }
}

/// The rounds of a single worker are ordinary training, as far as the rounding of its differences allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_worker_trains_as_if_there_were_no_rounds() {
    let settings = settings("uta", WireFormat::F32Exact);
    let ended = run(&settings, [WorkerSettings::new("one")]).await;
    let mut plain = Repetition::new(&settings);
    let mut own = plain.worker();
    for _ in 0..settings.iterations {
        (0..settings.budget).for_each(|task| plain.step(&mut own, task));
        plain.position += settings.budget;
    }
    let table = (settings.models)(settings.model).unwrap().table();
    let (found, _) = decode_model(&table, &ended.model).unwrap();
    let furthest = found.iter().zip(own.values()).map(|(found, own)| (found - own).abs()).fold(0.0, f32::max);
    assert!(furthest < 1e-5, "{furthest}");
    assert!(own.values().iter().all(|value| (value - 1.0).abs() > 1e-2), "it has trained");
}

/// Others take the steps of a worker that is lost, and a coordinator that crashes resumes between two rounds.
#[tokio::test(flavor = "multi_thread")]
async fn a_round_survives_workers_and_coordinators() {
    let settings = Settings { iterations: 60, checkpoint_every: Some(1), ..settings("ata-auto", WireFormat::Compact) };
    let [one, two, three] = workers();
    let mut cluster = start(&settings, [one.clone(), three.clone()]).await;
    let killed = cluster.worker(two);
    cluster.wait_for("progress", |state| state.iterations >= 3).await;
    killed.abort();
    cluster.wait_for("progress without it", |state| state.iterations >= 8).await;
    let at = cluster.crash(&settings).await;
    assert!(at >= 7, "{at}");
    for worker in [one, three] {
        cluster.worker(WorkerSettings { name: format!("{}-again", worker.name), ..worker });
    }
    let ended = cluster.end().await;
    assert_eq!(ended.report.state.totals.tasks_applied, settings.budget * settings.iterations);
    assert!(count(&ended, is_loss) <= 1, "{:?}", ended.events);
}

/// A worker's link is so slow that it breaks while the worker sends. Nobody can send the rest of its difference.
#[tokio::test(flavor = "multi_thread")]
async fn a_difference_that_breaks_off_does_not_count() {
    let settings = Settings { min_workers: 3, iterations: 12, ..settings("uta", WireFormat::F32Exact) };
    let mut cluster = Cluster::start(&settings).await;
    let link = FaultProxy::to(cluster.address).await;
    link.set(Condition { bytes_per_s: Some(1_000_000), ..Condition::default() });
    let [one, two, three] = workers();
    for worker in [one, two, WorkerSettings { through: Some(link.address), ..three }] {
        cluster.worker(worker);
    }
    for round in 2..9 {
        cluster.wait_for("a round", |state| state.iterations >= round).await;
        link.sever();
    }
    let ended = cluster.end().await;
    assert_eq!(ended.report.state.totals.tasks_applied, settings.budget * settings.iterations);
    assert!(count(&ended, is_loss) > 0, "{:?}", ended.events);
    let losses =
        each(&ended, |event| if let RunEvent::Step(step) = event { Some((step.loss, step.tasks)) } else { None });
    assert!(losses.iter().all(|(_, tasks)| *tasks == settings.budget), "{losses:?}");
    assert!(losses[11].0 < losses[0].0 / 2.0, "it trains: {losses:?}");
}
