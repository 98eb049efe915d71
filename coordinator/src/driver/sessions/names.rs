//! Workers' names and numbers.

use std::collections::{BTreeMap, HashSet, VecDeque};

use ata_net::limits::MAX_WORKERS;
use ata_record::{ExcludedFrom, Exclusion, MAX_EXCLUSIONS};
use ata_types::WorkerId;
use ata_wire::WorkerName;

/// The number of names that a small run remembers. Each name takes up to a kilobyte of every checkpoint, and 5 µs to save. A run with more
/// than half as many workers at a time remembers two names per worker, so that all workers can be disconnected by a network failure and
/// replaced.
const FEW_NAMES: usize = 256;

/// A name, and the machine that used it. Every worker may use any name, but what counts against it is its own machine's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkerIdentity {
    pub(crate) name: WorkerName,
    /// See [`ata_net::Peer::machine`].
    pub(crate) machine: String,
}

/// Maps names to numbers. A worker that returns gets its old number, and with it the statistics of its speed, unless so many other workers
/// joined and left meanwhile that it was forgotten. It may return from another machine, unless something counts against the number: then
/// the number stays with the machine. If the numbers run out, a new worker gets the number of the worker that has been absent the longest.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_identity: BTreeMap<WorkerIdentity, NameEntry>,
    by_number: BTreeMap<WorkerId, WorkerIdentity>,
    /// The absent workers, by the number of their departure.
    absent: BTreeMap<u64, WorkerIdentity>,
    departures: u64,
    most_present: usize,
    /// A lower bound of the free slots: no slot below this one is free.
    first_free: usize,
    /// What workers were excluded from, the latest last. There are at most [`MAX_EXCLUSIONS`]; beyond that, the oldest is dropped.
    pub(crate) excluded: VecDeque<Exclusion>,
}

#[derive(Clone, Copy, Debug)]
struct NameEntry {
    worker: WorkerId,
    /// The number of the worker's departure; `None` if the worker is present.
    left: Option<u64>,
}

/// The number given to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) worker: WorkerId,
    /// Whether the number belonged to another worker, which must then be forgotten.
    pub(crate) is_taken_over: bool,
}

impl Names {
    /// Gives a joining worker its old number, the one that it asks for if that is free, or else the first free one. `is_clear` says
    /// whether nothing counts against a number. Returns `None` if the maximum number of workers is present.
    pub(crate) fn arrive(
        &mut self,
        identity: &WorkerIdentity,
        wish: Option<WorkerId>,
        is_clear: impl Fn(WorkerId) -> bool,
    ) -> Option<Claim> {
        let own = self.returning(identity, is_clear).or_else(|| wish.filter(|wish| self.is_free(*wish)));
        let free = own.or_else(|| self.free_number());
        let is_taken_over = free.is_none();
        let worker = free.or_else(|| self.forget_longest_absent())?;
        self.by_number.insert(worker, identity.clone());
        self.by_identity.insert(identity.clone(), NameEntry { worker, left: None });
        self.most_present = self.most_present.max(self.by_identity.len() - self.absent.len());
        Some(Claim { worker, is_taken_over })
    }

    /// Returns the number that the worker had, or that the last worker of its name had on another machine. It is no longer absent.
    fn returning(&mut self, identity: &WorkerIdentity, is_clear: impl Fn(WorkerId) -> bool) -> Option<WorkerId> {
        let known = self.by_identity.get(identity).copied().or_else(|| {
            let absent = self.named(&identity.name).map(|(_, entry)| entry).filter(|entry| entry.left.is_some());
            let is_excluded = |worker| self.exclusions(&self.by_number[&worker]).next().is_some();
            let is_clear = |entry: &NameEntry| is_clear(entry.worker) && !is_excluded(entry.worker);
            absent.max_by_key(|entry| entry.left).copied().filter(is_clear)
        })?;
        if let Some(former) = known.left.and_then(|left| self.absent.remove(&left)) {
            self.by_identity.remove(&former);
        }
        Some(known.worker)
    }

