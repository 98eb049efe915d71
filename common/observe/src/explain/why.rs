//! The reasons for an allocation in words.

use ata_record::{RunState, WorkerState};
use ata_types::{Iteration, WorkerId, seconds};

use super::{Outlook, WorkerExplanation};

/// Explains the tasks of a worker. `taker` is the worker that would take one of them.
pub(super) fn sentence(
    run: &RunState,
    outlook: &Outlook,
    of: &WorkerExplanation,
    worker: &WorkerState,
    taker: Option<WorkerId>,
) -> String {
    if let Some(why) = absent(run, worker) {
        return why;
    }
    let reasons = match of.finish_s {
        Some(finish_s) => with_share(outlook, of, finish_s, taker),
        None if of.share.tasks > 0 => {
            format!("{}. It was never timed, so nothing can be said of its speed.", tasks(of.share.tasks))
        }
        None => without_share(outlook, of),
    };
    let link = of.share.vector_s.zip(of.share.link_bytes_per_s).map(|(vector_s, bytes_per_s)| {
        let mb_per_s = bytes_per_s / 1e6;
        format!(" Its vector takes {} on its own link, at {mb_per_s:.3} MB/s.", seconds(vector_s))
    });
    let contribution = of.contribution.map(|share| {
        let percent = (100.0 * share).round();
        let than = if percent > 0.0 { "less" } else { "more" };
        let found = if percent == 0.0 { "as much".into() } else { format!("{} % {than}", percent.abs()) };
        format!(" Without it, a second would achieve {found}.")
    });
    let probe = " It computes one task more as a probe, to learn its speed; the step does not wait for it.";
    reasons + &link.unwrap_or_default() + &contribution.unwrap_or_default() + if of.share.probe { probe } else { "" }
}

/// Returns the reason why a worker has no tasks, if it is not the allocation.
fn absent(run: &RunState, worker: &WorkerState) -> Option<String> {
    if let Some(why) = &worker.expelled {
        return Some(format!("It was expelled: {why}."));
    }
    if !worker.present {
        return Some("It is not present.".into());
    }
    if run.allocation.iteration == Iteration::default() {
        return Some("No iteration has begun.".into());
    }
    if run.allocation.is_race {
        return Some("All workers compute, and the first results count.".into());
    }
    let rests = worker.rests_until_s.is_some_and(|until_s| until_s > run.now_s);
    rests.then(|| "It gets no task for a while after a failure.".into())
}

fn with_share(outlook: &Outlook, of: &WorkerExplanation, finish_s: f64, taker: Option<WorkerId>) -> String {
    let each_s = of.share.bound_s.or(of.share.mean_s).unwrap_or(0.0);
    let (tasks, each, finish) = (tasks(of.share.tasks), seconds(each_s), seconds(finish_s));
    let end_s = outlook.end_s();
    let end =
        if finish_s < end_s { format!("; the iteration, after {}.", seconds(end_s)) } else { ", as the last.".into() };
    let changes = of.one_more_s.map(|more_s| {
        let less = of.one_less_s.zip(taker).map(|(less_s, taker)| {
            format!("; with one less, done by worker {taker} in its place, {}", seconds(less_s))
        });
        format!(" With one more the iteration would take {}{}.", seconds(more_s), less.unwrap_or_default())
    });
    format!("{tasks} of {each} each, expected to be done after {finish}{end}{}", changes.unwrap_or_default())
}

fn without_share(outlook: &Outlook, of: &WorkerExplanation) -> String {
    let end_s = outlook.end_s();
    match of.one_more_s {
        None if of.share.observed == 0 => "No task: it was never timed.".into(),
        None => "No task.".into(),
        Some(more_s) if more_s > end_s => {
            format!("No task: with one, the iteration would take {} in place of {}.", seconds(more_s), seconds(end_s))
        }
        Some(_) => format!("No task: the others are expected to be done after {} without it.", seconds(end_s)),
    }
}

fn tasks(count: u64) -> String {
    if count == 1 { "1 task".into() } else { format!("{count} tasks") }
}
