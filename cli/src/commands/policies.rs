//! `ata policies`: the scheduling policies and their parameters.

use ata_policies::POLICIES;
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::output::Output;

/// All policies.
#[derive(Serialize)]
#[serde(transparent)]
struct PolicyList(Vec<PolicyEntry>);

#[derive(Serialize)]
struct PolicyEntry {
    name: &'static str,
    about: &'static str,
    kind: String,
    parameters: &'static str,
}

pub(crate) fn run(json: bool) -> Result<Exit, Failure> {
    let entries = POLICIES.entries().iter().map(|policy| PolicyEntry {
        name: policy.name,
        about: policy.about,
        kind: policy.kind.to_string(),
        parameters: policy.parameters,
    });
    PolicyList(entries.collect()).print(json)?;
    Ok(Exit::DONE)
}

impl Output for PolicyList {
    fn text(&self) -> String {
        let entry = |PolicyEntry { name, about, kind, parameters }: &PolicyEntry| {
            format!("{name:<17}{about} ({kind})\n{:<17}parameters: {parameters}\n", "")
        };
        let entries: String = self.0.iter().map(entry).collect();
        format!("Policies, written --policy NAME or --policy NAME:key=value,key=value\n\n{entries}")
    }
}
