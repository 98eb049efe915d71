//! The virtual-time driver of the engine: carries out its effects, and tells it what happens.

use std::collections::VecDeque;
use std::sync::Arc;

use ata_scheduler::{Decision, Effect, Engine, Event, FinishReason, LeaseTime, Report, WorkerStatistics};
use ata_types::{Iteration, Lease, MachineId, TaskOutcome, WorkerId};

use crate::agenda::{Agenda, Appointment};
use crate::change::{Change, Moment};
use crate::cluster::{Cluster, Occurrence};
use crate::error::SimulationError;
use crate::observer::{IterationStart, Observer, Restart, Step};
use crate::order::{Order, Orders, Outstanding};

/// The result of a run: the virtual time at its end.
type RunEnd = Result<f64, SimulationError>;

pub(crate) struct VirtualDriver<'a, C, O> {
    engine: &'a mut Engine,
    observer: &'a mut O,
    cluster: C,
    /// The engine's effects, in order.
    effects: Vec<Effect>,
    /// The number of these effects that are carried out.
    done: usize,
    orders: Orders,
    outstanding: Outstanding,
    /// Changes of speed at iterations, latest first.
    speeds: Vec<(u64, Change)>,
    /// The other changes at iterations, latest first.
    at_iterations: Vec<(u64, Change)>,
    appointments: Agenda<Appointment>,
    /// Joins and losses that happen once the tasks of the iteration that just began are assigned.
    membership: VecDeque<Change>,
    changed: usize,
    priors: &'a [WorkerStatistics],
    now: f64,
    /// The engine's time.
    clock: f64,
    /// The lead of the virtual time over it: the clock stands still while the coordinator is down.
    ahead: f64,
    is_down: bool,
}

impl<'a, C: Cluster, O: Observer> VirtualDriver<'a, C, O> {
    pub(crate) fn new(
        engine: &'a mut Engine,
        observer: &'a mut O,
        cluster: C,
        changes: &[(Moment, Change)],
        priors: &'a [WorkerStatistics],
    ) -> Self {
        let mut driver = Self {
            engine,
            observer,
            cluster,
            effects: Vec::new(),
            done: 0,
            orders: Orders::default(),
            outstanding: Outstanding::default(),
            speeds: Vec::new(),
            at_iterations: Vec::new(),
            appointments: Agenda::default(),
            membership: VecDeque::new(),
            changed: 0,
            priors,
            now: 0.0,
            clock: 0.0,
            ahead: 0.0,
            is_down: false,
        };
        let mut changes = changes.to_vec();
        changes.sort_by(|(a, _), (b, _)| a.partial_cmp(b).expect("times are numbers"));
        for (moment, change) in changes.into_iter().rev() {
            match (moment, change) {
                (Moment::Iteration(at), Change::Swap(..) | Change::SlowDown(..)) => driver.speeds.push((at, change)),
                (Moment::Iteration(at), _) => driver.at_iterations.push((at, change)),
                (Moment::Time(at), _) => driver.appointments.add_first(at, Appointment::Change(change)),
            }
        }
        driver
    }

    /// Runs the engine to its end, with these workers present from the start.
    pub(crate) fn run(mut self, at_first: &[WorkerId]) -> RunEnd {
        for worker in at_first {
            self.start(*worker);
        }
        self.proceed();
        loop {
            if let Some(end) = self.carry_out_all() {
                return end;
            }
            self.cluster.settle(self.now);
            match self.membership.pop_front() {
                Some(change) => self.change(change),
                None => self.advance()?,
            }
        }
    }

    fn carry_out_all(&mut self) -> Option<RunEnd> {
        while let Some(effect) = self.effects.get_mut(self.done) {
            // A small effect is left in its place.
            let effect = std::mem::replace(effect, Effect::Finish { reason: FinishReason::Iterations });
            self.done += 1;
            self.observer.effect(self.now, &effect);
            if let Some(down) = self.observer.crash(false) {
                self.crash(down);
                return None;
            }
            if let Some(end) = self.carry_out(effect) {
                assert_eq!(self.done, self.effects.len(), "effects after the end: {:?}", &self.effects[self.done..]);
                return Some(end);
            }
        }
        self.effects.clear();
        self.done = 0;
        if !self.is_down {
            self.observer.settled(self.now, self.engine);
            if let Some(down) = self.observer.crash(true) {
                self.crash(down);
            }
        }
        None
    }

