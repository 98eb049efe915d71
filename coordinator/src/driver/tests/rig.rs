//! A coordinator that runs on virtual time.
//!
//! Sessions and gradients arrive as function calls, without a network, and work reaches the training thread only when a test passes it on.
//! The order of events therefore does not depend on the speed of any thread.

use std::net::IpAddr;

use ata_wire::ProcessUsage;

use super::*;

/// The number of commands that threads may send before a test handles them.
const QUEUED_COMMANDS: usize = 64;

/// The time after which a wait has failed. It is far longer than any wait takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

const UNIT: i16 = -10;

pub(super) struct Rig {
    pub(super) driver: Driver,
    pub(super) commands: mpsc::Receiver<DriverCommand>,
    pub(super) sender: mpsc::Sender<DriverCommand>,
    /// The work that the driver gave out, and the queue of the thread that does it.
    work: std_mpsc::Receiver<Work>,
    pub(super) training: std_mpsc::Sender<Work>,
    /// The number of checkpoints that the saver thread has not reported, although their copies were passed on.
    unreported: usize,
    parameters: usize,
    /// Whether the units of the first iteration are [`UNIT`], rather than those that the workers agree on.
    pub(super) are_units_known: bool,
    state: watch::Receiver<RunState>,
    pub(super) folder: TempDir,
}

impl Rig {
    pub(super) fn new(policy: &str, budget: u64, iterations: u64) -> Self {
        Self::changed(MODEL, policy, budget, iterations, |_| ())
    }

    pub(super) fn large(policy: &str, budget: u64, iterations: u64) -> Self {
        Self::changed(LARGE, policy, budget, iterations, |_| ())
    }

