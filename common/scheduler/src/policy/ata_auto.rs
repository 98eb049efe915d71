//! ATA-Auto: ATA without a constant to tune.

#[macro_export]
/// XXX
macro_rules! tune { ($n:literal, $d:expr) => {{ static V: std::sync::OnceLock<f64> = std::sync::OnceLock::new(); *V.get_or_init(|| std::env::var($n).ok().and_then(|v| v.parse().ok()).unwrap_or($d)) }} }

mod known;
mod plan;
mod trial;
mod window;

use std::collections::VecDeque;

use rand::RngExt;
use rand::seq::SliceRandom;

use super::entry::{PolicyEntry, PolicyKind};
use super::{
    Arguments, Collect, Decision, Midway, Orders, Policy, PolicyError, PolicyState, Round, SchedulerRng, from_state,
    to_state,
};
use crate::allocation::{Rule, ras_by_cost};
use crate::ids::WorkerId;
use crate::statistics::WorkerStatistics;
use known::{Known, Noise, Pace, Search, Told};
use plan::{Member, Plan};
use trial::Trial;

pub(super) const ENTRY: PolicyEntry = PolicyEntry {
    name: "ata-auto",
    about: "ATA without a constant to tune, for speeds that may change",
    parameters: "track=on|off (default: on; follow changes of speed), second_is_worth=W (worker-seconds that a second of \
        runtime is worth; default: what the workers in use spend per second)",
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(AtaAuto::from_arguments(arguments)?)),
};

/// The least share of worker time spent on probing workers that are not expected to help: they may have become faster.
const LEAST_SEARCH: f64 = 0.01;

/// What is known, and the plan of the iteration under way.
#[derive(Clone, Debug)]
pub struct AtaAuto {
    track: bool,
    second_is_worth: Option<f64>,
    /// By slot.
    known: Vec<Known>,
    /// Of all workers.
    noise: Noise,
    /// How much speeds have changed so far, V: each change counts for |ln| of its factor, at most 1.
    moved: f64,
    /// Whether a worker's task in the iteration under way is a probe, by slot.
    probed: Vec<bool>,
    races: bool,
    plan: Plan,
    /// Slots in the order in which idle workers are looked at.
    queue: VecDeque<u32>,
    limits: Vec<(WorkerId, f64)>,
    began_s: Option<f64>,
    /// XXX
    pub x: X,
}

/// Switches for experiments.
#[derive(Clone, Copy, Debug)]
pub struct X { pub beta: f64, pub ins: f64, pub least: f64, pub copies: bool, pub hold: u8, pub voi: f64, pub scale: f64, pub cens: bool, pub h: f64 }
impl Default for X { fn default() -> Self { X { beta: 1.0, ins: 0.3, least: LEAST_SEARCH, copies: true, hold: 6, voi: 1.0, scale: 1.0, cens: true, h: 1e-4 } } }

impl AtaAuto {
    /// `track` tells whether to look for changes of the workers' speeds.
    pub fn new(track: bool) -> Self {
        Self {
            track,
            second_is_worth: None,
            known: Vec::new(),
            noise: Noise::default(),
            moved: 0.0,
            probed: Vec::new(),
            races: false,
            plan: Plan::default(),
            queue: VecDeque::new(),
            limits: Vec::new(),
            began_s: None,
            x: X::default(),
        }
    }

