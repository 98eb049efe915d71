// A run of simulated workers that writes the messages of the page, as src/view/message.rs does: `complete()` is the first message,
// `increment()` a later one. The same arguments make the same run. It allocates as ata does, whatever its policy is called.

/** Columns of the heat map, at most; then each two become one. */
const MOST_COLUMNS = 120;
/** Lines of events that a message holds, at most. */
const MOST_LINES = 200;
/** Iterations from one probe to the next, if a worker is free for it. */
const PROBE_EVERY = 20;
const DEVICES = ["cpu", "wgpu:0 NVIDIA H100 80GB HBM3", "cuda:1", "wgpu:0 AMD Radeon RX 7900 XTX (RADV NAVI31)"];

/** Other policies' labels, names, factors on runtime and on total worker time, and wasted tasks. */
const OTHERS = [
  ["best for known speeds (fta)", "fta", 0.917, 1.163, 0],
  ["by moving means (ema)", "ema", 0.95, 1.22, 0],
  ["from a queue (pull)", "pull", 1.68, 1.73, 0],
  ["greedy (gta)", "gta", 1.62, 3.54, 3],
  ["uniform (uta)", "uta", 2.15, 2.24, 0],
  ["asynchronous (asgd)", "asgd", 22, 54, 120],
];

const DEFAULTS = {
  run_id: null,
  policy: "ata-auto",
  workers: 4,
  budget: 16,
  iterations: 200,
  /** Iterations that each simulated one stands for: a run of a million need not be simulated. */
  stride: 1,
  task_batch: 6,
  seed: 1,
  index: 0,
  /** Seconds of a task on the fastest worker. */
  task_s: 0.0017,
  name: undefined,
  samples: 50_000,
  skipped: 0,
  hasResources: true,
  about: "tasks are allocated so that the last worker is expected to finish as early as possible",
  nameOf: (number) => `worker-${number}`,
  hasAccuracy: true,
  hasLearningRate: true,
  hasPrice: false,
  hasEnergy: false,
  refused: { "stale lease": 40 },
};

