//! Renders a plan as text: two tables and a recommendation.

use ata_figures::Table;
use ata_plan::{Machine, PRICED_STEPS, Plan, PlannedEfficiency, PlannedRounds, StepCost, TaskSize, WORTHWHILE, Worth};
use ata_simulator::LinksSpec;
use ata_types::seconds;

use super::Answer;
use crate::escape::escaped;
use crate::output::render_table;

pub(super) fn render(answer: &Answer) -> String {
    let tables =
        [costs(answer), machines(answer)].iter().map(|table| render_table(table, usize::MAX)).collect::<String>();
    let advice = [Some(verdict(answer)), local_steps(answer), task_size(answer), efficiency(answer)];
    let advice = advice.into_iter().flatten().map(|line| escaped(&line).into_owned() + "\n");
    format!("{tables}\n{}", advice.collect::<String>())
}

fn costs(Answer { plan, links, .. }: &Answer) -> Table {
    let row = |name: String, cost: &StepCost| {
        let transfers = format!("{:.0} %", 100.0 * cost.transfer_share);
        vec![name, seconds(cost.step_s), seconds(cost.worker_time_s), transfers]
    };
    let machines = match plan.equal.machines {
        1 => "1 machine".into(),
        machines => format!("{machines} machines"),
    };
    Table {
        title: format!("{} tasks per step, {machines}, {}", plan.budget, network(links.as_ref())),
        header: ["", "time per step", "worker time", "transfers"].map(String::from).into(),
        rows: vec![
            row(format!("{} alone", plan.fastest), &plan.alone),
            row("equal shares".into(), &plan.equal),
            row("best fixed shares".into(), &plan.fixed),
            row("ata".into(), &plan.ata),
        ],
    }
}

fn network(links: Option<&LinksSpec>) -> String {
    let Some(LinksSpec { link, head_link, round_trip, model_bytes, wire, .. }) = links else {
        return "a network that takes no time (see --link)".into();
    };
    let head = head_link.as_ref().map_or(String::new(), |rate| format!(" (the coordinator's {rate})"));
    let away = round_trip.as_ref().map_or(String::new(), |time| format!(", round trips of {time}"));
    format!("links of {link}{head}{away}, a model of {model_bytes}, --wire {wire}")
}

fn machines(Answer { plan, .. }: &Answer) -> Table {
    let row = |Worth { machine, tasks, step_s, price, gain, .. }: &Worth| {
        let Machine { name, count, batch_s, task_s, .. } = machine;
        let name = if *count == 1 { name.clone() } else { format!("{count}x{name}") };
        let batch = batch_s.map_or(String::new(), |batch_s| format!("{} + ", seconds(batch_s)));
        // Adding zero turns a rounded -0 into 0.
        let gain = gain.map_or(String::new(), |gain| format!("{} %", (100.0 * gain).round() + 0.0));
        let mut row = vec![name, format!("{batch}{}", seconds(*task_s)), format!("{tasks:.1}"), seconds(*step_s), gain];
        row.extend(price.map(|price| format!("{price:.4}")));
        row
    };
    let header = ["machine", "a task", "tasks per step", "step with it and the faster ones", "shorter by"];
    let mut header: Vec<String> = header.map(String::from).into();
    let is_priced = plan.machines.iter().any(|worth| worth.price.is_some());
    header.extend(is_priced.then(|| format!("{PRICED_STEPS} such steps cost")));
    Table { title: "What each adds to ata".into(), header, rows: plan.machines.iter().map(row).collect() }
}

