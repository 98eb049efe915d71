//! The costs of policies relative to the oracle.

use std::fmt::Write;

use ata_figures::{Axis, Curve, Figure, Mark, Plot, Point, Table};
use serde::Serialize;

use super::REFERENCE;
use crate::summary::{Group, Row};

/// The costs of a policy in one case: means over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// The group of the case.
    pub group: String,
    /// The case.
    pub case: String,
    /// The policy, as written.
    pub policy: String,
    /// The law, as written.
    pub law: String,
    /// The number of workers, n.
    pub workers: u32,
    /// Tasks per iteration, B.
    pub budget: u64,
    /// The number of iterations, K.
    pub iterations: u64,
    /// The number of seeds.
    pub seeds: usize,
    /// The mean runtime of an iteration.
    pub mean_iteration_time: f64,
    /// The mean total worker time of an iteration.
    pub mean_total_worker_time: f64,
    /// The ratio of the mean iteration time to the oracle's.
    pub runtime_ratio: f64,
    /// The ratio of the mean total worker time to the oracle's.
    pub worker_time_ratio: f64,
}

impl Costs {
    /// Returns the costs of all policies in the runs on one law with one number of workers.
    pub(super) fn of(group: &str, case: &str, runs: &Group<'_>) -> Vec<Self> {
        let means = |row: &Row<'_>| {
            let (runtime, _) = row.moments(|run| run.mean_iteration_time);
            let (worker_time, _) = row.moments(|run| run.mean_total_worker_time);
            (runtime, worker_time)
        };
        let (least, its_worker_time) = runs.oracle().map_or((f64::NAN, f64::NAN), means);
        let costs = runs.rows.iter().map(|row| {
            let (mean_iteration_time, mean_total_worker_time) = means(row);
            Self {
                group: group.into(),
                case: case.into(),
                policy: row.name.clone(),
                law: runs.law.into(),
                workers: runs.workers,
                budget: row.runs[0].budget,
                iterations: row.runs[0].iterations,
                seeds: row.runs.len(),
                mean_iteration_time,
                mean_total_worker_time,
                runtime_ratio: mean_iteration_time / least,
                worker_time_ratio: mean_total_worker_time / its_worker_time,
            }
        });
        costs.collect()
    }
}

/// The costs of a policy in a group of cases, relative to the oracle: geometric means.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupMean {
    /// The group, or `all groups`.
    pub group: String,
    /// The policy, as written.
    pub policy: String,
    /// The geometric mean of the runtime ratios.
    pub runtime_ratio: f64,
    /// The geometric mean of the worker time ratios.
    pub worker_time_ratio: f64,
}

/// The name of the mean over all groups, which have equal weights.
const ALL: &str = "all groups";

/// The costs of the runs of a suite, in the order of its cases and policies.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteResult {
    /// The costs by case and policy.
    pub costs: Vec<Costs>,
}

impl SuiteResult {
    /// Returns the geometric means over the cases of each group, and over the groups.
    pub fn means(&self) -> Vec<GroupMean> {
        let mut means: Vec<GroupMean> = Vec::new();
        for group in self.groups() {
            means.extend(self.policies().into_iter().map(|policy| {
                let own = self.costs.iter().filter(|costs| costs.group == group && costs.policy == policy);
                mean(group, policy, own.map(|costs| (costs.runtime_ratio, costs.worker_time_ratio)))
            }));
        }
        let overall = self.policies().into_iter().map(|policy| {
            let own = means.iter().filter(|mean| mean.policy == policy);
            mean(ALL, policy, own.map(|mean| (mean.runtime_ratio, mean.worker_time_ratio)))
        });
        let overall: Vec<GroupMean> = overall.collect();
        means.extend(overall);
        means
    }

    /// Returns a table of the ratios in each group of cases, and one of the groups' means.
    pub fn tables(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = self.groups().into_iter().map(|group| self.group_table(group)).collect();
        let means = self.means();
        let ratios = means.iter().map(|mean| (&*mean.group, &*mean.policy, mean.runtime_ratio, mean.worker_time_ratio));
        let title = format!("Geometric means of runtime / worker time over {REFERENCE}");
        let mut table = self.table(title, "group", &ratios.collect::<Vec<_>>());
        if tables.len() == 1 {
            table.rows.truncate(1);
        }
        tables.push(table);
        tables
    }

    fn group_table(&self, group: &str) -> Table {
        let of_group: Vec<&Costs> = self.costs.iter().filter(|costs| costs.group == group).collect();
        let seeds = match of_group[0].seeds {
            1 => "one seed".into(),
            seeds => format!("means of {seeds} seeds"),
        };
        let ratios = of_group.iter().map(|row| (&*row.case, &*row.policy, row.runtime_ratio, row.worker_time_ratio));
        let title = format!("{group}: runtime / worker time over {REFERENCE}; {seeds}");
        self.table(title, "case", &ratios.collect::<Vec<_>>())
    }