    fn carry_out(&mut self, effect: Effect) -> Option<RunEnd> {
        match effect {
            Effect::Start { iteration, workers, decision, .. } => self.started(iteration.number(), &workers, &decision),
            Effect::Assign { worker, lease, .. } => {
                self.outstanding.assigned(lease.iteration);
                self.cluster.assign(self.now, worker, lease);
            }
            Effect::End { worker, lease, outcome, time } => self.lease_ended(worker, lease, outcome, time),
            Effect::Collect { collections, .. } => {
                for asked in collections {
                    self.cluster.collect(self.now, asked);
                }
            }
            Effect::Evict { worker, .. } => {
                if let Some(back_at) = self.cluster.close(self.now, worker) {
                    self.appointments.add(back_at, Appointment::Return(worker));
                }
            }
            Effect::Expel { worker, .. } => {
                self.cluster.close(self.now, worker);
                self.appointments.retain(|next| !matches!(next, Appointment::Return(back) if *back == worker));
            }
            Effect::Left { worker } => drop(self.cluster.close(self.now, worker)),
            Effect::Compare { tasks, first, second } => {
                let (agree, time) = self.observer.compare(first, second);
                let compared = Event::Compared { tasks, first, second, agree };
                if time > 0.0 {
                    self.appointments.add(self.now + time, Appointment::Compared(compared));
                } else {
                    self.handle(compared);
                }
            }
            Effect::Step { iteration, lr_factor, collections, collected, .. } => {
                let awaited = if self.cluster.delivers() { collections } else { Vec::new() };
                self.orders.place(iteration, lr_factor, awaited, collected);
                self.end_step();
            }
            Effect::Committed { .. } => self.committed(),
            Effect::Finish { .. } => return Some(Ok(self.now)),
            Effect::Abort { reason } => {
                return Some(Err(SimulationError(format!("the run was aborted: {reason}"))));
            }
            Effect::ProbeLink { worker, bytes } => self.cluster.probe_link(self.now, worker, bytes),
            Effect::Rest { .. } | Effect::Wait { .. } => {}
        }
        None
    }

    fn lease_ended(&mut self, worker: WorkerId, lease: Lease, outcome: TaskOutcome, time: LeaseTime) {
        let is_computed = matches!(time, LeaseTime::Reported { .. });
        self.cluster.end(self.now, worker, &lease, outcome, is_computed);
        match outcome {
            // The lease was in the step that was just taken.
            TaskOutcome::Applied => return,
            _ if is_computed => self.orders.lose(&lease),
            _ => {}
        }
        self.outstanding.ended(lease.iteration);
    }

    /// Handles the start of an iteration. Changes of health apply from its first task on, those of membership once its tasks are assigned.
    fn started(&mut self, iteration: u64, workers: &Arc<[WorkerId]>, decision: &Decision) {
        while let Some((_, change)) = self.at_iterations.pop_if(|(at, _)| *at <= iteration) {
            match change {
                Change::Leave(_) | Change::Join(_) => self.membership.push_back(change),
                _ => self.change(change),
            }
        }
        let (changes, means) = (self.changed, |worker, of_laws: &[f64]| self.cluster.mean(worker, of_laws));
        self.observer.started(&IterationStart { iteration, workers, decision, changes, means: &means });
    }

    fn change(&mut self, change: Change) {
        self.changed += 1;
        match change {
            Change::Join(worker) => {
                self.cluster.change(self.now, change);
                self.start(worker);
            }
            Change::Leave(worker) => {
                if self.cluster.stop(self.now, worker) {
                    self.handle(Event::WorkerLost { worker });
                }
            }
            _ => self.cluster.change(self.now, change),
        }
    }

    fn start(&mut self, worker: WorkerId) {
        if let Some(machine) = self.cluster.start(self.now, worker) {
            self.joined(worker, machine);
        }
    }

    fn joined(&mut self, worker: WorkerId, machine: MachineId) {
        let prior = self.priors.get(worker.slot()).copied().unwrap_or_default();
        let fuses = self.cluster.fuses(worker);
        self.handle(Event::WorkerJoined { worker, machine, prior, fuses });
    }

    /// Lets the time of the step pass, if everything that it waits for has arrived.
    fn end_step(&mut self) {
        let Some(order) = self.orders.complete() else { return };
        let number = order.number;
        let time = self.cluster.exchange(self.now, order) + self.observer.step_time();
        if time > 0.0 {
            self.appointments.add(self.now + time, Appointment::StepEnd(number));
        } else {
            self.step(number);
        }
    }

    /// Takes the step of an order, unless the order was replaced.
    fn step(&mut self, number: u64) {
        let Some(Order { iteration, lr_factor, collected, .. }) = self.orders.take(number) else { return };
        let leases: Vec<Lease> = collected.into_iter().map(|(_, lease)| lease).collect();
        for lease in &leases {
            self.outstanding.ended(lease.iteration);
        }
        let outcome = self.observer.step(&Step {
            iteration: iteration.number(),
            now: self.now,
            leases: &leases,
            lr_factor,
            ledger: self.engine.ledger(),
            oldest_iteration: self.outstanding.oldest_iteration().map_or(u64::MAX, Iteration::number),
        });
        self.handle(Event::StepCommitted { iteration, outcome });
    }