    /// Reads `track`.
    fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        let track = arguments.switch("track")?.unwrap_or(true);
        let second_is_worth = arguments.positive("second_is_worth")?;
        let mut x = X::default();
        if let Some(v) = arguments.positive("beta")? { x.beta = v }
        if let Some(v) = arguments.positive("ins")? { x.ins = v }
        if let Some(v) = arguments.positive("least")? { x.least = v }
        if let Some(v) = arguments.positive("voi")? { x.voi = v }
        if let Some(v) = arguments.positive("scale")? { x.scale = v }
        if let Some(v) = arguments.positive("h")? { x.h = v }
        if let Some(v) = arguments.switch("cens")? { x.cens = v }
        if let Some(v) = arguments.switch("copies")? { x.copies = v }
        Ok(Self { second_is_worth, x, ..Self::new(track) })
    }

    fn of(&mut self, worker: WorkerId) -> &mut Known {
        let slot = worker.slot();
        if self.known.len() <= slot {
            self.known.resize_with(slot + 1, Known::default);
            self.probed.resize(slot + 1, false);
        }
        &mut self.known[slot]
    }

    fn search(&self, worker: WorkerId) -> Search {
        if !self.track || self.races {
            return Search::None;
        }
        if self.probed.get(worker.slot()).is_some_and(|&probed| probed) { Search::Last } else { Search::All }
    }

    fn told(&mut self, told: &Told) {
        if let Some(squares) = told.pair {
            self.noise.add(squares);
        }
        if let Some(factor) = told.changed {
            self.moved += factor.ln().abs().min(1.0);
        }
    }

    /// The allocation by the index U, and the paces it is for.
    fn allocate(&self, paces: &[(usize, Pace)], n: usize, budget: u64, caution: f64, rng: &mut SchedulerRng) -> Vec<u64> {
        let shares = ras_by_cost(paces.len(), budget, |i, tasks| paces[i].1.index_s(tasks, caution), rng);
        let mut allocation = vec![0; n];
        for ((i, _), tasks) in paces.iter().zip(shares) {
            allocation[*i] = tasks;
        }
        allocation
    }

    fn probes(&mut self, round: &Round<'_>, paces: &[Option<Pace>], allocation: &[u64], trial: &Trial, price: f64, longest_s: f64, fastest_s: f64, pooled: f64, rng: &mut SchedulerRng) -> Vec<usize> {
        let _ = pooled;
        let mut probes = Vec::new();
        let mut others = Vec::new();
        for i in (0..paces.len()).filter(|&i| allocation[i] == 0) {
            let pays = match &paces[i] {
                Some(pace) => trial.pays(pace),
                None => {
                    let cut_s = self.known.get(round.workers[i].slot()).map_or(0.0, |known| known.cut_s);
                    cut_s == 0.0 || trial.pays_unknown(cut_s)
                }
            };
            if pays { &mut probes } else { &mut others }.push(i);
        }
        let k = round.iteration as f64;
        let idle = others.len() as f64;
        let used = allocation.iter().filter(|a| **a > 0).count() as f64;
        let f = (idle / paces.len() as f64).powf(crate::tune!("POW", 1.0));
        let _ = used;
        let share = f * self.x.least.max(self.x.ins * (self.moved * k.ln().max(1.0) / k).sqrt()).min(0.5);
        if self.queue.len() < self.known.len() {
            let mut new: Vec<u32> = (self.queue.len() as u32..self.known.len() as u32).collect();
            new.shuffle(rng);
            self.queue.extend(new);
        }
        // limits
        let least_s = (self.x.scale * fastest_s).min(longest_s);
        let scales = 1 + (longest_s / least_s).ln().ceil() as usize;
        let limit_s = |j: usize| if scales == 1 { longest_s } else { longest_s * (least_s / longest_s).powf(j as f64 / (scales - 1) as f64) };
        let mut limits = Vec::new();
        let mut budget = 0;
        for j in 0..scales {
            let rate = share / price * longest_s / (scales as f64 * limit_s(j));
            let many = rate.floor() as usize + usize::from(rng.random_bool(rate.fract()));
            for _ in 0..many { limits.push(limit_s(j)); }
            budget += many;
        }
        let _ = budget;
        let mut looked = 0;
        while let Some(&limit) = limits.last() && looked < self.queue.len() && !others.is_empty() {
            looked += 1;
            let Some(slot) = self.queue.pop_front() else { break };
            self.queue.push_back(slot);
            let worker = WorkerId::from_slot(slot as usize);
            if let Some(i) = others.iter().position(|&i| round.workers[i] == worker) {
                let i = others.swap_remove(i);
                probes.push(i);
                if limit < longest_s { self.limits.push((worker, limit)); }
                limits.pop();
            }
        }
        probes
    }
}