    pub(super) fn changed(
        model: &str,
        policy: &str,
        budget: u64,
        iterations: u64,
        change: impl FnOnce(&mut CoordinatorConfig),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), model, policy, budget, iterations);
        change(&mut config);
        Self::begin(config, folder)
    }

    pub(super) fn begin(config: CoordinatorConfig, folder: TempDir) -> Self {
        let parameters = config.problem.model.parameter_count();
        let (sender, commands) = mpsc::channel(QUEUED_COMMANDS);
        let (publisher, state) = watch::channel(RunState::default());
        let mut driver = Driver::new(config, &sender, publisher).expect("a run begins");
        let (given, work) = std_mpsc::channel();
        let training = std::mem::replace(&mut driver.steps.work, given);
        driver.notify(Event::Proceed);
        let (unreported, are_units_known) = (0, true);
        Self { driver, commands, sender, work, training, unreported, parameters, are_units_known, state, folder }
    }

    /// Ends the run as the driver's loop does, while the training thread does its remaining work.
    pub(super) fn end(self, ending: Ending) -> (RunReport, TempDir) {
        let Self { driver, commands, work, training, folder, .. } = self;
        // This thread ends when the driver does, or when the training thread has failed.
        std::thread::spawn(move || while work.iter().next().is_some_and(|work| training.send(work).is_ok()) {});
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        (runtime.block_on(driver.finish(ending, commands, pin!(std::future::pending()))), folder)
    }

    /// Ends the run as the end of its process does, whose threads write nothing later. All clients must be dropped.
    pub(super) fn kill(self) -> TempDir {
        let Self { driver, mut commands, sender, work, training, folder, .. } = self;
        drop((driver, sender, work, training));
        // The threads that write hold the other ends of this channel.
        while commands.blocking_recv().is_some() {}
        folder
    }

    pub(super) fn pass(&mut self, seconds: f64) -> Option<Ending> {
        self.turn(seconds, None)
    }

    pub(super) fn command(&mut self, command: DriverCommand) -> Option<Ending> {
        self.turn(0.0, Some(command))
    }

    fn turn(&mut self, passes_s: f64, command: Option<DriverCommand>) -> Option<Ending> {
        if self.are_units_known && self.driver.steps.units.is_none() {
            let exponents = vec![UNIT; self.driver.sizes.tensors()];
            let units = Units::from_exponents(&exponents, &self.driver.sizes).expect("units of the model");
            self.driver.steps.set_units(units);
        }
        self.driver.turn(self.driver.now_s + passes_s, command)
    }

    /// Takes the step and writes the checkpoint that are due, if any; otherwise only time passes.
    pub(super) fn step(&mut self) -> Option<Ending> {
        self.pass_work_on();
        let (copy, copied) = std_mpsc::sync_channel(1);
        // The training thread has done all of its work, unless it has failed and closed its queue.
        if self.training.send(Work::Parameters(copy)).is_ok() {
            drop(copied.recv());
        }
        let mut ending = self.pass(0.1);
        loop {
            // A checkpoint is written by another thread, whose report must be waited for.
            let report =
                if self.unreported > 0 { self.commands.blocking_recv() } else { self.commands.try_recv().ok() };
            let Some(report) = report else { return ending };
            ending = ending.or(self.handle(report));
        }
    }

    pub(super) fn handle(&mut self, report: DriverCommand) -> Option<Ending> {
        if let DriverCommand::Save(SaveResult::Checkpoint { .. }) = report {
            self.unreported -= 1;
        }
        self.command(report)
    }

    /// Passes the work that the driver gave out on to the training thread. Returns how many copies of the state and steps are among it.
    pub(super) fn pass_work_on(&mut self) -> [usize; 2] {
        let (mut copies, mut steps) = (0, 0);
        for work in self.work.try_iter() {
            copies += usize::from(matches!(work, Work::Copy(_)));
            steps += usize::from(matches!(work, Work::Step(_)));
            self.training.send(work).expect("the training thread runs");
        }
        self.unreported += copies;
        [copies, steps]
    }

    pub(super) fn ask<T>(&mut self, command: impl FnOnce(oneshot::Sender<T>) -> DriverCommand) -> T {
        let (reply, mut answer) = oneshot::channel();
        assert!(self.command(command(reply)).is_none());
        answer.try_recv().expect("every request is answered at once")
    }

    /// Opens a session, and reports that the worker is ready. Returns `None` if the session is refused.
    pub(super) fn join(&mut self, name: &str, instance: u64) -> Option<VirtualWorker> {
        self.join_from("0.0.0.0", name, instance).ok()
    }

    pub(super) fn join_from(&mut self, address: &str, name: &str, instance: u64) -> Result<VirtualWorker, Status> {
        let peer = Peer::from(address.parse::<IpAddr>().expect("an address"));
        let (name, device, version) = (name.parse().expect("a name"), String::new(), String::new());
        let hello = Hello { name, instance, number: None, device, version };
        let hello = |reply| DriverCommand::Hello { hello, peer, reply };
        let SessionHandle { token, messages, presence } = self.ask(hello)?;
        assert!(self.say(token, FromWorker::Ready { fuses: false, peer_address: None }).is_none());
        presence.hear_heartbeat(false, ProcessUsage::default());
        Ok(VirtualWorker { token, leases: Vec::new(), asked: Vec::new(), messages, presence })
    }

    pub(super) fn say(&mut self, session: SessionToken, message: FromWorker) -> Option<Ending> {
        self.command(DriverCommand::Said { session, message })
    }

    pub(super) fn leave(&mut self, session: SessionToken) -> Option<Ending> {
        self.command(DriverCommand::Left { session, why: "it left".into() })
    }

    pub(super) fn is_open(&mut self, session: SessionToken) -> bool {
        self.driver.sessions.of_token(session).is_ok()
    }

    /// Reports that a lease is computed, with a time of zero.
    pub(super) fn report(&mut self, session: SessionToken, lease: &Lease) -> Option<Ending> {
        let tasks = lease.tasks.count as usize;
        let times = LeaseTimes { busy_s: vec![0.0; tasks], ..LeaseTimes::default() };
        let computed = ComputedLease { lease: lease.id, times, losses: vec![1.0; tasks] };
        self.say(session, FromWorker::Progress(vec![computed]))
    }

    pub(super) fn fail_lease(&mut self, session: SessionToken, lease: LeaseId, uncomputable: bool) -> Option<Ending> {
        self.say(session, FromWorker::LeaseFailed { lease, reason: "a test".into(), uncomputable })
    }

    pub(super) fn report_all(&mut self, client: &mut VirtualWorker) {
        for lease in std::mem::take(&mut client.leases) {
            assert!(self.report(client.token, &lease).is_none());
        }
    }

    pub(super) fn announce(&mut self, session: SessionToken, asked: &VectorRequest) -> Announced {
        self.announce_changed(session, asked, |_| ())
    }

    pub(super) fn announce_changed(
        &mut self,
        session: SessionToken,
        asked: &VectorRequest,
        change: impl FnOnce(&mut GradientHeader),
    ) -> Announced {
        let (tensors, steps) = (self.driver.sizes.tensors(), &self.driver.steps);
        let is_current = asked.iteration == self.driver.iteration();
        let of_session = || self.driver.sessions.units_of(session, asked.iteration);
        let units = if is_current { steps.units.as_ref() } else { of_session() };
        let none = (vec![UNIT; tensors], &[][..]);
        let (units, shifts) = units.map_or(none, |units| (units.exponents().to_vec(), units.shifts()));
        let mut header = GradientHeader {
            session,
            vector: asked.id,
            maxima: vec![1.0; tensors],
            units_crc32c: units_crc32c(&units, shifts),
            units,
            saturated: 0,
            vanished: 0,
        };
        change(&mut header);
        let (reply, answer) = oneshot::channel();
        assert!(self.command(DriverCommand::AnnounceVector { header, peer: Peer::default(), reply }).is_none());
        Announced(answer)
    }

    /// Returns values as integers in the first unit: `value` in the first chunk, twice as much in the second, and so on.
    fn sums(&self, value: f32) -> Vec<i32> {
        let unit = self.driver.steps.units.as_ref().map_or(UNIT, |units| units.exponents()[0]);
        let integer = |at: usize| (value * (at / CHUNK_VALUES + 1) as f32 * 2.0_f32.powi(-i32::from(unit))) as i32;
        (0..self.parameters).map(integer).collect()
    }

    pub(super) fn chunks(&self) -> u64 {
        self.driver.reduction.chunks
    }

    /// Sends some chunks of an admitted vector until its gate closes. Returns how many were sent.
    pub(super) fn send_chunks(&self, upload: &VectorUpload, value: f32, chunks: Range<u64>) -> u64 {
        let Sink::Gate(gate) = &upload.vector.sink else { return 0 };
        let sums = self.sums(value);
        let send = |sums: &[i32], at: u64| {
            gate.let_through(at, sums.to_vec(), |chunk| drop(upload.work.send(Work::Chunk(chunk))))
        };
        let of_them = sums.chunks(CHUNK_VALUES).zip(0..).filter(|(_, at)| chunks.contains(at));
        of_them.filter(|(sums, at)| send(sums, *at)).count() as u64
    }

    /// Reports that a vector has arrived, with its values if it was assembled.
    pub(super) fn arrived(
        &mut self,
        session: SessionToken,
        asked: &VectorRequest,
        value: Option<f32>,
    ) -> (Option<Receipt>, Option<Ending>) {
        let values = value.map(|value| self.sums(value));
        let (reply, mut answer) = oneshot::channel();
        let ending = self.command(DriverCommand::VectorArrived { session, vector: asked.id, values, reply });
        (answer.try_recv().ok(), ending)
    }

    pub(super) fn send_vector(
        &mut self,
        session: SessionToken,
        asked: &VectorRequest,
    ) -> (Option<Receipt>, Option<Ending>) {
        let Some(upload) = self.announce(session, asked).upload() else { return (None, None) };
        let is_whole = matches!(upload.vector.sink, Sink::Whole(_));
        self.send_chunks(&upload, sum(asked), asked.first_chunk..self.chunks());
        self.arrived(session, asked, is_whole.then(|| sum(asked)))
    }

    pub(super) fn fail_vector(&mut self, session: SessionToken, asked: &VectorRequest) -> Option<Ending> {
        let (vector, kind, reason) = (asked.id, RefusalKind::NotReceived, "a test".into());
        self.command(DriverCommand::VectorFailed { session, vector, kind, reason })
    }

    pub(super) fn work(&mut self, client: &mut VirtualWorker) -> Option<Ending> {
        let is_open = self.is_open(client.token);
        if client.leases.is_empty() {
            let asked = client.asked.remove(0);
            let (receipt, ending) = self.send_vector(client.token, &asked);
            assert_eq!(receipt == Some(Receipt::Accepted), is_open);
            return ending;
        }
        let lease = client.leases.remove(0);
        self.report(client.token, &lease)
    }

    pub(super) fn work_off(&mut self, client: &mut VirtualWorker) {
        client.read();
        while client.is_busy() {
            assert!(self.work(client).is_none());
            client.read();
        }
        client.presence.hear();
    }

    pub(super) fn parameters(&mut self, session: SessionToken) -> DueSets {
        let sets = self.ask(|reply| DriverCommand::Parameters { session, reader: Reader::default(), reply });
        sets.expect("the session is open")
    }

    pub(super) fn parameters_sha256(&mut self) -> [u8; 32] {
        let trained = self.driver.steps.trained();
        self.pass_work_on();
        trained.sha256()
    }

    pub(super) fn wait_for(&mut self, what: &str, holds: impl FnMut(&RunState) -> bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let waiting = async { tokio::time::timeout(DEADLINE, self.state.wait_for(holds)).await };
        let reached = runtime.block_on(waiting).is_ok_and(|state| state.is_ok());
        assert!(reached, "never: {what}");
    }
}

