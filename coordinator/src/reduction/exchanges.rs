//! Tracks the progress of exchanges in shards, and who is to blame for failures.

use ata_net::limits::CONNECT_TIMEOUT;
use ata_scheduler::topology::{Evidence, Senders, ShardPlan};
use ata_types::{ExchangeChoice, Iteration, MachineId, VectorId, WorkerId};
use ata_wire::{ExchangeReport, PairFault};

/// The number of chunk timeouts that may pass without a chunk arriving at the coordinator. A member may wait for another one during the
/// first, and has half a timeout to report it.
const STALL_CHUNKS: f64 = 1.5;

/// The number of chunk timeouts within which a member must begin after it has computed. It prepares its sum in this time.
const BEGIN_CHUNKS: f64 = 2.5;

/// The number of newest exchanges from which reports are still accepted after they failed. Before the oldest is dropped, each of its
/// members has computed twice.
const HEARD: usize = 3;

/// The time within which a request to connect to another worker must be answered, in seconds. It is three times the connect timeout. A
/// worker that does not answer is busy with other things.
const PROBE_TIMEOUT_S: f64 = 3.0 * CONNECT_TIMEOUT.as_secs_f64();

#[derive(Debug)]
pub(crate) struct Exchanges {
    /// The plan, which decides whether there are exchanges, and among which workers.
    pub(crate) plan: ShardPlan,
    /// The predicted time of the step's exchange in seconds, if there was one.
    pub(crate) predicted_s: Option<f64>,
    /// The exchanges that are not over for all of their members, the newest last.
    live: Vec<Exchange>,
    probe: Option<Probe>,
    probes: u64,
}

/// A connection that a worker is asked to try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) id: u64,
    pub(crate) from: WorkerId,
    pub(crate) to: WorkerId,
    until_s: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeMember {
    pub(crate) worker: WorkerId,
    pub(crate) machine: MachineId,
    pub(crate) vector: VectorId,
    /// Whether the member has reported that it has the parameters.
    pub(crate) has_parameters: bool,
}

/// An exchange. It is live until all members have its parameters or it has failed.
#[derive(Debug, Default)]
struct Exchange {
    iteration: Iteration,
    /// The members, in the order of their places.
    members: Vec<ExchangeMember>,
    /// The time within which a chunk must arrive, in seconds.
    timeout_s: f64,
    is_over: bool,
    /// The time at which all members were known to have begun, in seconds.
    begun_s: Option<f64>,
    /// The chunk that the coordinator waits for, and since when, in seconds.
    awaited: Option<(u64, f64)>,
    /// The time at which the step was first known to be taken, in seconds.
    stepped_s: Option<f64>,
    /// The member to blame if none of them names another one.
    suspect: Option<WorkerId>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The exchange that fails because of this report.
    pub(crate) fails: Option<Iteration>,
    /// A member that is proven to send undecodable data, with the reported reason.
    pub(crate) proven: Option<(WorkerId, String)>,
}

impl Exchanges {
    pub(crate) fn new(choice: ExchangeChoice) -> Self {
        Self { plan: ShardPlan::new(choice), predicted_s: None, live: Vec::new(), probe: None, probes: 0 }
    }

    /// Returns the workers among these that can exchange their vectors.
    pub(crate) fn able_members(&mut self, iteration: Iteration, workers: &[WorkerId]) -> Vec<WorkerId> {
        for exchange in &mut self.live {
            let Some(suspect) = exchange.suspect.take() else { continue };
            for member in exchange.members.iter().filter(|member| member.worker != suspect) {
                self.plan.pairs.separate(iteration, suspect, member.worker);
            }
        }
        self.plan.pairs.reach.members(workers)
    }

    /// Returns the next connection to try among these workers, if none is being tried.
    pub(crate) fn next_probe(
        &mut self,
        now_s: f64,
        iteration: Iteration,
        workers: &[WorkerId],
        may_meet: impl Fn(WorkerId, WorkerId) -> bool,
    ) -> Option<Probe> {
        if let Some(Probe { from, to, .. }) = self.probe.take_if(|probe| probe.until_s < now_s) {
            self.plan.pairs.reach.answered(iteration, from, to, false);
        }
        if self.probe.is_some() {
            return None;
        }
        let (from, to) = self.plan.pairs.reach.next(iteration, workers, may_meet)?;
        self.probes += 1;
        self.probe = Some(Probe { id: self.probes, from, to, until_s: now_s + PROBE_TIMEOUT_S });
        self.probe
    }

    /// Records the result of a worker's attempt to connect to another one. Returns the other worker, if the attempt was requested.
    pub(crate) fn reached(
        &mut self,
        iteration: Iteration,
        worker: WorkerId,
        id: u64,
        is_reached: bool,
    ) -> Option<WorkerId> {
        let Probe { from, to, .. } = self.probe.take_if(|probe| (probe.from, probe.id) == (worker, id))?;
        self.plan.pairs.reach.answered(iteration, from, to, is_reached);
        Some(to)
    }

    /// Adds an exchange in which each chunk must arrive within `timeout_s`, and which is predicted to take `predicted_s`.
    pub(crate) fn begin(
        &mut self,
        iteration: Iteration,
        members: Vec<ExchangeMember>,
        timeout_s: f64,
        predicted_s: f64,
    ) {
        self.predicted_s = Some(predicted_s);
        self.live.push(Exchange { iteration, members, timeout_s, ..Exchange::default() });
        let earlier = self.live.len().saturating_sub(HEARD);
        // Exchanges that were not given up end within a limited time.
        self.live.extract_if(..earlier, |exchange| exchange.is_over).for_each(drop);
    }

