//! Tests of the coordinator: its driver on virtual time, and its checkpoints.

mod checkpoints;
mod driver;
