//! Holds back senders of chunks that cannot be stepped yet, so that the link is free for senders that are behind.

use ata_wire::Stripe;
use tokio::sync::watch;

/// The number of chunks that a sender may be ahead of the last stepped chunk, which is enough to keep a link busy for a round trip. Without
/// a limit, a step of four workers behind one link takes 18 % longer.
const AHEAD: u64 = 8;

/// The pace of a step: the first chunk that is not stepped yet, while a step is being taken.
#[derive(Debug, Default)]
pub(crate) struct StepPace(watch::Sender<Option<u64>>);

/// A follower of the step's pace, which waits until a chunk may be read.
#[derive(Clone, Debug)]
pub(crate) struct Paced(watch::Receiver<Option<u64>>);

impl StepPace {
    pub(crate) fn follow(&self) -> Paced {
        Paced(self.0.subscribe())
    }

    /// Sets the first chunk that is not stepped yet. With `None`, no step is being taken, and no sender has to wait.
    pub(super) fn set(&self, next: Option<u64>) {
        self.0.send_replace(next);
    }
}

impl Paced {
    pub(crate) fn may_pass(&self, chunk: u64, stripe: Stripe) -> bool {
        is_near(*self.0.borrow(), chunk, stripe)
    }

    pub(crate) async fn until(&mut self, chunk: u64, stripe: Stripe) {
        // If the training thread is gone, the run is over, which the session reports.
        drop(self.0.wait_for(|next| is_near(*next, chunk, stripe)).await);
    }
}

/// Returns whether a chunk is close to the next one to step. If senders send every n-th chunk, n of them send at the same time.
fn is_near(next: Option<u64>, chunk: u64, stripe: Stripe) -> bool {
    next.is_none_or(|next| chunk < next + AHEAD * stripe.stride)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn whoever_is_far_ahead_waits() {
        let pace = StepPace::default();
        let may_read = |chunk| {
            let mut paced = pace.follow();
            pin!(paced.until(chunk, Stripe::ALL)).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(may_read(1000), "no step is being taken");
        pace.set(Some(2));
        assert!(may_read(9) && !may_read(10));
        pace.set(Some(3));
        assert!(may_read(10));
    }
}
