//! The command `ata-dev bench`.

use std::path::PathBuf;

use ata::{Exit, Failure, print_json, print_text};
use clap::{Args, ValueEnum};
use tokio::task::block_in_place;

use super::{Figure, Subject, against, measure};

/// The flags of `ata-dev bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata-dev bench
  ata-dev bench allocation transport --json
  ata-dev bench gradient --against ../before/target/release/ata-dev")]
pub(crate) struct BenchArgs {
    /// The subjects to measure [default: everything].
    #[arg(value_enum)]
    pub(crate) subjects: Vec<Subject>,
    /// Measure another build of this program too, in turn with this one, and fail if a figure became 1.25 times as long.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) against: Option<PathBuf>,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures the subjects that the flags name, and prints the figures.
pub(crate) async fn command(args: BenchArgs) -> Result<Exit, Failure> {
    let subjects = if args.subjects.is_empty() { Subject::value_variants().to_vec() } else { args.subjects };
    if let Some(before) = args.against {
        return block_in_place(|| against::compare(&subjects, &before, args.json));
    }
    if !args.json {
        let head = format!("{:<52}{:>12}  {:<38}{:>12}{:>8}\n", "", "median", "reference", "median", "ratio");
        print_text(&head)?;
    }
    let mut figures = Vec::new();
    for subject in subjects {
        let measured = Box::pin(measure(subject)).await?;
        if !args.json {
            print_text(&measured.iter().map(line).collect::<String>())?;
        }
        figures.extend(measured);
    }
    if args.json {
        print_json(&figures)?;
    }
    Ok(Exit::DONE)
}

fn line(figure: &Figure) -> String {
    let Figure { name, seconds, reference, reference_seconds, ratio, samples_per_s } = figure;
    let rate = samples_per_s.map(|rate| format!("  {rate:.0} samples/s")).unwrap_or_default();
    let (own, of_reference) = (short(*seconds), short(*reference_seconds));
    format!("{name:<52}{own:>12}  {reference:<38}{of_reference:>12}{ratio:>8.2}{rate}\n")
}

pub(super) fn short(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}
