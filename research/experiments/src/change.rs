//! Changes during a run, as written in experiment files.

use std::fmt;

use ata_simulator::{Change, Moment};
use ata_types::WorkerId;
use serde::{Deserialize, Deserializer};

use crate::spec::{ExperimentError, bad, check};

/// A change: its `iteration` or `time`, one kind of change, and optionally its repetition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChangeSpec {
    /// The iteration at whose beginning the change happens.
    pub iteration: Option<u64>,
    /// The virtual time at which the change happens.
    pub time: Option<f64>,
    /// The number of iterations after which the change is repeated, again and again.
    pub every: Option<u64>,
    /// The last iteration in which a repeated change may happen; by default, the last of the run.
    pub until: Option<u64>,
    /// The number of iterations after which the change is undone.
    #[serde(rename = "for")]
    pub lasting: Option<u64>,
    /// Two workers that swap their laws.
    pub swap: Option<[u32; 2]>,
    /// The workers whose tasks take `factor` times as long from this change on.
    #[serde(alias = "workers")]
    pub slow_down: Option<Workers>,
    /// The workers on whose links vectors take `factor` times as long from this change on.
    pub slow_link: Option<Workers>,
    /// The factor of `slow_down` and `slow_link`; values below 1 make the workers or links faster.
    pub factor: Option<f64>,
    /// The workers that are lost.
    pub leave: Option<Workers>,
    /// The workers that join.
    pub join: Option<Workers>,
    /// The workers that hang from this change on.
    pub hang: Option<Workers>,
    /// The workers whose tasks fail from this change on.
    pub fail: Option<Workers>,
}

/// The largest number of changes in a run, and in the expansion of one entry: more than a run needs, and 32 MB.
pub(super) const MAX_CHANGES: u64 = 1_000_000;

type OfWorker<'a> = &'a dyn Fn(WorkerId) -> Change;

impl ChangeSpec {
    /// Expands the entry to single changes in a run of this size. Error messages refer to it as `name`.
    pub(super) fn expand(
        &self,
        name: &str,
        workers: u32,
        iterations: u64,
    ) -> Result<Vec<(Moment, Change)>, ExperimentError> {
        let changes = self.changes(name, workers)?;
        let undone = self.lasting.map(|_| undone(name, &changes)).transpose()?;
        let first = match (self.iteration, self.time) {
            (Some(iteration), None) => iteration,
            (None, Some(time)) => {
                check(name, &time, time.is_finite() && time >= 0.0, "a time of at least 0")?;
                let counts = self.every.or(self.until).or(self.lasting).is_some();
                check(name, &"time = T", !counts, "iteration = K with every, until or for, which count iterations")?;
                return Ok(changes.into_iter().map(|change| (Moment::Time(time), change)).collect());
            }
            _ => return bad(name, "no time, or two of them", "either iteration = K or time = T"),
        };
        let (every, last) = self.repetition(name, iterations)?;
        let times = last.checked_sub(first).map_or(1, |more| 1 + more / every);
        let count = times.saturating_mul(changes.len() as u64);
        check(name, &format!("{count} changes"), count <= MAX_CHANGES, "at most a million")?;
        let mut all = Vec::new();
        for begins in (0..times).map(|repetition| first + repetition * every) {
            all.extend(changes.iter().map(|&change| (Moment::Iteration(begins), change)));
            if let (Some(lasting), Some(undone)) = (self.lasting, &undone) {
                let ends = begins.saturating_add(lasting);
                all.extend(undone.iter().map(|&change| (Moment::Iteration(ends), change)));
            }
        }
        Ok(all)
    }

    /// Returns the number of iterations between repetitions, and the last iteration in which the change may happen.
    fn repetition(&self, name: &str, iterations: u64) -> Result<(u64, u64), ExperimentError> {
        let positive = |setting: &str, count: Option<u64>| {
            check(name, &format!("{setting} = 0"), count != Some(0), "a whole number of at least 1")
        };
        positive("every", self.every)?;
        positive("for", self.lasting)?;
        check(name, &"until without every", self.every.is_some() || self.until.is_none(), "both")?;
        if let (Some(every), Some(lasting)) = (self.every, self.lasting) {
            let found = format!("every = {every} and for = {lasting}");
            check(name, &found, lasting <= every, "that it is undone before it happens again")?;
        }
        // Without `every`, a last iteration of 0 makes the change happen exactly once.
        Ok(self.every.map_or((u64::MAX, 0), |every| (every, self.until.unwrap_or(iterations).min(iterations))))
    }

