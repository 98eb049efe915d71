// Wiring: messages in, drawings out, once per frame and only what changed.

const runs = [];
let shown = 0;
let axis = "0";
const dirty = new Set();
let frameAsked = false;

const charts = CHARTS.map((spec) => new Chart(spec, pointAt));
const workerTable = new WorkerTable();
const heatMap = new HeatMap(byId("heat"));

/** Marks the same place in all charts; `active` is the one pointed at. */
function pointAt(x, active) {
  for (const chart of charts) chart.setCursor(x, chart === active);
}

const DRAW = {
  head: drawHead,
  charts: () => {
    byId("curves").hidden = runs.every(({ steps, evaluations }) => steps.length + evaluations.length === 0);
    const ends = endsOf(runs, axis);
    charts.forEach((chart) => chart.update(runs, axis, ends, byId("smooth").checked));
    byId("charts").classList.toggle("odd", charts.filter(({ figure }) => !figure.hidden).length % 2 === 1);
  },
  workers: () => workerTable.update(runs[shown]),
  heat: () => heatMap.update(runs[shown]),
  costs: drawCosts,
  log: drawLog,
  runs: drawRuns,
};

/** Asks for parts of the page to be drawn; nothing is drawn while nobody looks. */
function redraw(...parts) {
  parts.forEach((part) => dirty.add(part));
  if (frameAsked || document.hidden || runs.length === 0) return;
  frameAsked = true;
  requestAnimationFrame(() => {
    frameAsked = false;
    const wanted = Object.keys(DRAW).filter((part) => dirty.has(part));
    dirty.clear();
    for (const part of wanted) DRAW[part]();
  });
}

// ---- header and key numbers

function drawHead() {
  const { run, phase, totals } = runs[shown];
  const several = runs.length > 1;
  const { name, tags } = labelsOf(run);
  text(byId("name"), several ? `${runs.length} runs` : name || (run.run_id ?? "ata"));
  const settings = [
    several && name, (several || name) && run.run_id, tags, `policy ${run.policy}`, run.model && `model ${run.model}`, `budget ${counted(run.budget, "task")}${run.most_tasks ? ` to ${number(run.most_tasks)}` : ""}`,
    run.task_batch && `${counted(run.task_batch, "sample")} per task`, run.seed != null && `seed ${run.seed}`,
  ];
  text(byId("settings"), settings.filter(Boolean).join(" · "));
  attribute(byId("phase"), "class", phase);
  text(byId("phase"), phaseWords(runs[shown]));
  const done = totals.progress ?? 0;
  const share = run.iterations > 0 ? done / run.iterations : 0;
  attribute(byId("progress"), "value", Math.min(share, 1));
  text(byId("progress-text"), progressText(runs[shown], done, share));
  if (!several) document.title = `${ENDED.has(phase) ? phase : wholePercent(share)} · ${name || run.policy} · ata`;
  drawNumbers(runs[shown]);
}

/** The user’s name of a run, and its tags as in `team=vision · gpu=h100`. */
function labelsOf({ labels = {} }) {
  return { name: labels.name, tags: Object.entries(labels.tags ?? {}).map(([key, value]) => `${key}=${value}`).join(" · ") };
}

function progressText(run, done, share) {
  const of = run.run.iterations > 0 ? ` of ${number(run.run.iterations)} iterations, ${Math.floor(share * 100)}${NARROW}%` : " iterations";
  return `${number(done)}${of}; ${seconds(run.time_s)} elapsed`;
}

