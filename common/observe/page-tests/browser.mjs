// Drives Chromium over its DevTools pipe, without a package: messages are JSON, each ended by a zero byte, on the file descriptors
// 3 (to the browser) and 4 (from it).

import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

const FLAGS = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--no-first-run"];
const NAMES = ["chromium", "chromium-browser", "google-chrome"];
/** The slowest thing that is waited for takes a second on an idle machine; a busy one gets ten times that, and more. */
const DEADLINE_MS = 20_000;
const POLL_MS = 25;
/** A picture's height in pixels; 500 workers make a longer page than anybody looks at. */
const MOST_HEIGHT = 6000;

export const DESKTOP = { width: 1280, height: 900 };
export const WIDE = { width: 1600, height: 900 };
export const PHONE = { width: 400, height: 800, mobile: true };

const KEY_CODES = { Tab: 9, Enter: 13, Escape: 27, " ": 32, End: 35, Home: 36, ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40 };
const TYPED = { Enter: "\r", " ": " " };
const SHIFT = 8;

const pause = () => new Promise((resolve) => setTimeout(resolve, POLL_MS));

/** Waits until `condition` answers something true, and returns that; `what` says in the error what did not happen. */
export async function eventually(what, condition) {
  const end = Date.now() + DEADLINE_MS;
  do {
    const answer = await condition();
    if (answer) return answer;
    await pause();
  } while (Date.now() < end);
  throw new Error(`expected within ${DEADLINE_MS / 1000} s: ${what}`);
}

/** Chromium's path: $CHROMIUM, or the first of its names in $PATH. */
export function findChromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const folders = (process.env.PATH ?? "").split(path.delimiter).filter(Boolean);
  const candidates = NAMES.flatMap((name) => folders.map((folder) => path.join(folder, name)));
  const found = candidates.find((file) => fs.existsSync(file));
  if (!found) throw new Error(`expected one of ${NAMES.join(", ")} in PATH, found none: install one, or set CHROMIUM to its path`);
  return found;
}

