// What the page knows of each run, and how messages change it.

const ENDED = new Set(["finished", "stopped", "failed"]);

const PHASES = {
  waiting: "◌ Waiting", training: "● Training", evaluating: "◍ Evaluating", finished: "✓ Finished", stopped: "■ Stopped", failed: "✕ Failed",
};

/** The names of stopping rules in words. That all iterations are done needs none: the line below says so. */
const STOPPING_RULES = {
  iterations: "",
  target_loss: "target loss reached",
  target_accuracy: "target accuracy reached",
  runtime: "limit of runtime reached",
  total_worker_time: "limit of total worker time reached",
  employments: "limit of workers used reached",
};

/** Kinds of events, where the name in the data says too little. */
const KINDS = { loss: "lost", rest: "rests", end: "ended", join: "joined", refusal: "refused" };

/** Results that came too late, which happens to honest workers whenever another one was faster. */
const LATE = "stale lease";

function newRun() {
  return {
    run: {}, phase: "waiting", detail: "", time_s: 0, totals: {}, allocation: null,
    steps: [], evaluations: [], heat: [], costs: [], log: [], logEnd: 0, workers: new Map(),
  };
}

/**
 * Adds a message to a run. A `complete` one replaces all there was. Returns which parts of the page changed, or null if messages
 * in between are missing, and then changes nothing.
 */
function merge(run, message, complete) {
  const series = { steps: message.steps?.points, evaluations: message.evaluations?.points, heat: message.heat?.columns };
  if (complete) {
    Object.assign(run, newRun());
  } else {
    const another = message.run && message.run.run_id !== run.run.run_id;
    const gap = Object.keys(series).some((part) => message[part]?.from > run[part].length);
    if (another || gap) return null;
  }
  const changed = new Set(["head"]);
  for (const part of ["run", "phase", "detail", "time_s", "totals", "allocation"]) run[part] = message[part] ?? run[part];
  for (const [part, added] of Object.entries(series)) {
    if (!added || (added.length === 0 && message[part].from >= run[part].length)) continue;
    run[part] = run[part].slice(0, message[part].from).concat(added);
    changed.add(part === "heat" ? "heat" : "charts");
  }
  for (const worker of message.workers ?? []) {
    run.workers.set(worker.number, worker);
    changed.add("workers");
  }
  if (message.allocation) changed.add("workers");
  if (message.costs && JSON.stringify(message.costs) !== JSON.stringify(run.costs)) {
    run.costs = message.costs;
    changed.add("costs");
  }
  if (message.log?.lines.length > 0) {
    mergeLog(run, message.log);
    changed.add("log");
  }
  return complete ? new Set(["head", "charts", "heat", "workers", "costs", "log"]) : changed;
}

/** Lines are counted since the run began; the server keeps the last 200, and so does the page. */
function mergeLog(run, { from, lines }) {
  const first = run.logEnd - run.log.length;
  const kept = from > run.logEnd ? [] : run.log.slice(0, Math.max(0, from - first));
  run.log = kept.concat(lines).slice(-200);
  run.logEnd = from + lines.length;
}

/** Iterations per second lately, while the run trains; over all of it afterwards. */
function pace(run) {
  const { iterations, runtime_s: runtime } = run.totals;
  const { steps } = run;
  if (!ENDED.has(run.phase) && steps.length > 2) {
    const [last, before] = [steps.at(-1), steps[Math.max(0, steps.length - 30)]];
    if (last[1] > before[1]) return (last[0] - before[0]) / (last[1] - before[1]);
  }
  return iterations > 0 && runtime > 0 ? iterations / runtime : null;
}

function phaseWords({ phase, detail }) {
  const reason = phase === "finished" ? STOPPING_RULES[detail] ?? detail : detail;
  return [PHASES[phase] ?? phase, reason].filter(Boolean).join(": ");
}

/** Kinds and counts of refused results that something is wrong with. */
const refusals = ({ refused }) => Object.entries(refused ?? {}).filter(([kind]) => kind !== LATE);

/** Names that tell the runs apart: the users’ or their policies, if these differ, else their ids. */
function labels(runs) {
  const choices = [({ labels = {} }) => labels.name, ({ policy }) => policy].map((of) => runs.map(({ run }) => of(run)));
  const names = choices.find((all) => all.every(Boolean) && new Set(all).size === runs.length);
  return runs.map(({ run }, place) => names?.[place] ?? run.run_id ?? `run ${place + 1}`);
}

const mean = (sum, count) => (sum != null && count > 0 ? sum / count : null);
