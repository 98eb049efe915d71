//! The thread that sums gradients and takes optimizer steps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc as std_mpsc;

use ata_learn::{Partial, Reduction, TrainingState};
use ata_wire::Pool;

use crate::parameters::ParameterSet;

/// Work for the thread.
pub(crate) enum Work {
    /// Add a lease's gradient to the sum for the next step.
    Add(Partial),
    /// Take the step, now that all of its gradients were added.
    Step { iteration: u64, tasks: u64, rate: f64, with_product: bool },
    /// Hand over a copy of the state after the last step.
    Copy(Box<dyn FnOnce(TrainingState) + Send>),
}

/// What the thread reports.
pub(crate) enum Report {
    /// It took a step.
    Stepped(Stepped),
    /// It failed, and takes no more work.
    Failed,
}

/// A step that was taken.
#[derive(Debug)]
pub(crate) struct Stepped {
    pub(crate) iteration: u64,
    /// Mean loss of the step's tasks, in nats.
    pub(crate) loss: f64,
    /// Inner product of the step's mean gradient and the last one's, if the policy asked for it.
    pub(crate) gradient_product: Option<f64>,
    /// The parameters of the next iteration.
    pub(crate) parameters: ParameterSet,
}

/// Starts the thread. Returns the sender of its work, and the parameters of the next iteration.
///
/// It passes its reports to `report`, gives buffers back to `pool`, and ends when the returned sender is dropped.
pub(crate) fn spawn(
    state: TrainingState,
    pool: Pool,
    report: impl Fn(Report) + Send + 'static,
) -> (std_mpsc::Sender<Work>, ParameterSet) {
    let initial = ParameterSet::new(state.steps() + 1, state.parameters().to_vec(), &pool);
    let (sender, receiver) = std_mpsc::channel();
    std::thread::Builder::new()
        .name("training".into())
        .spawn(move || {
            // A panic is printed, and the run must not wait forever for a step.
            if catch_unwind(AssertUnwindSafe(|| work(state, &pool, &receiver, &report))).is_err() {
                report(Report::Failed);
            }
        })
        .expect("a thread can be started");
    (sender, initial)
}

fn work(mut state: TrainingState, pool: &Pool, received: &std_mpsc::Receiver<Work>, report: &impl Fn(Report)) {
    let mut reduction = Reduction::default();
    for work in received {
        match work {
            Work::Add(partial) => reduction.add(partial),
            Work::Step { iteration, tasks, rate, with_product } => {
                let Partial { mut gradient, loss, .. } = reduction.finish().expect("a step has gradients");
                let loss = loss / tasks as f64;
                let mut next = pool.take();
                let gradient_product = state.step(&mut gradient, tasks, rate, with_product, &mut next);
                pool.give(gradient);
                let parameters = ParameterSet::new(iteration + 1, next, pool);
                report(Report::Stepped(Stepped { iteration, loss, gradient_product, parameters }));
            }
            Work::Copy(then) => then(state.clone()),
        }
        reduction.spent().for_each(|spent| pool.give(spent));
    }
}
