//! Which workers exchange their vectors in shards, and how their exchanges go.

use ata_scheduler::Exchange as Links;
use ata_scheduler::topology::{Evidence, Pairs, Ways};
use ata_types::{CHUNK_VALUES, VectorId, ExchangeChoice, Iteration, MAX_SHARDS, MachineId, WorkerId};
use ata_wire::limits::CONNECT_TIMEOUT;
use ata_wire::{ExchangeReport, PairFault};

/// An exchange is a star again once in so many iterations, so that the links are measured anew.
const MEASURED_EVERY: u64 = 64;

/// After failures in a row, shards are tried again after 2 iterations, 4, 8, and so on up to 2 to this power.
const MAX_BACKOFF: u32 = 10;

/// The time of so many chunks may pass without one that comes to the coordinator: a member waits this long for another one, and needs as
/// long again to say so.
const STALL_CHUNKS: f64 = 2.5;

/// Exchanges that are not over for all members. A third one begins when each member of the first has computed twice since.
const MAX_LIVE: usize = 3;

/// A request to connect to another worker is answered within this time, or the worker is busy otherwise. It is thrice the time that an
/// attempt takes.
const PROBE_TIMEOUT_S: f64 = 3.0 * CONNECT_TIMEOUT.as_secs_f64();

/// The exchanges in shards of a run.
#[derive(Debug)]
pub(super) struct Exchanges {
    choice: ExchangeChoice,
    pairs: Pairs,
    /// Exchanges that failed since one did not.
    failures: u32,
    /// The first iteration in which the next one may be.
    resumes: Iteration,
    /// Those that are not over for all of their members, the newest last.
    live: Vec<Exchange>,
    /// The connection that is being tried.
    probe: Option<Probe>,
    probes: u64,
}

/// A connection that a worker is asked to try.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) id: u64,
    pub(super) from: WorkerId,
    pub(super) to: WorkerId,
    until_s: f64,
}

/// A worker that exchanges its vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExchangeMember {
    pub(super) worker: WorkerId,
    pub(super) machine: MachineId,
    /// What it was asked for.
    pub(super) vector: VectorId,
    /// Whether it has said that it has the parameters.
    pub(super) has_parameters: bool,
}

/// An exchange, until all members have its parameters or it has failed.
#[derive(Debug)]
struct Exchange {
    iteration: Iteration,
    /// In the order of their places.
    members: Vec<ExchangeMember>,
    /// Time in which a chunk has to come.
    timeout_s: f64,
    /// Whether it was given up.
    is_over: bool,
    /// When all members were known to have begun.
    begun_s: Option<f64>,
    /// The chunk that the coordinator waits for, and since when.
    awaited: Option<(u64, f64)>,
    /// When its step was taken, as far as is known.
    stepped_s: Option<f64>,
    /// The member to blame if none of them names another one.
    suspect: Option<WorkerId>,
}

impl Exchange {
    fn is_blamed(&mut self, bad: &[WorkerId]) {
        if !bad.is_empty() {
            self.suspect = None;
        }
    }
}

/// What follows from a member's report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// The exchange failed just now.
    pub(super) fails: Option<Iteration>,
    /// A member that is proven to send what cannot be decoded, and why this is thought.
    pub(super) proven: Option<(WorkerId, String)>,
}

impl Exchanges {
    pub(super) fn new(choice: ExchangeChoice) -> Self {
        Self {
            choice,
            pairs: Pairs::default(),
            failures: 0,
            resumes: Iteration::FIRST,
            live: Vec::new(),
            probe: None,
            probes: 0,
        }
    }

    /// Whether vectors may be exchanged in shards at all.
    pub(super) fn are_allowed(&self) -> bool {
        self.choice != ExchangeChoice::Star
    }

    /// Whether the vectors of an iteration may be.
    pub(super) fn is_due(&self, iteration: Iteration) -> bool {
        let is_measured = iteration.number().is_multiple_of(MEASURED_EVERY);
        self.are_allowed() && iteration >= self.resumes && !is_measured
    }

    /// Whether so many workers exchange their vectors in shards, given the time on the links.
    pub(super) fn are_worth_it(&self, members: usize, links: Option<Links>) -> bool {
        match self.choice {
            ExchangeChoice::Star => false,
            ExchangeChoice::Auto => links.is_some_and(|links| links.is_sharded(members)),
            ExchangeChoice::Shards => (2..=MAX_SHARDS).contains(&members),
        }
    }