    fn changes(&self, name: &str, workers: u32) -> Result<Vec<Change>, ExperimentError> {
        let mut kinds = Vec::new();
        if let Some([a, b]) = self.swap {
            kinds.push(vec![Change::Swap(worker(name, a, workers)?, worker(name, b, workers)?)]);
        }
        let factor = self.factor.unwrap_or(f64::NAN);
        let is_good = factor.is_finite() && factor > 0.0 || self.slow_down.is_none() && self.slow_link.is_none();
        check(name, &format!("factor {factor}"), is_good, "a positive factor")?;
        let of_each: [(&Option<Workers>, OfWorker<'_>); 6] = [
            (&self.slow_down, &|worker| Change::SlowDown(worker, factor)),
            (&self.slow_link, &|worker| Change::SlowLink(worker, factor)),
            (&self.leave, &Change::Leave),
            (&self.join, &Change::Join),
            (&self.hang, &Change::Hang),
            (&self.fail, &Change::Fail),
        ];
        for (affected, change) in of_each {
            if let Some(affected) = affected {
                kinds.push(affected.expand(name, workers)?.into_iter().map(change).collect());
            }
        }
        match (kinds.pop(), kinds.is_empty()) {
            (Some(changes), true) => Ok(changes),
            _ => bad(
                name,
                "no change, or several",
                "one of swap = [I, J], slow_down = I or slow_link = I with factor = X, leave = I, join = I, hang = I, fail = I",
            ),
        }
    }
}

fn undone(name: &str, changes: &[Change]) -> Result<Vec<Change>, ExperimentError> {
    let undone = |change: &Change| match *change {
        Change::Swap(a, b) => Ok(Change::Swap(a, b)),
        Change::SlowDown(worker, factor) => Ok(Change::SlowDown(worker, 1.0 / factor)),
        Change::SlowLink(worker, factor) => Ok(Change::SlowLink(worker, 1.0 / factor)),
        Change::Leave(worker) => Ok(Change::Join(worker)),
        Change::Join(worker) => Ok(Change::Leave(worker)),
        Change::Hang(_) | Change::Fail(_) => {
            bad(name, "hang or fail with for", "no for; join = I at a later iteration makes a worker well again")
        }
    };
    changes.iter().map(undone).collect()
}

fn worker(name: &str, number: u32, workers: u32) -> Result<WorkerId, ExperimentError> {
    let worker = WorkerId::new(number).filter(|_| number <= workers);
    worker.map_or_else(|| bad(name, format!("worker {number}"), format!("a worker from 1 to {workers}")), Ok)
}

/// A set of workers: a number, or a list such as `"1,4,7..9"`. Ranges include both ends, and `n` stands for the last worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// The first and the last worker of each range, ascending and disjoint; `None` is n.
    ranges: Vec<(u32, Option<u32>)>,
}