/// Renders whether ata helps, and with which machines.
fn verdict(Answer { plan, .. }: &Answer) -> String {
    let (alone_s, ata_s, name) = (plan.alone.step_s, plan.started_step_s, &plan.fastest);
    if ata_s > alone_s * (1.0 - WORTHWHILE) {
        let [alone, ata] = [alone_s, ata_s].map(seconds);
        let with =
            if plan.local_steps.as_ref().is_some_and(|rounds| rounds.is_worth_it) { " with gradients" } else { "" };
        return format!(
            "ata does not help here{with}: a step takes {alone} on {name} alone, and {ata} with ata on {}.",
            started(plan)
        );
    }
    let times = |other_s: f64| format!("{:.2} times", other_s / ata_s);
    let is_all = plan.machines.iter().all(|worth| worth.start == worth.machine.count);
    let rest = format!(" More machines shorten a step by less than {:.0} %.", 100.0 * WORTHWHILE);
    format!(
        "Start {}: {} per step, {} as fast as {name} alone, and {} as fast as equal shares on all machines.{}",
        started(plan),
        seconds(ata_s),
        times(alone_s),
        times(plan.equal.step_s),
        if is_all { "" } else { &rest }
    )
}

fn started(plan: &Plan) -> String {
    let name = |Worth { machine: Machine { name, count, .. }, start, .. }: &Worth| match (start, count) {
        (1, 1) => name.clone(),
        (start, count) if start == count => format!("all {count} {name}"),
        (start, count) => format!("{start} of {count} {name}"),
    };
    let started: Vec<String> = plan.machines.iter().filter(|worth| worth.start > 0).map(name).collect();
    started.join(", ")
}

/// Renders what local steps would compute, if they are asked for or worth it.
fn local_steps(Answer { plan, local_steps: asked, .. }: &Answer) -> Option<String> {
    let rounds = plan.local_steps.as_ref().filter(|rounds| rounds.is_worth_it || asked.is_some())?;
    let PlannedRounds { steps, round_s, tasks_per_s, equal_tasks_per_s, not_worth_it_at, .. } = rounds;
    let tasks = plan.budget as f64;
    let [alone, gradients] = [plan.alone.step_s, plan.ata.step_s].map(|step_s| tasks_per_s * step_s / tasks);
    let worth = match not_worth_it_at {
        Some(factor) => format!(" On links {factor} times as fast, these would do."),
        None if !rounds.is_worth_it && alone >= 1.0 => " More is learned from each task of these.".into(),
        None => String::new(),
    };
    Some(format!(
        "--local-steps {}: {tasks_per_s:.1} tasks per second on all machines, in rounds of {steps:.0} steps and {}. That is {alone:.2} times as \
         many as on {} alone, {:.2} times as many as with equal shares, and {gradients:.2} times as many as with gradients.{worth}",
        asked.unwrap_or_default(),
        seconds(*round_s),
        plan.fastest,
        tasks_per_s / equal_tasks_per_s
    ))
}

fn task_size(Answer { plan, task_batch, .. }: &Answer) -> Option<String> {
    let TaskSize { size, budget, step_s } = plan.task_size.as_ref()?;
    let samples = match task_batch.map(|samples| f64::from(samples) * size) {
        Some(samples) if samples >= 1.0 && samples.fract() == 0.0 => format!("--task-batch {samples}"),
        _ if *size < 1.0 => format!("1/{} of the samples per task (--task-batch)", 1.0 / size),
        _ => format!("{size} times the samples per task (--task-batch)"),
    };
    let why = if *size < 1.0 { "Smaller tasks divide better" } else { "Larger tasks have less overhead" };
    Some(format!("{why}: --budget {budget} with {samples} takes {} per step on all machines.", seconds(*step_s)))
}

fn efficiency(Answer { plan, .. }: &Answer) -> Option<String> {
    let PlannedEfficiency { speed_up, speeds, budget, best_speed_up } = plan.efficiency.as_ref()?;
    let percent = 100.0 * speed_up / speeds;
    let better =
        budget.map_or(String::new(), |budget| format!(" With --budget {budget}, it is {best_speed_up:.2} times."));
    Some(format!(
        "By the noise of gradients, a second of ata on all machines achieves {speed_up:.2} times what the best one alone does: {percent:.0} % \
         of the sum of speeds, {speeds:.2}.{better}"
    ))
}
