//! Tests that each task counts exactly once, whatever workers do. Reports and vectors may be sent twice, late, in part, after the end of
//! their session, in another session or without one. Only the first report on a lease from the session that holds it counts, and only the
//! vector that its worker is asked for.

use super::*;

/// A coordinator and its sessions, with all leases and vectors that were ever assigned.
struct World {
    rig: Rig,
    rng: ChaCha8Rng,
    peers: Vec<(&'static str, VirtualWorker)>,
    /// The sessions, open or ended, and the leases that they were assigned.
    assigned: Vec<(SessionToken, Lease)>,
    accepted: Vec<(SessionToken, Lease)>,
    /// The vectors that sessions were asked for at any time.
    asked: Vec<(SessionToken, VectorRequest)>,
    tried: BTreeMap<&'static str, u64>,
    /// The number of failed leases. Three failures may end the run, so there are at most two.
    failures: u32,
    ending: Option<Ending>,
}

impl World {
    fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.rng.random_range(0..all.len())].clone())
    }

    fn count(&mut self, kind: &'static str) {
        *self.tried.entry(kind).or_default() += 1;
    }

    /// Reads the messages of all sessions, and records their leases and requests.
    fn read(&mut self) {
        for (_, client) in &mut self.peers {
            client.read();
            for lease in &client.leases {
                if !self.assigned.contains(&(client.token, *lease)) {
                    self.assigned.push((client.token, *lease));
                }
            }
            for asked in &client.asked {
                let new = (client.token, asked.clone());
                if !self.asked.contains(&new) {
                    self.asked.push(new);
                }
            }
        }
    }

    /// Reports one of these leases, which counts if and only if the session is open and holds it.
    fn report(&mut self, kind: &'static str, leases: &[(SessionToken, Lease)]) {
        let Some((token, lease)) = self.pick(leases) else { return };
        self.count(kind);
        let is_open = self.rig.is_open(token);
        self.ending = self.rig.report(token, &lease);
        let holder = self.peers.iter_mut().find(|(_, client)| client.token == token);
        if let Some((_, client)) = holder.filter(|(_, client)| is_open && client.leases.contains(&lease)) {
            client.leases.retain(|held| *held != lease);
            self.accepted.push((token, lease));
        }
    }

    /// Returns the workers that are asked for a vector and have computed it.
    fn due(&self) -> Vec<usize> {
        let is_due = |client: &VirtualWorker| !client.asked.is_empty() && client.leases.is_empty();
        (0..self.peers.len()).filter(|at| is_due(&self.peers[*at].1)).collect()
    }

    /// Announces a vector that the session is not or no longer asked for.
    fn announce_other_vector(&mut self, open: &[SessionToken]) {
        let Some((owner, mut asked)) = self.pick(&self.asked.clone()) else { return };
        let mut token = self.pick(open).filter(|_| self.rng.random_bool(0.5)).unwrap_or(owner);
        if self.rng.random_bool(0.5) {
            asked.id = VectorId(asked.id.0 + 10_000);
        } else if self.peers.iter().any(|(_, client)| client.token == token && client.asked.contains(&asked)) {
            // The session may send this vector, so an unknown session announces it instead.
            token = SessionToken([0; 16]);
        }
        self.count("other vector");
        let mut announced = self.rig.announce(token, &asked);
        assert!(!announced.is_waiting() && announced.upload().is_none(), "{asked:?}");
    }

    fn join(&mut self) {
        let name = ["a", "b", "c"][self.rng.random_range(0..3)];
        if let Some(client) = self.rig.join(name, self.rng.random_range(1..3)) {
            // Only a session of the same process is replaced, or one that has ended.
            self.peers.retain(|(other, _)| *other != name);
            self.peers.push((name, client));
        }
    }

    fn leave(&mut self, token: SessionToken) {
        self.peers.retain(|(_, client)| client.token != token);
        self.ending = self.rig.leave(token);
    }

    /// Lets a worker fall silent, whose messages no longer arrive. Its session ends when the coordinator notices.
    fn lose(&mut self, token: SessionToken) {
        self.count("lost");
        self.peers.retain(|(_, client)| client.token != token);
        self.asked.retain(|(owner, _)| *owner != token);
    }

    fn fail(&mut self, leases: &[(SessionToken, Lease)]) {
        let Some((token, lease)) = self.pick(leases).filter(|_| self.failures < 2) else { return };
        self.failures += 1;
        self.count("failed");
        let (_, client) = self.peers.iter_mut().find(|(_, client)| client.token == token).expect("it holds the lease");
        client.leases.retain(|held| *held != lease);
        self.ending = self.rig.fail_lease(token, lease.id, true);
    }

    /// Ends the session of a worker that has announced its vector, or lets it fall silent, after some chunks or all of them.
    fn overtake(&mut self) {
        let Some(at) = self.due().first().copied() else { return };
        let (_, client) = &self.peers[at];
        let (token, asked) = (client.token, client.asked[0].clone());
        let upload = self.rig.announce(token, &asked).upload();
        if let Some(upload) = &upload {
            let end = self.rng.random_range(asked.first_chunk..=self.rig.chunks());
            self.rig.send_chunks(upload, sum(&asked), asked.first_chunk..end);
        }
        if self.rng.random_bool(0.3) {
            return self.lose(token);
        }
        self.leave(token);
        if let Some(upload) = upload.filter(|_| self.ending.is_none()) {
            self.count("overtaken");
            // No honest gradient has these values.
            assert_eq!(self.rig.send_chunks(&upload, 1e6, 0..self.rig.chunks()), 0, "its gate is closed");
            if matches!(upload.vector.sink, Sink::Whole(_)) {
                let (receipt, ending) = self.rig.arrived(token, &asked, Some(1e6));
                assert!(matches!(receipt, Some(Receipt::NotHeld { .. })), "{receipt:?}");
                self.ending = ending;
            }
        }
    }

    fn happen(&mut self) {
        self.read();
        let open: Vec<SessionToken> = self.peers.iter().map(|(_, client)| client.token).collect();
        let of = |(_, client): &(_, VirtualWorker)| {
            client.leases.iter().map(|lease| (client.token, *lease)).collect::<Vec<_>>()
        };
        let held: Vec<(SessionToken, Lease)> = self.peers.iter().flat_map(of).collect();
        match self.rng.random_range(0..21) {
            0 | 1 => self.join(),
            2 => {
                let Some(token) = self.pick(&open) else { return };
                if self.rng.random_bool(0.3) { self.lose(token) } else { self.leave(token) }
            }
            3..6 => self.report("good", &held),
            6 | 7 => self.report("again", &self.accepted.clone()),
            8 | 9 => {
                let over = self.assigned.iter().copied().filter(|(token, _)| !open.contains(token));
                self.report("late", &over.collect::<Vec<_>>());
            }
            10 => {
                let Some(token) = self.pick(&open) else { return };
                let others = self.assigned.iter().filter(|(owner, _)| *owner != token);
                self.report("foreign", &others.map(|(_, lease)| (token, *lease)).collect::<Vec<_>>());
            }
            11 => {
                let invented = |(token, lease): (SessionToken, Lease)| {
                    (token, Lease { id: LeaseId(lease.id.0 + 10_000), ..lease })
                };
                self.report("invented", &held.into_iter().map(invented).collect::<Vec<_>>());
            }
            12 => self.overtake(),
            13 | 14 => self.announce_other_vector(&open),
            15..18 => {
                if let Some(at) = self.pick(&self.due()) {
                    self.count("vector");
                    self.ending = self.rig.work(&mut self.peers[at].1);
                }
            }
            18 => {
                if let Some((_, client)) = self.peers.first() {
                    client.presence.hear();
                }
                self.ending = self.rig.pass(self.rng.random_range(0.0..3.0));
            }
            19 => self.fail(&held),
            _ => self.ending = self.rig.step(),
        }
    }
}

