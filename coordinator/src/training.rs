//! The thread that sums gradients, takes optimizer steps and evaluates.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc as std_mpsc;

use ata_learn::{DataError, Dataset, Evaluation, Partial, Reduction, Trainer};
use tokio::sync::oneshot;

use crate::parameters::ParameterSet;

/// Work for the thread.
pub(crate) enum Work {
    /// Add a lease's gradient to the sum for the next step.
    Add(Partial),
    /// Take the step, now that all of its gradients were added.
    Step { iteration: u64, tasks: u64, lr_factor: f64 },
    /// Evaluate the parameters on this data.
    Evaluate { data: Dataset, reply: oneshot::Sender<Result<Evaluation, DataError>> },
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
    /// Inner product of the step's mean gradient and the last one's.
    pub(crate) gradient_product: Option<f64>,
    /// The parameters of the next iteration.
    pub(crate) parameters: ParameterSet,
}

/// Starts the thread. Returns the sender of its work, and the parameters of iteration 1.
///
/// It passes its reports to `report`, and ends when the returned sender is dropped.
pub(crate) fn spawn(
    trainer: Box<dyn Trainer>,
    report: impl Fn(Report) + Send + 'static,
) -> (std_mpsc::Sender<Work>, ParameterSet) {
    let initial = ParameterSet::new(1, trainer.parameters());
    let (sender, receiver) = std_mpsc::channel();
    std::thread::Builder::new()
        .name("training".into())
        .spawn(move || {
            // burn panics if a device fails; the panic is printed, and the run must not wait forever for a step.
            if catch_unwind(AssertUnwindSafe(|| work(trainer, &receiver, &report))).is_err() {
                report(Report::Failed);
            }
        })
        .expect("a thread can be started");
    (sender, initial)
}

fn work(mut trainer: Box<dyn Trainer>, received: &std_mpsc::Receiver<Work>, report: &impl Fn(Report)) {
    let mut reduction = Reduction::default();
    let mut last_gradient = None;
    for work in received {
        match work {
            Work::Add(partial) => reduction.add(partial),
            Work::Step { iteration, tasks, lr_factor } => {
                let sum = std::mem::take(&mut reduction).finish().expect("a step has gradients");
                report(Report::Stepped(step(&mut *trainer, iteration, tasks, lr_factor, sum, &mut last_gradient)));
            }
            // The receiver may no longer be waiting for it.
            Work::Evaluate { data, reply } => drop(reply.send(trainer.evaluate(&data))),
        }
    }
}

fn step(
    trainer: &mut dyn Trainer,
    iteration: u64,
    tasks: u64,
    lr_factor: f64,
    sum: Partial,
    last_gradient: &mut Option<Vec<f32>>,
) -> Stepped {
    let mut mean = sum.gradient;
    let divisor = tasks as f32;
    for value in &mut mean {
        *value /= divisor;
    }
    trainer.step(&mean, lr_factor);
    let gradient_product = last_gradient.as_ref().map(|last| inner_product(&mean, last));
    *last_gradient = Some(mean);
    let parameters = ParameterSet::new(iteration + 1, trainer.parameters());
    Stepped { iteration, loss: sum.loss / tasks as f64, gradient_product, parameters }
}

fn inner_product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}
