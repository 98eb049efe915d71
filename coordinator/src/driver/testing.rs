//! A coordinator that runs on virtual time, for tests.
//!
//! Sessions and gradients arrive as function calls, without a network, and work reaches the training thread only when a test passes it on.
//! The order of events therefore does not depend on the speed of any thread.

mod worker;

use std::collections::HashMap;
use std::ops::Range;
use std::pin::pin;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use ata_net::Peer;
use ata_record::{RecordError, RefusalKind, RunState};
use ata_scheduler::{Event, SavedEngine, WorkerStatistics};
use ata_sums::{TensorSizes, Units};
use ata_types::{CHUNK_VALUES, Iteration, Lease, LeaseId, VectorId};
use ata_wire::{
    ComputedLease, FarewellReason, GradientHeader, Hello, LeaseTimes, Reader, Receipt, SessionToken, ToWorker,
    VectorRequest,
};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};

pub use super::Ending;
use super::{Driver, DriverCommand, Presence, SessionHandle, VectorUpload};
use crate::checkpoint::SaveResult;
use crate::config::CoordinatorConfig;
use crate::parameters::DueSets;
use crate::reduction::{Reduction, Sink, UploadRefusal};
use crate::report::RunReport;
use crate::training::{TrainingEvent, Work};
use worker::computed;
pub use worker::{ParameterSets, VectorAnnouncement, VectorUploading, VirtualWorker};

/// The number of commands that threads may send before a test handles them.
const QUEUED_COMMANDS: usize = 64;

/// The time after which a wait has failed. It is far longer than any wait takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// The exponent of the unit of the first gradients.
const UNIT: i16 = -10;

/// A run that proceeds on virtual time.
pub struct VirtualRun {
    driver: Driver,
    /// The messages of the run's threads.
    commands: mpsc::Receiver<DriverCommand>,
    /// The work that the driver gave out, and the queue of the thread that does it.
    work: std_mpsc::Receiver<Work>,
    training: std_mpsc::Sender<Work>,
    /// The number of checkpoints that the saver thread has not reported, although their copies were passed on.
    unreported: usize,
    now_s: f64,
    /// The length of every gradient.
    parameters: usize,
    /// Whether the units of the first iteration are [`UNIT`], rather than those that the workers agree on.
    are_units_known: bool,
    state: watch::Receiver<RunState>,
}

/// The kinds of work for the training thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A gradient is added or compared.
    Gradient,
    /// A step is taken.
    Step,
    /// The state is copied for a checkpoint.
    Copy,
}

impl From<&Work> for WorkKind {
    fn from(work: &Work) -> Self {
        match work {
            Work::Units(_) | Work::Chunk(_) | Work::Add(_) | Work::Compare(_) => Self::Gradient,
            Work::Step(_) | Work::Abandon => Self::Step,
            Work::Copy(_) | Work::Parameters(_) => Self::Copy,
        }
    }
}

impl VirtualRun {
    /// Begins or resumes a run in which the units of the first iteration are known.
    pub fn begin(config: CoordinatorConfig) -> Self {
        Self { are_units_known: true, ..Self::begin_without_units(config) }
    }

    /// Begins or resumes a run.
    pub fn begin_without_units(config: CoordinatorConfig) -> Self {
        let parameters = config.problem.model.parameter_count();
        let (sender, commands) = mpsc::channel(QUEUED_COMMANDS);
        let (publisher, state) = watch::channel(RunState::default());
        let mut driver = Driver::new(config, &sender, publisher).expect("a run begins");
        let (given, work) = std_mpsc::channel();
        let training = driver.steps.intercept(given);
        driver.notify(Event::Proceed);
        let now_s = driver.now_s;
        Self { driver, commands, work, training, unreported: 0, now_s, parameters, are_units_known: false, state }
    }

    /// Ends the run as the driver's loop does, while the training thread does its remaining work.
    pub fn end(self, ending: Ending) -> RunReport {
        let Self { driver, commands, work, training, .. } = self;
        // This thread ends when the driver does, or when the training thread has failed.
        std::thread::spawn(move || while work.iter().next().is_some_and(|work| training.send(work).is_ok()) {});
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(driver.finish(ending, commands, pin!(std::future::pending())))
    }

