//! The flags of `ata new`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata new my-problem && cd my-problem
  cargo run --release -- up
  cargo test --release")]
pub(crate) struct NewArgs {
    /// The crate's folder, which must not exist yet; its name is that of the crate.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// The folder of ata's sources to build it with [default: the release that this program is of, or the sources that it was built
    /// from].
    #[arg(long, value_name = "DIR")]
    pub(crate) ata: Option<PathBuf>,
}
