//! A session whose worker is ready: leases, sums and parameters.
#![allow(clippy::wildcard_imports, reason = "it is a part of the module above, in a file of its own")]

use super::*;
use ata_wire::SetHeader;
use ata_wire::limits::MAX_BATCH;

/// The warning of a worker that was evicted while it waited for parameters.
const LOST_PARAMETERS: &str = "tasks came, but not their parameters: large packets are lost on the way, or the link is too slow. \
                               `ata doctor` with the flags of this worker measures it; on a VPN or tunnel, lower the MTU at both ends: \
                               ip link set dev DEVICE mtu 1280";

pub(super) struct ActiveSession<'a> {
    pub(super) bulk: Connection,
    pub(super) stream: ParameterStream,
    pub(super) parameters: Parameters,
    pub(super) sharing: Sharing<'a>,
    pub(super) evaluations: WorkerEvaluations<'a>,
    pub(super) served: &'a Served<'a>,
    pub(super) to_coordinator: mpsc::Sender<WorkerMessage>,
    pub(super) compute: &'a Compute,
    pub(super) loaded: Option<Iteration>,
    /// The leases that wait for their parameters, and their rounds.
    pub(super) waiting: Vec<(Assignment, u64)>,
    /// The time at which the first of them began to wait.
    pub(super) waits_since: Option<Instant>,
    /// The first lease that could begin after the last wait, and the seconds of that wait.
    pub(super) waited: (LeaseId, f64),
    pub(super) units: Option<(Iteration, Units)>,
    pub(super) given: HashMap<LeaseId, CancelFlag>,
    pub(super) asked: Vec<AskedVector>,
    pub(super) rounds: u64,
    pub(super) progress: Vec<ComputedLease>,
    /// The uploads in progress. Each returns whether its gradient counts.
    pub(super) uploads: JoinSet<Result<bool, SessionError>>,
    pub(super) probes: JoinSet<Option<(u64, f64)>>,
    pub(super) worked: &'a mut bool,
    pub(super) is_leaving: bool,
}

pub(super) struct AskedVector {
    request: VectorRequest,
    of: Option<LeaseId>,
    pub(super) withdrawn: CancelFlag,
}