    fn named(&self, name: &WorkerName) -> impl Iterator<Item = (&WorkerIdentity, &NameEntry)> {
        let first = WorkerIdentity { name: name.clone(), machine: String::new() };
        self.by_identity.range(first..).take_while(move |(identity, _)| identity.name == *name)
    }

    /// Returns the machines and numbers of the present workers with this name.
    pub(crate) fn present(&self, name: &WorkerName) -> impl Iterator<Item = (&str, WorkerId)> {
        let present = self.named(name).filter(|(_, entry)| entry.left.is_none());
        present.map(|(identity, entry)| (identity.machine.as_str(), entry.worker))
    }

    /// Forgets the workers that have been absent the longest if there are more names than the limit. Returns their numbers, which are free.
    pub(crate) fn forget_long_absent(&mut self) -> Vec<WorkerId> {
        let remembered = FEW_NAMES.max(2 * self.most_present);
        let excess = self.by_identity.len().saturating_sub(remembered);
        (0..excess).map_while(|_| self.forget_longest_absent()).collect()
    }

    fn forget_longest_absent(&mut self) -> Option<WorkerId> {
        let (_, identity) = self.absent.pop_first()?;
        let NameEntry { worker, .. } = self.by_identity.remove(&identity)?;
        self.by_number.remove(&worker);
        self.first_free = self.first_free.min(worker.slot());
        Some(worker)
    }

    pub(crate) fn leave(&mut self, worker: WorkerId) {
        if let Some(identity) = self.by_number.get(&worker)
            && let Some(entry) = self.by_identity.get_mut(identity)
            && entry.left.is_none()
        {
            self.departures += 1;
            entry.left = Some(self.departures);
            self.absent.insert(self.departures, identity.clone());
        }
    }

    pub(crate) fn exclude(&mut self, worker: WorkerId, from: ExcludedFrom, why: &str) {
        let Some(WorkerIdentity { name, machine }) = self.by_number.get(&worker) else { return };
        let (name, machine) = (name.to_string(), machine.clone());
        self.excluded.push_back(Exclusion { name, machine, from, why: why.to_owned() });
        self.excluded.drain(..self.excluded.len().saturating_sub(MAX_EXCLUSIONS));
    }

    pub(crate) fn exclusions(&self, identity: &WorkerIdentity) -> impl Iterator<Item = &Exclusion> {
        let is_of =
            |exclusion: &&Exclusion| exclusion.machine == identity.machine && exclusion.name == identity.name.as_str();
        self.excluded.iter().filter(is_of)
    }

    /// Returns the workers that are excluded from evaluations, or from the whole run.
    pub(crate) fn excluded_workers(&self) -> HashSet<WorkerId> {
        let identity = |exclusion: &Exclusion| {
            Some(WorkerIdentity { name: exclusion.name.parse().ok()?, machine: exclusion.machine.clone() })
        };
        let identities = self.excluded.iter().filter_map(identity);
        identities.filter_map(|identity| self.by_identity.get(&identity)).map(|entry| entry.worker).collect()
    }

    /// Lifts all exclusions of a name, and returns its numbers on all machines.
    pub(crate) fn forgive(&mut self, name: &WorkerName) -> Vec<WorkerId> {
        self.excluded.retain(|exclusion| exclusion.name != name.as_str());
        self.named(name).map(|(_, entry)| entry.worker).collect()
    }

    pub(crate) fn machine(&self, worker: WorkerId) -> &str {
        self.by_number.get(&worker).map_or("", |identity| &identity.machine)
    }

    /// Restores the names of a resumed run from the absent workers, the longest absent first, and what workers are excluded from.
    pub(crate) fn restored(
        workers: impl Iterator<Item = (WorkerId, WorkerIdentity)>,
        excluded: impl Into<VecDeque<Exclusion>>,
    ) -> Self {
        let mut names = Self { excluded: excluded.into(), ..Self::default() };
        for (worker, identity) in workers {
            names.by_number.insert(worker, identity.clone());
            names.by_identity.insert(identity, NameEntry { worker, left: None });
            names.leave(worker);
        }
        // All of the workers may be about to return.
        names.most_present = names.by_identity.len().div_ceil(2);
        names
    }

