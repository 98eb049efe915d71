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
    Step(StepOrder),
    /// Hand over a copy of the state after the last step.
    Copy(std_mpsc::SyncSender<TrainingState>),
}

/// A step to take.
pub(crate) struct StepOrder {
    pub(crate) iteration: Iteration,
    /// Number of tasks whose gradients were added.
    pub(crate) tasks: u64,
    pub(crate) learning_rate: f64,
    /// Whether the inner product with the last step's gradient is wanted.
    pub(crate) with_product: bool,
    /// The span of the iteration.
    pub(crate) trace: Option<TraceContext>,
}

/// Two results for the same tasks.
pub(crate) struct Comparison {
    pub(crate) tasks: TaskRange,
    pub(crate) results: [(LeaseId, ReceivedGradient); 2],
}

/// A result that the engine accepted, until it is known how its lease ends.
pub(crate) struct ReceivedGradient {
    pub(crate) times: LeaseTimes,
    pub(crate) gradient: Partial,
    /// Whether its worker computes the same bits as other exact workers.
    pub(crate) is_exact: bool,
}

/// A message from the thread.
pub(crate) enum TrainingEvent {
    /// It took a step.
    Step(StepResult),
    /// It compared two results, which agree or not.
    Comparison(Comparison, bool),
    /// It failed, and takes no more work.
    Failed,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) struct StepResult {
    pub(crate) iteration: Iteration,
    pub(crate) figures: StepFigures,
    /// Inner product of the step's mean gradient and the last one's, if the policy asked for it.
    pub(crate) gradient_product: Option<f64>,
    /// The parameters of the next iteration.
    pub(crate) parameters: ParameterSet,
}

/// The figures of a step, for the record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepFigures {
    /// Mean loss of the step's tasks, in nats.
    pub(crate) loss: f64,
    pub(crate) learning_rate: f64,
    /// Norm of the mean gradient before it was clipped, if it may be.
    pub(crate) gradient_norm: Option<f64>,
}

/// Starts the thread, which ends when the returned sender is dropped. Also returns the parameters of the next iteration.
///
/// The thread passes its messages to `report`, and gives buffers back to `pool`.
pub(crate) fn spawn(
    state: TrainingState,
    aggregate: Aggregate,
    pool: Pool,
    links: SpanLinks,
    report: impl Fn(TrainingEvent) + Send + 'static,
) -> (std_mpsc::Sender<Work>, ParameterSet) {
    let initial = ParameterSet::new(Iteration(state.steps()).next(), state.parameters().to_vec(), &pool);
    let (work, receiver) = std_mpsc::channel();
    std::thread::Builder::new()
        .name("training".into())
        .spawn(move || {
            // A panic is printed, and the run must not wait forever for a step.
            if catch_unwind(AssertUnwindSafe(|| run(state, aggregate, &pool, links, &receiver, &report))).is_err() {
                report(TrainingEvent::Failed);
            }
        })
        .expect("a thread can be started");
    (work, initial)
}

fn run(
    mut state: TrainingState,
    aggregate: Aggregate,
    pool: &Pool,
    links: SpanLinks,
    received: &std_mpsc::Receiver<Work>,
    report: &impl Fn(TrainingEvent),
) {
    let mut aggregator = Aggregator::new(aggregate);
    for work in received {
        match work {
            Work::Add(partial) => aggregator.add(partial),
            Work::Compare(comparison) => {
                let [(_, one), (_, other)] = &comparison.results;
                let agree = one.gradient.agrees(&other.gradient, one.is_exact && other.is_exact);
                report(TrainingEvent::Comparison(comparison, agree));
            }
            Work::Step(order) => report(TrainingEvent::Step(step(&order, &mut state, &mut aggregator, pool, links))),
            // Without a receiver, the run is over.
            Work::Copy(copy) => drop(copy.send(state.clone())),
        }
        aggregator.spent().for_each(|spent| pool.give(spent));
    }
}

fn step(
    order: &StepOrder,
    state: &mut TrainingState,
    aggregator: &mut Aggregator,
    pool: &Pool,
    links: SpanLinks,
) -> StepResult {
    let &StepOrder { iteration, tasks, learning_rate, with_product, trace } = order;
    let _span = links.below(trace, || {
        let iteration = iteration.number();
        debug_span!(target: TRACE_TARGET, parent: None, "step", iteration, tasks, learning_rate)
    });
    let Estimate { mut gradient, divisor, loss } = aggregator.finish(tasks).expect("a step has gradients");
    let mut next = pool.take();
    let step = state.step(&mut gradient, divisor, learning_rate, with_product, &mut next);
    pool.give(gradient);
    StepResult {
        iteration,
        figures: StepFigures { loss, learning_rate, gradient_norm: step.gradient_norm },
        gradient_product: step.gradient_product,
        parameters: ParameterSet::new(iteration.next(), next, pool),
    }
}