impl ActiveSession<'_> {
    /// Serves the control stream, the thread and the transfers until one of them ends the session.
    pub(super) async fn work(
        &mut self,
        incoming: &mut Streaming<CoordinatorMessage>,
        mut events: mpsc::Receiver<ComputeEvent>,
        mut exchanged: mpsc::Receiver<ExchangeEvent>,
    ) -> Result<FarewellReason, SessionError> {
        let to_coordinator = self.to_coordinator.clone();
        loop {
            let is_idle =
                self.waiting.is_empty() && self.given.is_empty() && self.uploads.is_empty() && self.asked.is_empty();
            self.served.has_work.store(!is_idle, Ordering::Relaxed);
            tokio::select! {
                message = incoming.message() => match next_message(message)? {
                    ToWorker::Units { iteration, units, shifts } => {
                        let units = Units::new(&units, &shifts, &self.compute.sizes);
                        let wrong = |error: UnitsError| SessionError::protocol(error.to_string());
                        self.units = Some((iteration, units.map_err(wrong)?));
                    }
                    ToWorker::Assign(assignments) => assignments.into_iter().for_each(|assignment| self.assigned(assignment)),
                    ToWorker::Collect { requests, withdrawn } => {
                        for vector in withdrawn {
                            self.withdraw(vector);
                        }
                        for request in requests {
                            self.collect(request);
                        }
                    }
                    ToWorker::Evaluate { step, batches } => self.evaluations.measure(step, batches),
                    ToWorker::Reach { probe, address } => self.sharing.reach(probe, &address),
                    ToWorker::ProbeLink { bytes } => self.probe_link(bytes),
                    ToWorker::Cancel(leases) => self.cancelled(&leases),
                    ToWorker::Farewell { reason, detail } => {
                        if reason == FarewellReason::Evicted && !self.waiting.is_empty() {
                            tracing::warn!("{LOST_PARAMETERS}");
                        }
                        return ended(reason, detail);
                    }
                    ToWorker::Welcome(_) => return Err(SessionError::protocol("a second Welcome")),
                },
                () = self.served.leave.cancelled(), if !self.is_leaving => self.begin_to_leave(),
                Some(event) = events.recv(), if self.uploads.len() < MAX_UPLOADS => self.compute_event(event)?,
                Ok(permit) = to_coordinator.reserve(), if !self.progress.is_empty() => {
                    // All leases computed while the connection was busy are reported together, as many as fit into a message.
                    permit.send(FromWorker::progress(&mut self.progress).into());
                }
                part = self.stream.next() => self.part(part.map_err(SessionError::receive)?)?,
                Some(event) = exchanged.recv() => self.exchange_event(event),
                measured = self.evaluations.next() => self.send(FromWorker::Measured(measured)),
                Some(probed) = self.probes.join_next() => {
                    // A probe that failed, because others are measuring or the link is too slow, is repeated later.
                    if let Ok(Some((bytes, seconds))) = probed {
                        self.send(FromWorker::LinkProbed { bytes, seconds });
                    }
                }
                Some(uploaded) = self.uploads.join_next() => {
                    *self.worked |= uploaded.map_err(|error| SessionError::Broken(error.to_string()))??;
                }
            }
        }
    }

    /// Measures the link by sending this many bytes, one probe at a time.
    fn probe_link(&mut self, bytes: u64) {
        if self.probes.is_empty() {
            let bulk = self.bulk.clone();
            self.probes.spawn(async move {
                let probed = bulk.probe(bytes, 0).await.ok()?;
                Some((bytes, probed.until_answer.as_secs_f64()))
            });
        }
    }

    /// Gives back the leases that the thread has not begun. The coordinator says farewell once the others are delivered.
    fn begin_to_leave(&mut self) {
        self.is_leaving = true;
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(waiting, _)| waiting.lease.id);
        let not_begun = self.given.extract_if(|_, flag| flag.give_back()).map(|(lease, _)| lease);
        let given_back: Vec<LeaseId> = waiting.chain(not_begun).collect();
        self.send(FromWorker::Leaving(Vec::new()));
        for leases in given_back.chunks(MAX_BATCH) {
            self.send(FromWorker::Leaving(leases.to_vec()));
        }
    }

    fn assigned(&mut self, assignment: Assignment) {
        if self.is_leaving {
            return self.send(FromWorker::Leaving(vec![assignment.lease.id]));
        }
        let (lease, round) = (assignment.lease, self.rounds);
        if let Some(request) = assignment.request() {
            self.rounds += 1;
            self.asked.push(AskedVector { request, of: Some(lease.id), withdrawn: CancelFlag::default() });
        }
        if self.may_begin(lease.iteration) {
            self.give(assignment, round);
        } else {
            self.waits_since.get_or_insert_with(Instant::now);
            self.waiting.push((assignment, round));
        }
    }

    /// Returns whether tasks of an iteration may begin: with its parameters or, if they are local steps, with those of the one before.
    fn may_begin(&self, iteration: Iteration) -> bool {
        let overlap = self.served.welcome.run.inner_steps.as_ref().is_some_and(|steps| steps.overlap);
        self.loaded.is_some_and(|loaded| iteration == loaded || overlap && iteration == loaded.next())
    }

    fn give(&mut self, Assignment { lease, position, .. }: Assignment, round: u64) {
        let cancelled = CancelFlag::default();
        self.given.insert(lease.id, cancelled.clone());
        let units = self.units_of(lease.iteration);
        self.compute.push(Job::Compute { lease, position, round, cancelled, units });
        if let Some(asked) = self.asked.iter().find(|asked| asked.of == Some(lease.id)) {
            self.order(asked);
        }
    }

    fn units_of(&self, iteration: Iteration) -> Option<Units> {
        let units = self.units.as_ref().filter(|(known, _)| *known == iteration);
        units.map(|(_, units)| units.clone())
    }

    /// Handles a request for a vector, which is sent once its tasks are computed.
    fn collect(&mut self, request: VectorRequest) {
        self.rounds += 1;
        self.sharing.open(&request, self.served.welcome.run.format);
        let asked = AskedVector { request, of: None, withdrawn: CancelFlag::default() };
        // If the thread does not have the parameters of the iteration yet, the vector is ordered once it does.
        if self.loaded == Some(asked.request.iteration) {
            self.order(&asked);
        }
        self.asked.push(asked);
    }

    fn order(&self, AskedVector { request, withdrawn, .. }: &AskedVector) {
        let units = self.units_of(request.iteration);
        let (request, withdrawn) = (request.clone(), withdrawn.clone());
        self.compute.push(Job::Collect { request, withdrawn, units });
    }

    fn withdraw(&mut self, vector: VectorId) {
        for asked in self.asked.extract_if(.., |asked| asked.request.id == vector) {
            self.compute.cancel(&asked.withdrawn);
        }
        if self.sharing.leave(vector) {
            self.parameters.cut_off();
        }
    }

    fn cancelled(&mut self, leases: &[LeaseId]) {
        let leases: HashSet<LeaseId> = leases.iter().copied().collect();
        self.waiting.retain(|(waiting, _)| !leases.contains(&waiting.lease.id));
        self.waits_since = self.waits_since.filter(|_| !self.waiting.is_empty());
        for lease in leases {
            match self.given.remove(&lease) {
                Some(flag) => self.compute.cancel(&flag),
                None => self.compute.push(Job::Discard(lease)),
            }
        }
    }

    /// Loads parameters, and computes the leases that waited for them.
    fn loads(&mut self, iteration: Iteration, values: Arc<Vec<f32>>) {
        self.loaded = Some(iteration);
        self.compute.push(Job::Load(iteration, values));
        self.give_waiting(iteration);
        for asked in self.asked.extract_if(.., |asked| asked.request.iteration < iteration) {
            self.compute.cancel(&asked.withdrawn);
        }
        for asked in &self.asked {
            // Other vectors are ordered with their leases.
            if asked.of.is_none() && asked.request.iteration == iteration {
                self.order(asked);
            }
        }
        // The difference of this iteration is made before steps of the next one are taken.
        self.give_waiting(iteration.next());
    }

    /// Computes the leases of an iteration that waited for parameters, if they may begin.
    fn give_waiting(&mut self, iteration: Iteration) {
        if !self.may_begin(iteration) {
            return;
        }
        for (assignment, round) in std::mem::take(&mut self.waiting) {
            let lease = &assignment.lease;
            match lease.iteration.cmp(&iteration) {
                cmp::Ordering::Less => {
                    // Only leases that are being cancelled are superseded.
                    let reason = format!("the parameters of iteration {} never arrived", lease.iteration);
                    self.send(FromWorker::LeaseFailed { lease: lease.id, reason, uncomputable: false });
                }
                cmp::Ordering::Equal => {
                    if let Some(since) = self.waits_since.take() {
                        self.waited = (lease.id, since.elapsed().as_secs_f64());
                    }
                    self.give(assignment, round);
                }
                cmp::Ordering::Greater => self.waiting.push((assignment, round)),
            }
        }
    }

    fn compute_event(&mut self, event: ComputeEvent) -> Result<(), SessionError> {
        match event {
            ComputeEvent::Ready => {
                self.send(FromWorker::Ready { fuses: self.compute.fuses, peer_address: self.sharing.address() });
            }
            ComputeEvent::Computed(mut computed) => match self.given.remove(&computed.lease) {
                Some(_) => {
                    computed.times.waited_s = if self.waited.0 == computed.lease { self.waited.1 } else { 0.0 };
                    self.progress.push(computed);
                }
                // The lease was cancelled meanwhile.
                None => self.compute.push(Job::Discard(computed.lease)),
            },
            ComputeEvent::Collected(sum) => self.collected(sum),
            ComputeEvent::VectorFailed { vector, reason, uncomputable } => {
                if self.take_asked(vector).is_some() {
                    self.send(FromWorker::VectorFailed { vector, reason, uncomputable });
                }
            }
            ComputeEvent::Failed { lease, reason, uncomputable } => {
                self.given.remove(&lease);
                self.send(FromWorker::LeaseFailed { lease, reason, uncomputable });
            }
            ComputeEvent::Broken(reason) => return Err(WorkerError::Device(reason).into()),
        }
        Ok(())
    }

    fn take_asked(&mut self, vector: VectorId) -> Option<VectorRequest> {
        let mut asked = self.asked.extract_if(.., |asked| asked.request.id == vector);
        asked.next().map(|asked| asked.request)
    }

    fn collected(&mut self, sum: CollectedSum) {
        let Some(VectorRequest { first_chunk, shards, .. }) = self.take_asked(sum.vector) else { return };
        let (header, bulk) = (sum.header(self.served.welcome.session), self.bulk.clone());
        if shards.is_none() {
            let chunks = tokio_stream::iter(chunks(sum.sums, first_chunk, self.served.welcome.run.format));
            self.uploads.spawn(async move {
                let receipt = bulk.submit_gradient(header, chunks).await.map_err(SessionError::receive)?;
                Ok(is_accepted(&receipt))
            });
            return;
        }
        // The sum is added to those of the other members, and the coordinator gets the totals of this worker's chunks.
        let Some(exchange) = self.sharing.exchange(sum.vector) else { return };
        let (totals, over) = exchange.send(&header, &sum.sums);
        self.uploads.spawn(async move {
            tokio::select! {
                receipt = bulk.submit_gradient(header, totals) => {
                    Ok(is_accepted(&receipt.map_err(SessionError::receive)?))
                }
                _ = over => Ok(false),
            }
        });
    }

    fn part(&mut self, part: ParameterPart) -> Result<(), SessionError> {
        // The previous set is useless without its last chunks. A whole set replaces it. If the new set consists of differences, the report
        // makes the coordinator send a whole one.
        if matches!(part, ParameterPart::Set(_))
            && let Some(vector) = self.sharing.replace_set()
        {
            self.fail_exchange(vector);
            self.parameters.cut_off();
        }
        match part {
            ParameterPart::Set(header) if header.stripe.is_some() => {
                let goes_on = self.sharing.begin_set(&header);
                self.add(ParameterPart::Set(SetHeader { stripe: None, ..header }))?;
                if !goes_on {
                    // Differences from this set may be on their way, before the whole one.
                    self.parameters.cut_off();
                }
                Ok(())
            }
            ParameterPart::Chunk { data, .. } if self.sharing.own_chunk(&data) => Ok(()),
            part => self.add(part),
        }
    }

    fn add(&mut self, part: ParameterPart) -> Result<(), SessionError> {
        if let Some((iteration, values)) = self.parameters.add(part)? {
            self.loads(iteration, values);
        }
        Ok(())
    }

    fn exchange_event(&mut self, event: ExchangeEvent) {
        match event {
            ExchangeEvent::Chunk { vector, .. } if !self.sharing.awaits(vector) => {}
            ExchangeEvent::Chunk { vector, at, data } => {
                // The chunk was passed on by another member, which is at fault if the chunk cannot be decoded.
                if self.add(ParameterPart::Chunk { at, data }).is_err() {
                    let exchange = self.sharing.exchange(vector);
                    if let Some(place) = exchange.map(|exchange| exchange.undecodable(at)) {
                        self.member_failed(vector, place);
                    }
                } else if !self.parameters.is_arriving() {
                    self.sharing.stop_awaiting(vector);
                    self.sharing.report(vector, false);
                }
            }
            ExchangeEvent::Failed { vector, place } => self.member_failed(vector, place),
        }
    }

    fn member_failed(&mut self, vector: VectorId, place: usize) {
        if let Some(address) = self.sharing.fail(vector, place) {
            tracing::debug!(address, "cannot exchange vectors with another worker");
            self.fail_exchange(vector);
        }
    }

    fn fail_exchange(&mut self, vector: VectorId) {
        self.sharing.report(vector, true);
        if self.sharing.stop_awaiting(vector) {
            self.parameters.cut_off();
        }
    }

    fn send(&self, message: FromWorker) {
        send(&self.to_coordinator, message);
    }
}

fn is_accepted(receipt: &Receipt) -> bool {
    match receipt {
        Receipt::Accepted => tracing::debug!("vector accepted"),
        Receipt::NotHeld { reason } => tracing::debug!(reason, "vector not accepted"),
        Receipt::Refused { reason } => tracing::warn!(reason, "vector refused"),
    }
    *receipt == Receipt::Accepted
}
