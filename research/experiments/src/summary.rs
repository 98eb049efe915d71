//! Means over seeds.

use crate::run::RunResult;

/// The runs on one law with one number of workers.
#[derive(Debug)]
pub struct Group<'a> {
    /// The law, as written.
    pub law: &'a str,
    /// The number of workers, n.
    pub workers: u32,
    /// The rows, in the experiment's order.
    pub rows: Vec<Row<'a>>,
}

/// The runs that differ only in their seed.
#[derive(Debug)]
pub struct Row<'a> {
    /// The policy, and other settings that distinguish the row.
    pub name: String,
    /// The runs, in the order of their seeds.
    pub runs: Vec<&'a RunResult>,
}

/// Groups results, which must be in the order of [`super::run()`].
pub fn groups(results: &[RunResult]) -> Vec<Group<'_>> {
    let several = |of: &dyn Fn(&RunResult) -> String| results.iter().any(|run| of(run) != of(&results[0]));
    let overcommit = several(&|run| run.overcommit.to_string());
    let warm_start = several(&|run| run.warm_start.clone());
    let name = |run: &RunResult| {
        let overcommit = if overcommit { format!(" +{:.0} %", run.overcommit * 100.0) } else { String::new() };
        let warm_start = if warm_start { format!(", warm start {}", run.warm_start) } else { String::new() };
        format!("{}{overcommit}{warm_start}", run.policy)
    };
    let alike = |a: &RunResult, b: &RunResult| a.law == b.law && a.workers == b.workers;
    results
        .chunk_by(|a, b| alike(a, b))
        .map(|runs| Group {
            law: &runs[0].law,
            workers: runs[0].workers,
            rows: runs
                .chunk_by(|a, b| name(a) == name(b))
                .map(|runs| Row { name: name(&runs[0]), runs: runs.iter().collect() })
                .collect(),
        })
        .collect()
}

impl Row<'_> {
    /// Returns the mean and the standard deviation over seeds of a number that each run has.
    pub fn moments(&self, of: impl Fn(&RunResult) -> f64) -> (f64, f64) {
        let count = self.runs.len() as f64;
        let mean = self.runs.iter().map(|run| of(run)).sum::<f64>() / count;
        let squares: f64 = self.runs.iter().map(|run| (of(run) - mean).powi(2)).sum();
        (mean, if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
    }

    /// Returns the mean over seeds of a number that a run may lack; `None` unless all runs have it.
    pub fn mean_of(&self, of: impl Fn(&RunResult) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().filter_map(|run| of(run)).collect();
        (values.len() == self.runs.len()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

impl<'a> Group<'a> {
    /// Returns the row of the oracle that follows changes of the means or, failing that, of the one that knows the means of the laws.
    pub fn oracle(&self) -> Option<&Row<'a>> {
        let find = |is_oracle: fn(&str) -> bool| {
            self.rows.iter().find(|row| is_oracle(&row.runs[0].policy) && row.runs[0].overcommit == 0.0)
        };
        find(|policy| policy == "fta:means=current").or_else(|| find(|policy| policy.starts_with("fta")))
    }
}