impl Workers {
    fn expand(&self, name: &str, workers: u32) -> Result<Vec<WorkerId>, ExperimentError> {
        let mut all = Vec::new();
        for &(first, last) in &self.ranges {
            let last = last.unwrap_or(workers);
            // If any number is too large, the last one is. It is checked first because the list of all numbers could be huge.
            worker(name, last.max(first), workers)?;
            all.extend((first..=last).filter_map(WorkerId::new));
        }
        Ok(all)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}': expected ascending workers, such as \"1,4,7..9\" or \"1..n\"");
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&number| number > 0).ok_or_else(wrong);
        let mut ranges = Vec::new();
        let mut before = Some(0);
        for part in text.split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let first = number(first)?;
            let last = if last.trim() == "n" { None } else { Some(number(last)?) };
            let is_next = before.is_some_and(|before| before < first) && last.is_none_or(|last| first <= last);
            is_next.then_some(()).ok_or_else(wrong)?;
            ranges.push((first, last));
            before = last;
        }
        Ok(Self { ranges })
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Workers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a worker's number, or several as in \"1,4,7..9\"")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Workers, E> {
                let worker = u32::try_from(number);
                let worker = worker.map_err(|_| E::custom(format!("{number} is not the number of a worker")))?;
                Ok(Workers { ranges: vec![(worker, Some(worker))] })
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Workers, E> {
                self.visit_i64(i64::try_from(number).unwrap_or(-1))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Workers, E> {
                Workers::parse(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;

    fn changes(text: &str) -> Result<Vec<(Moment, Change)>, String> {
        let experiment = Experiment::parse(text, "x").map_err(|error| error.to_string())?;
        experiment.changes(experiment.workers[0]).map_err(|error| error.to_string())
    }

    #[test]
    fn workers_are_read() {
        for (text, count) in [("3", 1), ("1..51", 51), ("1,4,7..9", 5), ("2..n", 50), ("1, 3 .. 4", 3)] {
            assert_eq!(Workers::parse(text).unwrap().expand("x", 51).unwrap().len(), count, "{text}");
        }
        for text in ["", "0", "4..2", "1,1", "1..3,3", "1..n,5", "a", "1...3", "-1", "1..", "n"] {
            assert!(Workers::parse(text).unwrap_err().contains("such as"), "{text}");
        }
    }

    /// The compact form is equivalent to separate entries.
    #[test]
    fn ranges_and_repetitions_are_a_shorthand() {
        let one = |iteration: u64, kind: &str| format!("[[change]]\niteration = {iteration}\n{kind}\n");
        let slow = |iteration, worker, factor| one(iteration, &format!("slow_down = {worker}\nfactor = {factor}"));
        for (compact, long) in [
            (
                "[[change]]\niteration = 3\nworkers = '1..2'\nfactor = 4.0\nevery = 5\nfor = 2",
                [(3, 4.0), (5, 0.25), (8, 4.0), (10, 0.25), (13, 4.0), (15, 0.25)]
                    .map(|(iteration, factor)| slow(iteration, 1, factor) + &slow(iteration, 2, factor))
                    .concat(),
            ),
            (
                "[[change]]\niteration = 4\nslow_down = '2,4..n'\nfactor = 1.03\nevery = 3\nuntil = 7",
                [4, 7].map(|k| [2, 4, 5].map(|worker| slow(k, worker, 1.03)).concat()).concat(),
            ),
            ("[[change]]\niteration = 2\nswap = [1, 3]\nfor = 6", one(2, "swap = [1, 3]") + &one(8, "swap = [1, 3]")),
            (
                "[[change]]\niteration = 2\nleave = '2..3'\nfor = 4\nevery = 9",
                [2, 11]
                    .map(|k| {
                        one(k, "leave = 2") + &one(k, "leave = 3") + &one(k + 4, "join = 2") + &one(k + 4, "join = 3")
                    })
                    .concat(),
            ),
            ("[[change]]\niteration = 20\njoin = 2", one(20, "join = 2")),
            ("[[change]]\niteration = 20\njoin = 2\nevery = 3", one(20, "join = 2")),
        ] {
            let head = "workers = [5]\niterations = 15\n".to_owned();
            assert_eq!(changes(&(head.clone() + compact)), changes(&(head + &long)), "{compact}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        for (text, message) in [
            ("iteration = 3", "change 1: no change"),
            ("iteration = 3\nswap = [1, 2]\nleave = 1", "change 1: no change, or several"),
            ("swap = [1, 2]", "change 1: no time"),
            ("time = -1.0\nswap = [1, 2]", "change 1: -1"),
            ("time = 1.0\nswap = [1, 52]", "change 1: worker 52, expected a worker from 1 to 51"),
            ("time = 1.0\nslow_down = 1\nfactor = nan", "factor NaN"),
            ("time = 1.0\nleave = 1\nfor = 3", "expected iteration = K with every"),
            ("iteration = 1\nleave = '1..52'", "worker 52, expected a worker from 1 to 51"),
            ("iteration = 1\nleave = '60..n'", "worker 60, expected a worker from 1 to 51"),
            ("iteration = 1\nleave = 0", "worker 0, expected"),
            ("iteration = 1\nleave = -1", "-1 is not the number of a worker"),
            ("iteration = 1\nleave = '3..1'", "line 4: '3..1': expected ascending workers"),
            ("iteration = 1\nleave = true", "a worker's number"),
            ("iteration = 1\nleave = 1\nevery = 0", "every = 0"),
            ("iteration = 1\nleave = 1\nuntil = 9", "until without every"),
            ("iteration = 1\nleave = 1\nevery = 5\nfor = 6", "every = 5 and for = 6"),
            ("iteration = 1\nhang = 1\nfor = 6", "hang or fail with for"),
            (
                "iteration = 1\nslow_down = '1..n'\nfactor = 1.1\nevery = 1",
                "5100000 changes, expected at most a million",
            ),
        ] {
            let text = format!("iterations = 100_000\n[[change]]\n{text}");
            let error = changes(&text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
