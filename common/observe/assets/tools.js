// Small tools of the page: elements, numbers as text, scales of axes.
"use strict";

const NONE = "–";
const NARROW = "\u00a0"; // keeps a number and its unit on one line

/** Sets or removes an attribute, but leaves the page alone if nothing changes: most of a message repeats the one before. */
function attribute(node, key, value) {
  if (value == null) node.removeAttribute(key);
  else if (node.getAttribute(key) !== String(value)) node.setAttribute(key, value);
}

/** Text is set, never parsed: names of workers and messages of errors come from other machines. */
function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

function filled(node, attributes, children) {
  for (const key in attributes) attribute(node, key, attributes[key]);
  node.append(...children);
  return node;
}

const el = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
const shape = (tag, attributes, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const byId = (id) => document.getElementById(id);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

/** A number to `places` significant digits; whole numbers below ten million are written out. */
function number(x, places = 3) {
  if (x == null) return NONE;
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return x.toExponential(places - 1).replace("e+", "e");
  const whole = Number.isInteger(x) || size >= 10 ** (places - 1);
  const [before, after] = (whole ? x.toFixed(0) : x.toPrecision(places)).split(".");
  return before.replace(/\B(?=(\d{3})+$)/g, ",") + (after ? `.${after}` : "");
}

/** A count of things, as in "1 task" and "2 tasks". */
const counted = (count, thing) => `${number(count)} ${thing}${count === 1 ? "" : "s"}`;

const percent = (share, places = 3) => (share == null ? NONE : `${number(share * 100, places)}${NARROW}%`);
/** For shares of a whole, where a tenth of a percent is noise. */
const wholePercent = (share) => (share == null ? NONE : `${Math.round(share * 100)}${NARROW}%`);

function seconds(s) {
  if (s == null) return NONE;
  if (s === 0) return `0${NARROW}s`;
  if (s < 0.9995e-6) return `${(s * 1e9).toPrecision(3)}${NARROW}ns`;
  if (s < 0.9995e-3) return `${(s * 1e6).toPrecision(3)}${NARROW}µs`;
  if (s < 0.9995) return `${(s * 1e3).toPrecision(3)}${NARROW}ms`;
  if (s < 99.95) return `${s.toPrecision(3)}${NARROW}s`;
  const [size, unit, part, small] = s < 3600 ? [60, "min", 1, "s"] : s < 48 * 3600 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
  const parts = Math.round(s / part);
  return [Math.floor(parts * part / size), unit, parts % (size / part), small].join(NARROW);
}

const FORMATS = { count: number, whole: number, time: seconds, share: percent };

const UNITS = {
  count: [[1, ""]],
  whole: [[1, ""]],
  share: [[0.01, "%"]],
  time: [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"], [120, "min", 60], [7200, "h", 3600], [172800, "d", 86400]],
};

const niceStep = (rough) => {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
};

/** Without the zeros at the end of a fraction, which `number` pads with. */
const withoutZeros = (words) => words.replace(/\.(\d*?)0+(?=\D|$)/, (_, rest) => rest && `.${rest}`);
const label = (value, kind) => withoutZeros(FORMATS[kind](value));

/** A linear axis from `low` to `high`, or to round numbers beyond, with about `count` ticks. */
function linearScale(low, high, kind, count, roundOut) {
  const whole = kind === "whole" ? 1 : 0;
  // Ends closer than that would need ticks that differ in digits which a number does not have.
  if (!(high - low > Math.abs(low) * 1e-9)) high = low + (whole || Math.abs(low) * 0.1 || 1);
  const [least, unit, size = least] = UNITS[kind].findLast(([from]) => high >= from) ?? UNITS[kind][0];
  const step = Math.max(whole, niceStep((high - low) / size / count) * size);
  if (roundOut) {
    low = Math.floor(low / step + 1e-9) * step;
    high = Math.ceil(high / step - 1e-9) * step;
  }
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
    const value = Number((k * step / size).toPrecision(12));
    const words = number(value, Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7 ? 3 : 12);
    ticks.push([k * step, withoutZeros(words) + (unit && NARROW + unit)]);
  }
  return { low, high, ticks, at: (x) => (x - low) / (high - low), from: (share) => low + share * (high - low) };
}

/** A logarithmic axis; its ends are round numbers, so that it stays put while values move a little. */
function logScale(low, high, kind, count) {
  const round = (x, up) => {
    const power = 10 ** Math.floor(Math.log10(x) + 1e-9);
    const steps = [1, 2, 5, 10].map((factor) => factor * power);
    return up ? steps.find((s) => s >= x * 0.999) : steps.findLast((s) => s <= x * 1.001);
  };
  low = round(Math.max(low, 1e-300), false);
  high = Math.max(round(high, true), low * 10);
  const decades = Math.log10(high / low);
  const factors = decades > count / 1.6 ? [1] : decades > count / 3 ? [1, 3] : [1, 2, 5];
  const stride = Math.max(1, Math.ceil(decades / count));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low) - 0.01); power <= Math.log10(high); power++) {
    if (power % stride !== 0) continue;
    for (const factor of factors) {
      const value = Number(`${factor}e${power}`);
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push([value, label(value, kind)]);
    }
  }
  return {
    low, high, ticks, log: true,
    at: (x) => Math.log(Math.max(x, low) / low) / Math.log(high / low),
    from: (share) => low * (high / low) ** share,
  };
}

