//! The engine in virtual time: under faults, over links, with extreme numbers.

mod affine;
mod competitors;
mod extremes;
mod failures;
mod faults;
mod links;
mod lockstep;
mod mutated;
mod published_figures;
mod saved;
