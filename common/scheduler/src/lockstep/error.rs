//! Errors of a [`super::Lockstep`].

use super::members::MAX_WORKERS;
use crate::policy::{PolicyError, PolicyKind};
use ata_types::Iteration;

/// The reason why a call was refused. A refused call changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum LockstepError {
    /// There are no workers, or too many.
    #[error("{0} workers: expected 1 to {MAX_WORKERS}")]
    Workers(u32),
    /// The budget cannot be divided.
    #[error("budget {budget}: expected 1 to {most} tasks per iteration")]
    Budget {
        /// Tasks per iteration.
        budget: u64,
        /// The largest number that is allowed.
        most: u64,
    },
    /// The policy is unknown, or its parameters are wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy takes the first results for its steps.
    #[error(
        "policy '{policy}' is {kind}: it takes the first results, but here each step waits for all of them. \
         Use a barrier policy, such as ata-auto"
    )]
    NotABarrier {
        /// The policy's name.
        policy: &'static str,
        /// The policy's kind.
        kind: PolicyKind,
    },
    /// The policy does not decide on shares.
    #[error(
        "policy '{policy}' hands out tasks while an iteration runs, but here each worker gets one share before it. \
         Use a policy that decides on shares, such as ata-auto"
    )]
    WithoutShares {
        /// The policy's name.
        policy: &'static str,
    },
    /// A decision cannot be carried out.
    #[error("policy '{policy}' made an allocation that cannot be carried out in iteration {iteration}: {problem}")]
    Decision {
        /// The iteration.
        iteration: Iteration,
        /// The policy's name.
        policy: &'static str,
        /// What is wrong with the decision.
        problem: String,
    },
    /// All workers have left.
    #[error("no worker is present: one has to join first")]
    NobodyPresent,
    /// The worker has never joined.
    #[error("worker {worker} is unknown: there are {known} workers, numbered from 0")]
    Unknown {
        /// The worker.
        worker: usize,
        /// The number of workers that have joined.
        known: usize,
    },
    /// The worker is present already.
    #[error("worker {0} is present already")]
    Present(usize),
    /// The worker has left already.
    #[error("worker {0} is not present")]
    Absent(usize),
    /// An observation has no tasks, or too many.
    #[error("{tasks} tasks: expected 1 to {most}. A share of 0 is not observed")]
    Tasks {
        /// The number of tasks.
        tasks: u64,
        /// The largest number that is allowed.
        most: u64,
    },
    /// The time is negative, infinite or NaN.
    #[error("{seconds} seconds: expected a finite number of at least 0")]
    Seconds {
        /// The time, in seconds.
        seconds: f64,
    },
    /// There are too many observations without a decision.
    #[error("{0} observations since the last decision: begin the next iteration first")]
    Reports(usize),
}
