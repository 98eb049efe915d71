// Checks of the page's functions that need no browser: numbers and words, scales of axes, merging of messages.

import assert from "node:assert/strict";
import vm from "node:vm";

import { test } from "@playwright/test";

import { SimulatedRun } from "./simulated-run.mjs";
import { asset } from "./site.mjs";

const NAMES = [
  "number", "counted", "percent", "seconds", "linearScale", "logScale", "nearest",
  "newRun", "merge", "pace", "labels", "phaseWords", "refusals", "smoothed", "bytes",
];

/** The functions, as the page has them. */
function load() {
  const context = vm.createContext({});
  vm.runInContext(`${["tools", "state", "chart", "workers"].map((name) => asset(`${name}.js`)).join("")}globalThis.page = { ${NAMES.join(", ")} };`, context);
  return context.page;
}

const page = load();

/** Pairs of an argument and what a function makes of it. Spaces stand for those that do not break. */
function table(make, pairs) {
  for (const [argument, expected] of pairs) {
    assert.equal(make(argument).replaceAll("\u00a0", " "), expected, `of ${JSON.stringify(argument)}`);
  }
}

/** Without the prototypes of the other context. */
const plain = (value) => JSON.parse(JSON.stringify(value));

function numbers() {
  table(page.number, [
    [0, "0"], [1234567, "1,234,567"], [0.00005, "5.00e-5"], [12.34, "12.3"], [1234.5, "1,235"], [-1.5, "-1.50"], [2e9, "2.00e9"],
    [null, "–"],
  ]);
  table(page.percent, [[0.9514, "95.1 %"], [1, "100 %"], [null, "–"]]);
  table(([count, thing]) => page.counted(count, thing), [
    [[0, "task"], "0 tasks"], [[1, "sample"], "1 sample"], [[1234, "task"], "1,234 tasks"],
  ]);
}

function durations() {
  table(page.seconds, [
    [0, "0 s"], [3e-9, "3.00 ns"], [1.7e-3, "1.70 ms"], [0.024, "24.0 ms"], [0.99999, "1.00 s"], [4.9, "4.90 s"], [99.96, "1 min 40 s"],
    [125, "2 min 5 s"], [3599.7, "60 min 0 s"], [3600, "1 h 0 min"], [200000, "2 d 8 h"], [null, "–"],
  ]);
}

function phases() {
  const words = (phase) => (detail) => page.phaseWords({ phase, detail });
  table(words("finished"), [
    ["iterations", "✓ Finished"], ["", "✓ Finished"],
    ["target_loss", "✓ Finished: target loss reached"], ["runtime", "✓ Finished: limit of runtime reached"],
    ["something new", "✓ Finished: something new"],
  ]);
  table(words("failed"), [["iterations", "✕ Failed: iterations"]]);
  table(words("waiting"), [["2 of 4 workers present", "◌ Waiting: 2 of 4 workers present"]]);
}

function sizes() {
  table(page.bytes, [[0, "0 B"], [999.4, "999 B"], [1000, "1 kB"], [999_600, "1.00 MB"], [7.31e8, "731 MB"], [2e16, "20,000 TB"], [null, "–"]]);
}

/** One spike among equal values leaves no trace, a step stays where it is, and a slope stays a slope. */
function smoothing() {
  const smoothed = (y) => plain(page.smoothed(Array.from({ length: 200 }, (_, x) => [x, y(x)]))).map(([, value]) => value);
  assert.deepEqual(smoothed((x) => (x === 77 ? 1000 : 2)), Array(200).fill(2));
  const step = smoothed((x) => (x < 100 ? 1 : 3));
  assert.deepEqual([step[90], step[110]], [1, 3]);
  const slope = smoothed((x) => x).slice(10, 190);
  slope.forEach((value, k) => assert.ok(Math.abs(value - (k + 10)) < 1e-9, `${value} at ${k + 10}`));
}

function lateResults() {
  assert.deepEqual(plain(page.refusals({ refused: { "stale lease": 40 } })), []);
  assert.deepEqual(plain(page.refusals({ refused: { "stale lease": 40, "not finite": 2 } })), [["not finite", 2]]);
  assert.deepEqual(plain(page.refusals({})), []);
}

/** A generator of numbers from 0 to 1 (Park and Miller's): the same ones in each run of the checks. */
function randomNumbers() {
  let state = 7;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}

/** Ends of an axis: over thirty powers of ten, from zero at times, equal or nearly so at others. */
function randomEnds(random, kind) {
  const anything = () => 10 ** (random() * 30 - 15);
  const low = random() < 0.1 ? 0 : anything();
  const shape = random();
  const high = shape < 0.2 ? low : shape < 0.4 ? low * (1 + 1e-15) : low + anything();
  if (kind !== "whole") return [low, high];
  const first = Math.round(low) + 1;
  return [first, Math.max(first, Math.round(high))];
}