    /// Sends the workers a Farewell, as at the end of the run.
    pub fn take_leave(&mut self, ending: &Ending) {
        self.driver.take_leave(ending);
    }

    /// Lets time pass. Returns why the run ends, if it does.
    pub fn pass(&mut self, seconds: f64) -> Option<Ending> {
        self.turn(seconds, None)
    }

    fn turn(&mut self, passes_s: f64, command: Option<DriverCommand>) -> Option<Ending> {
        if self.are_units_known && self.driver.steps.units().is_none() {
            let exponents = vec![UNIT; self.driver.sizes.tensors()];
            let units = Units::from_exponents(&exponents, &self.driver.sizes).expect("units of the model");
            self.driver.steps.set_units(units);
        }
        self.now_s += passes_s;
        self.driver.turn(self.now_s, command)
    }

    /// Takes the step and writes the checkpoint that are due, if any; otherwise only time passes.
    pub fn step(&mut self) -> Option<Ending> {
        self.pass_work_on();
        self.wait_for_training();
        let mut ending = self.turn(0.1, None);
        loop {
            // A checkpoint is written by another thread, whose report must be waited for.
            let report = if self.unreported > 0 { self.commands.blocking_recv() } else { self.commands.try_recv().ok() };
            let Some(report) = report else { return ending };
            ending = ending.or(self.handle(0.0, report));
        }
    }

    /// Handles a thread's message after some time.
    fn handle(&mut self, passes_s: f64, report: DriverCommand) -> Option<Ending> {
        if let DriverCommand::Save(SaveResult::Checkpoint { .. } | SaveResult::CheckpointFailed { .. }) = report {
            self.unreported -= 1;
        }
        self.turn(passes_s, Some(report))
    }

    /// Waits until the training thread has done all of its work.
    fn wait_for_training(&self) {
        let (copy, copied) = std_mpsc::sync_channel(1);
        // A failed thread has closed its queue, and there is nothing to wait for.
        if self.training.send(Work::Parameters(copy)).is_ok() {
            drop(copied.recv());
        }
    }

    /// Passes the work that the driver gave out on to the training thread.
    pub fn pass_work_on(&mut self) -> Vec<WorkKind> {
        let pass_on = |work| {
            let kind = WorkKind::from(&work);
            self.unreported += usize::from(matches!(work, Work::Copy(_)));
            self.training.send(work).expect("the training thread runs");
            kind
        };
        self.work.try_iter().map(pass_on).collect()
    }

    /// Waits for the next message of a thread, and handles it after some time.
    pub fn handle_report(&mut self, passes_s: f64) -> Option<Ending> {
        let report = self.commands.blocking_recv()?;
        self.handle(passes_s, report)
    }

    /// Makes the training thread panic.
    pub fn break_training_thread(&mut self) {
        // The units of another model make the thread panic.
        let none = Units::from_exponents(&[], &TensorSizes::new([])).expect("units of no tensors");
        self.training.send(Work::Units(none)).expect("the training thread runs");
    }

    /// Reports a failure of the training thread.
    pub fn fail_training(&mut self) -> Option<Ending> {
        self.turn(0.0, Some(DriverCommand::Training(TrainingEvent::Failed)))
    }

    /// Reports that the journal can no longer be written.
    pub fn fail_record(&mut self, error: RecordError) -> Option<Ending> {
        self.turn(0.0, Some(DriverCommand::RecordFailed(error)))
    }

    fn ask<T>(&mut self, command: impl FnOnce(oneshot::Sender<T>) -> DriverCommand) -> T {
        let (reply, mut answer) = oneshot::channel();
        assert!(self.turn(0.0, Some(command(reply))).is_none());
        answer.try_recv().expect("every request is answered at once")
    }

