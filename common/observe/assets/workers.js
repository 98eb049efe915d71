// The table of workers. Rows are kept and changed in place, so that a second's update of 500 workers costs little.

/** Marks and words of the states. */
const STATES = {
  computing: ["●", "computing"], idle: ["○", "idle"], resting: ["◐", "resting"], away: ["◌", "away"], expelled: ["✕", "expelled"],
};
/** With more workers than this, those with tasks come first unless another order is chosen. */
const FEW_WORKERS = 12;
/** As many significant digits as matter of a size. */
const UNITS_OF_BYTES = ["B", "kB", "MB", "GB", "TB"];
/** Rows shown before "show all": more than this nobody reads at once. */
const SOME_ROWS = 50;

const troubles = (w) => w.failures + w.losses + w.rests;

/** `value` sorts; `make` builds what a cell holds, and returns what updates it. `only` hides a column that no worker has. */
const COLUMNS = [
  { key: "worker", title: "Worker", value: (w) => w.number },
  { key: "state", title: "State", value: (w) => w.state, make: stateCell },
  { key: "tasks", title: "Tasks now", value: (w) => w.tasks, number: true, make: tasksCell },
  { key: "mean", title: "Mean time of a task", value: (w) => w.mean_s, make: timeCell },
  { key: "vector", title: "Gradient on its network", value: (w) => w.vector_s, number: true, only: true, make: plain((w) => seconds(w.vector_s)) },
  { key: "share", title: "Busy", value: (w) => w.busy_share, make: shareCell },
  { key: "cpu", title: "Processor cores", value: (w) => w.cpu_cores, number: true, only: true, make: plain((w) => (w.cpu_cores == null ? NONE : w.cpu_cores.toFixed(1))) },
  { key: "memory", title: "Memory", value: (w) => w.memory_bytes, number: true, only: true, make: plain((w) => bytes(w.memory_bytes)) },
  { key: "traffic", title: "Network", value: (w) => w.traffic_bytes_per_s, number: true, only: true,
    make: plain((w) => (w.traffic_bytes_per_s == null ? NONE : `${bytes(w.traffic_bytes_per_s)}/s`)) },
  { key: "applied", title: "Tasks applied", value: (w) => w.applied, number: true, make: plain((w) => number(w.applied)) },
  { key: "troubles", title: "Failed, lost, rested", value: troubles, number: true,
    make: plain((w) => (troubles(w) ? `${w.failures}, ${w.losses}, ${w.rests}` : NONE)) },
  { key: "price", title: "Price", value: (w) => w.price, number: true, only: true, make: plain((w) => number(w.price)) },
  { key: "energy", title: "Energy", value: (w) => w.energy_wh, number: true, only: true, make: plain((w) => wattHours(w.energy_wh)) },
  { key: "device", title: "Device", value: (w) => w.device, make: plain((w) => w.device) },
];

function wattHours(x) {
  return x == null ? NONE : x >= 1000 ? `${number(x / 1000)}${NARROW}kWh` : `${number(x)}${NARROW}Wh`;
}

function bytes(x) {
  if (x == null) return NONE;
  const power = clamp(Math.floor(Math.log10(Math.max(x, 1) * 1.0005) / 3), 0, UNITS_OF_BYTES.length - 1);
  return `${number(x / 1000 ** power)}${NARROW}${UNITS_OF_BYTES[power]}`;
}

const stateWords = ({ state }) => STATES[state]?.[1] ?? state;

function plain(words) {
  return (cell) => (worker) => text(cell, words(worker));
}

function stateCell(cell) {
  const [glyph, words] = [el("span", { "aria-hidden": "true" }), el("span")];
  cell.append(glyph, " ", words);
  return (worker) => {
    attribute(glyph, "class", `glyph ${worker.state in STATES ? worker.state : "away"}`);
    text(glyph, STATES[worker.state]?.[0] ?? "?");
    text(words, worker.rest_left_s > 0 ? `${stateWords(worker)}, ${seconds(worker.rest_left_s)} left` : stateWords(worker));
  };
}

