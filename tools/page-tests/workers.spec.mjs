// Checks of the table of workers, and of several runs side by side.

import assert from "node:assert/strict";

import { DESKTOP, check } from "./tab.mjs";

const ROWS = "#workers-table tbody tr";
const firstName = (tab) => tab.text(`${ROWS} .toggle`);
const rows = (tab) => tab.count(ROWS);

/** Focuses the button in a header. */
const focusHeader = (tab, title) => tab.call((words) => {
  const buttons = [...document.querySelectorAll("#workers-table thead button")];
  buttons.find((button) => button.textContent.startsWith(words)).focus();
}, title);

async function sorting(tab, site) {
  await tab.go(site.report("many"));
  await focusHeader(tab, "Mean time");
  await tab.press("Enter");
  assert.equal(await tab.count("[aria-sort]"), 1);
  assert.equal(await tab.attribute("[aria-sort]", "aria-sort"), "ascending");
  assert.equal(await firstName(tab), "1 worker-1");
  await tab.press(" ");
  assert.equal(await tab.attribute("[aria-sort]", "aria-sort"), "descending");
  assert.notEqual(await firstName(tab), "1 worker-1");
  await focusHeader(tab, "Tasks now");
  await tab.press("Enter");
  assert.equal(await tab.attribute("[aria-sort]", "aria-sort"), "descending", "of counts, the largest come first");
}

async function filtering(tab, site) {
  await tab.go(site.report("many"));
  assert.equal(await rows(tab), 50);
  await tab.click("#more");
  assert.equal(await rows(tab), 500);
  await tab.click("#with-tasks");
  const withTasks = await rows(tab);
  assert.ok(withTasks > 50 && withTasks < 500, `${withTasks} with tasks`);
  await tab.type("#filter", "computing h100");
  const found = await rows(tab);
  assert.ok(found > 0 && found < withTasks, `${found} found`);
  assert.equal(await tab.text("#shown-count"), `${found} of 500`);
  await tab.type("#filter", "no such worker");
  assert.equal(await rows(tab), 0);
}

async function details(tab, site) {
  await tab.go(site.report("four"));
  await tab.focus(`${ROWS} .toggle`);
  await tab.press("Enter");
  assert.equal(await rows(tab), 5);
  const words = await tab.text("tr.details");
  assert.match(words, /Worker 1 has \d+ tasks: /);
  assert.match(words, /Measured on [\d,]+ tasks: .* tasks applied, 0 probes; failed \d times?, lost \d times?, rested \d times?\./);
  assert.equal(await tab.call(() => document.activeElement.getAttribute("aria-expanded")), "true", "the focus stays");
  await tab.picture("details");
  await tab.press(" ");
  assert.equal(await rows(tab), 4);
}

async function names(tab, site) {
  await tab.go(site.report("long"));
  await tab.click(".toggle");
  assert.equal(await tab.count("img"), 0);
  assert.match(await tab.text("tr.details"), /<img src=x onerror=alert\(1\)>/);
  assert.match(await tab.text("#log"), /<img src=x/);
}

async function rule(tab, site) {
  await tab.go(site.report("four"));
  assert.equal(await tab.text("#workers-text"),
    "4 workers: 4 computing. Iteration 121: tasks are allocated so that the last worker is expected to finish as early as possible.");
  await tab.go(site.report("finished"));
  assert.equal(await tab.text("#workers-text"), "4 workers: 4 away.", "a run that ended allocates nothing");
}

async function runsSideBySide(tab, site) {
  await tab.go(site.report("compared"));
  assert.deepEqual(await tab.texts("#charts figure:first-child .legend span"),
    ["ata-auto, training", "ata-auto, test", "uta, training", "uta, test", "gta, training", "gta, test"]);
  assert.equal(await rows(tab), 4);
  await tab.focus("#runs-table input");
  await tab.press("ArrowDown");
  assert.equal(await rows(tab), 5);
  assert.match(await tab.text("#settings"), /policy uta/);
  assert.equal(await tab.call(() => document.activeElement.value), "1", "the focus stays on the choice");
}

/** With many workers, those with tasks come first; a click on a header still sorts. Figures that no worker has take no column. */
async function tasksFirst(tab, site) {
  await tab.go(site.report("sixty"));
  const tasks = (await tab.texts("#workers-table tbody .at-tasks")).map((words) => Number(/\d+$/.exec(words)[0]));
  const some = tasks.filter((count) => count > 0).length;
  assert.ok(some > 2 && some < 40 && tasks.slice(0, some).every((count) => count > 0), `${tasks}`);
  await focusHeader(tab, "Worker");
  await tab.press("Enter");
  assert.equal(await firstName(tab), "1 worker-1");
  assert.equal(await tab.isShown("#workers-table .at-memory"), true);
  await tab.go(site.report("plain"));
  for (const column of ["memory", "vector", "energy"]) {
    assert.equal(await tab.isShown(`#workers-table .at-${column}`), false, column);
  }
}

/** The costs are above the table, however long it is, and ratios are relative to the replay. */
async function costsAbove(tab, site) {
  await tab.go(site.report("sixty"));
  assert.ok(await tab.call(() => document.querySelector("#costs").getBoundingClientRect().bottom < document.querySelector("#workers").getBoundingClientRect().top));
  const ratios = await tab.call(() => [...document.querySelectorAll("#costs tbody tr .cost:nth-child(2) .faint")].map((ratio) => ratio.textContent));
  assert.deepEqual(ratios.slice(0, 3), ["1.11×", "1×", "1.02×"]);
  assert.match((await tab.texts("#costs tbody .note"))[0], /^within the noise of \d+ iterations/);
}

check("of many workers, those with tasks come first", DESKTOP, tasksFirst);
check("the costs are above the workers", DESKTOP, costsAbove);
check("workers are sorted by keys", DESKTOP, sorting);
check("workers are filtered, and all are shown", DESKTOP, filtering);
check("a worker’s details open and close by keys", DESKTOP, details);
check("names of workers stay text", DESKTOP, names);
check("the rule of the allocation is explained", DESKTOP, rule);
check("several runs are compared, and one is chosen by keys", DESKTOP, runsSideBySide);