    /// Opens a session, and reports that the worker is ready. Returns `None` if the session is refused.
    pub fn join(&mut self, name: &str, instance: u64) -> Option<VirtualWorker> {
        let (name, device, version) = (name.parse().expect("a name"), String::new(), String::new());
        let hello = Hello { name, instance, number: None, device, version };
        let hello = |reply| DriverCommand::Hello { hello, peer: Peer::default(), reply };
        let SessionHandle { token, messages, presence } = self.ask(hello).ok()?;
        assert!(
            self.turn(0.0, Some(DriverCommand::Ready { session: token, fuses: false, peer_address: None })).is_none()
        );
        presence.hear_heartbeat(false);
        Some(VirtualWorker {
            token,
            messages,
            presence,
            leases: Vec::new(),
            assigned: HashMap::new(),
            asked: Vec::new(),
        })
    }

    /// Lets time pass, then ends a control stream.
    pub fn leave(&mut self, passes_s: f64, session: SessionToken) -> Option<Ending> {
        self.turn(passes_s, Some(DriverCommand::Left { session, why: "it left".into() }))
    }

    /// Lets time pass, then fails a lease.
    pub fn fail(&mut self, passes_s: f64, session: SessionToken, lease: LeaseId, kind: RefusalKind) -> Option<Ending> {
        self.turn(passes_s, Some(DriverCommand::LeaseFailed { session, lease, kind, reason: "a test".into() }))
    }

    fn header(&self, session: SessionToken, iteration: Iteration) -> GradientHeader {
        let tensors = self.driver.sizes.tensors();
        let maxima = vec![1.0; tensors];
        let header = GradientHeader {
            session,
            vector: VectorId(0),
            maxima,
            units: Vec::new(),
            units_crc32c: 0,
            saturated: 0,
            vanished: 0,
        };
        let is_current = iteration == self.driver.steps.parameters().iteration;
        let units =
            if is_current { self.driver.steps.units() } else { self.driver.sessions.units_of(session, iteration) };
        match units {
            Some(units) => header.in_units(units.exponents(), units.shifts()),
            None => header.in_units(&vec![UNIT; tensors], &[]),
        }
    }

    /// Returns values as integers in the first unit: `value` in the first chunk, twice as much in the second, and so on.
    fn sums(&self, value: f32) -> Vec<i32> {
        let unit = self.driver.steps.units().map_or(UNIT, |units| units.exponents()[0]);
        let integer = |at: usize| (value * (at / CHUNK_VALUES + 1) as f32 * 2.0_f32.powi(-i32::from(unit))) as i32;
        (0..self.parameters).map(integer).collect()
    }

    /// Reports that a lease is computed, with a time of zero.
    pub fn report(&mut self, session: SessionToken, lease: &Lease) -> Option<Ending> {
        self.turn(0.0, Some(DriverCommand::Progress { session, computed: vec![computed(lease)] }))
    }

    /// Announces a requested vector.
    pub fn announce_vector(&mut self, session: SessionToken, asked: &VectorRequest) -> VectorAnnouncement {
        self.announce_changed_vector(session, asked, |_| ())
    }

    /// Announces a requested vector with a changed header.
    pub fn announce_changed_vector(
        &mut self,
        session: SessionToken,
        asked: &VectorRequest,
        change: impl FnOnce(&mut GradientHeader),
    ) -> VectorAnnouncement {
        let header = self.header(session, asked.iteration);
        let mut header = GradientHeader { vector: asked.id, ..header };
        change(&mut header);
        let (reply, answer) = oneshot::channel();
        assert!(self.turn(0.0, Some(DriverCommand::AnnounceVector { header, peer: Peer::default(), reply })).is_none());
        VectorAnnouncement(answer)
    }

    /// Sends some chunks of an admitted vector until its gate closes. Returns how many were sent.
    pub fn send_chunks(&self, upload: &VectorUploading, value: f32, chunks: Range<u64>) -> u64 {
        let sums = self.sums(value);
        let of_them = sums.chunks(CHUNK_VALUES).zip(0..).filter(|(_, at)| chunks.contains(at));
        let Sink::Gate(gate) = &upload.0.sink else { return 0 };
        let work = &upload.0.work;
        let send =
            |sums: &[i32], at: u64| gate.let_through(at, sums.to_vec(), |chunk| drop(work.send(Work::Chunk(chunk))));
        of_them.filter(|(sums, at)| send(sums, *at)).count() as u64
    }

