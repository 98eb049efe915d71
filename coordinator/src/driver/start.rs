//! The initial state of a run, which is new or resumed from a checkpoint.

use ata_record::{
    BEST_MODEL_FILE, JOURNAL_VERSION, PROGRAM_VERSION, RecordError, RunEvent, RunStart, RunState, resume_journal,
};
use ata_scheduler::{Engine, EngineConfig};
use ata_sums::{Rule, TrainingConfig, TrainingState};
use ata_types::{Iteration, WorkerId};
use tokio::sync::watch;

use super::evaluations::BestEvaluation;
use super::publisher::Publisher;
use super::sessions::{Names, WorkerIdentity};
use crate::checkpoint::Checkpoint;
use crate::config::{PolicyConfig, ProblemConfig, RunConfig, Start};
use crate::report::RunError;

pub(super) struct StartState {
    pub(super) engine: Engine,
    pub(super) names: Names,
    pub(super) training: TrainingState,
    pub(super) publisher: Publisher,
    pub(super) time_s: f64,
    pub(super) epoch: u64,
    /// The last iteration of the checkpoint that the run resumes from; 0 if the run is new.
    pub(super) saved: Iteration,
    pub(super) best: BestEvaluation,
}

pub(super) struct Starter<'a> {
    pub(super) run: &'a mut RunConfig,
    pub(super) engine: EngineConfig,
    pub(super) policy: PolicyConfig,
    pub(super) problem: &'a ProblemConfig,
    pub(super) training: TrainingConfig,
    pub(super) state: watch::Sender<RunState>,
    /// A function that is called once if the journal can no longer be written.
    pub(super) failed: Box<dyn FnOnce(RecordError) + Send>,
}

impl Starter<'_> {
    /// Begins or resumes the run and its journal.
    pub(super) fn start(self, start: Start) -> Result<StartState, RunError> {
        let own = match self.training.optimizer.rule {
            Rule::Own => {
                let none = || RunError::Optimizer("the program has none".into());
                Some(self.problem.model.optimizer()?.ok_or_else(none)?)
            }
            _ => None,
        };
        let mut started = match start {
            Start::Checkpoint(checkpoint) => self.resume(*checkpoint),
            Start::Parameters(parameters) => self.begin(parameters),
            Start::Random => {
                let parameters = self.problem.model.initial_parameters(self.engine.seed)?;
                self.begin(parameters)
            }
        }?;
        own.map_or(Ok(()), |own| started.training.set_own(own)).map_err(RunError::Optimizer)?;
        Ok(started)
    }

    fn begin(self, parameters: Vec<f32>) -> Result<StartState, RunError> {
        let (event, past) = (self.run_event(), self.state.borrow().clone());
        let publisher = Publisher::open(self.run, past, false, self.state, self.failed)?;
        publisher.publish(event);
        Ok(StartState {
            engine: Engine::new(self.engine, self.policy.policy),
            names: Names::default(),
            training: TrainingState::new(self.training, parameters),
            publisher,
            time_s: 0.0,
            epoch: 0,
            saved: Iteration::default(),
            best: BestEvaluation::default(),
        })
    }

    fn resume(self, checkpoint: Checkpoint) -> Result<StartState, RunError> {
        let Checkpoint { training, past, progress } = checkpoint;
        progress.check_data(&self.problem.data.identity())?;
        let (event, iterations) = (self.run_event(), self.engine.iterations);
        let engine = Engine::restore(self.engine, self.policy.policy, progress.engine)?;
        resume_journal(&self.run.folder, &event, progress.iteration, &past)?;
        let mut past = past.priced_as(&self.state.borrow());
        // The checkpoint includes what happened after its last step, and the journal does not.
        past.exclusions = progress.excluded.iter().cloned().collect();
        // If the file of the best model is lost, the best model from now on replaces it.
        let best = if self.run.folder.join(BEST_MODEL_FILE).exists() {
            BestEvaluation { accuracy: progress.best_accuracy, loss: past.lowest_test_loss }
        } else {
            BestEvaluation::default()
        };
        let publisher = Publisher::open(self.run, past, true, self.state, self.failed)?;
        let epoch = progress.epoch + 1;
        publisher.publish(RunEvent::Resume {
            time_s: progress.time_s,
            version: JOURNAL_VERSION,
            written_by: PROGRAM_VERSION.into(),
            epoch,
            iteration: progress.iteration,
            policy: self.policy.specification,
            iterations,
        });
        let known = |(worker, name, machine): (WorkerId, String, String)| {
            Some((worker, WorkerIdentity { name: name.parse().ok()?, machine }))
        };
        Ok(StartState {
            engine,
            names: Names::restored(progress.workers.into_iter().filter_map(known), progress.excluded),
            training,
            publisher,
            time_s: progress.time_s,
            epoch,
            saved: progress.iteration,
            best,
        })
    }

    fn run_event(&self) -> RunEvent {
        RunEvent::Run(RunStart {
            version: JOURNAL_VERSION,
            written_by: PROGRAM_VERSION.into(),
            run_id: self.run.id.clone(),
            labels: self.run.labels.clone(),
            policy: self.policy.specification.clone(),
            budget: self.engine.budget,
            most_tasks: self.engine.choice.as_ref().map(|choice| choice.most),
            iterations: self.engine.iterations,
            task_batch: self.problem.task_batch,
            seed: self.engine.seed,
            model: self.problem.specification.clone(),
            samples: self.problem.samples,
        })
    }
}
