//! Holds back those who send chunks that cannot be stepped yet, so that the link is free for those who are behind.

use ata_wire::Stripe;
use tokio::sync::watch;

/// How many chunks a sender may be ahead of the last one that was stepped: enough to keep a link busy for a round trip. With four
/// workers behind one link, a step takes 18 % longer without a limit.
const AHEAD: u64 = 8;

/// The first chunk that was not stepped, while a step is being taken.
#[derive(Debug, Default)]
pub(crate) struct Pace(watch::Sender<Option<u64>>);

/// Waits for the pace of the step.
#[derive(Clone, Debug)]
pub(crate) struct Paced(watch::Receiver<Option<u64>>);

impl Pace {
    /// Follows it.
    pub(crate) fn follow(&self) -> Paced {
        Paced(self.0.subscribe())
    }

    /// Sets the first chunk that was not stepped; `None` while no step is being taken, when nobody has to wait.
    pub(super) fn set(&self, next: Option<u64>) {
        self.0.send_replace(next);
    }
}

impl Paced {
    /// Whether this chunk may be read now.
    pub(crate) fn may_pass(&self, chunk: u64, stripe: Stripe) -> bool {
        is_near(*self.0.borrow(), chunk, stripe)
    }

    /// Waits until this chunk may be read.
    pub(crate) async fn until(&mut self, chunk: u64, stripe: Stripe) {
        // Without a training thread the run is over, which the session reports.
        drop(self.0.wait_for(|next| is_near(*next, chunk, stripe)).await);
    }
}

/// Of those who send every n-th chunk, n send at the same time.
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
        let pace = Pace::default();
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