function drawNumbers(run) {
  const { totals: t, steps, run: { iterations, task_batch, samples } } = run;
  const rate = pace(run);
  const trained = t.tasks_applied * task_batch;
  // In steps, whose number of tasks may differ from that of the iterations that were asked for.
  const left = (iterations - t.progress) * (t.iterations / t.progress);
  const refused = refusals(t);
  const entries = [
    run.phase === "training" && rate && left > 0 && ["Time left", label(Math.ceil(left / rate), "time"), "about"],
    ["Iterations/s", number(rate), t.iterations > 0 && !ENDED.has(run.phase) && "lately"],
    task_batch && t.iterations > 0 && ["Samples/s", number(rate * trained / t.iterations), `${counted(trained, "sample")} so far`],
    samples > 0 && task_batch && ["Epochs", number(trained / samples), `of ${counted(samples, "sample")}`],
    ["Iteration time", seconds(mean(t.runtime_s, t.iterations)), t.iterations > 0 && "mean"],
    t.noise_scale != null && ["Noise scale", number(t.noise_scale), "tasks for half of a step without noise"],
    t.efficiency != null && ["Speed-up", `${number(t.efficiency.speed_up)}×`,
      `over worker ${t.efficiency.fastest} alone; the speeds sum up to ${number(t.efficiency.speeds)}×`],
    ["Runtime", seconds(t.runtime_s)],
    ["Total worker time", seconds(t.total_worker_time_s)],
    ["Wasted tasks", number(t.tasks_wasted), t.tasks_applied > 0 && `${percent(t.tasks_wasted / (t.tasks_applied + t.tasks_wasted), 2)} of all`],
    ["Training loss", number(t.last_loss ?? steps.at(-1)?.[3]), t.first_loss != null && `${number(t.first_loss)} at first`],
    ["Test accuracy", percent(t.test_accuracy), t.test_loss != null && `test loss ${number(t.test_loss)}`],
    ...Object.entries(t.metrics ?? {}).map(([name, value]) => [name, number(value), "test data"]),
    t.skipped_evaluations > 0 && ["Skipped evaluations", number(t.skipped_evaluations), "due during another, or failed"],
    ["Last checkpoint", t.saved == null ? NONE : number(t.saved), t.saved != null && "iteration"],
    t.links != null && ["Gradient on the network", seconds(Math.max(t.links.up_s, t.links.own_s)), linkWords(t.links)],
    t.saturated > 0 && ["Gradient values cut off", number(t.saturated), "beyond the range of exact sums"],
    t.vanished > 0 && ["Gradient values lost", number(t.vanished), "rounded to 0 by the wire format"],
    t.price != null && ["Price", number(t.price)],
    t.releases?.length > 0 && [`Without worker ${t.releases[0].workers.join(", ")}`, `−${percent(1 - t.releases[0].price)}`,
      `of a step's price; ${percent(t.releases[0].time - 1)} longer`],
    t.energy_wh != null && ["Energy", wattHours(t.energy_wh)],
    refused.length > 0 && ["Refused results", number(refused.reduce((sum, [, count]) => sum + count, 0)),
      refused.map(([kind, count]) => `${number(count)} ${kind}`).join(", ")],
  ].filter(Boolean);
  const list = byId("numbers");
  const before = list.childElementCount;
  while (list.childElementCount > entries.length) list.lastElementChild.remove();
  while (list.childElementCount < entries.length) list.append(el("div", {}, el("dt"), el("dd"), el("dd", { class: "faint" })));
  entries.forEach(([name, value, note], k) => {
    [name, value, note || ""].forEach((words, part) => text(list.children[k].children[part], words));
  });
  if (list.childElementCount !== before) balanceNumbers();
}

/** Which link limits the vectors: the coordinator's, or each worker's own. */
function linkWords({ up_s, down_s, own_s }) {
  return up_s + down_s > 0 ? `coordinator’s: ${seconds(up_s)} up, ${seconds(down_s)} down; a worker’s: ${seconds(own_s)}` : "a worker’s own";
}

let balancedWidth = 0;

/** Spreads the tiles evenly over their rows. One that is alone in the last row all the same gets the whole of it. */
function balanceNumbers() {
  const list = byId("numbers");
  const count = list.childElementCount;
  if (count === 0) return;
  balancedWidth = list.clientWidth;
  list.style.removeProperty("--columns");
  const most = getComputedStyle(list).gridTemplateColumns.split(" ").length;
  const columns = Math.ceil(count / Math.ceil(count / most));
  list.style.setProperty("--columns", columns);
  list.classList.toggle("odd", count % columns === 1);
}

// ---- costs, runs, events