function checkLinear(low, high, kind, roundOut) {
  const about = JSON.stringify({ low, high, kind, roundOut });
  const scale = page.linearScale(low, high, kind, 5, roundOut);
  assert.ok(scale.high > scale.low, about);
  assert.ok(scale.ticks.length <= 14, `${scale.ticks.length} ticks of ${about}`);
  if (roundOut && kind !== "whole") assert.ok(scale.ticks.length >= 2, about);
  if (kind === "time" && high - low > high * 0.01 && high > 1e-7 && high < 1e6) {
    const words = scale.ticks.map(([, text]) => text);
    assert.equal(new Set(words).size, words.length, `${about} has the ticks ${words}`);
  }
}

function checkLogarithmic(low, high, kind) {
  const about = JSON.stringify({ low, high, kind });
  const scale = page.logScale(low, high, kind, 5);
  assert.ok(scale.low <= low * 1.01 && scale.high >= high * 0.99, about);
  assert.ok(scale.ticks.length <= 14, about);
  assert.ok(Math.abs(scale.from(scale.at(high)) / high - 1) < 2e-3, about);
}

function scales() {
  const random = randomNumbers();
  const kinds = ["count", "whole", "time", "share"];
  for (let k = 0; k < 20_000; k++) {
    const kind = kinds[k % kinds.length];
    const [low, high] = randomEnds(random, kind);
    checkLinear(low, high, kind, false);
    checkLinear(low, high, kind, true);
    if (low > 0) checkLogarithmic(low, high, kind);
  }
  assert.ok(page.logScale(5e-324, 1, "count", 5).ticks.length < 15, "the least number that there is");
}

function nearestPoint() {
  const points = [[1], [4], [9]];
  for (const [x, expected] of [[-5, 0], [1, 0], [2.4, 0], [2.6, 1], [7, 2], [100, 2]]) {
    assert.equal(page.nearest(points, x), expected, `nearest to ${x}`);
  }
}

/** The parts of a run that messages add to. */
const grown = ({ steps, evaluations, heat, log, workers, totals }) => plain([steps, evaluations, heat, log, [...workers.values()], totals]);

function whole(message) {
  const run = page.newRun();
  page.merge(run, message, true);
  return run;
}

/** Forty messages, of which one is lost; the heat map is made coarser on the way. */
function merging() {
  const simulated = new SimulatedRun();
  const run = whole(simulated.complete());
  for (let k = 0; k < 40; k++) {
    simulated.train(5);
    if (k === 20) {
      simulated.increment();
      simulated.train(5);
      assert.equal(page.merge(run, simulated.increment(), false), null, "a gap is noticed");
      assert.ok(page.merge(run, simulated.complete(), true));
    } else {
      assert.ok(page.merge(run, simulated.increment(), false), `message ${k}`);
    }
  }
  assert.equal(simulated.phase, "finished");
  assert.ok(simulated.columnSize > 1, "the heat map became coarser");
  assert.deepEqual(grown(run), grown(whole(simulated.complete())));
  assert.ok(page.pace(run) > 0);
}

function anotherRun() {
  const run = whole(new SimulatedRun().train(10).complete());
  const other = new SimulatedRun({ seed: 2 }).train(10).complete();
  assert.equal(page.merge(run, other, false), null);
  assert.equal(run.run.seed, 1);
}

function namesOfRuns() {
  const runs = (...policies) => policies.map((policy, place) => ({ run: { policy, run_id: `run-${place}` } }));
  assert.deepEqual(plain(page.labels(runs("ata", "uta"))), ["ata", "uta"]);
  assert.deepEqual(plain(page.labels(runs("ata", "ata"))), ["run-0", "run-1"]);
  const named = runs("ata", "ata").map(({ run }, place) => ({ run: { ...run, labels: { name: `name-${place}` } } }));
  assert.deepEqual(plain(page.labels(named)), ["name-0", "name-1"]);
}

test("numbers and counts in words", numbers);
test("durations in words", durations);
test("phases in words; a finished run does not say “iterations”", phases);
test("sizes in words", sizes);
test("a smoothed curve has no trace of a spike", smoothing);
test("late results of honest workers are not among the refused", lateResults);
test("20,000 axes have few ticks, and different ones", scales);
test("the point nearest to a place", nearestPoint);
test("messages add up to the whole state, and a gap is noticed", merging);
test("a message of another run is not merged", anotherRun);
test("runs are called by their name, their policy, or their id", namesOfRuns);