function tasksCell(cell) {
  const [probe, words] = [el("abbr", { class: "probe", title: "A probe: a task given to learn the worker’s speed" }, "probe"), el("span")];
  cell.append(probe, " ", words);
  return (worker) => {
    probe.hidden = !worker.probe;
    text(words, number(worker.tasks));
  };
}

/** The mean as a dot on its 95 % interval, the policy's bound as a stroke, on one scale for all workers. */
function timeCell(cell) {
  const [range, bound] = [shape("line", { class: "range", y1: 8, y2: 8 }), shape("line", { class: "bound", y1: 2, y2: 14 })];
  const dot = shape("circle", { cy: 8, r: 3.5 });
  const bar = shape("svg", { class: "interval", "aria-hidden": "true" }, shape("line", { class: "track", x2: "100%", y1: 8, y2: 8 }), range, bound, dot);
  const [words, interval] = [el("span", { class: "mean" }), el("span", { class: "hidden" })];
  cell.append(words, bar, interval);
  return (worker, scale) => {
    const { mean_s: middle, low_s: low, high_s: high } = worker;
    text(words, seconds(middle));
    text(interval, low == null || high == null ? "" : `, between ${seconds(low)} and ${seconds(high)}`);
    attribute(cell, "title", middle == null ? "not measured yet" : interval.textContent.slice(2));
    const at = (s) => `${(clamp(scale.at(s), 0, 1) * 100).toFixed(1)}%`;
    for (const [node, value] of [[range, low ?? null], [dot, middle], [bound, worker.bound_s]]) {
      attribute(node, "visibility", value == null || (node === range && high == null) ? "hidden" : "visible");
    }
    if (low != null && high != null) {
      attribute(range, "x1", at(low));
      attribute(range, "x2", at(high));
    }
    if (middle != null) attribute(dot, "cx", at(middle));
    if (worker.bound_s != null) for (const end of ["x1", "x2"]) attribute(bound, end, at(worker.bound_s));
  };
}

function shareCell(cell) {
  const parts = ["busy", "overhead", "idle"].map((name) => el("span", { class: name }));
  const words = el("span", { class: "mean" });
  const rest = el("span", { class: "hidden" });
  cell.append(words, el("span", { class: "shares", "aria-hidden": "true" }, ...parts), rest);
  return (worker) => {
    const shares = [worker.busy_share, worker.overhead_share, worker.idle_share];
    parts.forEach((part, k) => {
      const width = `${((shares[k] ?? 0) * 100).toFixed(1)}%`;
      if (part.style.width !== width) part.style.width = width;
    });
    text(words, wholePercent(shares[0]));
    text(rest, `, overhead ${wholePercent(shares[1])}, idle ${wholePercent(shares[2])}`);
    attribute(cell, "title", `busy ${words.textContent}${rest.textContent}`);
  };
}

/** One scale for the intervals of all workers, of round ends so that it rarely moves. */
function timeScale(workers) {
  const times = workers.flatMap((w) => [w.low_s, w.mean_s, w.high_s, w.bound_s]).filter((s) => s > 0);
  if (times.length === 0) return linearScale(0, 1, "time", 2, true);
  const [low, high] = times.reduce(([a, b], s) => [Math.min(a, s), Math.max(b, s)], [Infinity, 0]);
  const means = workers.map((w) => w.mean_s).filter((s) => s > 0);
  const spread = means.length > 0 ? means.reduce((a, b) => Math.max(a, b)) / means.reduce((a, b) => Math.min(a, b)) : 1;
  return spread > 10 ? logScale(low, high, "time", 4) : linearScale(0, high, "time", 2, true);
}