    /// Returns a table of ratios, of which each has the name of its row and its policy.
    fn table(&self, title: String, first: &str, ratios: &[(&str, &str, f64, f64)]) -> Table {
        let others = self.policies().into_iter().filter(|policy| *policy != REFERENCE);
        let rows = ratios.chunk_by(|a, b| a.0 == b.0).map(|of_row| {
            let others = of_row.iter().filter(|(_, policy, ..)| *policy != REFERENCE);
            let cells =
                others.map(|(_, _, runtime, worker_time)| format!("{} / {}", number(*runtime), number(*worker_time)));
            std::iter::once(of_row[0].0.to_owned()).chain(cells).collect()
        });
        Table { title, header: std::iter::once(first).chain(others).map(String::from).collect(), rows: rows.collect() }
    }

    /// Returns a figure of the means over all groups: runtime against worker time, with a mark per policy.
    pub fn figure(&self) -> Figure {
        let overall = self.means().into_iter().filter(|mean| mean.group == ALL);
        let curves = overall.map(|mean| {
            let point = Point::new(mean.runtime_ratio, mean.worker_time_ratio);
            Curve { name: mean.policy.clone(), marks: vec![Mark { label: mean.policy, point }] }
        });
        Figure {
            name: "comparison".into(),
            title: "Policies for workers of unknown speed: runtime against worker time".into(),
            caption: format!(
                "Geometric means over {} groups of cases, relative to {REFERENCE}; less is better.",
                self.groups().len()
            ),
            x: Axis::log("runtime over the oracle's (less is better)"),
            y: Axis::log("worker time over the oracle's (less is better)"),
            plot: Plot::Frontier(curves.collect()),
        }
    }

    /// Renders the tables as Markdown, the means first.
    pub fn markdown(&self, title: &str, about: &[String]) -> String {
        let mut text = format!("# {title}\n");
        for paragraph in about {
            let _ = write!(text, "\n{paragraph}\n");
        }
        let mut tables = self.tables();
        tables.rotate_right(1);
        for Table { title, header, rows } in tables {
            let _ = write!(text, "\n## {title}\n\n");
            let rule = vec!["---".to_owned(); header.len()];
            for row in [&header, &rule].into_iter().chain(&rows) {
                let _ = writeln!(text, "| {} |", row.join(" | "));
            }
        }
        text
    }

    fn groups(&self) -> Vec<&str> {
        distinct(self.costs.iter().map(|costs| costs.group.as_str()))
    }

    fn policies(&self) -> Vec<&str> {
        distinct(self.costs.iter().map(|costs| costs.policy.as_str()))
    }
}

/// Returns the distinct names, in the order of their first occurrence.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

fn mean(group: &str, policy: &str, ratios: impl Iterator<Item = (f64, f64)>) -> GroupMean {
    let (mut runtime, mut worker_time, mut count) = (0.0, 0.0, 0.0);
    for (of_runtime, of_worker_time) in ratios {
        runtime += of_runtime.ln();
        worker_time += of_worker_time.ln();
        count += 1.0;
    }
    let (runtime_ratio, worker_time_ratio) = ((runtime / count).exp(), (worker_time / count).exp());
    GroupMean { group: group.into(), policy: policy.into(), runtime_ratio, worker_time_ratio }
}

/// Formats a ratio with enough digits to distinguish policies: hundredths around 1, and about three digits elsewhere.
fn number(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 100.0 => format!("{ratio:.0}"),
        _ if ratio >= 10.0 => format!("{ratio:.1}"),
        _ if ratio >= 0.1 => format!("{ratio:.2}"),
        _ => format!("{ratio:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(group: &str, case: &str, policy: &str, runtime_ratio: f64, worker_time_ratio: f64) -> Costs {
        Costs {
            group: group.into(),
            case: case.into(),
            policy: policy.into(),
            law: "exp(1)".into(),
            workers: 3,
            budget: 4,
            iterations: 5,
            seeds: 2,
            mean_iteration_time: 10.0 * runtime_ratio,
            mean_total_worker_time: 20.0 * worker_time_ratio,
            runtime_ratio,
            worker_time_ratio,
        }
    }

    fn result() -> SuiteResult {
        let cases = [("a", "a1", 1.0, 2.0), ("a", "a2", 4.0, 2.0), ("b", "b1", 8.0, 0.5)];
        let costs =
            cases.map(|(group, case, x, y)| [costs(group, case, REFERENCE, 1.0, 1.0), costs(group, case, "gta", x, y)]);
        SuiteResult { costs: costs.concat() }
    }

    /// Means are taken within a group, then over the groups: √(1·4) = 2, √(2·8) = 4.
    #[test]
    fn tables_name_every_case_and_markdown_begins_with_the_means() {
        let tables = result().tables();
        assert_eq!(tables.len(), 3);
        assert_eq!(tables[0].rows, [["a1", "1.00 / 2.00"], ["a2", "4.00 / 2.00"]]);
        assert_eq!(tables[2].header, ["group", "gta"]);
        let text = result().markdown("Title", &["Why.".into()]);
        assert!(text.starts_with("# Title\n\nWhy.\n\n## Geometric means"), "{text}");
        assert!(text.contains("\n| group | gta |\n| --- | --- |\n| a | 2.00 / 2.00 |\n"), "{text}");
        assert!(text.contains("\n| all groups | 4.00 / 1.00 |\n"), "{text}");
    }

    #[test]
    fn ratios_are_short() {
        assert_eq!([0.004_21, 0.123, 1.0, 12.34, 506.4].map(number), ["0.0042", "0.12", "1.00", "12.3", "506"]);
    }
}
