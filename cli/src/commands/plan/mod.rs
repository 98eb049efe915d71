//! The command `ata plan`: predicts whether ata helps on given machines, and which of them are worth starting.

mod measured;
mod text;

use ata_plan::{Machine, Plan, PlanSpec, RoundSteps};
use ata_simulator::LinksSpec;
use ata_types::WireFormat;
use serde::Serialize;

use crate::Extensions;
use crate::args::PlanArgs;
use crate::failure::Failure;
use crate::output::{Counter, print};
use crate::settings::{LocalStepCount, Settings, parse_time_unit};
use measured::PlanMeasurements;

pub(crate) fn run(args: &PlanArgs, extensions: Extensions) -> Result<(), Failure> {
    let measured = PlanMeasurements::read(&args.from)?;
    let spec = spec(args, &measured)?;
    spec.check()?;
    let progress = Counter::new("simulated iterations", spec.total_iterations());
    let plan = spec.run(extensions.policies, &|done| progress.add(done))?;
    progress.finish();
    let answer = Answer { plan, links: spec.links, task_batch: measured.task_batch, local_steps: args.local_steps };
    print(args.json, &answer, || text::render(&answer))
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    plan: Plan,
    links: Option<LinksSpec>,
    task_batch: Option<u32>,
    #[serde(skip)]
    local_steps: Option<LocalStepCount>,
}

fn spec(args: &PlanArgs, measured: &PlanMeasurements) -> Result<PlanSpec, Failure> {
    let given = args.machines.iter().map(|text| Ok(text.parse::<Machine>()?));
    let machines = given.chain(measured.machines.iter().cloned().map(Ok)).collect::<Result<Vec<_>, Failure>>()?;
    let task_overhead_s = match args.task_overhead.as_deref() {
        None | Some("0") => 0.0,
        Some(text) => {
            parse_time_unit(text).map_err(|error| Failure::usage(format!("--task-overhead: {error}")))?.as_secs_f64()
        }
    };
    let mut links = links(args, measured)?;
    let (budget, noise) = (args.budget, args.noise_scale);
    let (first, most) = args.local_steps.unwrap_or_default().limits(budget);
    let most = if args.local_steps.is_none() { most.max(first) } else { most };
    let given = links.as_mut().and_then(|links| links.difference_bits.take());
    let difference_bits = given.unwrap_or_else(|| Settings::default().difference_bits);
    let rounds = RoundSteps { first, most, difference_bits };
    Ok(PlanSpec { machines, budget, links, rounds, task_overhead_s, noise })
}

fn links(args: &PlanArgs, measured: &PlanMeasurements) -> Result<Option<LinksSpec>, Failure> {
    let Some(link) = &args.links.link else {
        let flag = args.links.first_given();
        return flag.map_or(Ok(None), |flag| {
            let why = "it matters only with the rate of a link: add --link, as in --link 1Gbit";
            Err(Failure::usage(format!("{flag}: {why}")))
        });
    };
    let measured = measured.model_bytes.map(|bytes| format!("{}MB", bytes as f64 / 1e6));
    let missing = "--link: how long vectors travel depends on the model: add --model-bytes, as in --model-bytes 100MB";
    let model_bytes = args.links.model_bytes.clone().or(measured).ok_or_else(|| Failure::usage(missing))?;
    let links = LinksSpec { wire: WireFormat::Compact, ..LinksSpec::new(link.clone(), model_bytes) };
    args.links.apply(links).map(Some)
}
