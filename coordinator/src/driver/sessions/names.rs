//! Workers' names and numbers.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ata_net::limits::MAX_WORKERS;
use ata_types::WorkerId;
use ata_wire::WorkerName;

/// The number of names that a small run remembers. Each name takes up to a kilobyte of every checkpoint, and 5 µs to save. A run with more
/// than half as many workers at a time remembers two names per worker, so that all workers can be disconnected by a network failure and
/// replaced.
const FEW_NAMES: usize = 256;

/// Maps names to numbers. A worker that returns gets its old number, and with it the statistics of its speed, unless so many other workers
/// joined and left meanwhile that it was forgotten. If the numbers run out, a new worker gets the number of the worker that has been absent
/// the longest.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: HashMap<WorkerName, NameEntry>,
    by_number: BTreeMap<WorkerId, WorkerName>,
    /// The absent workers, by the number of their departure.
    absent: BTreeMap<u64, WorkerName>,
    departures: u64,
    /// The largest number of workers that were present at the same time.
    most_present: usize,
    /// A lower bound of the free slots: no slot below this one is free.
    first_free: usize,
    /// The names that are refused, and why, the latest last. There are at most [`MAX_WORKERS`]; beyond that, the oldest is dropped and may
    /// join again.
    pub(crate) expelled: VecDeque<(WorkerName, String)>,
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
    /// Gives a joining worker its old number, the one that it asks for if that is free, or else the first free one. Returns `None` if the
    /// maximum number of workers is present.
    pub(crate) fn arrive(&mut self, name: &WorkerName, wish: Option<WorkerId>) -> Option<Claim> {
        if let Some(entry) = self.by_name.get_mut(name) {
            let worker = entry.worker;
            if let Some(left) = entry.left.take() {
                self.absent.remove(&left);
            }
            self.count_present();
            return Some(Claim { worker, is_taken_over: false });
        }
        let claim = match wish.filter(|wish| self.is_free(*wish)).or_else(|| self.free_number()) {
            Some(worker) => Claim { worker, is_taken_over: false },
            None => Claim { worker: self.forget_longest_absent()?, is_taken_over: true },
        };
        self.by_number.insert(claim.worker, name.clone());
        self.by_name.insert(name.clone(), NameEntry { worker: claim.worker, left: None });
        self.count_present();
        Some(claim)
    }

    fn count_present(&mut self) {
        self.most_present = self.most_present.max(self.by_name.len() - self.absent.len());
    }

    /// Forgets the workers that have been absent the longest if there are more names than the limit. Returns their numbers, which are free.
    pub(crate) fn forget_long_absent(&mut self) -> Vec<WorkerId> {
        let remembered = FEW_NAMES.max(2 * self.most_present);
        let excess = self.by_name.len().saturating_sub(remembered);
        (0..excess).map_while(|_| self.forget_longest_absent()).collect()
    }

    fn forget_longest_absent(&mut self) -> Option<WorkerId> {
        let (_, name) = self.absent.pop_first()?;
        let NameEntry { worker, .. } = self.by_name.remove(&name)?;
        self.by_number.remove(&worker);
        self.first_free = self.first_free.min(worker.slot());
        Some(worker)
    }

    pub(crate) fn leave(&mut self, name: &WorkerName) {
        if let Some(entry) = self.by_name.get_mut(name)
            && entry.left.is_none()
        {
            self.departures += 1;
            entry.left = Some(self.departures);
            self.absent.insert(self.departures, name.clone());
        }
    }

    /// Refuses the name of a worker from now on.
    pub(crate) fn expel(&mut self, worker: WorkerId, why: &str) {
        let Some(name) = self.by_number.get(&worker) else { return };
        self.expelled.push_back((name.clone(), why.to_owned()));
        if self.expelled.len() > MAX_WORKERS {
            self.expelled.pop_front();
        }
    }

    pub(crate) fn why_expelled(&self, name: &WorkerName) -> Option<&str> {
        self.expelled.iter().find(|(expelled, _)| expelled == name).map(|(_, why)| why.as_str())
    }

    /// Restores the names of a resumed run from the absent workers, the longest absent first, and the refused names.
    pub(crate) fn restored(
        workers: impl Iterator<Item = (WorkerId, WorkerName)>,
        expelled: impl Iterator<Item = (WorkerName, String)>,
    ) -> Self {
        let mut names = Self { expelled: expelled.collect(), ..Self::default() };
        for (worker, name) in workers {
            names.by_number.insert(worker, name.clone());
            names.by_name.insert(name.clone(), NameEntry { worker, left: None });
            names.leave(&name);
        }
        // All of the workers may be about to return.
        names.most_present = names.by_name.len().div_ceil(2);
        names
    }

    /// Returns numbers and names. The longest absent workers come first, and present workers last.
    pub(crate) fn by_departure(&self) -> impl Iterator<Item = (WorkerId, &WorkerName)> {
        let present = self.iter().filter(|(_, name)| self.by_name[*name].left.is_none());
        let absent = self.absent.values().map(|name| (self.by_name[name].worker, name));
        absent.chain(present)
    }

    /// Returns the names by number, including absent workers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkerId, &WorkerName)> {
        self.by_number.iter().map(|(worker, name)| (*worker, name))
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

    fn number(names: &mut Names, text: &str, wish: Option<u32>) -> u32 {
        let claim = names.arrive(&name(text), wish.and_then(WorkerId::new)).unwrap();
        assert!(!claim.is_taken_over);
        claim.worker.number()
    }

    fn come_and_go(names: &mut Names, text: &str) {
        assert!(names.arrive(&name(text), None).is_some(), "{text}");
        names.leave(&name(text));
    }

    #[test]
    fn numbers_are_as_asked_or_the_first_free_and_stay_with_the_name() {
        let mut names = Names::default();
        for (text, wish, expected) in
            [("a", None, 1), ("b", Some(4), 4), ("c", Some(4), 2), ("d", Some(0), 3), ("e", None, 5)]
        {
            assert_eq!(number(&mut names, text, wish), expected, "{text}");
        }
        names.leave(&name("b"));
        assert_eq!(number(&mut names, "f", None), 6, "the number of an absent worker is kept for it");
        assert_eq!(number(&mut names, "b", Some(1)), 4);
    }

    #[test]
    fn when_numbers_are_used_up_the_longest_absent_gives_its_own() {
        let mut names = Names::default();
        for i in 0..MAX_WORKERS {
            number(&mut names, &format!("w{i}"), None);
        }
        assert_eq!(names.arrive(&name("late"), None), None, "all are present");
        for i in [7, 3] {
            names.leave(&name(&format!("w{i}")));
        }
        let claim = names.arrive(&name("late"), None).unwrap();
        assert_eq!((claim.worker.number(), claim.is_taken_over), (8, true));
        let again = names.arrive(&name("w7"), None).unwrap();
        assert_eq!((again.worker.number(), again.is_taken_over), (4, true), "it was forgotten");
        assert_eq!(names.arrive(&name("w3"), None), None);
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
        assert!(names.forget_long_absent().is_empty() && names.by_name.len() == FEW_NAMES);
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
            names.leave(&name(text));
        }
        assert_eq!(names.forget_long_absent(), []);
        let saved: Vec<_> = names.by_departure().map(|(number, name)| (number, name.clone())).collect();
        let mut restored = Names::restored(saved.into_iter(), std::iter::empty());
        come_and_go(&mut restored, "new");
        for (number, text) in (1..).zip(&all) {
            assert_eq!(restored.arrive(&name(text), None).unwrap().worker.number(), number);
        }
    }

    #[test]
    fn restored_names_have_their_numbers_and_their_order() {
        let mut names = Names::default();
        for (text, wish) in [("a", 1), ("b", 4), ("c", 2)] {
            number(&mut names, text, Some(wish));
        }
        names.leave(&name("c"));
        names.leave(&name("a"));
        let saved: Vec<_> = names.by_departure().map(|(number, name)| (number, name.clone())).collect();
        assert_eq!(saved.iter().map(|(worker, _)| worker.number()).collect::<Vec<_>>(), [2, 1, 4]);
        let mut restored = Names::restored(saved.into_iter(), std::iter::empty());
        assert_eq!(number(&mut restored, "d", None), 3);
        assert_eq!((number(&mut restored, "b", None), number(&mut restored, "c", Some(9))), (4, 2));
    }

    /// Twice as many workers as a run may have join one after the other within an iteration, each under its own name, and are expelled. The
    /// number of remembered names stays limited.
    #[test]
    fn an_expelled_name_is_refused_even_after_a_resume() {
        let mut names = Names::default();
        for i in 0..2 * MAX_WORKERS {
            let text = name(&format!("w{i}"));
            let claim = names.arrive(&text, None).unwrap();
            names.leave(&text);
            names.expel(claim.worker, "mismatches");
            if i == 0 {
                let restored = Names::restored(std::iter::empty(), names.expelled.iter().cloned());
                let why = ["w0", "w1"].map(|text| restored.why_expelled(&name(text)));
                assert_eq!(why, [Some("mismatches"), None]);
            }
        }
        assert_eq!((names.expelled.len(), names.why_expelled(&name("w0"))), (MAX_WORKERS, None), "memory is bounded");
        assert_eq!([names.by_name.len(), names.by_number.len(), names.absent.len()], [MAX_WORKERS; 3]);
    }
}