    /// Those of some workers that exchange their vectors.
    pub(super) fn fit(&mut self, iteration: Iteration, workers: &[WorkerId]) -> Vec<WorkerId> {
        for exchange in &mut self.live {
            let Some(suspect) = exchange.suspect.take() else { continue };
            for member in exchange.members.iter().filter(|member| member.worker != suspect) {
                self.pairs.separate(iteration, suspect, member.worker);
            }
        }
        self.pairs.probing.members(workers)
    }

    /// The next connection to try among some workers, if none is being tried.
    pub(super) fn next_probe(
        &mut self,
        now_s: f64,
        iteration: Iteration,
        workers: &[WorkerId],
        may_meet: impl Fn(WorkerId, WorkerId) -> bool,
    ) -> Option<Probe> {
        if let Some(Probe { from, to, .. }) = self.probe.take_if(|probe| probe.until_s < now_s) {
            self.pairs.probing.answered(iteration, from, to, false);
        }
        if self.probe.is_some() {
            return None;
        }
        let (from, to) = self.pairs.probing.next(iteration, workers, may_meet)?;
        self.probes += 1;
        self.probe = Some(Probe { id: self.probes, from, to, until_s: now_s + PROBE_TIMEOUT_S });
        self.probe
    }

    /// A worker has tried to connect to another one. Returns which one, if it was asked to.
    pub(super) fn reached(
        &mut self,
        iteration: Iteration,
        worker: WorkerId,
        id: u64,
        is_reached: bool,
    ) -> Option<WorkerId> {
        let Probe { from, to, .. } = self.probe.take_if(|probe| (probe.from, probe.id) == (worker, id))?;
        self.pairs.probing.answered(iteration, from, to, is_reached);
        Some(to)
    }

    /// Seconds in which a chunk has to come to another one of these members, if a vector has so many chunks.
    pub(super) fn chunk_timeout_s(&self, members: &[WorkerId], chunks: u64, links: Option<Links>) -> f64 {
        let others = members.len().saturating_sub(1) as f64;
        let star_s = links.map(|links| links.own_up_s.max(links.own_down_s) / chunks as f64 * others);
        self.pairs.chunk_timeout_s(members, 4 * CHUNK_VALUES as u64, star_s.filter(|seconds| *seconds > 0.0))
    }

    /// An exchange begins.
    pub(super) fn begin(&mut self, iteration: Iteration, members: Vec<ExchangeMember>, timeout_s: f64) {
        self.live.push(Exchange {
            iteration,
            members,
            timeout_s,
            is_over: false,
            begun_s: None,
            awaited: None,
            stepped_s: None,
            suspect: None,
        });
        if self.live.len() > MAX_LIVE {
            self.live.remove(0);
        }
    }

    /// The exchanges that are not over in which a worker is a member.
    pub(super) fn of(&self, worker: WorkerId) -> Vec<Iteration> {
        let is_member = |exchange: &&Exchange| exchange.members.iter().any(|member| member.worker == worker);
        self.live
            .iter()
            .filter(|exchange| !exchange.is_over)
            .filter(is_member)
            .map(|exchange| exchange.iteration)
            .collect()
    }

    /// Whether a worker waits for the parameters of an iteration, which other workers pass on.
    pub(super) fn awaits(&self, worker: WorkerId, iteration: Iteration) -> bool {
        let mut live = self.live.iter().filter(|exchange| !exchange.is_over && exchange.iteration.next() == iteration);
        live.any(|exchange| exchange.members.iter().any(|member| member.worker == worker && !member.has_parameters))
    }

