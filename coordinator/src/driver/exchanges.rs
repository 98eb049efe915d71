//! Which workers exchange their vectors in shards, and how their exchanges go.

use ata_scheduler::topology::{Evidence, Pairs, Ways};
use ata_scheduler::{LinkRates, LinkTimes, OwnTimes};
use ata_types::{CHUNK_VALUES, ExchangeChoice, Iteration, MAX_SHARDS, MachineId, VectorId, WorkerId};
use ata_wire::limits::CONNECT_TIMEOUT;
use ata_wire::{ExchangeReport, PairFault};

/// An exchange is a star again once in so many iterations, so that the links are measured anew.
const MEASURED_EVERY: u64 = 64;

/// After failures in a row, shards are tried again after 2 iterations, 4, 8, and so on up to 2 to this power.
const MAX_BACKOFF: u32 = 10;

/// The time of so many chunks may pass without one that comes to the coordinator: a member waits for another one during the first, and
/// has half as long to say so.
const STALL_CHUNKS: f64 = 1.5;

/// A member begins within the time of so many chunks after it has computed. It prepares its sum meanwhile.
const BEGIN_CHUNKS: f64 = 2.5;

/// Exchanges of which what members say is heard, if they were given up. When a third one begins, each member of the first has computed
/// twice since.
const HEARD: usize = 3;

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
    /// The predicted time of the step's exchange in seconds.
    predicted_s: Option<f64>,
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
            predicted_s: None,
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

    /// Whether these workers exchange their vectors in shards, given what is known of the links.
    pub(super) fn are_worth_it(&self, members: &[WorkerId], links: &LinkRates) -> bool {
        let times = links.times();
        match self.choice {
            ExchangeChoice::Star => false,
            ExchangeChoice::Auto => times.is_sharded(&times.of(members.iter().copied())),
            ExchangeChoice::Shards => (2..=MAX_SHARDS).contains(&members.len()) && !links.are_shards_suspended(),
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
        self.pairs.reach.members(workers)
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
            self.pairs.reach.answered(iteration, from, to, false);
        }
        if self.probe.is_some() {
            return None;
        }
        let (from, to) = self.pairs.reach.next(iteration, workers, may_meet)?;
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
        self.pairs.reach.answered(iteration, from, to, is_reached);
        Some(to)
    }

    /// Seconds in which a chunk has to come to another one of these members, if a vector has so many chunks.
    pub(super) fn chunk_timeout_s(&self, members: &[WorkerId], chunks: u64, times: &LinkTimes) -> f64 {
        let others = members.len().saturating_sub(1) as f64;
        let slowest_s = times.of(members.iter().copied()).iter().map(OwnTimes::longest_s).fold(0.0, f64::max);
        let star_s = Some(slowest_s / chunks as f64 * others).filter(|seconds| *seconds > 0.0);
        self.pairs.chunk_timeout_s(members, 4 * CHUNK_VALUES as u64, star_s)
    }

    /// An exchange begins, in which a chunk has to come within `timeout_s`, and which is predicted to take `predicted_s`.
    pub(super) fn begin(
        &mut self,
        iteration: Iteration,
        members: Vec<ExchangeMember>,
        timeout_s: f64,
        predicted_s: f64,
    ) {
        self.predicted_s = Some(predicted_s);
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
        let later = self.live.len().saturating_sub(HEARD);
        let mut at = 0;
        // The others end within a time.
        self.live.retain(|exchange| {
            at += 1;
            at > later || !exchange.is_over
        });
    }

    /// The predicted time of the step's exchange, if there was one.
    pub(super) fn take_prediction(&mut self) -> Option<f64> {
        self.predicted_s.take()
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
        if !bad.is_empty() {
            // Who is to blame is out, and the others need not wait.
            exchange.suspect = None;
            (self.failures, self.resumes) = (0, iteration.next());
        }
        if report.has_failed {
            heard.fails = Some(exchange.iteration).filter(|_| !exchange.is_over);
        } else if !exchange.is_over && exchange.members.iter().all(|member| member.has_parameters) {
            self.failures = 0;
            let members: Vec<WorkerId> = exchange.members.iter().map(|member| member.worker).collect();
            self.pairs.reach.succeeded(&members);
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
        self.live.last().map_or(f64::INFINITY, |exchange| BEGIN_CHUNKS * exchange.timeout_s)
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
        let is_of = |exchange: &Exchange| exchange.iteration == iteration && !exchange.is_over;
        let Some(at) = self.live.iter().position(is_of) else { return Vec::new() };
        if at + 1 == self.live.len() {
            // How long it took until it failed says nothing of the links.
            self.predicted_s = None;
        }
        self.live[at].is_over = true;
        self.live[at].members.clone()
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

#[cfg(test)]
mod tests {
    use ata_wire::MemberReport;

    use super::*;

    fn worker(slot: usize) -> WorkerId {
        WorkerId::from_slot(slot)
    }

    fn all(members: usize) -> Vec<WorkerId> {
        (0..members).map(worker).collect()
    }

    /// Members that all reach each other, of machines of their own.
    fn exchanges(members: usize) -> Exchanges {
        let mut exchanges = Exchanges::new(ExchangeChoice::Shards);
        while let Some(Probe { id, from, .. }) = exchanges.next_probe(0.0, Iteration(1), &all(members), |_, _| true) {
            assert!(exchanges.next_probe(0.0, Iteration(1), &all(members), |_, _| true).is_none(), "one at a time");
            exchanges.reached(Iteration(1), from, id, true);
        }
        exchanges
    }

    fn begin(exchanges: &mut Exchanges, iteration: u64, members: usize) {
        let member = |worker: WorkerId| ExchangeMember {
            worker,
            machine: MachineId::from(worker),
            vector: id(iteration, worker),
            has_parameters: false,
        };
        exchanges.begin(Iteration(iteration), all(members).into_iter().map(member).collect(), 1.0, 1.0);
    }

    fn id(iteration: u64, worker: WorkerId) -> VectorId {
        VectorId(100 * iteration + worker.slot() as u64)
    }

    /// Member `from` says what it has against another one, or that all is well.
    fn hear(
        exchanges: &mut Exchanges,
        iteration: u64,
        from: usize,
        fault: Option<(usize, PairFault)>,
    ) -> Option<Heard> {
        let said = |(place, fault)| {
            let fault = Some((fault, "why".into()));
            MemberReport { place, bytes: 0, seconds: 0.0, waiting_s: 0.0, fault }
        };
        let report = ExchangeReport {
            vector: id(iteration, worker(from)),
            has_failed: fault.is_some(),
            members: fault.map(said).into_iter().collect(),
        };
        exchanges.heard(10.0, Iteration(iteration), worker(from), &report)
    }

    #[test]
    fn all_accusations_of_an_exchange_count() {
        let mut exchanges = exchanges(4);
        begin(&mut exchanges, 2, 4);
        let heard = hear(&mut exchanges, 2, 0, Some((2, PairFault::Late))).unwrap();
        assert_eq!(heard, Heard { fails: Some(Iteration(2)), proven: None });
        assert_eq!(exchanges.fail(Iteration(2), Iteration(2)).len(), 4);
        assert_eq!(exchanges.fail(Iteration(2), Iteration(2)).len(), 0, "it has failed");
        // Those who leave break off.
        assert_eq!(hear(&mut exchanges, 2, 1, Some((0, PairFault::Broken))), Some(Heard::default()));
        assert_eq!(hear(&mut exchanges, 2, 3, Some((2, PairFault::Late))), Some(Heard::default()));
        assert_eq!(exchanges.fit(Iteration(3), &all(4)), [0, 1, 3].map(worker));
        assert_eq!(hear(&mut exchanges, 7, 3, None), None, "there is no such exchange");
    }

    #[test]
    fn a_proven_fault_names_the_member() {
        let mut exchanges = exchanges(3);
        begin(&mut exchanges, 2, 3);
        let garbage = Some((1, PairFault::Undecodable));
        assert_eq!(hear(&mut exchanges, 2, 0, garbage).unwrap().proven, None);
        assert_eq!(hear(&mut exchanges, 2, 2, garbage).unwrap().proven, Some((worker(1), "why".into())));
    }

    /// It is not forgotten when the next one begins.
    #[test]
    fn an_exchange_lives_until_all_have_its_parameters() {
        let mut exchanges = exchanges(3);
        begin(&mut exchanges, 2, 3);
        assert_eq!(hear(&mut exchanges, 2, 0, None), Some(Heard::default()));
        begin(&mut exchanges, 3, 3);
        assert_eq!([0, 1].map(|slot| exchanges.awaits(worker(slot), Iteration(3))), [false, true]);
        assert_eq!(exchanges.of(worker(1)), [2, 3].map(Iteration));
        assert_eq!(hear(&mut exchanges, 2, 1, Some((2, PairFault::Late))).unwrap().fails, Some(Iteration(2)));
        let lacking: Vec<bool> =
            exchanges.fail(Iteration(3), Iteration(2)).iter().map(|member| !member.has_parameters).collect();
        assert_eq!(lacking, [false, true, true]);
        assert_eq!(exchanges.of(worker(1)), [Iteration(3)]);
        for slot in 0..3 {
            hear(&mut exchanges, 3, slot, None);
        }
        assert_eq!(exchanges.of(worker(1)), []);
    }

    /// If a member names somebody, that counts, and if not, the one who owes a chunk is to blame.
    #[test]
    fn whoever_brings_an_exchange_to_a_halt_is_left_out() {
        for (blamed, others) in [(None, [1, 2]), (Some((2, PairFault::Late)), [0, 1])] {
            let mut exchanges = exchanges(3);
            begin(&mut exchanges, 2, 3);
            let halts = [(0.0, 4), (1.0, 4), (1.4, 5), (2.8, 5), (3.0, 5)];
            let halts = halts.map(|(now_s, chunk)| exchanges.stalls(now_s, Some((chunk, worker(0)))).is_some());
            assert_eq!(halts, [false, false, false, false, true]);
            exchanges.fail(Iteration(2), Iteration(2));
            if blamed.is_some() {
                hear(&mut exchanges, 2, 1, blamed);
            }
            let fit = exchanges.fit(Iteration(3), &all(3));
            assert_eq!(fit, others.map(worker), "{blamed:?}");
            assert_eq!(exchanges.is_due(Iteration(3)), blamed.is_some());
        }
    }

    #[test]
    fn members_that_do_not_say_they_have_the_parameters_are_not_waited_for() {
        let mut exchanges = exchanges(3);
        begin(&mut exchanges, 2, 3);
        assert_eq!(exchanges.overdue(50.0, Iteration(2), 9), [], "the step is not taken");
        assert_eq!([50.0, 55.9].map(|now_s| exchanges.overdue(now_s, Iteration(3), 9)), [[], []]);
        assert_eq!(exchanges.overdue(56.1, Iteration(3), 9), [Iteration(2)]);
    }

    #[test]
    fn a_connection_that_is_never_reported_counts_as_failed() {
        let mut exchanges = Exchanges::new(ExchangeChoice::Shards);
        let mut next = |now_s, members| exchanges.next_probe(now_s, Iteration(1), &all(members), |_, _| true);
        assert!(next(0.0, 3).is_some() && next(PROBE_TIMEOUT_S, 3).is_none());
        let Probe { from, to, .. } = next(PROBE_TIMEOUT_S + 0.1, 3).unwrap();
        assert_ne!((from, to), (worker(0), worker(1)));
        exchanges.forget(to);
        assert!(exchanges.probe.is_none());
    }

    #[test]
    fn failures_make_exchanges_rarer_until_one_succeeds() {
        let mut exchanges = exchanges(2);
        let mut fail = |iteration| {
            begin(&mut exchanges, iteration, 2);
            exchanges.fail(Iteration(iteration), Iteration(iteration));
            (iteration + 1..iteration + 99).find(|next| exchanges.is_due(Iteration(*next))).unwrap() - iteration
        };
        assert_eq!([fail(1), fail(3), fail(7)], [2, 4, 8]);
        begin(&mut exchanges, 15, 2);
        (0..2).for_each(|slot| drop(hear(&mut exchanges, 15, slot, None)));
        begin(&mut exchanges, 16, 2);
        exchanges.fail(Iteration(16), Iteration(16));
        assert!(!exchanges.is_due(Iteration(17)) && exchanges.is_due(Iteration(18)));
        begin(&mut exchanges, 18, 2);
        assert_eq!(exchanges.end(Iteration(18)).len(), 2);
        assert!(exchanges.is_due(Iteration(19)), "a member was late");
        assert!(!exchanges.is_due(Iteration(MEASURED_EVERY)), "the links are measured");
        assert!(!Exchanges::new(ExchangeChoice::Star).is_due(Iteration(1)));
    }
}
