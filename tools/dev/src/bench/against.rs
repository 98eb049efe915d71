//! `ata-dev bench --against`: this build and an earlier one, measured in turn.

use std::path::Path;
use std::process::{Command, Stdio};

use ata::{Exit, Failure, print_json, print_text};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Subject;
use super::command::short;

/// How often each subject is measured with each build. The least of the times counts: what else runs only adds to them.
const PASSES: usize = 3;

/// A shared machine's least times of equal builds differ by up to a tenth, those of single operations by more.
const SLOWER: f64 = 1.25;

/// What is read of the other build's figures.
#[derive(Deserialize)]
struct Measured {
    name: String,
    seconds: f64,
}

/// A figure of both builds.
#[derive(Serialize)]
struct Compared {
    name: String,
    seconds: f64,
    before_seconds: f64,
    /// `seconds / before_seconds`: above 1 means slower than before.
    ratio: f64,
}

/// Measures the subjects with this program and with `before`, another build of it, and fails if something became slower.
pub(super) fn compare(subjects: &[Subject], before: &Path, json: bool) -> Result<Exit, Failure> {
    let this = std::env::current_exe().map_err(|error| Failure::disk(format!("cannot find this program: {error}")))?;
    if !json {
        print_text(&format!("{:<52}{:>12}{:>12}{:>8}\n", "", "before", "now", "ratio"))?;
    }
    let mut all = Vec::new();
    for subject in subjects {
        let (mut now, mut earlier) = (measured(&this, *subject)?, measured(before, *subject)?);
        for _ in 1..PASSES {
            keep_least(&mut earlier, measured(before, *subject)?);
            keep_least(&mut now, measured(&this, *subject)?);
        }
        let compared = pairs(now, &earlier);
        if !json {
            print_text(&compared.iter().map(line).collect::<String>())?;
        }
        all.extend(compared);
    }
    if json {
        print_json(&all)?;
    }
    match slower(&all).as_slice() {
        [] => Ok(Exit::DONE),
        names => Err(Failure::internal(format!("slower than {}: {}", before.display(), names.join("; ")))),
    }
}

fn slower(figures: &[Compared]) -> Vec<&str> {
    figures.iter().filter(|figure| figure.ratio > SLOWER).map(|figure| figure.name.as_str()).collect()
}

/// Runs `program bench SUBJECT --json`.
fn measured(program: &Path, subject: Subject) -> Result<Vec<Measured>, Failure> {
    let subject = subject.to_possible_value().expect("no subject is hidden");
    let failed =
        |cause: String| Failure::internal(format!("{} bench {}: {cause}", program.display(), subject.get_name()));
    let command = Command::new(program).args(["bench", subject.get_name(), "--json"]).stderr(Stdio::inherit()).output();
    let output = command.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

fn keep_least(of: &mut [Measured], others: Vec<Measured>) {
    for (least, other) in of.iter_mut().zip(others) {
        least.seconds = least.seconds.min(other.seconds);
    }
}

/// Pairs figures of one name; those that only one of the builds has are left out.
fn pairs(now: Vec<Measured>, before: &[Measured]) -> Vec<Compared> {
    let compared = |Measured { name, seconds }: Measured| {
        let before_seconds = before.iter().find(|figure| figure.name == name)?.seconds;
        Some(Compared { name, seconds, before_seconds, ratio: seconds / before_seconds })
    };
    now.into_iter().filter_map(compared).collect()
}

fn line(Compared { name, seconds, before_seconds, ratio }: &Compared) -> String {
    format!("{name:<52}{:>12}{:>12}{ratio:>8.2}\n", short(*before_seconds), short(*seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_both_builds_are_compared_by_their_least_times() {
        let figures = |times: &[(&str, f64)]| -> Vec<Measured> {
            times.iter().map(|&(name, seconds)| Measured { name: name.into(), seconds }).collect()
        };
        let mut now = figures(&[("new", 1.0), ("same", 3.0), ("slow", 1.4)]);
        keep_least(&mut now, figures(&[("new", 1.0), ("same", 2.0), ("slow", 1.3)]));
        let compared = pairs(now, &figures(&[("slow", 1.0), ("gone", 1.0), ("same", 2.0)]));
        let ratios: Vec<(&str, f64)> = compared.iter().map(|figure| (figure.name.as_str(), figure.ratio)).collect();
        assert_eq!(ratios, [("same", 1.0), ("slow", 1.3)]);
        assert_eq!(slower(&compared), ["slow"]);
    }
}