    fn committed(&mut self) {
        match self.observer.committed(self.now, self.clock, self.engine, &mut self.effects) {
            Some(until) => self.appointments.add(until, Appointment::WaitEnd),
            None => self.proceed(),
        }
    }

    /// Lets the next iteration begin. Changes of speed come before its decision, which an oracle bases on the speeds of that moment.
    /// No task begins in between, so the iteration's tasks are the first with the new speeds.
    fn proceed(&mut self) {
        let next = self.engine.iteration().number();
        while let Some((_, change)) = self.speeds.pop_if(|(at, _)| *at <= next) {
            self.change(change);
        }
        for observed in self.cluster.observed(self.now) {
            self.handle(Event::LinkObserved(observed));
        }
        self.cluster.counts_with(self.engine.links().times());
        self.cluster.begins(next);
        self.handle(Event::Proceed);
    }

    fn advance(&mut self) -> Result<(), SimulationError> {
        let occurrence = self.cluster.next_at();
        let appointment = self.appointments.next_at();
        let deadline = if self.is_down { None } else { self.engine.poll_timeout() };
        let timeout = deadline.map(|at| at + self.ahead);
        let earlier = |a: Option<f64>, b: Option<f64>| a.is_some_and(|a| b.is_none_or(|b| a < b));
        if earlier(appointment, occurrence)
            && !earlier(timeout, appointment)
            && let Some((at, appointment)) = self.appointments.pop()
        {
            self.pass(at);
            match appointment {
                Appointment::Change(change) => self.change(change),
                Appointment::Return(worker) => self.start(worker),
                Appointment::StepEnd(number) => self.step(number),
                Appointment::WaitEnd => self.committed(),
                Appointment::Compared(compared) => self.handle(compared),
                Appointment::Restart => self.restart()?,
            }
        } else if earlier(timeout, occurrence)
            && let (Some(at), Some(deadline)) = (timeout, deadline)
        {
            // A deadline has passed only after its time.
            self.pass(at.next_up());
            self.clock = self.clock.max(deadline.next_up());
            self.handle(Event::Timeout);
        } else {
            self.occur()?;
        }
        Ok(())
    }

    fn occur(&mut self) -> Result<(), SimulationError> {
        let delivers = self.cluster.delivers();
        let Some((at, occurrence)) = self.cluster.pop(self.engine, self.observer) else {
            let (at, iteration) = (self.now, self.engine.iteration());
            return Err(SimulationError(format!(
                "at time {at}, in iteration {iteration}, the run cannot continue: no worker computes, and none will join"
            )));
        };
        self.now = self.now.max(at);
        self.clock = self.clock.max(self.now - self.ahead);
        match occurrence {
            Occurrence::Report(worker, lease, report) => {
                let own = self.engine.lease(worker, lease).filter(|_| !delivers).and_then(|lease| lease.own);
                // An engine that replaced another one refuses reports on unknown leases.
                let answer = self.engine.report(self.clock, worker, lease, report, &mut self.effects);
                self.observer.reported(worker, lease, answer, &self.effects);
                if let (Report::Done { .. }, Ok(()), Some(collection)) = (report, answer, own) {
                    self.handle(Event::Delivered { worker, collection });
                }
            }
            Occurrence::Delivered(worker, collection) => {
                let is_awaited = self.orders.deliver(collection);
                self.handle(Event::Delivered { worker, collection });
                if is_awaited {
                    self.end_step();
                }
            }
            Occurrence::Joined(worker, machine) => self.joined(worker, machine),
            Occurrence::Event(event) => self.handle(event),
            Occurrence::Unnoticed => {}
        }
        Ok(())
    }

    /// Crashes the coordinator, which loses everything that it has not saved.
    fn crash(&mut self, down: f64) {
        assert!(self.cluster.crash(), "a coordinator can only crash if there is a network");
        self.cluster.settle(self.now);
        self.effects.clear();
        self.done = 0;
        self.orders = Orders::default();
        self.outstanding = Outstanding::default();
        self.appointments.retain(|next| matches!(next, Appointment::Change(_)));
        self.is_down = true;
        self.appointments.add(self.now + down, Appointment::Restart);
    }

    fn restart(&mut self) -> Result<(), SimulationError> {
        let Some(Restart { engine, clock, machines }) = self.observer.restart(self.now) else {
            let at = self.now;
            return Err(SimulationError(format!("at time {at}, the coordinator is down, and does not start again")));
        };
        *self.engine = engine;
        self.clock = clock;
        self.ahead = self.now - clock;
        self.is_down = false;
        self.cluster.restart(machines);
        self.proceed();
        Ok(())
    }

    fn pass(&mut self, at: f64) {
        self.now = self.now.max(at);
        self.clock = self.clock.max(self.now - self.ahead);
    }

    fn handle(&mut self, event: Event) {
        self.observer.event(self.now, &event);
        self.engine.handle(self.clock, event, &mut self.effects);
    }
}
