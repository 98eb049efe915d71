//! Tests of the contributors' commands: benchmarks, faults, and the generated pages.

mod bench;
mod chaos;
mod reference;
#[path = "../../../../cli/tests/suite/support/mod.rs"]
mod support;
