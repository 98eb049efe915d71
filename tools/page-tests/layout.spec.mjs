// Checks that no page is wider than its window: each scenario on a phone, and on two desktops of which one is dark.

import assert from "node:assert/strict";

import { DESKTOP, PHONE, WIDE, check } from "./tab.mjs";
import { SCENARIOS } from "./scenarios.mjs";

const VIEWS = [PHONE, DESKTOP, { ...WIDE, dark: true }];

async function fits(tab, name, address, { width }) {
  await tab.go(address);
  await tab.picture(`${name}-${width}`);
  assert.equal(await tab.overflow(), 0, `${name} is wider than ${width} pixels`);
}

for (const view of VIEWS) {
  check(`no page is wider than ${view.width} pixels${view.dark ? ", in the dark scheme" : ""}`, view, async (tab, site) => {
    for (const name of [...Object.keys(SCENARIOS), "compared"]) await fits(tab, name, site.report(name), view);
    await fits(tab, "login", site.login, view);
  });
}
