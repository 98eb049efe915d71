//! Tests that each task counts exactly once. Reports and vectors may be sent twice, late, after the end of their session, in another
//! session or without one. Only the first report on a lease from the session that holds it counts, and only the vector that its worker is
//! asked for.

use super::*;

/// The number of submissions of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct Submissions {
    /// Reports by the holder of the lease.
    good: u64,
    /// Reports that were accepted before.
    again: u64,
    /// Reports in a session that is over.
    late: u64,
    /// Reports on a lease of another session.
    foreign: u64,
    /// Reports on a lease that was never granted.
    invented: u64,
    /// Vectors that were admitted, and arrived after the end of their session.
    overtaken: u64,
    /// Requested vectors.
    vectors: u64,
    /// Vectors that were not requested, that were sent before, or whose header differs from the request.
    other_vectors: u64,
}

struct Member {
    name: &'static str,
    client: VirtualWorker,
}

/// A coordinator and its sessions, with all leases and vectors that were ever assigned.
struct World {
    rig: Rig,
    rng: ChaCha8Rng,
    peers: Vec<Member>,
    /// The sessions, open or ended, and the leases that they were assigned.
    assigned: Vec<(SessionToken, Lease)>,
    accepted: Vec<(SessionToken, Lease)>,
    /// The vectors that sessions were asked for at any time.
    asked: Vec<(SessionToken, VectorRequest)>,
    tried: Submissions,
    ending: Option<Ending>,
}

impl World {
    fn pick<T: Copy>(rng: &mut ChaCha8Rng, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[rng.random_range(0..all.len())])
    }

    /// Reads the messages of all sessions, and records their leases and requests.
    fn read(&mut self) {
        for Member { client, .. } in &mut self.peers {
            client.read();
            let new = client.leases.iter().map(|lease| (client.token, *lease));
            let known: Vec<_> = new.filter(|new| !self.assigned.contains(new)).collect();
            self.assigned.extend(known);
            for asked in &client.asked {
                let new = (client.token, asked.clone());
                if !self.asked.contains(&new) {
                    self.asked.push(new);
                }
            }
        }
    }

    /// Returns whether a session is open and holds a lease.
    fn holds(&mut self, token: SessionToken, lease: &Lease) -> bool {
        let holder = self.peers.iter().find(|peer| peer.client.token == token);
        self.rig.run.is_open(token) && holder.is_some_and(|peer| peer.client.leases.contains(lease))
    }

    /// Reports a lease, which counts if and only if the session holds it.
    fn report(&mut self, token: SessionToken, lease: Lease) {
        let is_held = self.holds(token, &lease);
        self.ending = self.rig.run.report(token, &lease);
        if is_held {
            self.accepted.push((token, lease));
            for Member { client, .. } in &mut self.peers {
                client.leases.retain(|held| *held != lease || client.token != token);
            }
        }
    }

    /// Sends a requested vector, if its worker has computed it.
    fn send_vector(&mut self) {
        let is_due = |client: &VirtualWorker| !client.asked.is_empty() && client.leases.is_empty();
        let due: Vec<usize> = (0..self.peers.len()).filter(|at| is_due(&self.peers[*at].client)).collect();
        let Some(at) = Self::pick(&mut self.rng, &due) else { return };
        self.tried.vectors += 1;
        self.ending = self.rig.work(&mut self.peers[at].client);
    }

    /// Announces a vector that the session is not or no longer asked for, or with a changed header.
    fn announce_other_vector(&mut self, open: &[SessionToken]) {
        let known = (!self.asked.is_empty()).then(|| self.asked[self.rng.random_range(0..self.asked.len())].clone());
        let Some((owner, mut asked)) = known else { return };
        let mut token = Self::pick(&mut self.rng, open).filter(|_| self.rng.random_bool(0.5)).unwrap_or(owner);
        match self.rng.random_range(0..2) {
            0 => asked.id = VectorId(asked.id.0 + 10_000),
            // If the session may send this vector, an unknown session announces it instead.
            _ if self.peers.iter().any(|peer| peer.client.token == token && peer.client.asked.contains(&asked)) => {
                token = SessionToken([0; 16]);
            }
            _ => {}
        }
        self.tried.other_vectors += 1;
        let mut announced = self.rig.run.announce_vector(token, &asked);
        assert!(!announced.is_waiting() && announced.upload().is_none(), "{asked:?}");
    }

    fn join(&mut self) {
        let name = ["a", "b", "c"][self.rng.random_range(0..3)];
        if let Some(client) = self.rig.join(name, self.rng.random_range(1..3)) {
            // Only a session of the same process is replaced, or one that has ended.
            self.peers.retain(|peer| peer.name != name);
            self.peers.push(Member { name, client });
        }
    }

    fn leave(&mut self, token: SessionToken) {
        self.peers.retain(|peer| peer.client.token != token);
        self.ending = self.rig.leave(0.0, token);
    }

    fn happen(&mut self) {
        self.read();
        let open: Vec<SessionToken> = self.peers.iter().map(|peer| peer.client.token).collect();
        let held: Vec<(SessionToken, Lease)> = self
            .peers
            .iter()
            .flat_map(|peer| peer.client.leases.iter().map(|lease| (peer.client.token, *lease)))
            .collect();
        let over: Vec<_> = self.assigned.iter().copied().filter(|(token, _)| !open.contains(token)).collect();
        match self.rng.random_range(0..20) {
            0 | 1 => self.join(),
            2 => {
                if let Some(token) = Self::pick(&mut self.rng, &open) {
                    self.leave(token);
                }
            }
            3..6 => {
                if let Some((token, lease)) = Self::pick(&mut self.rng, &held) {
                    self.tried.good += 1;
                    self.report(token, lease);
                }
            }
            6 | 7 => {
                if let Some((token, lease)) = Self::pick(&mut self.rng, &self.accepted) {
                    self.tried.again += 1;
                    self.report(token, lease);
                }
            }
            8 | 9 => {
                if let Some((token, lease)) = Self::pick(&mut self.rng, &over) {
                    self.tried.late += 1;
                    self.report(token, lease);
                }
            }
            10 => {
                let lease = Self::pick(&mut self.rng, &self.assigned);
                if let (Some(token), Some((owner, lease))) = (Self::pick(&mut self.rng, &open), lease)
                    && token != owner
                {
                    self.tried.foreign += 1;
                    self.report(token, lease);
                }
            }
            11 => self.invented(&held),
            12 => self.overtaken(),
            13 | 14 => self.announce_other_vector(&open),
            15..18 => self.send_vector(),
            18 => {
                self.ending = self.rig.run.pass(self.rng.random_range(0.0..1.5));
            }
            _ => self.ending = self.rig.step(),
        }
    }

    fn invented(&mut self, held: &[(SessionToken, Lease)]) {
        if let Some((token, lease)) = Self::pick(&mut self.rng, held) {
            self.tried.invented += 1;
            self.report(token, Lease { id: LeaseId(lease.id.0 + 10_000), ..lease });
        }
    }

    fn overtaken(&mut self) {
        let is_due = |peer: &&Member| peer.client.leases.is_empty() && !peer.client.asked.is_empty();
        let due = self.peers.iter().find(is_due);
        let Some(client) = due.map(|peer| &peer.client) else { return };
        let (token, asked) = (client.token, client.asked[0].clone());
        let upload = self.rig.run.announce_vector(token, &asked).upload();
        self.leave(token);
        if let Some(upload) = upload.filter(|_| self.ending.is_none()) {
            self.tried.overtaken += 1;
            // No honest gradient has these values.
            assert_eq!(self.rig.run.send_chunks(&upload, 1e6, 0..self.rig.run.chunks()), 0, "its gate is closed");
            if upload.is_whole() {
                let (receipt, ending) = self.rig.run.arrived(token, &asked, Some(1e6));
                assert!(matches!(receipt, Some(Receipt::NotHeld { .. })), "{receipt:?}");
                self.ending = ending;
            }
        }
    }
}

