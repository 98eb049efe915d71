//! The thread that sums gradients and takes optimizer steps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc as std_mpsc;

use ata_learn::{Aggregate, Aggregator, Estimate, Partial, TrainingState};
use ata_types::{Iteration, LeaseId, TaskRange};
use ata_wire::{LeaseTimes, Pool, SpanLinks, TRACE_TARGET, TraceContext};
use tracing::debug_span;

use crate::parameters::ParameterSet;

/// Work for the thread.
pub(crate) enum Work {
    /// Add a lease's gradient to those of the next step.
    Add(Partial),
    /// Compare two results, and hand them back.
    Compare(Comparison),
    /// Take the step, now that all of its gradients were added.
    Step { iteration: u64, tasks: u64, rate: f64, with_product: bool, trace: Option<TraceContext> },
    /// Hand over a copy of the state after the last step.
    Copy(std_mpsc::SyncSender<TrainingState>),
}

/// Two results for the same tasks.
pub(crate) struct Comparison {
    pub(crate) tasks: TaskRange,
    pub(crate) results: [(LeaseId, Arrived); 2],
}

/// A result that arrived, and waits for the outcome of its lease.
pub(crate) struct Arrived {
    pub(crate) times: LeaseTimes,
    pub(crate) gradient: Partial,
    /// Whether its worker computes the same bits as others of which this is true.
    pub(crate) is_exact: bool,
}

/// What the thread reports.
pub(crate) enum Report {
    /// It took a step.
    Stepped(Stepped),
    /// It compared two results; tells whether they agree.
    Compared(Comparison, bool),
    /// It failed, and takes no more work.
    Failed,
}

/// A step that was taken.
#[derive(Debug)]
pub(crate) struct Stepped {
    pub(crate) iteration: u64,
    pub(crate) taken: Taken,
    /// Inner product of the step's mean gradient and the last one's, if the policy asked for it.
    pub(crate) gradient_product: Option<f64>,
    /// The parameters of the next iteration.
    pub(crate) parameters: ParameterSet,
}

/// What a step was, for the record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Mean loss of the step's tasks, in nats.
    pub(crate) loss: f64,
    pub(crate) learning_rate: f64,
    /// Of the mean gradient, before it was clipped, if it may be.
    pub(crate) gradient_norm: Option<f64>,
}

/// A handle to the thread, which ends when this is dropped.
pub(crate) struct TrainingThread {
    pub(crate) work: std_mpsc::Sender<Work>,
    /// Whether it was given a step that it has not reported on.
    pub(crate) is_stepping: bool,
}

impl TrainingThread {
    /// Gives the thread work. Returns `false` if it has failed, and will not do it.
    #[must_use]
    pub(crate) fn give(&mut self, work: Work) -> bool {
        let is_step = matches!(work, Work::Step { .. });
        let is_given = self.work.send(work).is_ok();
        self.is_stepping |= is_step && is_given;
        is_given
    }
}

/// Starts the thread. Returns it and the parameters of the next iteration.
///
/// It passes its reports to `report`, and gives buffers back to `pool`.
pub(crate) fn spawn(
    state: TrainingState,
    aggregate: Aggregate,
    pool: Pool,
    links: SpanLinks,
    report: impl Fn(Report) + Send + 'static,
) -> (TrainingThread, ParameterSet) {
    let initial = ParameterSet::new(Iteration(state.steps() + 1), state.parameters().to_vec(), &pool);
    let (work, receiver) = std_mpsc::channel();
    std::thread::Builder::new()
        .name("training".into())
        .spawn(move || {
            // A panic is printed, and the run must not wait forever for a step.
            if catch_unwind(AssertUnwindSafe(|| run(state, aggregate, &pool, links, &receiver, &report))).is_err() {
                report(Report::Failed);
            }
        })
        .expect("a thread can be started");
    (TrainingThread { work, is_stepping: false }, initial)
}

fn run(
    mut state: TrainingState,
    aggregate: Aggregate,
    pool: &Pool,
    links: SpanLinks,
    received: &std_mpsc::Receiver<Work>,
    report: &impl Fn(Report),
) {
    let mut aggregator = Aggregator::new(aggregate);
    for work in received {
        match work {
            Work::Add(partial) => aggregator.add(partial),
            Work::Compare(comparison) => {
                let [(_, one), (_, other)] = &comparison.results;
                let agree = one.gradient.agrees(&other.gradient, one.is_exact && other.is_exact);
                report(Report::Compared(comparison, agree));
            }
            Work::Step { iteration, tasks, rate, with_product, trace } => {
                let span = links.below(
                    trace,
                    || debug_span!(target: TRACE_TARGET, parent: None, "step", iteration, tasks, learning_rate = rate),
                );
                let estimate = aggregator.finish(tasks).expect("a step has gradients");
                let Estimate { mut gradient, divisor, loss } = estimate;
                let mut next = pool.take();
                let step = state.step(&mut gradient, divisor, rate, with_product, &mut next);
                pool.give(gradient);
                let parameters = ParameterSet::new(Iteration(iteration + 1), next, pool);
                let taken = Taken { loss, learning_rate: rate, gradient_norm: step.gradient_norm };
                let gradient_product = step.gradient_product;
                drop(span);
                report(Report::Stepped(Stepped { iteration, taken, gradient_product, parameters }));
            }
            // If nobody waits for it, the run is over.
            Work::Copy(copy) => drop(copy.send(state.clone())),
        }
        aggregator.spent().for_each(|spent| pool.give(spent));
    }
}
