//! The commands `ata completions` and `ata man`.

use std::path::Path;

use clap_complete::Shell;

use crate::args::command;
use crate::failure::Failure;
use crate::output::print_text;

pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "ata", &mut script);
    print_text(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(out: &Path) -> Result<(), Failure> {
    let failed = |cause: std::io::Error| Failure::disk(format!("cannot write to {}: {cause}", out.display()));
    std::fs::create_dir_all(out).map_err(failed)?;
    clap_mangen::generate_to(command(), out).map_err(failed)
}
