//! The boundary between two iterations: the step's result, the record, an evaluation, a checkpoint.

use ata_record::{RunEvent, StepEvent};
use ata_scheduler::{Event, IterationCost, Observed, StepOutcome, Topology};
use ata_sums::TrainingOutcome;

use super::Driver;
use super::steps::StepPlan;
use crate::checkpoint::SaveResult;
use crate::training::{StepOrder, StepResult, Work};

impl Driver {
    /// Orders the step of some collections. Its chunks are sent to the contributing workers as soon as they are stepped.
    pub(super) fn step(&mut self, plan: StepPlan) {
        for held in self.reduction.take_whole(&plan.collections) {
            self.steps.give(Work::Add(held));
        }
        let contributors = self.reduction.contributors(&plan.collections);
        let (order, next) = self.steps.order(plan);
        if let Some(next) = next {
            for (worker, stripe) in contributors {
                if let Some(session) = self.sessions.of_worker(worker) {
                    session.put(&next.in_stripe(stripe));
                }
            }
        }
        if let Some(order) = self.checkpoints.admit(order) {
            self.take_step(order);
        }
    }

    fn take_step(&mut self, order: StepOrder) {
        if let Some(taken) = self.steps.take(order) {
            self.step_finished(taken);
        }
    }

    /// Commits the result of a step. If the engine has withdrawn its order, because it did not know that a lost worker's sum had arrived,
    /// the result is kept for the next order.
    pub(super) fn step_finished(&mut self, result: StepResult) {
        let (iteration, TrainingOutcome { gradient_product, squares, .. }) = (result.iteration, result.outcome);
        let (loss, accuracy) = (self.steps.loss, self.evaluations.last_accuracy);
        let outcome = StepOutcome { loss: Some(loss), gradient_product, squares, accuracy };
        let mut effects = Vec::new();
        self.engine.handle(self.now_s, Event::StepCommitted { iteration, outcome }, &mut effects);
        if effects.is_empty() {
            // The engine waits for some of the step's tasks again.
            self.reduction.is_taken = true;
            self.sessions.send_again(&self.steps.parameters);
            return self.steps.keep(result);
        }
        if self.steps.finish(result, self.reduction.members()) {
            for session in self.sessions.close_oldest(self.steps.parameters.iteration) {
                self.dismiss(session, "it reads its parameters too slowly for this coordinator's memory");
            }
        }
        self.reduction.stepped();
        self.effects.extend(effects);
    }

    /// Records a committed iteration, and starts the next one unless the run is ending.
    pub(super) fn committed(&mut self, cost: &IterationCost, must_save: bool) {
        let result = &self.steps.result;
        let inner = self.info.spec.inner_steps.as_ref();
        let inner = inner.map(|steps| steps.learning_rate.at(self.steps.began().number()));
        let learning_rate = inner.unwrap_or(result.learning_rate);
        self.publisher.publish(RunEvent::Step(StepEvent {
            iteration: cost.iteration,
            time_s: self.now_s,
            loss: self.steps.loss,
            runtime_s: cost.runtime_s,
            total_worker_time_s: cost.total_worker_time_s,
            tasks: cost.tasks_applied,
            wasted: cost.tasks_wasted,
            employments: cost.employments,
            results: cost.results,
            learning_rate,
            gradient_norm: result.outcome.gradient_norm,
            noise_scale: self.engine.noise_scale(),
            saturated: result.saturated,
            vanished: result.vanished,
            shards: self.steps.shards,
        }));
        if self.is_ending {
            return;
        }
        // Workers are forgotten only here, so that no event within an iteration is attributed to a later worker of the same number.
        for worker in self.sessions.names.forget_long_absent() {
            self.notify(Event::WorkerForgotten { worker });
        }
        self.measure_links();
        self.evaluate_if_due();
        let must_save = must_save && self.checkpoints.are_written();
        if must_save || self.checkpoints.is_due(self.now_s, cost.iteration) {
            self.save();
        }
        if must_save {
            self.checkpoints.proceeds_after = Some(cost.iteration);
        } else {
            self.notify(Event::Proceed);
        }
    }

    /// Passes the link measurements since the last step to the engine, and records the changes.
    fn measure_links(&mut self) {
        let predicted_s = self.exchanges.predicted_s.take();
        let Some((observed, up_bytes)) = self.meter.stepped(predicted_s) else { return };
        for observed in observed {
            self.notify(Event::LinkObserved(observed));
        }
        let can_share = self.exchanges.plan.is_allowed()
            && !self.reduction.are_separate
            && self.sessions.ready().all(|session| session.peer_address.is_some());
        let topology = if can_share { Topology::Shards } else { Topology::Star };
        let down_bytes = self.steps.set_bytes() as f64;
        let chunk = 1.0 / self.reduction.chunks as f64;
        self.notify(Event::LinkObserved(Observed::Step { up_bytes, down_bytes, topology, chunk }));
        let event = self.links.changed(self.now_s, self.engine.links(), self.engine.present());
        if let Some(event) = event {
            self.publisher.publish(event);
        }
    }

    /// Starts to save the state after the last step. No step may be under way.
    pub(super) fn save(&mut self) {
        let (engine, best_accuracy) = (self.engine.save(), self.evaluations.best.accuracy);
        let (training, past) = (self.steps.copy(), self.publisher.state());
        self.checkpoints.save(self.now_s, engine, &self.sessions.names, best_accuracy, training, past);
    }

    /// Records the result of a save, and takes the step that waited for it.
    pub(super) fn save_finished(&mut self, result: SaveResult) {
        let awaited = self.checkpoints.take_awaited(&result);
        let (event, step) = self.checkpoints.finish(self.now_s, result);
        if let Some(event) = event {
            self.publisher.publish(event);
        }
        if let Some(is_saved) = awaited.filter(|_| !self.is_ending) {
            if !is_saved {
                self.notify(Event::NotSaved);
            }
            self.notify(Event::Proceed);
        }
        if let Some(order) = step {
            self.take_step(order);
        }
    }
}
