//! The command `ata policies`: lists the scheduling policies and their parameters.

use ata_policies::POLICIES;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::print;

#[derive(Serialize)]
struct PolicyRow {
    name: &'static str,
    about: &'static str,
    kind: String,
    parameters: &'static str,
}

pub(crate) fn run(json: bool) -> Result<(), Failure> {
    let entries = POLICIES.entries().iter().map(|policy| PolicyRow {
        name: policy.name,
        about: policy.about,
        kind: policy.kind.to_string(),
        parameters: policy.parameters,
    });
    let policies: Vec<PolicyRow> = entries.collect();
    print(json, &policies, || text(&policies))
}

fn text(policies: &[PolicyRow]) -> String {
    let entry = |PolicyRow { name, about, kind, parameters }: &PolicyRow| {
        format!("{name:<17}{about} ({kind})\n{:<17}parameters: {parameters}\n", "")
    };
    let entries: String = policies.iter().map(entry).collect();
    format!("Policies, written --policy NAME or --policy NAME:key=value,key=value\n\n{entries}")
}