    /// Returns the exchanges that are not over and of which a worker is a member.
    pub(crate) fn of(&self, worker: WorkerId) -> Vec<Iteration> {
        let is_member = |exchange: &&Exchange| exchange.members.iter().any(|member| member.worker == worker);
        let live = self.live.iter().filter(|exchange| !exchange.is_over);
        live.filter(is_member).map(|exchange| exchange.iteration).collect()
    }

    /// Returns whether a worker waits for the parameters of an iteration, which other workers pass on.
    pub(crate) fn awaits(&self, worker: WorkerId, iteration: Iteration) -> bool {
        let mut live = self.live.iter().filter(|exchange| !exchange.is_over && exchange.iteration.next() == iteration);
        live.any(|exchange| exchange.members.iter().any(|member| member.worker == worker && !member.has_parameters))
    }

    pub(crate) fn heard(
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
        let mut senders = Senders::new();
        // Until all members have begun, waiting for members that still compute is not suspicious.
        let begun_for_s = exchange.begun_s.map_or(0.0, |begun_s| now_s - begun_s);
        for said in &report.members {
            let Some(from) = exchange.members.get(said.place).filter(|from| from.worker != worker) else { continue };
            let fault = said.fault.as_ref().map(|(fault, _)| *fault);
            senders.insert(
                from.worker,
                Evidence {
                    bytes: said.bytes,
                    seconds: said.seconds,
                    waiting_s: if report.has_failed { said.waiting_s.min(begun_for_s) } else { 0.0 },
                    // A member that leaves a failed exchange breaks its connections, which is not a fault.
                    is_faulty: fault.is_some_and(|fault| fault != PairFault::Broken || !exchange.is_over),
                },
            );
            if let Some((PairFault::Undecodable, reason)) = &said.fault {
                let others = exchange.members.iter().filter(|other| other.worker != from.worker);
                let others: Vec<MachineId> = others.map(|other| other.machine).collect();
                if self.plan.pairs.accuse(from.worker, accuser, &others) {
                    heard.proven = Some((from.worker, reason.clone()));
                }
            }
        }
        let bad = self.plan.pairs.heard(iteration, worker, &senders, exchange.timeout_s);
        if !bad.is_empty() {
            // The faulty members are excluded, so the others may exchange again at once.
            exchange.suspect = None;
            self.plan.cleared(iteration);
        }
        if report.has_failed {
            heard.fails = Some(exchange.iteration).filter(|_| !exchange.is_over);
        } else if !exchange.is_over && exchange.members.iter().all(|member| member.has_parameters) {
            let members: Vec<WorkerId> = exchange.members.iter().map(|member| member.worker).collect();
            self.plan.succeeded(&members);
            self.live.remove(at);
        }
        Some(heard)
    }

    /// Returns the current exchange, in which `chunk` is awaited from a worker since all members have begun, if that takes too long.
    pub(crate) fn stalls(&mut self, now_s: f64, chunk: Option<(u64, WorkerId)>) -> Option<Iteration> {
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

    /// Returns the time in seconds within which a member of the last exchange must begin after it has computed.
    pub(crate) fn begins_within_s(&self) -> f64 {
        self.live.last().map_or(f64::INFINITY, |exchange| BEGIN_CHUNKS * exchange.timeout_s)
    }

    /// Suspects a member of the last exchange that has computed and does not begin. Returns the exchange.
    pub(crate) fn suspect(&mut self, worker: WorkerId) -> Option<Iteration> {
        let exchange = self.live.last_mut().filter(|exchange| !exchange.is_over)?;
        exchange.suspect = Some(worker);
        Some(exchange.iteration)
    }

    /// Returns the exchanges before the current iteration whose members have not reported in time that they have the parameters.
    pub(crate) fn overdue(&mut self, now_s: f64, current: Iteration, chunks: u64) -> Vec<Iteration> {
        let mut overdue = Vec::new();
        for exchange in self.live.iter_mut().filter(|exchange| !exchange.is_over && exchange.iteration < current) {
            let since_s = *exchange.stepped_s.get_or_insert(now_s);
            // Each chunk of a member may take its full timeout, and the last ones three times as long.
            let rows = chunks.div_ceil(exchange.members.len() as u64) + 3;
            if now_s - since_s > rows as f64 * exchange.timeout_s {
                overdue.push(exchange.iteration);
            }
        }
        overdue
    }

    /// Ends an exchange early. The first time, returns its members.
    pub(crate) fn end(&mut self, iteration: Iteration) -> Vec<ExchangeMember> {
        let is_of = |exchange: &Exchange| exchange.iteration == iteration && !exchange.is_over;
        let Some(at) = self.live.iter().position(is_of) else { return Vec::new() };
        if at + 1 == self.live.len() {
            // The time until the failure says nothing about the links.
            self.predicted_s = None;
        }
        self.live[at].is_over = true;
        self.live[at].members.clone()
    }

    /// Ends an exchange that failed. The first time, returns its members.
    pub(crate) fn fail(&mut self, now: Iteration, iteration: Iteration) -> Vec<ExchangeMember> {
        let members = self.end(iteration);
        if !members.is_empty() {
            self.plan.failed(now);
        }
        members
    }

    /// Forgets a worker that was lost. If it returns, other workers may be able to reach it.
    pub(crate) fn forget(&mut self, worker: WorkerId) {
        self.plan.pairs.forget(worker);
        self.probe.take_if(|probe| probe.from == worker || probe.to == worker);
    }
}

#[cfg(test)]
mod tests;
