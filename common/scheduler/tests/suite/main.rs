//! The engine and the policies, driven by events.

mod chaos;
mod engine;
mod lockstep;
mod unruly;
