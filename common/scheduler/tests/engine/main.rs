//! The engine, event by event.

mod asynchronous;
mod barrier;
mod batches;
mod checks;
mod held_up;
mod limits;
mod overcommit;
mod parts;
mod probes;
mod racing;
mod support;
mod warm_start;
