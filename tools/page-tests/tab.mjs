// A tab of Chromium with a page of the dashboard in it, and `check`, which declares a test that drives one.

import fs from "node:fs";
import path from "node:path";

import { expect, test } from "@playwright/test";

import { Site } from "./site.mjs";

/** A picture's height in pixels; 500 workers make a longer page than anybody looks at. */
const MOST_HEIGHT = 6000;

export const DESKTOP = { width: 1280, height: 900 };
export const WIDE = { width: 1600, height: 900 };
export const PHONE = { width: 400, height: 800, mobile: true };

const KEYS = { " ": "Space" };

export class Tab {
  /** Opens a tab; `view` has its size in CSS pixels, and whether it is `mobile` or `dark`. */
  static async open(browser, { width, height, mobile = false, dark = false }) {
    const context = await browser.newContext({
      viewport: { width, height }, isMobile: mobile, hasTouch: mobile, colorScheme: dark ? "dark" : "light",
      reducedMotion: "reduce", // pictures show the ends of movements
    });
    return new Tab(await context.newPage(), width);
  }

  constructor(page, width) {
    Object.assign(this, { page, width, complaints: [] });
    page.on("pageerror", (error) => this.complaints.push(error.message));
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) this.complaints.push(message.text());
    });
  }

  /** Opens an address, and waits until it is drawn. */
  async go(url) {
    await this.page.goto(url);
    await this.drawn();
  }

  /** Runs before the page's own scripts, from the next address on. */
  beforePage(script) {
    return this.page.addInitScript(script);
  }

  /** Calls a function in the page, and returns its answer. */
  call(script, ...values) {
    return this.page.evaluate(`(${script})(...${JSON.stringify(values)})`);
  }

  /** Waits until a function called in the page answers something true. */
  until(script, ...values) {
    return expect.poll(() => this.call(script, ...values), { message: String(script) }).toBeTruthy();
  }

  /** Waits for two frames: the page draws in the first, and watches sizes after it. */
  drawn() {
    return this.call(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve()))));
  }

  text(selector) {
    return this.call((s) => document.querySelector(s)?.textContent, selector);
  }

  texts(selector) {
    return this.page.locator(selector).allTextContents();
  }

  count(selector) {
    return this.page.locator(selector).count();
  }

  attribute(selector, name) {
    return this.page.locator(selector).first().getAttribute(name);
  }

  isShown(selector) {
    return this.page.locator(selector).first().isVisible();
  }

  focus(selector) {
    return this.page.locator(selector).first().focus();
  }

  async click(selector) {
    await this.call((s) => document.querySelector(s).click(), selector);
    await this.drawn();
  }

  async type(selector, words) {
    await this.page.locator(selector).first().fill(words);
    await this.drawn();
  }

  async press(key, { shift = false } = {}) {
    await this.page.keyboard.press((shift ? "Shift+" : "") + (KEYS[key] ?? key));
    await this.drawn();
  }

  async resize(width, height) {
    await this.page.setViewportSize({ width, height });
  }

  /** Brings an element into view; the point at these shares of its width and height. */
  async pointIn(selector, across = 0.5, down = 0.5) {
    await this.call((s) => document.querySelector(s).scrollIntoView({ block: "center", behavior: "instant" }), selector);
    await this.drawn();
    const box = await this.call((s) => document.querySelector(s).getBoundingClientRect().toJSON(), selector);
    return { x: box.x + box.width * across, y: box.y + box.height * down };
  }

  async hover({ x, y }) {
    await this.page.mouse.move(x, y);
    await this.drawn();
  }

  async touch({ x, y }) {
    await this.page.touchscreen.tap(x, y);
    await this.drawn();
  }

  /** By how many pixels the page is wider than its window. */
  overflow() {
    return this.call((width) => document.documentElement.scrollWidth - width, this.width);
  }

  /** Roles and names of the nodes that assistive software does not ignore. */
  async accessibilityTree() {
    const session = await this.page.context().newCDPSession(this.page);
    const { nodes } = await session.send("Accessibility.getFullAXTree");
    return nodes.filter(({ ignored }) => !ignored).map(({ role, name }) => ({ role: role?.value, name: name?.value ?? "" }));
  }

  /** Writes a PNG of the whole page into $SHOTS, if that is set. */
  async picture(name) {
    const folder = process.env.SHOTS;
    if (!folder) return;
    fs.mkdirSync(folder, { recursive: true });
    const height = Math.min(await this.call(() => document.documentElement.scrollHeight), MOST_HEIGHT);
    const clip = { x: 0, y: 0, width: this.width, height };
    await this.page.screenshot({ path: path.join(folder, `${name}.png`), clip, fullPage: true });
  }
}

/** Tiles in each row of the key numbers. */
export const tileRows = (tab) => tab.call(() => {
  const rows = new Map();
  for (const tile of document.querySelectorAll("#numbers > div")) rows.set(tile.offsetTop, (rows.get(tile.offsetTop) ?? 0) + 1);
  return [...rows.values()];
});

/** Declares a test with a tab and a site of its own. It fails if the page complains of anything but what is `expected`. */
export function check(name, view, run, expected) {
  test(name, async ({ browser }) => {
    const [tab, site] = [await Tab.open(browser, view), await Site.start()];
    try {
      await run(tab, site);
      expect(tab.complaints.filter((words) => !expected?.test(words))).toEqual([]);
    } finally {
      await tab.page.context().close();
      await site.close();
    }
  });
}
