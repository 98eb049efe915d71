//! ATA-Auto's repeated attempts with workers that became slower and have been idle since.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ata_types::WorkerId;

/// Workers that may be slow only for a while, such as one that was stopped over two iterations. The longer a worker has been
/// slow, the longer it is likely to stay slow: an event that did not occur in t iterations is expected at a rate of 1/t (Laplace's rule
/// of succession). So each worker is tried after 1, 2, 4, … iterations, which is one probe for each doubling.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Retries(BTreeMap<WorkerId, Retry>);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Retry {
    /// The first iteration in which the worker is tried.
    due: u64,
    /// The number of iterations until the attempt after that.
    wait: u64,
}

impl Retries {
    pub(super) fn changed(&mut self, worker: WorkerId, is_slower: bool) {
        if is_slower {
            self.0.insert(worker, Retry { due: 0, wait: 1 });
        } else {
            self.forget(worker);
        }
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.0.remove(&worker);
    }

    /// Returns the positions of the workers to try in iteration `k`. `position` returns those of present workers, and `is_used` whether a
    /// worker has tasks anyway.
    pub(super) fn due(
        &mut self,
        k: u64,
        position: impl Fn(WorkerId) -> Option<usize>,
        is_used: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut due = Vec::new();
        self.0.retain(|worker, retry| match position(*worker) {
            Some(i) if is_used(i) => false,
            Some(i) => {
                if retry.due <= k {
                    due.push(i);
                    *retry = Retry { due: k + retry.wait, wait: 2 * retry.wait };
                }
                true
            }
            None => true,
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rarer() {
        let mut retries = Retries::default();
        let [slow, used, away] = [0, 1, 2].map(WorkerId::from_slot);
        for worker in [slow, used, away] {
            retries.changed(worker, true);
        }
        let position = |worker: WorkerId| Some(worker.slot()).filter(|_| worker != away);
        let tried: Vec<u64> =
            (100..200).filter(|k| retries.due(*k, position, |i| i == used.slot()) == [slow.slot()]).collect();
        assert_eq!(tried, [100, 101, 103, 107, 115, 131, 163]);
        assert!(retries.0.keys().eq(&[slow, away]));
        retries.changed(slow, false);
        retries.forget(away);
        assert!(retries.0.is_empty());
    }
}
