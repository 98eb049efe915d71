// Checks of the charts, the heat map and the key numbers, by mouse, finger and keys.

import assert from "node:assert/strict";

import { DESKTOP, PHONE, check, tileRows } from "./tab.mjs";

const CHART = "#charts svg[role=img]";
const OPEN_TIPS = "#charts .tip:not([hidden])";
const NOTHING = { x: 2, y: 2 };

async function hoverChart(tab, site) {
  await tab.go(site.report("four"));
  await tab.hover(await tab.pointIn(CHART));
  assert.match(await tab.text(OPEN_TIPS), /^iteration \d+training: [\d.]+test: [\d.]+/);
  assert.equal(await tab.count(OPEN_TIPS), 1, "only the chart under the pointer has a tooltip");
  assert.equal(await tab.count("#charts .cross line"), 4, "all charts mark the place");
  await tab.picture("hover");
  await tab.hover(NOTHING);
  assert.equal(await tab.count(OPEN_TIPS), 0);
  assert.equal(await tab.count("#charts .cross line"), 0);
}

async function touchChart(tab, site) {
  await tab.go(site.report("four"));
  await tab.touch(await tab.pointIn(CHART));
  assert.equal(await tab.count(OPEN_TIPS), 1, "the values stay when the finger is lifted");
  await tab.picture("touch");
  await tab.touch(await tab.pointIn("#workers-title"));
  assert.equal(await tab.count(OPEN_TIPS), 0, "a touch elsewhere ends it");
}

async function keysOnChart(tab, site) {
  await tab.go(site.report("four"));
  await tab.focus(CHART);
  await tab.press("End");
  await tab.press("ArrowLeft");
  assert.match(await tab.text("#spoken"), /^iteration 119, training: /);
  await tab.press("Home");
  await tab.press("ArrowRight", { shift: true });
  assert.match(await tab.text("#spoken"), /^iteration 11, training: /);
  await tab.press("Escape");
  assert.equal(await tab.count(OPEN_TIPS), 0);
}

async function axes(tab, site) {
  await tab.go(site.report("four"));
  assert.match(await tab.attribute(CHART, "aria-label"), /^Loss against iteration\. training: /);
  await tab.click("#axis input[value='1']");
  assert.match(await tab.attribute(CHART, "aria-label"), /^Loss against runtime\. /);
  await tab.click("#axis input[value='2']");
  assert.match(await tab.attribute(CHART, "aria-label"), /^Loss against total worker time\. /);
  const log = "#charts [aria-label='Logarithmic axis of loss']";
  const before = await tab.attribute(log, "aria-pressed");
  const curve = await tab.attribute("#charts .frame .line", "d");
  await tab.click(log);
  assert.notEqual(await tab.attribute(log, "aria-pressed"), before);
  assert.notEqual(await tab.attribute("#charts .frame .line", "d"), curve);
  assert.ok((await tab.count("#charts .raw")) > 0);
  await tab.click("#smooth");
  assert.equal(await tab.count("#charts .raw"), 0, "without the moving mean there is one line for each curve");
}

async function tables(tab, site) {
  await tab.go(site.report("four"));
  await tab.click("#charts summary");
  await tab.until(() => document.querySelectorAll("#charts details[open] tbody tr").length >= 40);
  assert.deepEqual(await tab.texts("#charts details[open] thead th"), ["iteration", "training", "test"]);
  await tab.click("#heat summary");
  await tab.until(() => document.querySelectorAll("#heat details[open] tbody tr").length === 4);
  await tab.picture("tables");
}

async function heatMap(tab, site) {
  await tab.go(site.report("four"));
  await tab.focus("canvas");
  await tab.press("End");
  await tab.press("ArrowDown");
  await tab.press("ArrowLeft", { shift: true });
  assert.match(await tab.text("#spoken"), /^worker 2, worker-2, iterations? [\d,]+.*, [\d.]+ tasks per iteration$/);
  await tab.hover(await tab.pointIn("canvas", 0.5, 0.1));
  assert.match(await tab.text("#heat .tip"), /^worker 1, worker-1iteration/);
  await tab.press("Escape");
  assert.equal(await tab.isShown("#heat .tip"), false);
}

const heatWorkers = (tab) => tab.call(() => document.querySelectorAll("#heat details tbody tr").length);

async function heatOfACrowd(tab, site) {
  await tab.go(site.report("crowd"));
  await tab.click("#heat summary");
  await tab.until(() => document.querySelector("#heat details tbody") !== null);
  const some = await heatWorkers(tab);
  assert.ok(some >= 10 && some <= 40, `${some} rows`);
  assert.equal(await tab.text("#all-rows-label"), ` Also the ${500 - some} without tasks`);
  assert.match(await tab.attribute("canvas", "aria-label"), new RegExp(`: 500 workers\\. .* ${500 - some} had none\\.$`));
  await tab.click("#all-rows");
  assert.equal(await heatWorkers(tab), 500);
  assert.match(await tab.attribute("canvas", "aria-label"), new RegExp(`: 500 workers\\. .* ${500 - some} had none\\.$`));
  await tab.click("#all-rows");
  assert.equal(await heatWorkers(tab), some);
  await tab.click("#heat-order input[value=speed]");
  assert.equal(await heatWorkers(tab), some);
}

