//! Reading of recorded runs from their journals.

use std::collections::BTreeMap;
use std::path::Path;

use ata_record::{Gap, RunEvent, RunState, read_journal};
use ata_types::{Iteration, WorkerId};

use super::counterfactual::WorkerTimes;
use crate::failure::Failure;
use crate::output::note;

#[derive(Default)]
pub(crate) struct RecordedRun {
    pub(crate) state: RunState,
    pub(crate) times: Vec<WorkerTimes>,
    /// The number of iterations whose times the journal has.
    pub(crate) iterations: u64,
    /// The last iteration whose times it no longer has.
    folded: Option<Iteration>,
    /// The index into `times` of the worker that currently has a number.
    workers: BTreeMap<WorkerId, usize>,
}

/// Reads a journal, or the one in a run's folder. What it lacks is reported on standard error.
pub(crate) fn read(path: &Path) -> Result<RecordedRun, Failure> {
    let mut recorded = RecordedRun::default();
    let shown = path.display();
    match read_journal(path, |event| recorded.apply(&event))? {
        Some(Gap { line, is_torn: true, .. }) => {
            note!("{shown}: line {line} was not written to its end, as in a crash; it is left out");
        }
        Some(Gap { line, lines, .. }) => {
            note!("{shown}: {lines} line(s) from line {line} on cannot be read, as after a crash; they are left out");
        }
        None => {}
    }
    if recorded.iterations == 0 {
        return Err(Failure::data(format!("{shown} holds no committed iteration")));
    }
    if let Some(folded) = recorded.folded {
        note!(
            "{shown} has no times up to iteration {folded} any more; those of the {} after it are used",
            recorded.iterations
        );
    }
    Ok(recorded)
}

impl RecordedRun {
    fn apply(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Join { worker, name, .. } if self.state.workers.get(worker).is_none_or(|w| w.name != *name) => {
                self.workers.remove(worker);
                self.times_of(*worker);
            }
            RunEvent::Task { worker, busy_s, overhead_s, .. } => {
                let times = self.times_of(*worker);
                times.tasks_s.extend(busy_s);
                times.overheads_s.extend(overhead_s);
            }
            RunEvent::Step { .. } => self.iterations += 1,
            RunEvent::Folded { iteration, .. } => self.folded = Some(*iteration),
            _ => {}
        }
        self.state.apply(event);
    }

    fn times_of(&mut self, worker: WorkerId) -> &mut WorkerTimes {
        let at = *self.workers.entry(worker).or_insert(self.times.len());
        self.times.resize(self.times.len().max(at + 1), WorkerTimes::default());
        &mut self.times[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOURNAL: &str = r#"{"event":"run","version":3,"run_id":"r","policy":"uta","budget":2,"iterations":1,"task_batch":1,"seed":1,"model":"cnn"}
{"event":"join","time_s":0.0,"worker":1,"name":"a","device":"cpu"}
{"event":"join","time_s":0.0,"worker":2,"name":"b","device":"cpu"}
{"event":"allocation","iteration":1,"time_s":0.1,"workers":[1,2],"allocation":[2,1],"scores_s":[],"rule":"uniform"}
{"event":"task","iteration":1,"task":0,"worker":1,"lease":1,"time_s":0.6,"busy_s":0.5,"overhead_s":0.125,"outcome":"applied"}
{"event":"task","iteration":1,"task":1,"worker":1,"lease":2,"time_s":0.6,"busy_s":null,"outcome":"lost"}
{"event":"join","time_s":0.0,"worker":1,"name":"c","device":"cpu"}
{"event":"task","iteration":1,"task":1,"worker":1,"lease":3,"time_s":0.6,"busy_s":0.25,"outcome":"applied"}
{"event":"step","iteration":1,"time_s":0.7,"loss":4.5,"runtime_s":0.5,"total_worker_time_s":0.75,"tasks":2,"wasted":1,"employments":2,"results":2,"learning_rate":0.1}
"#;

    fn read_text(text: &str) -> Result<RecordedRun, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(ata_record::JOURNAL_FILE), text).unwrap();
        read(folder.path()).map_err(|failure| format!("{failure:?}"))
    }

    /// The number 1 belongs to another worker once its name changes.
    #[test]
    fn task_times_are_those_of_one_worker_each() {
        let recorded = read_text(JOURNAL).unwrap();
        let times = |tasks_s: &[f64], overheads_s: &[f64]| WorkerTimes {
            tasks_s: tasks_s.into(),
            overheads_s: overheads_s.into(),
        };
        assert_eq!(recorded.times, [times(&[0.5], &[0.125]), times(&[], &[]), times(&[0.25], &[])]);
        assert_eq!((recorded.state.budget, recorded.state.iterations), (2, 1));
    }

    #[test]
    fn a_run_without_an_iteration_is_refused() {
        assert!(read_text(&JOURNAL[..JOURNAL.len() - 20]).is_err_and(|error| error.contains("no committed iteration")));
    }
}