pub(super) struct VirtualWorker {
    pub(super) token: SessionToken,
    /// The leases that the worker has not reported yet.
    pub(super) leases: Vec<Lease>,
    /// The requested vectors that the worker has not sent.
    pub(super) asked: Vec<VectorRequest>,
    pub(super) messages: mpsc::Receiver<ToWorker>,
    pub(super) presence: Presence,
}

impl VirtualWorker {
    /// Reads the worker's messages, and updates its leases. Returns the reason of a farewell, if there was one.
    pub(super) fn read(&mut self) -> Option<FarewellReason> {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                ToWorker::Assign(assignments) => {
                    self.asked.extend(assignments.iter().filter_map(Assignment::request));
                    self.leases.extend(assignments.iter().map(|assignment| assignment.lease));
                }
                ToWorker::Cancel(gone) => self.leases.retain(|lease| !gone.contains(&lease.id)),
                ToWorker::Farewell { reason, .. } => return Some(reason),
                ToWorker::Collect { requests, withdrawn } => {
                    self.asked.retain(|asked| !withdrawn.contains(&asked.id));
                    self.asked.extend(requests);
                }
                _ => {}
            }
        }
        None
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.leases.is_empty() || !self.asked.is_empty()
    }
}

pub(super) struct Announced(oneshot::Receiver<Result<VectorUpload, Result<Receipt, Status>>>);

impl Announced {
    pub(super) fn is_waiting(&mut self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }

    pub(super) fn is_refused(&mut self) -> bool {
        matches!(self.0.try_recv(), Ok(Err(_)))
    }

    pub(super) fn upload(&mut self) -> Option<VectorUpload> {
        self.0.try_recv().ok()?.ok()
    }
}
