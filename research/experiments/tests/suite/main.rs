//! Tests of whole experiments, from files to tables.

mod ata_auto;
mod experiments;
mod mutated;
mod surprises;