/// Runs random submissions, then lets one honest worker finish the run.
fn check(seed: u64, policy: &str) -> (Submissions, [u8; 32]) {
    let mut world = World {
        rig: Rig::new(policy, 6, 4),
        rng: ChaCha8Rng::seed_from_u64(seed),
        peers: Vec::new(),
        assigned: Vec::new(),
        accepted: Vec::new(),
        asked: Vec::new(),
        tried: Submissions::default(),
        ending: None,
    };
    for _ in 0..200 {
        if world.ending.is_none() {
            world.happen();
        }
    }
    let World { mut rig, ending, tried, .. } = world;
    let ending = ending.unwrap_or_else(|| {
        let mut last = rig.join("last", 9).unwrap();
        finish(&mut rig, &mut last).0
    });
    assert!(matches!(ending, Ending::Stop(StopReason::Finished(_))), "seed {seed}, {policy}: {ending:?}");
    let sha256 = rig.run.parameters_sha256();
    let steps = if policy.starts_with("asgd") || policy.starts_with("ringmaster") { 4 } else { 24 };
    check_end(rig, ending, seed, steps);
    (tried, sha256)
}

#[test]
fn only_the_first_report_and_vector_of_a_lease_from_its_holder_count() {
    let expected = honest(6, 4);
    let mut all = Submissions::default();
    for seed in 0..300 {
        let barrier = ["uta", "ata-auto", "ata-empirical"][seed as usize % 3];
        let other = ["gta", "asgd", "ringmaster:R=2,stops=on"][seed as usize % 3];
        for policy in [barrier, other] {
            let (tried, sha256) = check(seed, policy);
            assert!(policy == other || sha256 == expected, "seed {seed}, {policy}");
            all.good += tried.good;
            all.again += tried.again;
            all.late += tried.late;
            all.foreign += tried.foreign;
            all.invented += tried.invented;
            all.overtaken += tried.overtaken;
            all.vectors += tried.vectors;
            all.other_vectors += tried.other_vectors;
        }
    }
    println!("{all:?}");
    let Submissions { good, again, late, foreign, invented, overtaken, vectors, other_vectors } = all;
    let tried = [good, again, late, foreign, invented, overtaken, vectors, other_vectors];
    assert!(tried.iter().all(|tried| *tried > 300), "{all:?}");
}
