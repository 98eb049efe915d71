// Checks of keyboards and assistive software: the order of the Tab key, and a name for everything that needs one.

import assert from "node:assert/strict";

import { DESKTOP, check } from "./tab.mjs";

/** What has no use without a name. */
const NAMED = new Set([
  "image", "img", "button", "checkbox", "radio", "searchbox", "textbox", "progressbar", "progressIndicator", "region", "figure", "link",
  "table", "columnheader", "DisclosureTriangle",
]);

/** Stops of the Tab key in the page of four workers, in order. */
const STOPS = [
  "Skip to the numbers and charts", "Skip to the workers",
  "Iteration", "Smooth",
  "Logarithmic axis of loss", "Loss against iteration", "Data as table",
  "Test accuracy against iteration", "Data as table",
  "Logarithmic axis of iteration time", "Iteration time against iteration", "Data as table",
  "Learning rate against iteration", "Data as table",
  "Costs by policy", "Events",
  "Table of workers",
  "Worker", "State", "Tasks now", "Mean time of a task", "Busy", "Processor cores", "Memory", "Network", "Tasks applied",
  "Failed, lost, rested", "Device",
  "1 worker-1", "2 worker-2", "3 worker-3", "4 worker-4",
  "By number", "Heat map of tasks per iteration", "Data as table",
];

const nameOfFocus = () => {
  const { activeElement: node } = document;
  const labelled = document.getElementById(node.getAttribute("aria-labelledby"))?.textContent;
  return (node.getAttribute("aria-label") ?? labelled ?? node.labels?.[0]?.textContent ?? node.textContent).trim();
};

async function tabOrder(tab, site) {
  await tab.go(site.report("four"));
  for (const [place, expected] of STOPS.entries()) {
    await tab.press("Tab");
    const name = await tab.call(nameOfFocus);
    assert.ok(name.startsWith(expected), `stop ${place + 1} is “${name}”, expected “${expected}”`);
  }
}

async function skipLinks(tab, site) {
  await tab.go(site.report("four"));
  await tab.press("Tab");
  await tab.press("Tab");
  assert.ok(await tab.call(() => document.activeElement.getBoundingClientRect().left >= 0), "the link can be seen");
  await tab.press("Enter");
  assert.equal(await tab.call(() => document.activeElement.id), "workers");
}

async function names(tab, site) {
  const addresses = ["four", "compared", "crowd", "waiting"].map((name) => site.report(name));
  for (const address of [...addresses, site.login]) {
    await tab.go(address);
    const tree = await tab.accessibilityTree();
    const nameless = tree.filter(({ role, name }) => NAMED.has(role) && name.trim() === "").map(({ role }) => role);
    assert.deepEqual(nameless, [], `without a name in ${address}`);
    assert.ok(tree.some(({ role, name }) => role === "heading" && name !== ""), `${address} has a tree`);
  }
}

async function headings(tab, site) {
  await tab.go(site.report("compared"));
  const ranks = await tab.call(() => [...document.querySelectorAll("h1, h2, h3")].map(({ tagName }) => Number(tagName[1])));
  assert.equal(ranks.filter((rank) => rank === 1).length, 1);
  let before = 0;
  for (const rank of ranks) {
    assert.ok(rank <= before + 1, `a heading of rank ${rank} follows one of rank ${before}: ${ranks}`);
    before = rank;
  }
}

check("the Tab key goes through the page in order", DESKTOP, tabOrder);
check("a skip link can be seen, and leads to the workers", DESKTOP, skipLinks);
check("controls, images and tables have names", DESKTOP, names);
check("headings skip no rank", DESKTOP, headings);
