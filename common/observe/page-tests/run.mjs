// Checks of the page in a browser, by hand: node common/observe/page-tests/run.mjs. Needs node 20 and Chromium, and no package.

import fs from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";

import { CHECKS as ACCESS } from "./access.mjs";
import { checksAgainst } from "./against.mjs";
import { Browser } from "./browser.mjs";
import { CHECKS as CONTRAST } from "./contrast.mjs";
import { CHECKS as DRAWINGS } from "./drawings.mjs";
import { CHECKS as FUNCTIONS } from "./functions.mjs";
import { CHECKS as LAYOUT } from "./layout.mjs";
import { CHECKS as LIVE } from "./live.mjs";
import { Site } from "./site.mjs";
import { CHECKS as WORKERS } from "./workers.mjs";

const HELP = `node run.mjs [--shots DIR] [--against URL] [WORDS]

Runs the checks of the dashboard's page whose name contains WORDS, or all of them.
Exits with 0 if all pass, with 1 if one fails, and with 64 if it cannot begin.

  --shots DIR     write pictures of what is checked into this folder
  --against URL   check the page of a server that is running, and nothing else
Chromium is $CHROMIUM, or chromium, chromium-browser or google-chrome in PATH.`;

function readArguments() {
  const options = { shots: { type: "string" }, against: { type: "string" }, help: { type: "boolean", short: "h" } };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  return { ...values, words: positionals.join(" ") };
}

/** Gives a tab `picture(name)`, which writes into the folder if one is asked for. */
function takePictures(tab, folder) {
  const write = tab.picture.bind(tab);
  tab.picture = async (name) => {
    if (folder) await write(path.join(folder, `${name}.png`));
  };
}

/** Runs a check in a tab of its own; what its page complains of fails it, unless the check expects that. */
async function runInTab({ view, run, expected }, { browser, site, shots }) {
  const tab = await browser.open(view);
  takePictures(tab, shots);
  try {
    await run(tab, site);
    const unexpected = tab.complaints.filter((words) => !expected?.test(words));
    if (unexpected.length > 0) throw new Error(`the page complains: ${unexpected.join("; ")}`);
  } finally {
    await tab.close();
  }
}

/** Prints a line; returns whether the check passed. */
async function passes(check, tools) {
  try {
    if (check.view) await runInTab(check, tools);
    else await check.run();
    console.log(`ok    ${check.name}`);
    return true;
  } catch (error) {
    console.log(`FAIL  ${check.name}\n      ${error.message.replaceAll("\n", "\n      ")}`);
    return false;
  }
}

async function runAll(checks, shots) {
  const browser = await Browser.start();
  const site = await Site.start();
  let passed = 0;
  try {
    for (const check of checks) {
      if (await passes(check, { browser, site, shots })) passed += 1;
    }
  } finally {
    await browser.close();
    await site.close();
  }
  console.log(`${passed} of ${checks.length} checks passed`);
  return passed === checks.length;
}

async function main() {
  const { help, shots, against, words } = readArguments();
  if (help) return console.log(HELP);
  if (shots) fs.mkdirSync(shots, { recursive: true });
  const all = against ? checksAgainst(against) : [...FUNCTIONS, ...CONTRAST, ...DRAWINGS, ...WORKERS, ...LIVE, ...ACCESS, ...LAYOUT];
  const checks = all.filter(({ name }) => name.includes(words));
  if (checks.length === 0) throw new Error(`no check has “${words}” in its name`);
  if (!(await runAll(checks, shots))) process.exitCode = 1;
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 64;
});
