//! The engine and the policies, driven by events.

mod engine;
mod lockstep;
