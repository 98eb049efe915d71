// The page of the program itself: a run of `ata up`, and the comparison of two runs by `ata report`. The program is $ATA, or
// target/release/ata; $ATA_PAGE tests the page of a server that is running in its place.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { expect, test } from "@playwright/test";

import { DESKTOP, PHONE, Tab, WIDE } from "./tab.mjs";

const ATA = process.env.ATA ?? fileURLToPath(new URL("../../target/release/ata", import.meta.url));
const SMALL = ["--workers", "2", "--model", "cnn:widths=4/4/8/16", "--task-batch", "2", "--device", "cpu", "--budget", "4"];
const ROWS = "#workers-table tbody tr";

const hasProgram = fs.existsSync(ATA);
let folder;
let run;

/** A port that is free now. */
function freePort() {
  const server = net.createServer();
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  }));
}

/** Starts a run that lasts until it is stopped; the address of its page. */
async function startRun() {
  const address = `127.0.0.1:${await freePort()}`;
  const args = ["up", "--out", "live", "--dashboard", address, "--iterations", "1000000", "--task-time", "const(20)", ...SMALL];
  run = spawn(ATA, args, { cwd: folder, stdio: "ignore" });
  const answers = () => fetch(`http://${address}`).then(({ ok }) => ok, () => false);
  await expect.poll(answers, { timeout: 60_000 }).toBe(true);
  return `http://${address}`;
}

const iterations = (tab) => tab.call(() => parseInt(document.querySelector("#progress-text").textContent.replaceAll(",", ""), 10));

async function inTab(browser, view, use) {
  const tab = await Tab.open(browser, view);
  try {
    await use(tab);
    assert.deepEqual(tab.complaints, []);
  } finally {
    await tab.page.context().close();
  }
}

test.describe.configure({ mode: "serial" });
test.skip(!hasProgram && !process.env.ATA_PAGE, `expected the program at ${ATA}: cargo build --release, or set ATA`);

test.beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), "ata-page-tests-"));
});

test.afterAll(() => {
  run?.kill("SIGKILL");
  fs.rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
});

test("the page of a run loads, and follows it", async ({ browser }) => {
  const address = process.env.ATA_PAGE ?? await startRun();
  for (const view of [DESKTOP, WIDE, PHONE]) {
    await inTab(browser, view, async (tab) => {
      await tab.go(address);
      await tab.until(() => /^(live|the run has ended)/.test(document.querySelector("#connection")?.textContent));
      await tab.until((rows) => document.querySelectorAll(rows).length > 0, ROWS);
      await tab.until(() => document.querySelector("#charts .frame .line")?.getAttribute("d"));
      await tab.until(() => document.querySelector("canvas")?.clientHeight > 0);
      await tab.drawn();
      assert.notEqual(await tab.text("#phase"), "");
      assert.ok((await tab.count("#numbers > div")) >= 8, "key numbers are there");
      assert.equal(await tab.overflow(), 0, "the page is as wide as its window");
      await tab.picture(`up-${view.width}`);
      if (process.env.ATA_PAGE) return;
      assert.equal(await tab.count(ROWS), 2);
      const before = await iterations(tab);
      await tab.until((k) => parseInt(document.querySelector("#progress-text").textContent.replaceAll(",", ""), 10) > k, before);
    });
  }
});

test("two runs are compared on one page", async ({ browser }) => {
  test.skip(!hasProgram, "it needs the program");
  const ata = (...args) => {
    const { status, stderr } = spawnSync(ATA, args, { cwd: folder, encoding: "utf8" });
    assert.equal(status, 0, stderr);
  };
  for (const policy of ["uta", "gta"]) {
    ata("up", "--out", policy, "--policy", policy, "--iterations", "5", "--task-time", "none", ...SMALL);
  }
  ata("report", "uta", "gta", "--out", "comparison.html");
  await inTab(browser, DESKTOP, async (tab) => {
    await tab.go(pathToFileURL(path.join(folder, "comparison.html")).href);
    assert.deepEqual(await tab.texts("#charts figure:first-child .legend span"),
      ["uta, training", "uta, test", "gta, training", "gta, test"]);
    assert.equal(await tab.count("#runs-table input"), 2);
    assert.equal(await tab.count(ROWS), 2);
  });
});
