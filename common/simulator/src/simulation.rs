//! A virtual cluster, and the changes that happen to it.

use ata_scheduler::{Engine, WorkerStatistics};
use ata_types::WorkerId;

use crate::change::{Change, Moment};
use crate::cluster::{LinkedCluster, RemoteCluster, VirtualWorkers};
use crate::drive::VirtualDriver;
use crate::error::SimulationError;
use crate::links::Links;
use crate::network::VirtualNetwork;
use crate::observer::Observer;
use crate::times::TaskTimes;

/// The largest number of tasks per iteration: a million take 130 MB.
pub const MAX_BUDGET: u64 = 1_000_000;

/// A virtual cluster, and the changes that happen to it.
#[derive(Debug)]
pub struct Simulation<T> {
    /// The number of workers, n. All are present from the start, except those whose first change of membership is a
    /// [`Change::Join`].
    pub workers: u32,
    /// The times of tasks.
    pub times: T,
    /// The cost of each assignment before computation begins, if there is any: communication.
    pub overhead: Option<T>,
    /// Changes in any order, except that those of one worker are in the order in which they happen.
    pub changes: Vec<(Moment, Change)>,
    /// What is known about each worker beforehand, by slot; may be shorter than `workers`.
    pub priors: Vec<WorkerStatistics>,
    /// The network between workers and coordinator; without one, they exchange messages at once.
    pub network: Option<VirtualNetwork>,
    /// The links that gradients and parameters travel on; without them, vectors take no time. They are for runs without a
    /// network, which has delays of its own.
    pub links: Option<Links>,
}

impl<T: TaskTimes> Simulation<T> {
    /// Creates a cluster without overhead, changes, priors, a network or links.
    pub fn new(workers: u32, times: T) -> Self {
        Self { workers, times, overhead: None, changes: Vec::new(), priors: Vec::new(), network: None, links: None }
    }

    /// Returns the number of workers that are present from the start.
    pub fn present_at_first(&self) -> usize {
        self.at_first().len()
    }

    fn at_first(&self) -> Vec<WorkerId> {
        let mut joins_late = vec![None; self.workers as usize];
        for (_, change) in &self.changes {
            if let Change::Leave(worker) | Change::Join(worker) = change
                && let Some(joins_late) = joins_late.get_mut(worker.slot())
            {
                joins_late.get_or_insert(matches!(change, Change::Join(_)));
            }
        }
        let at_first = joins_late.iter().enumerate().filter(|(_, joins_late)| **joins_late != Some(true));
        at_first.map(|(slot, _)| WorkerId::from_slot(slot)).collect()
    }

    /// Runs `engine` to its end, as `observer` decides.
    ///
    /// Returns the virtual time at the end.
    ///
    /// # Panics
    /// If there are both a network and links.
    pub fn run(&mut self, engine: &mut Engine, observer: &mut impl Observer) -> Result<f64, SimulationError> {
        let at_first = self.at_first();
        let workers = VirtualWorkers::new(self.workers, &mut self.times, self.overhead.as_mut());
        match (&mut self.network, self.links) {
            (None, None) => VirtualDriver::new(engine, observer, workers, &self.changes, &self.priors).run(&at_first),
            (None, Some(links)) => {
                let cluster = LinkedCluster::new(workers, self.workers, links);
                engine.know_links(cluster.links.setting());
                VirtualDriver::new(engine, observer, cluster, &self.changes, &self.priors).run(&at_first)
            }
            (Some(_), Some(_)) => panic!("links are for runs without a network"),
            (Some(network), None) => {
                let cluster = RemoteCluster::new(workers, self.workers, network);
                VirtualDriver::new(engine, observer, cluster, &self.changes, &self.priors).run(&at_first)
            }
        }
    }
}
