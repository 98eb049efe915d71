//! Tests of the program `ata` from the outside.

mod bad_input;
mod doctor;
mod endings;
mod examples;
mod extreme_simulations;
mod extremes;
mod faults;
mod fetch;
mod flags;
mod joining;
mod layout;
mod links;
mod logs;
mod new;
mod observing;
mod packing;
mod pipes;
mod plan;
mod reference;
mod resume;
mod simulate;
mod support;
mod system_limits;
mod terminal;
mod training;
