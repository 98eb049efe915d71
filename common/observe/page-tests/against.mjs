// A short look at the page of a real server, whatever its run does: rows, charts, and nothing on the console.

import assert from "node:assert/strict";

import { DESKTOP, PHONE, WIDE } from "./browser.mjs";

/** What the pill says of a page that gets news. */
const CONNECTED = /^(live|the run has ended)/;

async function looksAlive(tab, address) {
  await tab.go(address);
  await tab.until((connected) => new RegExp(connected).test(document.querySelector("#connection")?.textContent), CONNECTED.source);
  await tab.until(() => document.querySelectorAll("#workers-table tbody tr").length > 0);
  await tab.until(() => document.querySelector("#charts .frame .line")?.getAttribute("d"));
  await tab.until(() => document.querySelector("canvas")?.clientHeight > 0);
  await tab.drawn();
  assert.notEqual(await tab.text("#phase"), "");
  assert.ok((await tab.count("#numbers > div")) >= 8, "key numbers are there");
}

const check = (view, address) => ({
  name: `${address} shows workers and charts, ${view.width} pixels wide`,
  view,
  run: async (tab) => {
    await looksAlive(tab, address);
    await tab.picture(`against-${view.width}`);
    assert.equal(await tab.overflow(), 0, "the page is as wide as its window");
  },
});

export const checksAgainst = (address) => [DESKTOP, WIDE, PHONE].map((view) => check(view, address));