async function heatWithoutChoice(tab, site) {
  for (const name of ["four", "many"]) {
    await tab.go(site.report(name));
    assert.equal(await tab.isShown("#all-rows-label"), false, `${name}: all have had tasks, or are few`);
  }
}

async function balancedTiles(tab, site) {
  for (const [name, expected] of [["four", [6, 5]], ["plain", [6, 5]], ["many", [7, 6]], ["long", [7, 7]]]) {
    await tab.go(site.report(name));
    assert.deepEqual(await tileRows(tab), expected, name);
  }
}

async function resizedTiles(tab, site) {
  await tab.go(site.report("plain"));
  await tab.resize(800, 900);
  await tab.until(() => document.querySelector("#numbers").clientWidth < 800);
  await tab.drawn();
  assert.deepEqual(await tileRows(tab), [4, 4, 3]);
  await tab.resize(1600, 900);
  await tab.until(() => document.querySelector("#numbers").clientWidth > 1280);
  await tab.drawn();
  assert.deepEqual(await tileRows(tab), [6, 5]);
}

async function lastTileOnAPhone(tab, site) {
  await tab.go(site.report("plain"));
  assert.deepEqual(await tileRows(tab), [2, 2, 2, 2, 2, 1]);
  const isWhole = await tab.call(() => {
    const list = document.querySelector("#numbers");
    return list.lastElementChild.offsetWidth === list.offsetWidth;
  });
  assert.ok(isWhole, "the last tile has the whole row");
}

async function refusedTile(tab, site) {
  await tab.go(site.report("four"));
  assert.ok(!(await tab.texts("#numbers dt")).includes("Refused results"), "results that came late alarm nobody");
  await tab.go(site.report("long"));
  const tiles = await tab.texts("#numbers > div");
  assert.equal(tiles.at(-1), "Refused results32 not finite, 1 wrong size");
}

async function progress(tab, site) {
  await tab.go(site.report("sixty"));
  assert.equal(await tab.text("#name"), "baseline of <b>Monday</b>", "the user's name is the title");
  assert.match(await tab.text("#settings"), /^20261122-081918-ata-auto-0008 · policy ata-auto/);
  const tiles = Object.fromEntries(await tab.call(() => [...document.querySelectorAll("#numbers > div")].map((tile) => [...tile.children].map((part) => part.textContent)).map(([name, ...rest]) => [name, rest])));
  assert.match(tiles["Time left"][0], /s$/);
  assert.ok(Number(tiles["Samples/s"][0].replaceAll(",", "")) > 100);
  assert.deepEqual(tiles.Epochs, ["0.576", "of 50,000 samples"]);
  assert.equal(tiles["Skipped evaluations"][0], "3");
  await tab.go(site.report("finished"));
  assert.ok(!(await tab.texts("#numbers dt")).includes("Time left"));
}

async function header(tab, site) {
  await tab.go(site.report("plain"));
  assert.equal(await tab.text("#settings"), "policy uta · model cnn · budget 16 tasks · 1 sample per task · seed 3");
  await tab.go(site.report("finished"));
  assert.equal(await tab.text("#phase"), "✓ Finished");
  await tab.go(site.report("target-loss"));
  assert.equal(await tab.text("#phase"), "✓ Finished: target loss reached");
  await tab.go(site.report("failed"));
  assert.match(await tab.text("#phase"), /^✕ Failed: task 17 of iteration 51 failed on three/);
}

check("hovering over a chart shows its values, and the place in all", DESKTOP, hoverChart);
check("touching a chart keeps its values", PHONE, touchChart);
check("arrow keys move along a chart, and say its values", DESKTOP, keysOnChart);
check("axes, logarithm and moving mean", DESKTOP, axes);
check("drawings have their data as tables", DESKTOP, tables);
check("arrow keys and mouse on the heat map", DESKTOP, heatMap);
check("a crowd’s heat map has the workers with tasks, or all", DESKTOP, heatOfACrowd);
check("a heat map without empty rows offers no choice", DESKTOP, heatWithoutChoice);
check("tiles are spread evenly over their rows", DESKTOP, balancedTiles);
check("tiles follow the width of the window", DESKTOP, resizedTiles);
check("a last tile has the whole row on a phone", PHONE, lastTileOnAPhone);
check("refused results are a tile, late ones are not", DESKTOP, refusedTile);
check("speed, epochs and time left are tiles, and the name is the title", DESKTOP, progress);
check("settings and phase in the header", DESKTOP, header);
