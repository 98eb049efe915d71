//! Tests of the contributors' commands: faults, and the generated pages.

mod chaos;
mod reference;
#[path = "../../../../cli/tests/suite/support/mod.rs"]
mod support;