    /// The number of chunks of a whole vector.
    pub fn chunks(&self) -> u64 {
        self.parameters.div_ceil(CHUNK_VALUES) as u64
    }

    /// Reports that a vector has passed its gate.
    pub fn vector_arrived(
        &mut self,
        session: SessionToken,
        asked: &VectorRequest,
    ) -> (Option<Receipt>, Option<Ending>) {
        self.arrived(session, asked, None)
    }

    /// Reports that a vector has arrived, with its values if it was assembled.
    pub fn arrived(
        &mut self,
        session: SessionToken,
        asked: &VectorRequest,
        value: Option<f32>,
    ) -> (Option<Receipt>, Option<Ending>) {
        let values = value.map(|value| self.sums(value));
        let (reply, mut answer) = oneshot::channel();
        let ending = self.turn(0.0, Some(DriverCommand::VectorArrived { session, vector: asked.id, values, reply }));
        (answer.try_recv().ok(), ending)
    }

    /// Sends a requested vector with these values.
    pub fn send_vector(
        &mut self,
        session: SessionToken,
        asked: &VectorRequest,
        value: f32,
    ) -> (Option<Receipt>, Option<Ending>) {
        let Some(upload) = self.announce_vector(session, asked).upload() else { return (None, None) };
        if upload.is_whole() {
            return self.arrived(session, asked, Some(value));
        }
        self.send_chunks(&upload, value, asked.first_chunk..self.chunks());
        self.vector_arrived(session, asked)
    }

    /// Fails a vector.
    pub fn fail_vector(&mut self, session: SessionToken, asked: &VectorRequest, kind: RefusalKind) -> Option<Ending> {
        let (vector, reason) = (asked.id, "a test".into());
        self.turn(0.0, Some(DriverCommand::VectorFailed { session, vector, kind, reason }))
    }

    /// Requests the parameters of a session.
    pub fn parameters(&mut self, session: SessionToken) -> ParameterSets {
        let sets = self.ask(|reply| DriverCommand::Parameters { session, reader: Reader::default(), reply });
        ParameterSets(sets.expect("the session is open"))
    }

    /// Returns whether a session is open.
    pub fn is_open(&mut self, session: SessionToken) -> bool {
        self.driver.sessions.of_token(session).is_ok()
    }

    /// The number of remembered names.
    pub fn names(&self) -> usize {
        self.driver.sessions.names().count()
    }

    /// Returns whether the result of a step is awaited.
    pub fn is_step_under_way(&self) -> bool {
        self.driver.steps.is_under_way()
    }

    /// The SHA-256 of the current parameters.
    pub fn parameters_sha256(&mut self) -> [u8; 32] {
        let trained = self.driver.steps.trained();
        self.pass_work_on();
        trained.sha256()
    }

    /// The engine's statistics of each worker.
    pub fn statistics(&self) -> &[WorkerStatistics] {
        self.driver.engine.statistics()
    }

    /// The engine's part of a checkpoint.
    pub fn saved_engine(&self) -> SavedEngine {
        self.driver.engine.save()
    }

    /// Waits until the run's state, which another thread keeps, fulfils a condition.
    ///
    /// # Panics
    /// Panics if it does not do so within 20 seconds.
    pub fn wait_for(&mut self, what: &str, holds: impl FnMut(&RunState) -> bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let waiting = async { tokio::time::timeout(DEADLINE, self.state.wait_for(holds)).await };
        let reached = runtime.block_on(waiting).is_ok_and(|state| state.is_ok());
        assert!(reached, "never: {what}");
    }

    /// Changes how many vectors may be assembled at the same time. Must be called before any worker joins.
    pub fn limit_room(&mut self, places: usize) {
        let (chunks, are_separate) = (self.driver.reduction.chunks(), self.driver.reduction.are_separate());
        self.driver.reduction = Reduction::new(chunks, are_separate, places);
    }

    /// Changes how many versions of the parameters may be in memory.
    pub fn limit_versions(&mut self, versions: usize) {
        self.driver.steps.limit_versions(versions);
    }
}