/// Runs random submissions, then lets one honest worker finish the run, and checks in the journal that every task entered its step once.
fn check(seed: u64, policy: &str, model: &str, tried: &mut BTreeMap<&'static str, u64>) -> [u8; 32] {
    let mut world = World {
        rig: Rig::changed(model, policy, 6, 4, |_| ()),
        rng: ChaCha8Rng::seed_from_u64(seed),
        peers: Vec::new(),
        assigned: Vec::new(),
        accepted: Vec::new(),
        asked: Vec::new(),
        tried: std::mem::take(tried),
        failures: 0,
        ending: None,
    };
    for _ in 0..200 {
        if world.ending.is_none() {
            world.happen();
            assert!(world.rig.driver.sessions.names.by_departure().count() <= 4, "seed {seed}, {policy}");
        }
    }
    *tried = world.tried;
    let (mut rig, ending) = (world.rig, world.ending);
    let what = format!("seed {seed}, {policy}");
    let (ending, sha256) = finish_alone(&mut rig, ending, &what);
    let (report, folder) = rig.end(ending);
    let applied = if policy.starts_with("asgd") || policy.starts_with("ringmaster") { 4 } else { 24 };
    assert!(report.ended.is_ok(), "{what}: {:?}", report.ended);
    assert_eq!((report.state.iterations, report.state.totals.tasks_applied), (4, applied), "{what}");
    assert!(matches!(report.state.phase, RunPhase::Over(EndState::Finished)), "{what}");
    let mut tasks = BTreeSet::new();
    read_journal(folder.path(), |event| {
        if let RunEvent::Task { iteration, task, outcome: TaskOutcome::Applied, .. } = event {
            assert!(tasks.insert((iteration, task)), "{what}: {iteration}, {task}");
        }
    })
    .unwrap();
    assert_eq!(tasks.len() as u64, applied, "{what}");
    sha256
}

#[test]
fn only_the_first_report_and_vector_of_a_lease_from_its_holder_count() {
    let expected = honest(Rig::large("uta", 6, 4));
    let mut tried = BTreeMap::new();
    for seed in 0..300 {
        let barrier = ["uta", "ata-auto", "ata-empirical"][seed as usize % 3];
        let other = ["gta", "asgd", "ringmaster:R=2,stops=on"][seed as usize % 3];
        assert_eq!(check(seed, barrier, LARGE, &mut tried), expected, "seed {seed}, {barrier}");
        check(seed, other, MODEL, &mut tried);
    }
    assert!(tried.len() == 10 && tried.values().all(|tried| *tried > 300), "{tried:?}");
}
