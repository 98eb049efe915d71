//! The suite `pai`: task times recorded in production.
//!
//! Source: Alibaba's cluster trace of GPU jobs, alibaba/clusterdata, `cluster-trace-gpu-v2020/mini-batch-time`
//! (CC-BY-4.0): normalised times of the minibatches of each of ten workers, in four training jobs. They are not part of
//! ata. Their folder has the files `job1.txt` to `job4.txt`, each with a line per minibatch and a column per worker.

use std::path::Path;

use ata_simulator::trace_columns;

use super::{Suite, SuiteCase};
use crate::spec::bad;
use crate::{Experiment, ExperimentError};

pub(super) const TITLE: &str = "Recorded times of production jobs (needs --data)";

/// The number of each job, and the numbers of tasks per iteration that it is run with. Job 4's workers differ by a
/// factor of five, are noisy and drift; those of the other jobs are nearly equal, so their results hardly depend on B.
const JOBS: [(u32, &[u64]); 4] = [(1, &[23, 92]), (2, &[23, 92]), (3, &[23, 92]), (4, &[23, 46, 92])];
/// The number of workers of each job.
const WORKERS: u32 = 10;
/// The number of lines in a block of a resampled job: more than its slow spells last, and few compared with its drift.
const BLOCK: u32 = 25;
/// The smallest number of iterations: a shorter run would consist of the learning phase alone.
const FEWEST_ITERATIONS: u64 = 50;
/// The number of seeds of each case: the recorded job, and resamples of it.
const SEEDS: u64 = 10;

pub(super) fn suite(data: Option<&Path>) -> Result<Suite, ExperimentError> {
    let Some(data) = data else {
        return bad(
            "experiment pai",
            "no data",
            "--data DIR with job1.txt to job4.txt: the mini-batch times of cluster-trace-gpu-v2020 (github.com/alibaba/clusterdata, \
             CC-BY-4.0), a line per minibatch and a column for each of ten workers",
        );
    };
    let mut cases = Vec::new();
    for (job, budgets) in JOBS {
        cases.extend(of_job(data, job, budgets)?);
    }
    let about = "Recorded: mini-batch times of ten workers in four production training jobs of Alibaba's PAI (alibaba/clusterdata, \
         cluster-trace-gpu-v2020, CC-BY-4.0). `own`: each worker's column is its own sequence of tasks; `wall`: a line is an \
         iteration. The first seed plays a job as recorded, the others resample it in blocks that stay near their place. The \
         oracle knows the means of the columns.";
    Ok(Suite { title: "Recorded times of production jobs".into(), about: vec![about.into()], cases })
}

fn of_job(data: &Path, job: u32, budgets: &[u64]) -> Result<Vec<SuiteCase>, ExperimentError> {
    let path = data.join(format!("job{job}.txt"));
    let columns = trace_columns(&path, WORKERS)?;
    let Some(name) = path.to_str().filter(|name| !name.contains([',', ')', ';'])) else {
        return bad("--data", data.display().to_string(), "a path without commas, semicolons and closing parentheses");
    };
    let orders = ["own", "wall"].into_iter();
    let cases = orders.flat_map(|order| budgets.iter().map(move |&budget| (order, budget)));
    let case = |(order, budget)| SuiteCase {
        group: "Recorded jobs".into(),
        name: format!("job {job}, {order}, B = {budget}"),
        experiment: Experiment {
            laws: vec![format!("trace({name}, {order}, block={BLOCK})")],
            workers: vec![WORKERS],
            budget,
            iterations: iterations(&columns, order, budget),
            seeds: SEEDS,
            ..Experiment::default()
        },
    };
    Ok(cases.map(case).collect())
}

/// Returns the job's number of lines or, if a line is a task, the number of iterations that the fastest worker's column lasts.
fn iterations(columns: &[Vec<f64>], order: &str, budget: u64) -> u64 {
    let lines = columns[0].len() as f64;
    if order == "wall" {
        return lines as u64;
    }
    let speeds = columns.iter().map(|column| lines / column.iter().sum::<f64>());
    let (all, fastest) = speeds.fold((0.0, 0.0), |(all, fastest), speed| (all + speed, f64::max(fastest, speed)));
    let share = budget as f64 * fastest / all;
    FEWEST_ITERATIONS.max((lines / share) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_lasts_as_long_as_the_recording() {
        // The first worker takes 8 of 12 tasks, so 1000 lines last 125 iterations.
        let columns = vec![vec![1.0; 1000], vec![4.0; 1000], vec![4.0; 1000]];
        assert_eq!(iterations(&columns, "own", 12), 125);
        assert_eq!(iterations(&columns, "own", 120), 50);
        assert_eq!(iterations(&columns, "wall", 12), 1000);
    }

    #[test]
    fn a_folder_makes_cases_and_a_bad_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |job: u32, row: &str| {
            std::fs::write(folder.path().join(format!("job{job}.txt")), format!("# times\n{}", row.repeat(60)))
                .unwrap();
        };
        let good = "1 2 3 4 5 6 7 8 9 10\n";
        let message = || suite(Some(folder.path())).unwrap_err().to_string();
        assert!(suite(None).unwrap_err().to_string().contains("expected --data DIR with job1.txt to job4.txt"));
        assert!(message().contains("job1.txt: cannot be read"), "{}", message());
        (1..=4).for_each(|job| write(job, good));
        let suite = suite(Some(folder.path())).unwrap();
        assert_eq!(suite.cases.len(), 3 * 2 * 2 + 2 * 3);
        for case in &suite.cases {
            case.experiment.check().unwrap();
        }
        write(3, "1 2 3\n");
        assert!(
            message().contains("job3.txt: line 2 has 3 columns, expected one for each of 10 workers"),
            "{}",
            message()
        );
        write(3, "1 2 3 4 5 6 7 8 9 x\n");
        assert!(message().contains("job3.txt: line 2: 'x' is not a positive time"), "{}", message());
    }
}
