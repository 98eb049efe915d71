//! `ata bench`.
use crate::args::BenchArgs;
use crate::failure::Failure;
use std::process::ExitCode;
pub(crate) async fn run(_args: BenchArgs) -> Result<ExitCode, Failure> {
    Err(Failure::internal("x"))
}