class WorkerTable {
  constructor() {
    Object.assign(this, { rows: new Map(), all: [], sortBy: null, down: false, showAll: false, open: new Set() });
    this.table = byId("workers-table");
    this.body = el("tbody");
    this.watcher = new IntersectionObserver(
      (entries) => entries.forEach(({ target, isIntersecting }) => this.seen(target, isIntersecting)), { rootMargin: "200px" });
    this.headers = COLUMNS.map((column) => this.header(column));
    this.scaleNote = el("span", { class: "scale faint" });
    this.headers[COLUMNS.findIndex(({ key }) => key === "mean")].append(this.scaleNote);
    const keyOfShares = ["busy", "overhead", "idle"].flatMap((name) => [el("i", { class: name }), `${name} `]);
    this.headers[COLUMNS.findIndex(({ key }) => key === "share")].append(el("span", { class: "scale faint key" }, ...keyOfShares));
    const caption = el("caption", { class: "hidden" }, "Workers. The buttons in the headers sort.");
    this.table.append(caption, el("thead", {}, el("tr", {}, ...this.headers)), this.body);
    byId("filter").addEventListener("input", () => this.arrange());
    byId("with-tasks").addEventListener("change", () => this.arrange());
    byId("more").addEventListener("click", () => {
      this.showAll = !this.showAll;
      this.arrange();
    });
  }