impl Policy for AtaAuto {
    fn name(&self) -> &'static str {
        "ata-auto"
    }

    fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        let (pooled, search) = (self.noise.pooled(), self.search(worker));
        let told = self.of(worker).observe(busy_s, pooled, search);
        self.told(&told);
        self.plan.observe(worker, busy_s);
    }

    fn observe_batch(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        let (pooled, search) = (self.noise.pooled(), self.search(worker));
        let told = self.of(worker).observe_batch(tasks, busy_s, pooled, search);
        self.told(&told);
    }

    fn censored(&mut self, worker: WorkerId, tasks: u64, elapsed_s: f64) {
        let pooled = self.noise.pooled();
        let search = self.search(worker) == Search::All && self.x.cens;
        let h = self.x.h;
        let known = self.of(worker);
        let pace = if search { known.pace(pooled, 0.0, false) } else { None };
        if known.cut(tasks, elapsed_s, pace.as_ref(), pooled, h) {
            self.moved += 1.0;
        }
    }

    fn learned(&mut self, worker: WorkerId, earlier: &WorkerStatistics) {
        let learned = Known::learned(earlier);
        let known = self.of(worker);
        let before = known.noise;
        *known = learned;
        let after = known.noise;
        self.noise.add_all(before, -1.0);
        self.noise.add_all(after, 1.0);
    }

    fn forget(&mut self, worker: WorkerId) {
        self.learned(worker, &WorkerStatistics::default());
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let n = round.workers.len();
        let pooled = self.noise.pooled();
        self.known.resize_with(self.known.len().max(round.statistics.len()), Known::default);
        self.probed.clear();
        self.probed.resize(self.known.len(), false);
        let pace = |i: usize| self.known[round.workers[i].slot()].pace(pooled, round.of(i).mean_overhead_s(), round.fuses(i));
        let paces: Vec<Option<Pace>> = (0..n).map(pace).collect();
        let known: Vec<(usize, Pace)> = paces.iter().enumerate().filter_map(|(i, pace)| Some((i, (*pace)?))).collect();
        self.races = known.is_empty();
        if self.races {
            let rule = Rule::WarmUp { never_observed: n, zero_score: 0 };
            return Decision::new(vec![1; n], Collect::Race { tasks: round.budget }, rule);
        }
        let caution = self.x.beta;
        let allocation = self.allocate(&known, n, round.budget, caution, rng);
        let times = || known.iter().filter(|(i, _)| allocation[*i] > 0).map(|(i, pace)| pace.time_s(allocation[*i] as f64));
        let (longest_s, all_s, used) = (times().fold(0.0, f64::max), times().sum::<f64>(), times().count());
        let fastest_s = known.iter().filter(|(i, _)| allocation[*i] > 0).map(|(_, pace)| pace.time_s(1.0)).fold(f64::INFINITY, f64::min);
        self.limits.clear();
        let trial = Trial::new(longest_s, all_s, used, n, round.iteration, round.budget, pooled);
        let probes = self.probes(round, &paces, &allocation, &trial, longest_s / all_s, longest_s, fastest_s, pooled, rng);
        for &i in &probes {
            self.probed[round.workers[i].slot()] = true;
        }
        let members = known.iter().map(|&(i, pace)| Member { worker: round.workers[i], pace, share: allocation[i] }).collect();
        self.began_s = None;
        let second_is_worth = self.second_is_worth.unwrap_or(all_s / longest_s);
        self.plan = Plan::new(members, self.known.len(), caution, second_is_worth);
        let scores = paces.iter().map(|pace| pace.map_or(0.0, |pace| pace.mean_s)).collect();
        Decision { probes, scores, ..Decision::new(allocation, Collect::InParts { tasks: round.budget }, Rule::Ras) }
    }

    fn resume(&mut self, midway: &Midway<'_>, orders: &mut Orders) {
        self.plan.resume(midway, orders);
        let began_s = *self.began_s.get_or_insert(midway.now_s);
        let passed_s = midway.now_s - began_s;
        self.limits.retain(|&(worker, limit_s)| {
            let over = passed_s >= limit_s;
            if over { orders.stop.push(worker); }
            !over
        });
        if let Some(next) = self.limits.iter().map(|(_, limit)| *limit).reduce(f64::min) {
            let at = began_s + next;
            orders.ask_again_s = Some(orders.ask_again_s.map_or(at, |other| other.min(at)));
        }
        if !self.x.copies { orders.copy.clear(); }
    }

    fn save(&self) -> PolicyState {
        to_state(&(&self.known, self.noise, self.moved))
    }

    fn restore(&mut self, state: PolicyState) -> Result<(), String> {
        (self.known, self.noise, self.moved) = from_state(state)?;
        Ok(())
    }
}