/** A cell of a value with a bar relative to that of this run; bars end at four times that, to keep the others readable. */
function barCell(value, own, most, words) {
  if (value == null) return el("td", { class: "number" }, NONE);
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("i"), el("b"));
  if (!(own > 0)) return el("td", { class: "number" }, words(value));
  bar.firstChild.style.width = `${Math.min(value / own / most, 1) * 100}%`;
  bar.lastChild.style.left = `${100 / most}%`;
  if (value / own > most) attribute(bar, "class", "bar beyond");
  return el("td", { class: "cost" }, el("span", {}, words(value)), el("span", { class: "faint" }, `${number(value / own, value < own ? 2 : 3)}×`), bar);
}

function drawCosts() {
  const { costs } = runs[shown];
  byId("costs").hidden = costs.length === 0;
  const [run = {}, ...replays] = costs; // this run comes first, and then its own policy, if that could be replayed
  const own = replays.find(({ policy }) => policy === run.policy) ?? run;
  const most = (key) => Math.min(4, Math.max(1, ...costs.map((cost) => (own[key] > 0 ? cost[key] / own[key] : 1))));
  const head = ["Policy", "Runtime", "Worker time", "Wasted tasks"].map((name, k) => el("th", { scope: "col", class: k === 3 ? "number" : null }, name));
  byId("costs-table").replaceChildren(el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...costs.flatMap((cost) => [
    el("tr", { class: cost === run ? "own" : cost.note ? "noted" : null }, el("th", { scope: "row" }, cost.label),
      barCell(cost.iteration_s, own.iteration_s, most("iteration_s"), seconds),
      barCell(cost.worker_time_s, own.worker_time_s, most("worker_time_s"), seconds),
      el("td", { class: "number" }, number(cost.wasted, 2))),
    cost.note && el("tr", {}, el("td", { class: "note faint", colspan: 4 }, cost.note)),
  ].filter(Boolean))));
}

/** What a comparison shows if the runs differ in it. */
const SETTINGS = [
  ["Name", (run) => labelsOf(run).name], ["Tags", (run) => labelsOf(run).tags], ["Model", (run) => run.model], ["Budget", (run) => run.budget], ["Samples per task", (run) => run.task_batch],
  ["Iterations asked for", (run) => run.iterations], ["Seed", (run) => run.seed],
];

function drawRuns() {
  byId("compare").hidden = runs.length < 2;
  if (runs.length < 2) return;
  const names = labels(runs);
  const [money, energy] = ["price", "energy_wh"].map((key) => runs.some(({ totals }) => totals[key] != null));
  const differing = SETTINGS.filter(([, of]) => new Set(runs.map(({ run }) => String(of(run)))).size > 1);
  const heads = ["Run", "Policy", ...differing.map(([name]) => name), "State", "Iterations", "Runtime", "Total worker time", "Mean iteration time", "Wasted tasks",
    "Training loss", "Test accuracy", ...(money ? ["Price"] : []), ...(energy ? ["Energy"] : [])];
  const row = (run, place) => {
    const t = run.totals;
    const input = el("input", { type: "radio", name: "shown", value: place, "aria-label": `Show ${names[place]}` });
    input.checked = place === shown;
    input.addEventListener("change", () => show(place));
    const look = { colour: `c${place % COLOURS}`, dash: DASHES[place % DASHES.length], mark: MARKS[place % MARKS.length] };
    const cells = [
      run.phase, number(t.iterations), seconds(t.runtime_s), seconds(t.total_worker_time_s), seconds(mean(t.runtime_s, t.iterations)),
      number(t.tasks_wasted), number(t.last_loss), percent(t.test_accuracy), money && number(t.price), energy && wattHours(t.energy_wh),
    ].filter((cell) => cell !== false);
    return el("tr", {}, el("th", { scope: "row" }, el("label", {}, input, sample(look), run.run.run_id ?? names[place])),
      el("td", {}, run.run.policy ?? NONE), ...differing.map(([, of]) => el("td", {}, `${of(run.run) || NONE}`)), ...cells.map((cell, k) => el("td", { class: k > 0 ? "number" : null }, cell)));
  };
  const focused = document.activeElement?.name === "shown";
  byId("runs-table").replaceChildren(
    el("thead", {}, el("tr", {}, ...heads.map((name, k) => el("th", { scope: "col", class: k > 2 + differing.length ? "number" : null }, name)))),
    el("tbody", {}, ...runs.map(row)),
  );
  if (focused) byId("runs-table").querySelector("input:checked").focus();
}