/** Numbers from 0 to 1 that look random (a linear congruential generator, constants of Numerical Recipes). */
function randomNumbers(seed) {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function newWorker(number, options) {
  const few = options.workers <= 4;
  // Few workers differ by factors of two; many have speeds from 1 to 9, shuffled by a prime.
  const slowness = few ? 2 ** (number - 1) : 1 + (((number - 1) * 37) % options.workers) * (8 / options.workers);
  const row = {
    number, name: options.nameOf(number), device: few ? "cpu" : DEVICES[(number - 1) % DEVICES.length],
    state: "idle", tasks: 0, probe: false, observed: 0, mean_s: null, low_s: null, high_s: null, bound_s: null, applied: 0, probes: 0,
    busy_share: 0, overhead_share: 0, idle_share: 1, failures: 0, rests: 0, losses: 0, rest_left_s: 0, cpu_cores: null, memory_bytes: null, traffic_bytes_per_s: null, price: null, energy_wh: null,
    why: `Worker ${number} has no task: it has not been tried.`,
  };
  return { row, task_s: options.task_s * slowness, busy_s: 0 };
}

export class SimulatedRun {
  constructor(options = {}) {
    Object.assign(this, DEFAULTS, options);
    this.run_id ??= `20261122-081918-${this.policy}-${String(this.seed).padStart(4, "0")}`;
    this.random = randomNumbers(this.seed * 7919);
    this.members = Array.from({ length: this.workers }, (_, place) => newWorker(place + 1, this));
    Object.assign(this, { phase: "waiting", detail: `0 of ${this.workers} workers present`, present: 0 });
    Object.assign(this, { iteration: 0, runtime_s: 0, worker_time_s: 0, wasted: 0, saved: null, loss: null, first_loss: null });
    Object.assign(this, { steps: [], evaluations: [], columns: [], columnSize: 1, lines: [], sent: null });
    this.write("info", `run ${this.run_id} began, policy ${this.policy}`);
  }

  write(kind, words) {
    this.lines.push([this.runtime_s, kind, words]);
  }

  /** All workers join, and training begins. */
  join() {
    for (const { row } of this.members) this.write("join", `worker ${row.number} (${row.name}) joined, on ${row.device}`);
    Object.assign(this, { phase: "training", detail: "", present: this.workers });
    return this;
  }

  /** Trains for some iterations, or until the last one. */
  train(iterations) {
    if (this.phase === "waiting") this.join();
    for (let k = 0; k < iterations && this.phase === "training"; k++) this.iterate();
    return this;
  }

  /** Ends the run. */
  end(phase, detail) {
    Object.assign(this, { phase, detail });
    this.write("end", `the run is ${phase}: ${detail}`);
    for (const { row } of this.members) Object.assign(row, { tasks: 0, probe: false, state: "away" });
    return this;
  }

  iterate() {
    this.iteration += this.stride;
    const allocation = this.allocate();
    const iteration_s = this.compute(allocation);
    this.runtime_s += iteration_s * this.stride;
    this.describeWorkers();
    this.recordStep(iteration_s);
    this.recordHeat(allocation);
    this.recordIncidents();
    if (this.iteration >= this.iterations) this.end("finished", "iterations");
  }

  /** Tasks by worker: one each at first, then so that the last worker finishes as early as possible. */
  allocate() {
    if (this.steps.length === 0) return new Map(this.members.slice(0, this.budget).map((member) => [member, 1]));
    this.shares ??= this.computeShares();
    const allocation = new Map(this.shares);
    const idle = this.members.filter((member) => !allocation.has(member));
    if (idle.length > 0 && this.steps.length % PROBE_EVERY === 0) this.probe(idle[Math.floor(this.random() * idle.length)]);
    return allocation;
  }

  computeShares() {
    const shares = new Map();
    for (let task = 0; task < this.budget; task++) {
      const finish_s = (member) => ((shares.get(member) ?? 0) + 1) * member.task_s;
      const best = this.members.reduce((first, member) => (finish_s(member) < finish_s(first) ? member : first));
      shares.set(best, (shares.get(best) ?? 0) + 1);
    }
    return shares;
  }

  /** No step waits for a probe, so that it is in no allocation. */
  probe(member) {
    member.row.probes += 1;
    member.probed = true;
  }

  /** The workers compute their tasks; returns the seconds until the last has finished. */
  compute(allocation) {
    let iteration_s = 0;
    for (const member of this.members) {
      const tasks = allocation.get(member) ?? 0;
      const probe = Boolean(member.probed);
      member.probed = false;
      Object.assign(member.row, { tasks: tasks + Number(probe), probe, state: tasks > 0 || probe ? "computing" : "idle" });
      if (tasks === 0) continue;
      const hiccup = this.random() < 0.02 ? 2 : 0;
      const busy_s = tasks * member.task_s * (0.8 + 0.4 * this.random() + hiccup);
      iteration_s = Math.max(iteration_s, busy_s + member.task_s * 0.3);
      member.busy_s += busy_s * this.stride;
      this.worker_time_s += busy_s * this.stride;
      this.measure(member, tasks * this.stride);
    }
    return iteration_s;
  }

  measure({ row, task_s }, tasks) {
    row.observed += tasks;
    row.applied += tasks;
    row.mean_s = task_s * (1 + (0.3 * (this.random() - 0.5)) / Math.sqrt(row.observed));
    if (row.observed < 2) return;
    const reach_s = (row.mean_s * 1.2) / Math.sqrt(row.observed);
    row.low_s = Math.max(row.mean_s - reach_s, row.mean_s * 0.2);
    row.high_s = row.mean_s + reach_s;
    row.bound_s = row.low_s * 0.97;
  }

  describeWorkers() {
    for (const { row, task_s, busy_s } of this.members) {
      row.busy_share = Math.min(0.85, (busy_s / this.runtime_s) * 0.8);
      row.overhead_share = row.busy_share * 0.12;
      row.idle_share = 1 - row.busy_share - row.overhead_share;
      if (this.hasResources) {
        Object.assign(row, { cpu_cores: row.busy_share * 8, memory_bytes: 7e8 + row.number * 1e7, traffic_bytes_per_s: row.busy_share * 3e7 });
      }
      if (this.hasPrice) row.price = (this.runtime_s / 3600) * (1 + (row.number % 3));
      if (this.hasEnergy) row.energy_wh = (busy_s / 3600) * 300;
      const ms = (tasks) => `${(tasks * task_s * 1000).toFixed(1)} ms`;
      row.why = row.tasks > 0
        ? `Worker ${row.number} has ${row.tasks} tasks: it is expected to finish them after ${ms(row.tasks)}.`
        : `Worker ${row.number} has no task: its first would finish after ${ms(1)}, later than those of all others.`;
    }
  }

  recordStep(iteration_s) {
    const done = this.iteration / this.iterations;
    this.loss = 4.6 * Math.exp(-7 * done) * (0.7 + 0.6 * this.random()) + 0.004 * this.random();
    this.first_loss ??= this.loss;
    const learning_rate = this.hasLearningRate ? 0.0005 * (1 + Math.cos(Math.PI * done)) : null;
    this.steps.push([this.iteration, this.runtime_s, this.worker_time_s, this.loss, iteration_s, learning_rate, 0]);
    if (this.isMultipleOf(this.iterations / 20)) {
      const accuracy = this.hasAccuracy ? 1 - 0.99 * Math.exp(-5 * done) : null;
      this.evaluations.push([this.iteration, this.runtime_s, this.worker_time_s, this.loss * 1.1 + 0.02, accuracy]);
    }
    if (this.isMultipleOf(this.iterations / 4)) {
      this.saved = this.iteration;
      this.write("checkpoint", `iteration ${this.iteration} is saved`);
    }
  }

  isMultipleOf(iterations) {
    return this.iteration % Math.max(this.stride, Math.floor(iterations / this.stride) * this.stride) === 0;
  }

  recordHeat(allocation) {
    let column = this.columns.at(-1);
    if (!column || column.count >= this.columnSize * this.stride) {
      if (this.columns.length === MOST_COLUMNS) this.halveHeat();
      column = { first: this.iteration - this.stride + 1, count: 0, tasks: {} };
      this.columns.push(column);
    }
    column.count += this.stride;
    for (const [{ row }, tasks] of allocation) column.tasks[row.number] = (column.tasks[row.number] ?? 0) + tasks * this.stride;
  }

  halveHeat() {
    const pairs = this.columns.filter((_, place) => place % 2 === 0).map((column, pair) => [column, this.columns[pair * 2 + 1]]);
    this.columns = pairs.map(([one, other]) => {
      const tasks = { ...one.tasks };
      for (const [number, count] of Object.entries(other.tasks)) tasks[number] = (tasks[number] ?? 0) + count;
      return { first: one.first, count: one.count + other.count, tasks };
    });
    this.columnSize *= 2;
    this.sent &&= { ...this.sent, columns: 0 };
  }

  /** About two losses and a rest in a run. */
  recordIncidents() {
    const chance = this.stride / this.iterations;
    if (this.random() < chance * 5) this.wasted += 1;
    const { row } = this.members[Math.floor(this.random() * this.members.length)];
    const name = `worker ${row.number} (${row.name})`;
    if (this.random() < chance * 2) {
      row.losses += 1;
      this.write("loss", `${name} is gone: it closed the connection`);
      this.write("join", `${name} joined, on ${row.device}`);
    }
    if (this.random() < chance) {
      row.failures += 1;
      row.rests += 1;
      this.write("rest", `${name} failed once and gets no task for 2.0 s`);
    }
  }

  totals() {
    const [, , , test_loss = null, test_accuracy = null] = this.evaluations.at(-1) ?? [];
    const hours = this.runtime_s / 3600;
    return {
      iterations: this.iteration, progress: this.iteration, runtime_s: this.runtime_s, total_worker_time_s: this.worker_time_s,
      iteration_time_s: this.runtime_s, tasks_applied: this.iteration * this.budget, tasks_wasted: this.wasted,
      employments: this.iteration * 3, results: this.iteration * 4, first_loss: this.first_loss, last_loss: this.loss,
      test_loss, test_accuracy, skipped_evaluations: this.skipped, saved: this.saved, refused: this.refused,
      price: this.hasPrice ? hours * this.workers * 2 : null, energy_wh: this.hasEnergy ? hours * this.workers * 300 : null,
    };
  }

  costs() {
    if (this.iteration === 0) return [];
    const own = [`${this.policy} (this run)`, this.policy, 1, 1, 0.1];
    const replay = [`${this.policy}, replayed`, this.policy, 0.9, 0.95, 0];
    return [own, replay, ...OTHERS].map(([label, policy, runtime, worker_time, wasted], place) => ({
      label, policy, wasted, note: place === 2 ? `within the noise of ${this.iteration} iterations, which cannot tell its runtime from that of ${this.policy}` : "",
      bootstrapped: place === 0 ? 0 : 0.1,
      iteration_s: (this.runtime_s / this.iteration) * runtime, worker_time_s: (this.worker_time_s / this.iteration) * worker_time,
    }));
  }

  /** The parts that each message has whole. */
  head() {
    const { index, run_id, policy, budget, iterations, task_batch, seed, phase, detail } = this;
    return {
      index, run: { run_id, labels: { name: this.name }, policy, budget, iterations, task_batch, samples: this.samples, seed, model: "cnn" }, phase, detail, time_s: this.runtime_s * 1.1 + 0.4,
      totals: this.totals(), costs: this.costs(), allocation: { iteration: this.iteration + 1, rule: "ras", about: this.about },
    };
  }

  /** Everything so far. */
  complete() {
    this.sent = { steps: 0, evaluations: 0, columns: 0, lines: Math.max(0, this.lines.length - MOST_LINES) };
    return this.increment();
  }

  /** What was added since the message before. The heat map's last column may have grown since. */
  increment() {
    const { steps, evaluations, columns, lines } = this.sent;
    const firstColumn = Math.max(0, columns - 1);
    this.sent = { steps: this.steps.length, evaluations: this.evaluations.length, columns: this.columns.length, lines: this.lines.length };
    return structuredClone({
      ...this.head(),
      steps: { from: steps, points: this.steps.slice(steps) },
      evaluations: { from: evaluations, points: this.evaluations.slice(evaluations) },
      heat: { from: firstColumn, columns: this.columns.slice(firstColumn) },
      log: { from: lines, lines: this.lines.slice(lines) },
      workers: this.members.slice(0, this.present).map(({ row }) => row),
    });
  }
}