    /// A member says how an exchange went.
    pub(super) fn heard(
        &mut self,
        now_s: f64,
        iteration: Iteration,
        worker: WorkerId,
        report: &ExchangeReport,
    ) -> Option<Heard> {
        let is_of = |member: &ExchangeMember| (member.worker, member.vector) == (worker, report.vector);
        let at = self.live.iter().position(|exchange| exchange.members.iter().any(is_of))?;
        let exchange = &mut self.live[at];
        let member = exchange.members.iter_mut().find(|member| is_of(member) && !member.has_parameters)?;
        member.has_parameters = !report.has_failed;
        let accuser = (member.machine, worker);
        let mut heard = Heard::default();
        let mut ways = Ways::new();
        // Before all have begun, one may wait for those who still compute.
        let begun_for_s = exchange.begun_s.map_or(0.0, |begun_s| now_s - begun_s);
        for said in &report.members {
            let Some(from) = exchange.members.get(said.place).filter(|from| from.worker != worker) else { continue };
            let fault = said.fault.as_ref().map(|(fault, _)| *fault);
            ways.insert(
                from.worker,
                Evidence {
                    bytes: said.bytes,
                    seconds: said.seconds,
                    waiting_s: if report.has_failed { said.waiting_s.min(begun_for_s) } else { 0.0 },
                    // Those who leave an exchange that has failed break off.
                    is_faulty: fault.is_some_and(|fault| fault != PairFault::Broken || !exchange.is_over),
                },
            );
            if let Some((PairFault::Undecodable, reason)) = &said.fault {
                let others = exchange.members.iter().filter(|other| other.worker != from.worker);
                let others: Vec<MachineId> = others.map(|other| other.machine).collect();
                if self.pairs.accuse(from.worker, accuser, &others) {
                    heard.proven = Some((from.worker, reason.clone()));
                }
            }
        }
        let bad = self.pairs.heard(iteration, worker, &ways, exchange.timeout_s);
        exchange.is_blamed(&bad);
        if report.has_failed {
            heard.fails = Some(exchange.iteration).filter(|_| !exchange.is_over);
        } else if !exchange.is_over && exchange.members.iter().all(|member| member.has_parameters) {
            self.failures = 0;
            let members: Vec<WorkerId> = exchange.members.iter().map(|member| member.worker).collect();
            self.pairs.probing.succeeded(&members);
            self.live.remove(at);
        }
        Some(heard)
    }

    /// All members of the exchange whose vectors are collected have begun, and this chunk of the total is awaited from this worker.
    /// Returns the exchange if this lasts too long.
    pub(super) fn stalls(&mut self, now_s: f64, chunk: Option<(u64, WorkerId)>) -> Option<Iteration> {
        let exchange = self.live.last_mut().filter(|exchange| !exchange.is_over && exchange.stepped_s.is_none())?;
        let Some((chunk, owner)) = chunk else {
            exchange.awaited = None;
            return None;
        };
        exchange.begun_s.get_or_insert(now_s);
        let since_s = match exchange.awaited {
            Some((before, since_s)) if before == chunk => since_s,
            _ => now_s,
        };
        exchange.awaited = Some((chunk, since_s));
        let is_late = now_s - since_s > STALL_CHUNKS * exchange.timeout_s;
        exchange.suspect = is_late.then_some(owner);
        is_late.then_some(exchange.iteration)
    }

    /// Seconds after which a member of the last exchange that has computed has to begin.
    pub(super) fn begins_within_s(&self) -> f64 {
        self.live.last().map_or(f64::INFINITY, |exchange| STALL_CHUNKS * exchange.timeout_s)
    }

    /// A member of the last exchange has computed, and does not begin.
    pub(super) fn suspect(&mut self, worker: WorkerId) -> Option<Iteration> {
        let exchange = self.live.last_mut().filter(|exchange| !exchange.is_over)?;
        exchange.suspect = Some(worker);
        Some(exchange.iteration)
    }

    /// Exchanges whose members should have said long ago that they have the parameters of up to the current iteration.
    pub(super) fn overdue(&mut self, now_s: f64, current: Iteration, chunks: u64) -> Vec<Iteration> {
        let mut overdue = Vec::new();
        for exchange in self.live.iter_mut().filter(|exchange| !exchange.is_over && exchange.iteration < current) {
            let since_s = *exchange.stepped_s.get_or_insert(now_s);
            // Each chunk of a member may take its time, and the last ones thrice as long.
            let rows = chunks.div_ceil(exchange.members.len() as u64) + 3;
            if now_s - since_s > rows as f64 * exchange.timeout_s {
                overdue.push(exchange.iteration);
            }
        }
        overdue
    }

    /// An exchange ends early. Returns its members, the first time.
    pub(super) fn end(&mut self, iteration: Iteration) -> Vec<ExchangeMember> {
        let mut live = self.live.iter_mut();
        let Some(exchange) = live.find(|exchange| exchange.iteration == iteration && !exchange.is_over) else {
            return Vec::new();
        };
        exchange.is_over = true;
        exchange.members.clone()
    }

    /// An exchange failed. Returns its members, the first time.
    pub(super) fn fail(&mut self, now: Iteration, iteration: Iteration) -> Vec<ExchangeMember> {
        let members = self.end(iteration);
        if !members.is_empty() {
            self.failures = (self.failures + 1).min(MAX_BACKOFF);
            self.resumes = Iteration(now.number() + (1 << self.failures));
        }
        members
    }

    /// A worker is gone. If it comes back, others may reach it.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.pairs.forget(worker);
        self.probe.take_if(|probe| probe.from == worker || probe.to == worker);
    }
}