  header(column) {
    const button = el("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      this.down = this.sortBy === column ? !this.down : Boolean(column.number); // of counts, the largest are looked for
      this.sortBy = column;
      this.arrange();
    });
    return el("th", { scope: "col", class: column.number ? "number" : null }, button);
  }

  update(run) {
    if (this.run !== run) {
      this.run = run;
      this.watcher.disconnect();
      this.rows.clear();
      this.open.clear();
    }
    this.all = [...run.workers.values()];
    COLUMNS.forEach((column, k) => {
      const absent = Boolean(column.only) && this.all.every((w) => column.value(w) == null);
      attribute(this.table, `data-no-${column.key}`, absent ? "" : null);
      this.headers[k].hidden = absent;
    });
    this.scale = timeScale(this.all);
    const ends = [this.scale.low, this.scale.high].map((s) => label(s, "time"));
    this.scaleText = `${ends.join(" to ")}${this.scale.log ? ", log" : ""}`;
    text(this.scaleNote, `${this.scaleText}; │ policy’s estimate`);
    this.describe();
    // Rows must not move away under a finger or a focus; a click on a header or the filter still moves them.
    this.arrange(this.body.matches(":hover, :focus-within"));
  }

  describe() {
    const { allocation } = this.run;
    const counts = Object.entries(STATES).map(([state, [, words]]) => [this.all.filter((w) => w.state === state).length, words]);
    const states = counts.filter(([count]) => count > 0).map((pair) => pair.join(" ")).join(", ");
    const goesOn = allocation?.about && !ENDED.has(this.run.phase);
    const rule = goesOn ? ` Iteration ${number(allocation.iteration)}: ${allocation.about}.` : "";
    text(byId("workers-text"), this.all.length === 0 ? "No worker has joined yet." : `${counted(this.all.length, "worker")}: ${states}.${rule}`);
    byId("workers-table").parentNode.hidden = this.all.length === 0;
    document.querySelector("#workers .tools").hidden = this.all.length < 6;
  }

  /** Those that pass the filter, sorted; unknown values come last, whichever way. Unless a column was chosen, many have those with tasks first. */
  chosen() {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const withTasks = byId("with-tasks").checked;
    const hasTasks = (w) => w.tasks > 0 || w.probe;
    const withTasksFirst = (w) => Number(this.all.length > FEW_WORKERS && !hasTasks(w));
    const value = this.sortBy?.value ?? withTasksFirst;
    const sign = this.down ? -1 : 1;
    return this.all
      .filter((w) => !withTasks || w.tasks > 0)
      .filter((w) => words.every((word) => `${w.number} ${w.name} ${w.state} ${stateWords(w)} ${w.device}`.toLowerCase().includes(word)))
      .sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x == null || y == null) return (x == null) - (y == null) || a.number - b.number;
        return (x < y ? -1 : x > y ? 1 : 0) * sign || a.number - b.number;
      });
  }

  arrange(keepOrder) {
    this.headers.forEach((header, k) => {
      attribute(header, "aria-sort", COLUMNS[k] === this.sortBy ? (this.down ? "descending" : "ascending") : null);
    });
    const chosen = this.chosen();
    const some = this.showAll || chosen.length <= SOME_ROWS * 1.2 ? chosen : chosen.slice(0, SOME_ROWS);
    const more = byId("more");
    more.hidden = chosen.length <= SOME_ROWS * 1.2;
    text(more, this.showAll ? `Show ${SOME_ROWS} only` : `Show all ${chosen.length}`);
    text(byId("shown-count"), chosen.length < this.all.length ? `${chosen.length} of ${this.all.length}` : "");
    const shown = keepOrder && this.shown ? this.shown.map((n) => this.run.workers.get(n)).filter(Boolean) : some;
    this.shown = shown.map((w) => w.number);
    this.place(shown.flatMap((worker) => this.rowsOf(worker)));
  }

  /** Makes the body hold these rows, and moves only those that are elsewhere. */
  place(rows) {
    rows.forEach((row, k) => {
      if (this.body.children[k] !== row) this.body.insertBefore(row, this.body.children[k] ?? null);
    });
    while (this.body.childElementCount > rows.length) this.body.lastElementChild.remove();
  }

  rowsOf(worker) {
    const row = this.rows.get(worker.number) ?? this.makeRow(worker.number);
    if (row.inView || !row.worker) this.updateRow(row, worker);
    return this.open.has(worker.number) ? [row.tr, row.details] : [row.tr];
  }

  /** Only rows in view are kept up to date; the others are when they come into view. */
  seen(tr, inView) {
    const number = Number(tr.dataset.number), row = this.rows.get(number);
    if (row?.tr !== tr) return;
    row.inView = inView;
    if (inView) this.updateRow(row, this.run.workers.get(number));
  }

  updateRow(row, worker) {
    if (row.worker === worker && row.scale === this.scaleText) return;
    row.update.forEach((update) => update(worker, this.scale));
    row.worker = worker;
    row.scale = this.scaleText;
  }

  makeRow(number) {
    const toggle = el("button", { type: "button", class: "toggle", "aria-expanded": "false" });
    const update = [(worker) => {
      text(toggle, `${worker.number} ${worker.name}`);
      attribute(toggle, "title", worker.name);
    }];
    const cells = COLUMNS.slice(1).map((column) => {
      const cell = el("td", { class: `${column.number ? "number " : ""}at-${column.key}` });
      update.push(column.make(cell));
      return cell;
    });
    const about = el("td", { colspan: COLUMNS.length });
    update.push((worker) => this.explain(about, worker));
    const tr = el("tr", { "data-number": number }, el("th", { scope: "row" }, toggle), ...cells);
    const row = { tr, details: el("tr", { class: "details" }, about), update };
    row.tr.addEventListener("click", () => {
      if (String(getSelection())) return;
      const opened = !this.open.delete(number);
      if (opened) this.open.add(number);
      attribute(toggle, "aria-expanded", opened);
      this.arrange(true);
    });
    this.rows.set(number, row);
    this.watcher.observe(row.tr);
    return row;
  }

  explain(cell, w) {
    const interval = w.low_s == null || w.high_s == null ? "" : ` (95 % interval ${seconds(w.low_s)} to ${seconds(w.high_s)})`;
    const measured = w.mean_s == null ? "No task measured yet." : `Measured on ${counted(w.observed, "task")}: ${seconds(w.mean_s)} each${interval}.`;
    const [busy, overhead, idle] = [w.busy_share, w.overhead_share, w.idle_share].map(wholePercent);
    const times = w.busy_share == null ? "" : ` Of its time ${busy} busy, ${overhead} overhead, ${idle} idle.`;
    const counts = [["failed", w.failures], ["lost", w.losses], ["rested", w.rests]].map(([what, times]) => `${what} ${counted(times, "time")}`).join(", ");
    const estimate = w.bound_s == null ? "" : ` The policy reckons with ${seconds(w.bound_s)}.`;
    const lines = [`${w.name}, ${w.device}`, w.why, measured + estimate + times, `${counted(w.applied, "task")} applied, ${counted(w.probes, "probe")}; ${counts}.`];
    cell.replaceChildren(...lines.filter(Boolean).map((line) => el("p", {}, line)));
  }
}
