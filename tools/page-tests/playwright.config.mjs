// Tests of the dashboard's page in Chromium: npm ci && npx playwright test.
//
// Chromium is $CHROMIUM, or chromium, chromium-browser or google-chrome in PATH, or the one of `npx playwright install chromium`.

import fs from "node:fs";
import path from "node:path";

import { defineConfig } from "@playwright/test";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];

function installedChromium() {
  const folders = (process.env.PATH ?? "").split(path.delimiter).filter(Boolean);
  return NAMES.flatMap((name) => folders.map((folder) => path.join(folder, name))).find((file) => fs.existsSync(file));
}

export default defineConfig({
  testMatch: "*.spec.mjs",
  outputDir: "node_modules/.results",
  // The slowest thing that is waited for takes a second on an idle machine; a busy one gets twenty times that.
  expect: { timeout: 20_000 },
  timeout: 180_000,
  fullyParallel: true,
  forbidOnly: true,
  reporter: "list",
  use: {
    launchOptions: {
      executablePath: process.env.CHROMIUM || installedChromium(),
      // Chromium's sandbox refuses to run as root, which containers do.
      chromiumSandbox: process.getuid?.() !== 0,
    },
  },
});
