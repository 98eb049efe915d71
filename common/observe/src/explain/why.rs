//! The reasons for an allocation in words.

use std::fmt::{Arguments, Write};

use ata_record::{RunState, WorkerState};
use ata_types::{Iteration, WorkerId};

use super::{Outlook, WorkerExplanation};

use ata_types::seconds;

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
    let mut text = match of.finish_s {
        Some(finish_s) => with_share(outlook, of, finish_s, taker),
        None if of.share.tasks > 0 => {
            format!("{}. It was never timed, so nothing can be said of its speed.", tasks(of.share.tasks))
        }
        None => without_share(outlook, of),
    };
    if let (Some(vector_s), Some(bytes_per_s)) = (of.share.vector_s, of.share.link_bytes_per_s) {
        let mb_per_s = bytes_per_s / 1e6;
        append(
            &mut text,
            format_args!(" Its vector takes {} on its own link, at {mb_per_s:.3} MB/s.", seconds(vector_s)),
        );
    }
    if of.share.probe {
        text += " It computes one task more as a probe, to learn its speed; the step does not wait for it.";
    }
    text
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
    let mut text = format!(
        "{} of {} each, expected to be done after {}",
        tasks(of.share.tasks),
        seconds(each_s),
        seconds(finish_s)
    );
    let end_s = outlook.end_s();
    if finish_s < end_s {
        append(&mut text, format_args!("; the iteration, after {}.", seconds(end_s)));
    } else {
        text += ", as the last.";
    }
    if let Some(more_s) = of.one_more_s {
        append(&mut text, format_args!(" With one more the iteration would take {}", seconds(more_s)));
        if let (Some(less_s), Some(taker)) = (of.one_less_s, taker) {
            append(
                &mut text,
                format_args!("; with one less, done by worker {taker} in its place, {}", seconds(less_s)),
            );
        }
        text += ".";
    }
    text
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

fn append(text: &mut String, what: Arguments<'_>) {
    text.write_fmt(what).expect("a string takes all that is written");
}

fn tasks(count: u64) -> String {
    if count == 1 { "1 task".into() } else { format!("{count} tasks") }
}