export class Browser {
  static async start(file = findChromium()) {
    const profile = fs.mkdtempSync(path.join(os.tmpdir(), "ata-page-tests-"));
    const flags = [...FLAGS, `--user-data-dir=${profile}`];
    // Its sandbox refuses to run as root, which containers do.
    if (process.getuid?.() === 0) flags.push("--no-sandbox");
    const child = spawn(file, [...flags, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    const browser = new Browser(child, profile);
    try {
      await browser.send("Browser.getVersion");
    } catch ({ message }) {
      await browser.close();
      throw new Error(`${file} cannot be started: ${message}`);
    }
    return browser;
  }

  constructor(child, profile) {
    Object.assign(this, { child, profile, lastId: 0, asked: new Map(), listeners: new Set(), whyGone: null });
    this.gone = new Promise((resolve) => {
      const end = (why) => {
        this.whyGone = why;
        for (const { reject } of this.asked.values()) reject(new Error(why));
        this.asked.clear();
        resolve();
      };
      child.on("error", ({ message }) => end(message));
      child.on("exit", (code, signal) => end(`Chromium ended with ${signal ?? `code ${code}`}`));
    });
    child.stdio[3].on("error", () => {}); // the end of the process tells more
    let rest = "";
    child.stdio[4].setEncoding("utf8").on("data", (text) => {
      const messages = (rest + text).split("\0");
      rest = messages.pop();
      for (const message of messages) this.hear(JSON.parse(message));
    });
  }

  hear(message) {
    const { id, error, result } = message;
    if (id === undefined) {
      for (const listener of this.listeners) listener(message);
      return;
    }
    const { resolve, reject, method } = this.asked.get(id);
    this.asked.delete(id);
    if (error) reject(new Error(`${method}: ${error.message}`));
    else resolve(result);
  }

  send(method, params = {}, sessionId = undefined) {
    return new Promise((resolve, reject) => {
      if (this.whyGone) throw new Error(this.whyGone);
      this.lastId += 1;
      this.asked.set(this.lastId, { resolve, reject, method });
      this.child.stdio[3].write(`${JSON.stringify({ id: this.lastId, method, params, sessionId })}\0`);
    });
  }

  /** A tab of its own; `view` has its size in CSS pixels, and whether it is `mobile` or `dark`. */
  async open(view) {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const tab = new Tab(this, targetId, sessionId);
    await tab.begin(view);
    return tab;
  }

  async close() {
    await this.send("Browser.close").catch(() => this.child.kill());
    await this.gone;
    fs.rmSync(this.profile, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** What went wrong in a page, if this message of the browser says so. */
function complaint({ method, params }) {
  if (method === "Runtime.exceptionThrown") return params.exceptionDetails.exception?.description ?? params.exceptionDetails.text;
  if (method === "Log.entryAdded" && params.entry.level === "error") return `${params.entry.text} (${params.entry.url})`;
  if (method === "Runtime.consoleAPICalled" && ["error", "warning"].includes(params.type)) {
    return params.args.map(({ value, description }) => value ?? description).join(" ");
  }
  return null;
}

class Tab {
  constructor(browser, targetId, sessionId) {
    Object.assign(this, { browser, targetId, sessionId, complaints: [], loads: 0 });
    this.listener = (message) => {
      if (message.sessionId !== sessionId) return;
      if (message.method === "Page.loadEventFired") this.loads += 1;
      const words = complaint(message);
      if (words) this.complaints.push(words);
    };
    browser.listeners.add(this.listener);
  }

  send(method, params) {
    return this.browser.send(method, params, this.sessionId);
  }

  async begin({ width, height, mobile = false, dark = false }) {
    this.width = width;
    for (const domain of ["Page", "Runtime", "Log", "Accessibility"]) await this.send(`${domain}.enable`);
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile });
    await this.send("Emulation.setTouchEmulationEnabled", { enabled: mobile });
    const features = [
      { name: "prefers-color-scheme", value: dark ? "dark" : "light" },
      { name: "prefers-reduced-motion", value: "reduce" }, // pictures show the ends of movements
    ];
    await this.send("Emulation.setEmulatedMedia", { features });
  }

  async close() {
    this.browser.listeners.delete(this.listener);
    await this.browser.send("Target.closeTarget", { targetId: this.targetId });
  }

  /** Opens an address, and waits until it is drawn. */
  async go(url) {
    const before = this.loads;
    const { errorText } = await this.send("Page.navigate", { url });
    if (errorText) throw new Error(`${url} cannot be opened: ${errorText}`);
    await eventually(`${url} is loaded`, () => this.loads > before);
    await this.drawn();
  }

  /** Runs before the page's own scripts, from the next address on. */
  beforePage(script) {
    return this.send("Page.addScriptToEvaluateOnNewDocument", { source: `(${script})()` });
  }

  /** Calls a function in the page, with arguments that JSON can carry, and returns its answer. */
  async call(script, ...values) {
    const expression = `(${script})(...${JSON.stringify(values)})`;
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Waits until a function called in the page answers something true. */
  until(script, ...values) {
    return eventually(`${script} of ${JSON.stringify(values)}`, () => this.call(script, ...values));
  }

  /** Waits for two frames: the page draws in the first, and watches sizes after it. */
  drawn() {
    return this.call(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  }

  text(selector) {
    return this.call((s) => document.querySelector(s)?.textContent, selector);
  }

  texts(selector) {
    return this.call((s) => [...document.querySelectorAll(s)].map((node) => node.textContent), selector);
  }

  count(selector) {
    return this.call((s) => document.querySelectorAll(s).length, selector);
  }

  attribute(selector, name) {
    return this.call((s, n) => document.querySelector(s)?.getAttribute(n), selector, name);
  }

  isShown(selector) {
    return this.call((s) => document.querySelector(s)?.checkVisibility() ?? false, selector);
  }

  focus(selector) {
    return this.call((s) => document.querySelector(s).focus(), selector);
  }

  async click(selector) {
    await this.call((s) => document.querySelector(s).click(), selector);
    await this.drawn();
  }

  async type(selector, words) {
    await this.call((s) => document.querySelector(s).select(), selector);
    await this.send("Input.insertText", { text: words });
    await this.drawn();
  }

  async press(key, { shift = false } = {}) {
    const code = key === " " ? "Space" : key;
    const event = { key, code, windowsVirtualKeyCode: KEY_CODES[key], modifiers: shift ? SHIFT : 0 };
    const down = key in TYPED ? { type: "keyDown", text: TYPED[key] } : { type: "rawKeyDown" };
    await this.send("Input.dispatchKeyEvent", { ...event, ...down });
    await this.send("Input.dispatchKeyEvent", { ...event, type: "keyUp" });
    await this.drawn();
  }

  /** Brings an element into view; the point at these shares of its width and height. */
  async pointIn(selector, across = 0.5, down = 0.5) {
    await this.call((s) => document.querySelector(s).scrollIntoView({ block: "center", behavior: "instant" }), selector);
    await this.drawn();
    const box = await this.call((s) => document.querySelector(s).getBoundingClientRect().toJSON(), selector);
    return { x: box.x + box.width * across, y: box.y + box.height * down };
  }

  async hover({ x, y }) {
    await this.send("Input.dispatchMouseEvent", { type: "mouseMoved", x, y });
    await this.drawn();
  }

  async touch({ x, y }) {
    await this.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [{ x, y }] });
    await this.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
    await this.drawn();
  }

  /** By how many pixels the page is wider than its window. */
  overflow() {
    return this.call((width) => document.documentElement.scrollWidth - width, this.width);
  }

  /** What assistive software is told of the page: the nodes that it is not told to ignore. */
  async accessibilityTree() {
    const { nodes } = await this.send("Accessibility.getFullAXTree");
    return nodes.filter(({ ignored }) => !ignored).map(({ role, name }) => ({ role: role?.value, name: name?.value ?? "" }));
  }

  /** Writes a PNG of the whole page. */
  async picture(file) {
    const { cssContentSize: size } = await this.send("Page.getLayoutMetrics");
    const clip = { x: 0, y: 0, width: size.width, height: Math.min(size.height, MOST_HEIGHT), scale: 1 };
    const { data } = await this.send("Page.captureScreenshot", { format: "png", clip, captureBeyondViewport: true });
    fs.writeFileSync(file, Buffer.from(data, "base64"));
  }
}