function show(place) {
  shown = place;
  redraw("head", "workers", "heat", "costs", "log");
}

function drawLog() {
  const { log } = runs[shown];
  const lines = log.length > 0 ? log.toReversed() : [[null, "info", "Nothing happened yet."]];
  byId("log").replaceChildren(...lines.map(([time, kind, words]) =>
    el("li", { class: kind },
      el("span", { class: "time faint" }, time == null ? "" : seconds(time)), el("span", { class: "kind" }, KINDS[kind] ?? kind), el("span", {}, words))));
}

// ---- messages

let fresh = new Set(); // runs of which a message came since the connection was opened; the first is complete
let asking = false;
let lastNews = 0;

function receive(message) {
  const place = message.index ?? 0;
  const known = runs[place] ?? (runs[place] = newRun());
  const changed = merge(known, message, !fresh.has(place));
  if (!changed) return askForAll();
  fresh.add(place);
  byId("head").hidden = byId("main").hidden = false;
  redraw(...changed, "runs");
}

/** Messages are missing between those that came: fetches the whole state. */
async function askForAll() {
  if (asking) return;
  asking = true;
  try {
    const answer = await fetch("api/state");
    if (answer.status === 401 || answer.status === 403) return location.reload(); // the server answers with the form to log in
    if (!answer.ok) throw new Error(`api/state answered ${answer.status}`);
    const messages = await answer.json();
    fresh = new Set();
    [messages].flat().forEach(receive);
  } catch (error) {
    console.warn("ata:", error);
    setTimeout(askForAll, 3000);
  } finally {
    asking = false;
  }
}

function connection(kind, words) {
  attribute(byId("connection"), "class", `pill ${kind}`);
  text(byId("connection"), words);
}

function listen() {
  const source = new EventSource("events");
  source.onopen = () => {
    fresh = new Set();
    lastNews = Date.now();
    connection("live", "live");
  };
  source.onmessage = ({ data }) => {
    lastNews = Date.now();
    connection("live", "live");
    try {
      if (!asking) receive(JSON.parse(data));
    } catch (error) {
      console.warn("ata: a message was not understood:", error);
    }
  };
  source.onerror = () => {
    const over = ENDED.has(runs[0]?.phase);
    connection(over ? "static" : "lost", over ? "the run has ended; its coordinator is gone" : "connection lost, trying again");
    byId("head").hidden = false;
    // The browser tries again by itself, but not after a refusal.
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
}

/** Says so when a live page has had no news for a while: an iteration is long, or the network is silent. */
function watchSilence() {
  const silence = Math.round((Date.now() - lastNews) / 1000);
  const long = silence >= 15 && !ENDED.has(runs[0]?.phase);
  if (byId("connection").classList.contains("live")) connection("live", long ? `live, last news ${seconds(silence)} ago` : "live");
}

function start() {
  choice(byId("axis"), AXES.map(([value, name]) => [value, name[0].toUpperCase() + name.slice(1)]), (value) => {
    axis = value;
    pointAt(null);
    redraw("charts");
  });
  choice(byId("heat-order"), [["number", "By number"], ["speed", "Fastest first"]], (order) => {
    heatMap.order = order;
    redraw("heat");
  });
  byId("all-rows").addEventListener("change", () => redraw("heat"));
  new ResizeObserver(() => byId("numbers").clientWidth !== balancedWidth && balanceNumbers()).observe(byId("numbers"));
  byId("smooth").addEventListener("change", () => redraw("charts"));
  byId("charts").append(...charts.map(({ figure }) => figure));
  document.addEventListener("visibilitychange", () => redraw());
  // A finger's values stay until it touches something else.
  document.addEventListener("pointerdown", ({ target }) => target.closest?.(".frame") || (pointAt(null), heatMap.leave()));

  const { live, messages } = JSON.parse(byId("runs").textContent);
  messages.forEach((message, index) => receive({ ...message, index }));
  if (live) {
    connection("waiting", "connecting");
    listen();
    setInterval(watchSilence, 5000);
  } else {
    connection("static", "report");
  }
  byId("head").hidden = false;
}

start();
