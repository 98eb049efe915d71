// The runs that the checks show, by name. Each call makes a new one.

import { SimulatedRun } from "./simulated-run.mjs";

/** As long as a name may be, and with markup that must stay text. */
const longName = (number) =>
  `gpu-node-${String(number).padStart(4, "0")}.rack-${number % 12}.row-b.datacentre-north.example-research.internal` +
  "<img src=x onerror=alert(1)>";

const FAILURE =
  "task 17 of iteration 51 failed on three different workers: worker 1: the gradient is not finite; " +
  "worker 2: out of memory (cuda:0, 81,559 MiB); worker 3: the gradient is not finite";

/** Nine workers with long names, of which one is expelled and one rests, and refused results. */
function long() {
  const run = new SimulatedRun({
    workers: 9, nameOf: longName, seed: 9, hasPrice: true, hasEnergy: true,
    run_id: "a-very-long-run-name-that-somebody-chose-20261122-081918-ata-auto-7dc0",
    refused: { "stale lease": 40, "not finite": 2, "wrong size": 1 },
  }).train(60);
  Object.assign(run.members[3].row, { state: "expelled", tasks: 0, mean_s: null, low_s: null, high_s: null });
  Object.assign(run.members[4].row, { state: "resting", tasks: 0, rest_left_s: 12.5 });
  return run;
}

export const SCENARIOS = {
  four: () => new SimulatedRun().train(120),
  finished: () => new SimulatedRun().train(200),
  "target-loss": () => new SimulatedRun({ seed: 2 }).train(150).end("finished", "target_loss"),
  failed: () => new SimulatedRun({ seed: 4 }).train(50).end("failed", FAILURE),
  waiting: () => new SimulatedRun(),
  first: () => new SimulatedRun({ about: "tasks go first to 4 workers without a measured task (warm-up)" }).train(1),
  /** Without accuracy and learning rate, of one sample per task, and with a ninth number. */
  plain: () => new SimulatedRun({
    seed: 3, policy: "uta", task_batch: 1, samples: null, hasResources: false, hasAccuracy: false, hasLearningRate: false, hasPrice: true,
  }).train(80),
  long,
  /** Few of 60 workers have tasks; one iteration took as long as a hundred. */
  sixty: () => {
    const run = new SimulatedRun({ workers: 60, iterations: 400, seed: 8, name: "baseline of <b>Monday</b>", skipped: 3 }).train(300);
    run.steps[211][4] *= 100;
    return run;
  },
  /** All of 500 workers are tried, and most have tasks. */
  many: () => new SimulatedRun({ workers: 500, budget: 512, iterations: 400, seed: 5, hasPrice: true, hasEnergy: true }).train(150),
  /** Few of 500 workers ever have tasks. */
  crowd: () => new SimulatedRun({ workers: 500, iterations: 400, seed: 5 }).train(150),
  million: () => new SimulatedRun({ seed: 6, iterations: 1_000_000, stride: 1000, task_s: 0.2 }).train(930),
};

/** Three runs side by side. */
export function compared() {
  return [
    new SimulatedRun({ index: 0, policy: "ata-auto", seed: 1 }).train(200),
    new SimulatedRun({ index: 1, policy: "uta", seed: 2, workers: 5, task_s: 0.0036, hasPrice: true, hasEnergy: true }).train(200),
    new SimulatedRun({ index: 2, policy: "gta", seed: 3, workers: 6, task_s: 0.0014 }).train(140),
  ];
}
