// A server with the page over simulated runs, under the content security policy of the real one. Nothing in it happens by itself:
// a check says when a message is sent, is lost, or the connection breaks.
//
// /report/NAME/ has a run as report.html does, /live/NUMBER/ one that goes on, /login the form.

import fs from "node:fs";
import http from "node:http";

import { SCENARIOS, compared } from "./scenarios.mjs";

const read = (file) => fs.readFileSync(new URL(`../../common/observe/${file}`, import.meta.url), "utf8");

export const asset = (name) => read(`assets/${name}`);

/** The page's scripts, in the order of src/page.rs. */
const scripts = () => [...read("src/page.rs").matchAll(/assets\/(\w+\.js)/g)].map(([, name]) => asset(name)).join("");

function contentSecurityPolicy() {
  const [, policy] = /const POLICY: &str = "([^"]*)"/.exec(read("src/server.rs"));
  return policy.replace(/\\\n\s*/g, "");
}

/** The page as src/page.rs puts it together. */
function page(title, runs) {
  const parts = [
    ["<!--TITLE-->", title], ["/*STYLE*/", asset("page.css")], ["/*RUNS*/", JSON.stringify(runs).replaceAll("<", "\\u003c")],
    ["/*SCRIPT*/", scripts()],
  ];
  return parts.reduce((text, [mark, part]) => text.replace(mark, () => part), asset("page.html"));
}

/** A run that goes on, and the browsers that watch it. */
class LiveRun {
  constructor(path, run) {
    Object.assign(this, { path, run, watchers: new Set(), connections: 0, fetches: 0, isDown: false });
    run.complete();
  }

  /** Trains, and tells all who watch. */
  advance(iterations) {
    this.run.train(iterations);
    this.tell();
  }

  /** Trains, and the message about it is lost. */
  lose(iterations) {
    this.run.train(iterations);
    this.run.increment();
  }

  tell() {
    const message = `data: ${JSON.stringify(this.run.increment())}\n\n`;
    for (const watcher of this.watchers) watcher.write(message);
  }

  /** Breaks all connections, and refuses new ones until `goUp`. */
  goDown() {
    this.isDown = true;
    for (const watcher of this.watchers) watcher.socket.destroy();
  }

  goUp() {
    this.isDown = false;
  }

  answer(what, response) {
    if (this.isDown) return response.socket.destroy();
    if (what === "events") return this.watch(response);
    if (what === "api/state") {
      this.fetches += 1;
      response.setHeader("content-type", "application/json");
      return response.end(JSON.stringify(this.run.complete()));
    }
    response.statusCode = 404;
    return response.end();
  }

  watch(response) {
    this.connections += 1;
    this.watchers.add(response);
    response.on("close", () => this.watchers.delete(response));
    response.setHeader("content-type", "text/event-stream");
    // Browsers wait for three seconds before they connect again, unless they are told otherwise.
    response.write(`retry: 100\n\ndata: ${JSON.stringify(this.run.complete())}\n\n`);
  }
}

export class Site {
  /** Listens on a free port. */
  static async start() {
    const site = new Site();
    site.server = http.createServer((request, response) => site.answer(request, response));
    await new Promise((resolve) => site.server.listen(0, "127.0.0.1", resolve));
    site.address = `http://127.0.0.1:${site.server.address().port}`;
    return site;
  }

  constructor() {
    this.live = [];
  }

  /** The address of a finished page. */
  report(name) {
    return `${this.address}/report/${name}/`;
  }

  get login() {
    return `${this.address}/login`;
  }

  /** A run that goes on; its page is at `url`. */
  begin(name) {
    const path = String(this.live.length);
    const live = new LiveRun(path, SCENARIOS[name]());
    live.url = `${this.address}/live/${path}/`;
    this.live.push(live);
    return live;
  }

  answer(request, response) {
    const [, kind, name, ...rest] = new URL(request.url, this.address).pathname.split("/");
    const what = rest.join("/");
    const html = (text) => {
      response.setHeader("content-type", "text/html; charset=utf-8");
      response.setHeader("content-security-policy", contentSecurityPolicy());
      response.end(text);
    };
    if (kind === "login") return html(asset("login.html"));
    if (kind === "report" && what === "") {
      const runs = name === "compared" ? compared() : [SCENARIOS[name]()];
      return html(page(name, { live: false, messages: runs.map((run) => run.complete()) }));
    }
    if (kind === "live" && what === "") return html(page("ata", { live: true, messages: [] }));
    if (kind === "live") return this.live[Number(name)].answer(what, response);
    response.statusCode = 404;
    return response.end();
  }

  close() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }
}