/** Index of the point of ascending `points` whose first number is nearest to `x`. */
function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - points[low - 1][0] < points[low][0] - x ? low - 1 : low;
}

/** Radio buttons in a fieldset; `choices` are pairs of a value and its name, the first is chosen. */
function choice(fieldset, choices, onChange) {
  choices.forEach(([value, name], place) => {
    const input = el("input", { type: "radio", name: fieldset.id, value });
    input.checked = place === 0;
    input.addEventListener("change", () => onChange(value));
    fieldset.append(el("label", {}, input, el("span", {}, name)));
  });
}

/** Arrow keys on a focused drawing: calls `move(right, down)` in steps, or `leave`. */
function arrowKeys(node, move, leave) {
  node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? 10 : 1;
    const by = {
      ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step], Home: [-Infinity, 0], End: [Infinity, 0],
    }[event.key];
    if (event.key === "Escape") leave();
    else if (!by || move(...by) === false) return;
    event.preventDefault();
  });
  node.addEventListener("blur", leave);
}

/** Puts a tooltip next to the place `x`, `y` of its frame, on the side with more room. */
function placeTip(tip, frame, x, y) {
  tip.hidden = false;
  const left = x < frame.clientWidth / 2 ? x + 14 : x - 14 - tip.offsetWidth;
  tip.style.left = `${clamp(left, 0, Math.max(0, frame.clientWidth - tip.offsetWidth))}px`;
  tip.style.top = `${clamp(y - tip.offsetHeight / 2, 0, Math.max(0, frame.clientHeight - tip.offsetHeight))}px`;
}

/** Says aloud what a tooltip shows, when keys moved it there. */
function speak(tip) {
  text(byId("spoken"), [...tip.children].map((row) => row.textContent).join(", "));
}

/** A table inside `details`, made when it is opened: the numbers of a drawing, for those who cannot see it or want to copy them. */
class DataTable {
  constructor(rows) {
    this.rows = rows;
    this.table = el("table", { "aria-label": "Data" });
    this.details = el("details", {}, el("summary", {}, "Data as table"), el("div", { class: "scroll" }, this.table));
    this.details.addEventListener("toggle", () => this.draw());
  }

  /** `rows()` gives the headers, then the rows. */
  draw() {
    if (!this.details.open) return;
    const [headers, ...rows] = this.rows();
    this.table.replaceChildren(
      el("thead", {}, el("tr", {}, ...headers.map((name, k) => el("th", { scope: "col", class: k > 0 ? "number" : null }, name)))),
      el("tbody", {}, ...rows.map(([first, ...cells]) =>
        el("tr", {}, el("th", { scope: "row" }, first), ...cells.map((cell) => el("td", { class: "number" }, cell))))),
    );
  }
}
