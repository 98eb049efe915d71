//! Tests coordinators and workers in one process, over real connections, with faults.

mod batches;
mod connections;
mod data;
mod data_shards;
mod endings;
mod evaluations;
mod faults;
mod frames;
mod hostile;
mod kept;
mod limits;
mod machines;
mod names;
mod probes;
mod problem;
mod shards;
mod trust;
mod uploads;
