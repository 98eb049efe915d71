//! Tests the engine event by event.

mod ahead;
mod asynchronous;
mod barrier;
mod batches;
mod blocked;
mod checks;
mod chosen_tasks;
mod collections;
mod drill;
mod leaving;
mod limits;
mod outages;
mod overcommit;
mod parts;
mod probes;
mod racing;
mod saving;
mod support;
mod warm_start;
