//! `ata policies`: the scheduling policies and their parameters.

use std::process::ExitCode;

use ata_scheduler::POLICIES;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::print_json;

#[derive(Serialize)]
struct Line {
    name: &'static str,
    about: &'static str,
    kind: String,
    parameters: &'static str,
}

pub(crate) fn run(json: bool) -> Result<ExitCode, Failure> {
    if json {
        let lines: Vec<Line> = POLICIES
            .iter()
            .map(|policy| Line {
                name: policy.name,
                about: policy.about,
                kind: policy.kind.to_string(),
                parameters: policy.parameters,
            })
            .collect();
        print_json(&lines)?;
    } else {
        println!("Policies, written --policy NAME or --policy NAME:key=value,key=value\n");
        for policy in POLICIES {
            println!(
                "{:<17}{} ({})\n{:<17}parameters: {}",
                policy.name, policy.about, policy.kind, "", policy.parameters
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
