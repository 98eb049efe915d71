//! The number of tasks that each worker computed over time.

use std::collections::BTreeMap;

use ata_types::{Iteration, WorkerId};
use serde::{Deserialize, Serialize};

use super::curve::ReadMark;

/// The most columns of the map: a phone's screen has no more to display.
const MOST_COLUMNS: usize = 120;

/// Applied tasks by worker, in columns of equally many iterations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeatMap {
    stride: u64,
    columns: Vec<HeatColumn>,
    #[serde(skip)]
    version: u64,
}

/// A column of the heat map: successive iterations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatColumn {
    /// The first iteration.
    pub first: Iteration,
    /// The number of iterations.
    pub count: u64,
    /// The number of applied tasks of each worker that had any.
    pub tasks: BTreeMap<WorkerId, u64>,
}

impl Default for HeatMap {
    fn default() -> Self {
        Self { stride: 1, columns: Vec::new(), version: 0 }
    }
}

impl HeatMap {
    pub(super) fn add(&mut self, iteration: Iteration, tasks: BTreeMap<WorkerId, u64>) {
        let next = HeatColumn { first: iteration, count: 1, tasks };
        if let Some(column) = self.columns.last_mut().filter(|last| last.count < self.stride) {
            column.absorb(next);
            return;
        }
        if self.columns.len() == MOST_COLUMNS {
            self.halve();
        }
        self.columns.push(next);
    }

    pub(super) fn is_too_long(&self) -> bool {
        self.columns.len() > MOST_COLUMNS
    }

    fn halve(&mut self) {
        let mut halved: Vec<HeatColumn> = Vec::with_capacity(MOST_COLUMNS / 2);
        for (at, column) in std::mem::take(&mut self.columns).into_iter().enumerate() {
            match halved.last_mut().filter(|_| at % 2 == 1) {
                Some(last) => last.absorb(column),
                None => halved.push(column),
            }
        }
        self.columns = halved;
        self.stride *= 2;
        self.version += 1;
    }

    /// Returns the columns that are new to a reader at `mark`, and the position of the first of them. Advances `mark`.
    pub fn since(&self, mark: &mut ReadMark) -> (usize, &[HeatColumn]) {
        let from = if mark.version == self.version { mark.complete.min(self.columns.len()) } else { 0 };
        let complete = self.columns.iter().rposition(|column| column.count == self.stride).map_or(0, |last| last + 1);
        *mark = ReadMark { version: self.version, complete };
        (from, &self.columns[from..])
    }
}

impl HeatColumn {
    fn absorb(&mut self, next: Self) {
        self.count += next.count;
        for (worker, tasks) in next.tasks {
            *self.tasks.entry(worker).or_default() += tasks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_all_its_tasks() {
        let mut heat = HeatMap::default();
        let (mut mark, mut reader) = (ReadMark::default(), Vec::new());
        for iteration in 1..=1001 {
            let worker = |slot| WorkerId::from_slot(slot);
            heat.add(Iteration(iteration), BTreeMap::from([(worker(0), 2), (worker(iteration as usize % 3), 1)]));
            if iteration % 10 == 0 {
                let (from, new) = heat.since(&mut mark);
                reader.truncate(from);
                reader.extend_from_slice(new);
                assert_eq!(reader, heat.columns, "after {iteration}");
            }
        }
        assert!(heat.columns.len() <= MOST_COLUMNS && heat.columns[1].first == Iteration(1 + heat.stride));
        let tasks: u64 = heat.columns.iter().flat_map(|column| column.tasks.values()).sum();
        let iterations: u64 = heat.columns.iter().map(|column| column.count).sum();
        assert_eq!((iterations, heat.columns[0].first), (1001, Iteration(1)));
        assert!(tasks >= 2 * 1001);
    }
}