    /// Returns numbers and identities. The longest absent workers come first, and present workers last.
    pub(crate) fn by_departure(&self) -> impl Iterator<Item = (WorkerId, &WorkerIdentity)> {
        let present = self.by_number.iter().filter(|(_, identity)| self.by_identity[*identity].left.is_none());
        let absent = self.absent.values().map(|identity| (self.by_identity[identity].worker, identity));
        absent.chain(present.map(|(worker, identity)| (*worker, identity)))
    }

    fn is_free(&self, worker: WorkerId) -> bool {
        worker.slot() < MAX_WORKERS && !self.by_number.contains_key(&worker)
    }

    /// Returns the lowest free number, so that tables indexed by number stay short.
    fn free_number(&mut self) -> Option<WorkerId> {
        let mut workers = (self.first_free..MAX_WORKERS).map(WorkerId::from_slot);
        let free = workers.find(|worker| self.is_free(*worker));
        self.first_free = free.map_or(MAX_WORKERS, WorkerId::slot);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> WorkerName {
        text.parse().unwrap()
    }

    /// Returns the identity of a worker, whose name may be followed by `@` and its machine.
    fn identity(text: &str) -> WorkerIdentity {
        let (text, machine) = text.split_once('@').unwrap_or((text, "10.0.0.1"));
        WorkerIdentity { name: name(text), machine: machine.into() }
    }

    fn arrive(names: &mut Names, text: &str) -> Option<Claim> {
        names.arrive(&identity(text), None, |_| true)
    }

    fn leave(names: &mut Names, text: &str) {
        let worker = names.present(&identity(text).name).next().unwrap().1;
        names.leave(worker);
    }

    fn number(names: &mut Names, text: &str, wish: Option<u32>) -> u32 {
        let claim = names.arrive(&identity(text), wish.and_then(WorkerId::new), |_| true).unwrap();
        assert!(!claim.is_taken_over);
        claim.worker.number()
    }

    fn come_and_go(names: &mut Names, text: &str) {
        assert!(arrive(names, text).is_some(), "{text}");
        leave(names, text);
    }

    fn resumed(names: &Names) -> Names {
        let saved: Vec<_> = names.by_departure().map(|(number, identity)| (number, identity.clone())).collect();
        Names::restored(saved.into_iter(), names.excluded.clone())
    }

    #[test]
    fn numbers_are_as_asked_or_the_first_free_and_stay_with_the_name() {
        let mut names = Names::default();
        for (text, wish, expected) in
            [("a", None, 1), ("b", Some(4), 4), ("c", Some(4), 2), ("d", Some(0), 3), ("e", None, 5)]
        {
            assert_eq!(number(&mut names, text, wish), expected, "{text}");
        }
        leave(&mut names, "b");
        assert_eq!(number(&mut names, "f", None), 6, "the number of an absent worker is kept for it");
        assert_eq!(number(&mut names, "b", Some(1)), 4);
    }

    #[test]
    fn when_numbers_are_used_up_the_longest_absent_gives_its_own() {
        let mut names = Names::default();
        for i in 0..MAX_WORKERS {
            number(&mut names, &format!("w{i}"), None);
        }
        assert_eq!(arrive(&mut names, "late"), None, "all are present");
        for i in [7, 3] {
            leave(&mut names, &format!("w{i}"));
        }
        let claim = arrive(&mut names, "late").unwrap();
        assert_eq!((claim.worker.number(), claim.is_taken_over), (8, true));
        let again = arrive(&mut names, "w7").unwrap();
        assert_eq!((again.worker.number(), again.is_taken_over), (4, true), "it was forgotten");
        assert_eq!(arrive(&mut names, "w3"), None);
    }

    #[test]
    fn the_longest_absent_are_forgotten_and_their_numbers_used_again() {
        let mut names = Names::default();
        number(&mut names, "stays", None);
        for i in 0..FEW_NAMES + 10 {
            come_and_go(&mut names, &format!("w{i}"));
        }
        let forgotten: Vec<u32> = names.forget_long_absent().iter().map(|worker| worker.number()).collect();
        assert_eq!(forgotten, (2..=12).collect::<Vec<u32>>());
        assert!(names.forget_long_absent().is_empty() && names.by_identity.len() == FEW_NAMES);
        assert_eq!(number(&mut names, "w11", None), 13, "it is remembered");
        assert_eq!([number(&mut names, "w0", None), number(&mut names, "new", None)], [2, 3]);
    }

    /// Workers are not forgotten because of a restart or a short network failure, however many workers it disconnects.
    #[test]
    fn all_that_were_present_together_are_remembered() {
        let mut names = Names::default();
        let all: Vec<String> = (0..3 * FEW_NAMES).map(|i| format!("w{i}")).collect();
        for text in &all {
            number(&mut names, text, None);
        }
        for text in &all {
            leave(&mut names, text);
        }
        assert_eq!(names.forget_long_absent(), []);
        let mut restored = resumed(&names);
        come_and_go(&mut restored, "new");
        for (number, text) in (1..).zip(&all) {
            assert_eq!(arrive(&mut restored, text).unwrap().worker.number(), number);
        }
    }

    #[test]
    fn restored_names_have_their_numbers_and_their_order() {
        let mut names = Names::default();
        for (text, wish) in [("a", 1), ("b", 4), ("c", 2)] {
            number(&mut names, text, Some(wish));
        }
        leave(&mut names, "c");
        leave(&mut names, "a");
        assert_eq!(names.by_departure().map(|(worker, _)| worker.number()).collect::<Vec<_>>(), [2, 1, 4]);
        let mut restored = resumed(&names);
        assert_eq!(number(&mut restored, "d", None), 3);
        assert_eq!((number(&mut restored, "b", None), number(&mut restored, "c", Some(9))), (4, 2));
    }

    /// The number of a name goes to another machine with what is known about its speed, but what counts against it does not.
    #[test]
    fn blame_stays_with_the_machine_that_used_the_name() {
        let clear = |names: &mut Names, text: &str, is_clear: bool| {
            let number = names.arrive(&identity(text), None, |_| is_clear).unwrap().worker;
            names.leave(number);
            number.number()
        };
        let mut names = Names::default();
        let arrivals =
            [("rig@A", true, 1), ("rig@B", true, 1), ("rig@A", false, 2), ("rig@B", false, 1), ("rig@C", false, 3)];
        for (text, is_clear, expected) in arrivals {
            assert_eq!(clear(&mut names, text, is_clear), expected, "{text}");
        }
        let expelled = names.by_identity[&identity("rig@B")].worker;
        names.exclude(expelled, ExcludedFrom::Run, "mismatches");
        let mut restored = resumed(&names);
        for names in [&mut names, &mut restored] {
            let excluded = |names: &Names, text: &str| names.exclusions(&identity(text)).count();
            assert_eq!(["rig@A", "rig@B", "rig@C", "rag@B"].map(|text| excluded(names, text)), [0, 1, 0, 0]);
            assert_eq!(names.excluded_workers(), [expelled].into());
            let forgiven: Vec<u32> = names.forgive(&name("rig")).iter().map(|worker| worker.number()).collect();
            assert_eq!((forgiven, excluded(names, "rig@B")), (vec![2, 1, 3], 0));
        }
    }

    /// More workers than a run may exclude join one after the other, each under its own name, and are expelled.
    #[test]
    fn the_number_of_exclusions_is_bounded() {
        let mut names = Names::default();
        for i in 0..=MAX_EXCLUSIONS {
            let worker = arrive(&mut names, &format!("w{i}")).unwrap().worker;
            names.exclude(worker, ExcludedFrom::Run, "mismatches");
            names.leave(worker);
        }
        assert_eq!(names.excluded.len(), MAX_EXCLUSIONS);
        assert_eq!(["w0", "w1"].map(|text| names.exclusions(&identity(text)).count()), [0, 1]);
        assert_eq!([names.by_identity.len(), names.by_number.len(), names.absent.len()], [MAX_WORKERS; 3]);
    }
}
