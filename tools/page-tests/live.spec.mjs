// Checks of a page whose run goes on: growth, lost messages, broken connections, and a page that nobody looks at.

import assert from "node:assert/strict";

import { DESKTOP, check, tileRows } from "./tab.mjs";

const done = (tab) => tab.call(() => parseInt(document.querySelector("#progress-text").textContent, 10));
const untilDone = (tab, iterations) =>
  tab.until((expected) => parseInt(document.querySelector("#progress-text").textContent, 10) === expected, iterations);
const untilConnected = (tab, words) => tab.until((expected) => document.querySelector("#connection").textContent === expected, words);

async function open(tab, site, name) {
  const live = site.begin(name);
  await tab.go(live.url);
  await untilConnected(tab, "live");
  return live;
}

async function growth(tab, site) {
  const live = await open(tab, site, "four");
  await untilDone(tab, 120);
  const curve = await tab.attribute("#charts .frame .line", "d");
  live.advance(5);
  await untilDone(tab, 125);
  assert.notEqual(await tab.attribute("#charts .frame .line", "d"), curve);
  live.advance(75);
  await untilDone(tab, 200);
  assert.equal(await tab.text("#phase"), "✓ Finished");
  assert.match(await tab.text("#log li"), /the run is finished: iterations/);
  assert.equal(live.fetches, 0);
}

async function waiting(tab, site) {
  const live = await open(tab, site, "waiting");
  await tab.until(() => document.querySelector("#phase").textContent === "◌ Waiting: 0 of 4 workers present");
  assert.equal(await tab.text("#workers-text"), "No worker has joined yet.");
  assert.equal(await tab.isShown("#curves"), false);
  live.advance(5);
  await tab.until(() => document.querySelector("#phase").textContent === "● Training");
  assert.equal(await tab.count("#workers-table tbody tr"), 4);
  assert.equal(await tab.isShown("#curves"), true);
}

/** One fetch of the whole state closes a gap, and later messages need none. */
async function gap(tab, site) {
  const live = await open(tab, site, "four");
  await untilDone(tab, 120);
  live.lose(5);
  live.advance(5);
  await untilDone(tab, 130);
  assert.equal(live.fetches, 1);
  live.advance(5);
  await untilDone(tab, 135);
  live.advance(5);
  await untilDone(tab, 140);
  assert.equal(live.fetches, 1);
  assert.equal(live.connections, 1);
}

async function reconnection(tab, site) {
  const live = await open(tab, site, "four");
  await untilDone(tab, 120);
  live.goDown();
  await untilConnected(tab, "connection lost, trying again");
  await tab.picture("lost");
  assert.equal(await done(tab), 120, "what is known stays");
  live.lose(10);
  live.goUp();
  await untilConnected(tab, "live");
  await untilDone(tab, 130);
  live.advance(5);
  await untilDone(tab, 135);
  assert.equal(live.connections, 2);
  assert.equal(live.fetches, 0, "the first message of a connection is complete");
}

async function endOfRun(tab, site) {
  const live = await open(tab, site, "four");
  live.advance(80);
  await untilDone(tab, 200);
  live.goDown();
  await untilConnected(tab, "the run has ended; its coordinator is gone");
}

/** Rows are changed in place: a new row for each of 500 workers in each second would cost too much. */
async function rowsStay(tab, site) {
  const live = await open(tab, site, "many");
  await untilDone(tab, 150);
  await tab.click("#more");
  await tab.call(() => {
    window.before = [...document.querySelectorAll("#workers-table tbody tr")];
  });
  live.advance(5);
  await untilDone(tab, 155);
  const stayed = await tab.call(() => {
    const now = document.querySelectorAll("#workers-table tbody tr");
    return window.before.filter((row, place) => now[place] === row).length;
  });
  assert.equal(stayed, 500);
}

/** The first refused result adds a twelfth tile. */
async function anotherTile(tab, site) {
  const live = await open(tab, site, "four");
  await untilDone(tab, 120);
  assert.deepEqual(await tileRows(tab), [6, 5]);
  live.run.refused = { "not finite": 1 };
  live.advance(5);
  await untilDone(tab, 125);
  assert.deepEqual(await tileRows(tab), [6, 6]);
}

/** Counts the messages that have come, and lets a check say whether anybody looks. */
function watchPage() {
  window.heard = 0;
  window.isHidden = false;
  Object.defineProperty(document, "hidden", { get: () => window.isHidden });
  window.EventSource = class extends EventSource {
    constructor(...address) {
      super(...address);
      this.addEventListener("message", () => {
        window.heard += 1;
      });
    }
  };
}

async function hidden(tab, site) {
  await tab.beforePage(watchPage);
  const live = await open(tab, site, "four");
  await untilDone(tab, 120);
  await tab.call(() => {
    window.isHidden = true;
  });
  live.advance(5);
  await tab.until(() => window.heard === 2);
  await tab.drawn();
  assert.equal(await done(tab), 120, "nothing is drawn while nobody looks");
  await tab.call(() => {
    window.isHidden = false;
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await untilDone(tab, 125);
}

/** What the browser says of connections that a check breaks. */
const BROKEN = /net::ERR_/;

check("a live run grows, and ends", DESKTOP, growth);
check("a run that waits for workers begins", DESKTOP, waiting);
check("after a gap the state is fetched once", DESKTOP, gap);
check("a broken connection is shown, and made again", DESKTOP, reconnection, BROKEN);
check("the end of a coordinator after its run is no fault", DESKTOP, endOfRun, BROKEN);
check("rows of 500 workers are changed in place", DESKTOP, rowsStay);
check("a tile that is added leaves the rows even", DESKTOP, anotherTile);
check("a hidden page draws nothing", DESKTOP, hidden);
