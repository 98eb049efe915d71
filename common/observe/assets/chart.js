// Line charts in SVG. Series differ in colour, and in dashes or marks as well.

const COLOURS = 7;
const DASHES = ["", "7 3", "2 3", "10 3 2 3", "14 4"];
/** Circle, square, triangle, diamond. */
const MARKS = ["M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z", "M-3-3h6v6h-6z", "M0-4.4l4.2 7.4h-8.4z", "M0-4.6l4.4 4.6-4.4 4.6-4.4-4.6z"];
const AXES = [["0", "iteration", "whole"], ["1", "runtime", "time"], ["2", "total worker time", "time"]];
const HEIGHT = 250, TOP = 10, BOTTOM = 38, RIGHT = 14;
/** Points of a curve up to which each gets a mark, and is not smoothed. */
const FEW = 40;

/** What a chart shows: columns of the points of `steps` and `evaluations`. */
const CHARTS = [
  { title: "Loss", kind: "count", mayBeLog: true, curves: [
    { part: "steps", column: 3, name: "training" }, { part: "evaluations", column: 3, name: "test", marks: true },
  ] },
  { title: "Test accuracy", kind: "share", fromZero: true, curves: [{ part: "evaluations", column: 4, name: "test", marks: true }] },
  { title: "Iteration time", kind: "time", mayBeLog: true, fromZero: true, curves: [{ part: "steps", column: 4, name: "iteration time" }] },
  { title: "Learning rate", kind: "count", fromZero: true, exact: true, curves: [{ part: "steps", column: 5, name: "learning rate" }] },
];

/** The curves of a chart, with how each looks. Among several runs the run gives the look, within one the curve. */
function curvesOf(spec, runs, x) {
  const names = labels(runs);
  return runs.flatMap((run, place) => spec.curves.map(({ part, column, name, marks }, nth) => {
    const look = runs.length > 1 ? place : nth;
    return {
      name: runs.length === 1 ? name : spec.curves.length === 1 ? names[place] : `${names[place]}, ${name}`,
      points: run[part].filter((p) => p[column] != null && p[x] != null).map((p) => [p[x], p[column]]),
      colour: `c${look % COLOURS}`,
      dash: runs.length > 1 ? DASHES[place % DASHES.length] : DASHES[nth],
      mark: marks && MARKS[look % MARKS.length],
      smooth: !marks && !spec.exact,
    };
  })).filter(({ points }) => points.length > 0);
}

/** What `combine` makes of each value and its neighbours, of those on one side at the ends. */
function overNeighbours(values, reach, combine) {
  return values.map((_, k) => combine(values.slice(Math.max(0, k - reach), k + reach + 1)));
}

const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Moving medians, which a spike does not lift, and then their moving means, as medians alone have steps. */
function smoothed(points) {
  const reach = Math.ceil(points.length / 50);
  const medians = overNeighbours(points.map(([, y]) => y), reach, middle);
  return overNeighbours(medians, reach, average).map((y, k) => [points[k][0], y]);
}

/** The ends of the horizontal axis over all that the charts show. */
function endsOf(runs, x) {
  const values = runs.flatMap(({ steps, evaluations }) => [steps[0], steps.at(-1), evaluations[0], evaluations.at(-1)]).filter(Boolean).map((p) => p[x]);
  return [Math.min(...values), Math.max(...values)];
}

class Chart {
  /** `onCursor(x)` is called when a value is pointed at, so that the other charts can mark the same place. */
  constructor(spec, onCursor) {
    Object.assign(this, { spec, onCursor, curves: [], cursor: null, width: 0, wantsLog: null });
    this.heading = el("h3", {}, spec.title);
    this.legend = el("p", { class: "legend" });
    this.log = el("button", { type: "button", class: "small", "aria-label": `Logarithmic axis of ${spec.title.toLowerCase()}` }, "log");
    this.log.hidden = !spec.mayBeLog;
    this.parts = { grid: shape("g", { class: "grid" }), lines: shape("g"), cross: shape("g", { class: "cross" }) };
    this.svg = shape("svg", { height: HEIGHT, role: "img", tabindex: 0, "aria-describedby": "hint" }, ...Object.values(this.parts));
    this.tip = el("div", { class: "tip", "aria-hidden": "true" });
    this.tip.hidden = true;
    this.frame = el("div", { class: "frame" }, this.svg, this.tip);
    this.table = new DataTable(() => this.rows());
    this.figure = el("figure", { class: "card", "aria-label": spec.title },
      el("figcaption", { class: "row" }, this.heading, this.legend, this.log), this.frame, this.table.details);
    this.listen();
  }

  listen() {
    this.log.addEventListener("click", () => {
      this.wantsLog = !this.isLog;
      this.draw();
    });
    const point = (event) => {
      const share = (event.clientX - this.svg.getBoundingClientRect().left - this.left) / (this.width - this.left - RIGHT);
      if (this.base) this.onCursor(this.snap(this.x.from(clamp(share, 0, 1))), this);
    };
    this.svg.addEventListener("pointermove", point);
    this.svg.addEventListener("pointerdown", point);
    // A finger that is lifted has left, but its reader has not: the values stay until the next touch elsewhere.
    this.svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.onCursor(null));
    arrowKeys(this.svg, (right) => this.base && right !== 0 && this.step(right), () => this.onCursor(null));
    new ResizeObserver(() => {
      if (this.frame.clientWidth !== this.width) this.draw();
    }).observe(this.frame);
  }

  /** The curve that the cursor moves along: that with the most points. */
  get base() {
    return this.curves.reduce((best, curve) => (best && best.points.length >= curve.points.length ? best : curve), null);
  }

  snap(x) {
    const { points } = this.base;
    return points[nearest(points, x)][0];
  }

  step(by) {
    const { points } = this.base;
    const start = this.cursor == null ? (by > 0 ? -1 : points.length) : nearest(points, this.cursor);
    this.onCursor(points[clamp(start + by, 0, points.length - 1)][0], this);
    speak(this.tip);
  }

  /** Takes new data; `x` is the column of the horizontal axis, and `ends` are its ends, the same for all charts. */
  update(runs, x, ends, smooth) {
    this.ends = ends;
    this.curves = curvesOf(this.spec, runs, Number(x));
    this.axis = AXES[x];
    this.smooth = smooth;
    this.figure.hidden = this.curves.length === 0;
    if (this.figure.hidden) return;
    this.drawLegend();
    this.draw();
    this.table.draw();
  }

  drawLegend() {
    const key = JSON.stringify(this.curves.map(({ name, colour, dash, mark }) => [name, colour, dash, mark]));
    if (key === this.legendKey) return;
    this.legendKey = key;
    const entries = this.curves.length > 1 ? this.curves : [];
    this.legend.replaceChildren(...entries.map((curve) => el("span", {}, sample(curve), curve.name)));
  }

  draw() {
    this.width = this.frame.clientWidth;
    if (this.width === 0 || this.curves.length === 0) return;
    attribute(this.svg, "aria-label", this.summary());
    attribute(this.svg, "width", this.width);
    this.setScales();
    this.drawGrid();
    this.drawLines();
    this.drawCursor();
  }

  setScales() {
    const [left, right] = this.ends;
    let [low, high, positive] = [Infinity, -Infinity, Infinity];
    for (const { points } of this.curves) {
      for (const [, y] of points) {
        if (y < low) low = y;
        if (y > high) high = y;
        if (y > 0 && y < positive) positive = y;
      }
    }
    // A loss or time that falls by a factor of thirty or more is a flat line at the bottom of a linear axis.
    this.isLog = Boolean(this.spec.mayBeLog && positive < Infinity && (this.wantsLog ?? high / positive > 30));
    attribute(this.log, "aria-pressed", this.isLog);
    const { kind, fromZero } = this.spec;
    if (fromZero || low < high * 0.6) low = Math.min(low, 0);
    const count = Math.floor((HEIGHT - TOP - BOTTOM) / 40);
    this.y = this.isLog ? logScale(positive, high, kind, count) : linearScale(low, high, kind, count, true);
    this.left = 14 + 6.6 * Math.max(...this.y.ticks.map(([, words]) => words.length));
    const inner = this.width - this.left - RIGHT;
    this.x = linearScale(left < right * 0.1 ? 0 : left, right, this.axis[2], clamp(Math.floor(inner / 80), 3, 9), false);
    this.px = (x) => this.left + this.x.at(x) * inner;
    this.py = (y) => HEIGHT - BOTTOM - this.y.at(y) * (HEIGHT - TOP - BOTTOM);
  }

  drawGrid() {
    const { grid } = this.parts;
    const key = JSON.stringify([this.width, this.left, this.axis, this.x.low, this.x.high, this.y.low, this.y.high, this.isLog]);
    if (key === this.gridKey) return;
    this.gridKey = key;
    const right = this.width - RIGHT, bottom = HEIGHT - BOTTOM;
    grid.replaceChildren(
      ...this.y.ticks.flatMap(([value, words]) => [
        shape("line", { x1: this.left, x2: right, y1: this.py(value), y2: this.py(value) }),
        shape("text", { x: this.left - 7, y: this.py(value) + 4, "text-anchor": "end" }, words),
      ]),
      ...this.x.ticks.flatMap(([value, words]) => [
        shape("line", { x1: this.px(value), x2: this.px(value), y1: bottom, y2: bottom + 4 }),
        shape("text", { x: clamp(this.px(value), 0, right + RIGHT - words.length * 3.4), y: bottom + 17, "text-anchor": "middle" }, words),
      ]),
      shape("line", { class: "axis", x1: this.left, x2: right, y1: bottom, y2: bottom }),
      shape("text", { x: (this.left + right) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, this.axis[1]),
    );
  }

  path(points) {
    let words = "", pen = "M";
    for (const [x, y] of points) {
      const missing = this.isLog && y <= 0;
      if (!missing) words += `${pen}${this.px(x).toFixed(1)} ${this.py(y).toFixed(1)}`;
      pen = missing ? "M" : "L";
    }
    return words;
  }

  drawLines() {
    this.parts.lines.replaceChildren(...this.curves.flatMap(({ points, colour, dash, mark, smooth }) => {
      const averaged = smooth && this.smooth && points.length > FEW;
      const stride = Math.ceil(points.length / FEW);
      const marked = mark ? points.filter((_, k) => (points.length - 1 - k) % stride === 0) : points.length === 1 ? points : [];
      return [
        averaged && shape("path", { class: `raw ${colour}`, d: this.path(points) }),
        shape("path", { class: `line ${colour}`, "stroke-dasharray": dash, d: this.path(averaged ? smoothed(points) : points) }),
        ...marked.map(([x, y]) => shape("path", {
          class: `mark ${colour}`, d: mark ?? MARKS[0], transform: `translate(${this.px(x).toFixed(1)} ${this.py(y).toFixed(1)})`,
        })),
      ].filter(Boolean);
    }));
  }

  /** What each curve has at the cursor: a point of its own, or none where it has not begun or has ended. */
  atCursor() {
    const slack = (this.x.high - this.x.low) / 100;
    return this.curves.map((curve) => [curve, curve.points[nearest(curve.points, this.cursor)]])
      .filter(([{ points, mark }]) => mark || (this.cursor >= points[0][0] - slack && this.cursor <= points.at(-1)[0] + slack));
  }

  /** `pointed`: the reader points at this chart, not at another one, which moved the cursor of all. */
  setCursor(x, pointed) {
    Object.assign(this, { cursor: x, pointed });
    this.drawCursor();
  }

  drawCursor() {
    const shown = this.cursor != null && this.curves.length > 0 && this.width > 0; // hidden charts have no scales
    this.tip.hidden = !(shown && this.pointed);
    if (!shown) return this.parts.cross.replaceChildren();
    const x = this.px(clamp(this.cursor, this.x.low, this.x.high));
    const values = this.atCursor();
    this.parts.cross.replaceChildren(
      shape("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
      ...values.map(([{ colour, mark }, [px, y]]) => shape("path", {
        class: `dot ${colour}`, d: mark ?? MARKS[0], transform: `translate(${this.px(px)} ${this.py(y)})`,
      })),
    );
    if (this.tip.hidden) return;
    const where = FORMATS[this.axis[2]];
    this.tip.replaceChildren(
      el("strong", {}, `${this.axis[1]} ${where(this.cursor)}`),
      ...values.map(([curve, [at, y]]) => el("span", {}, sample(curve),
        `${curve.name}: ${FORMATS[this.spec.kind](y, 4)}${at === this.cursor ? "" : ` (at ${where(at)})`}`)),
    );
    placeTip(this.tip, this.frame, x, HEIGHT / 2 - BOTTOM / 2);
  }

  summary() {
    const format = FORMATS[this.spec.kind];
    const words = this.curves.map(({ name, points }) => {
      const values = points.map(([, y]) => y);
      const [first, last, least, most] = [values[0], values.at(-1), Math.min(...values), Math.max(...values)].map((y) => format(y));
      return `${name}: ${first} at first, ${last} at last, between ${least} and ${most}.`;
    });
    return `${this.spec.title} against ${this.axis[1]}. ${words.join(" ")}`;
  }

  rows() {
    const { points } = this.base;
    const stride = Math.ceil(points.length / FEW);
    const format = FORMATS[this.spec.kind], where = FORMATS[this.axis[2]];
    const chosen = points.filter((_, k) => k % stride === 0 || k === points.length - 1);
    return [
      [this.axis[1], ...this.curves.map(({ name }) => name)],
      ...chosen.map(([x]) => [where(x), ...this.curves.map((curve) => {
        const [at, y] = curve.points[nearest(curve.points, x)];
        if (at === x) return format(y, 4);
        return Math.abs(at - x) < (this.x.high - this.x.low) / FEW / 2 ? `${format(y, 4)} (at ${where(at)})` : NONE;
      })]),
    ];
  }
}

/** A short piece of a curve, for legends and tooltips. */
function sample({ colour, dash, mark }) {
  return shape("svg", { class: "sample", width: 26, height: 10, "aria-hidden": "true" },
    shape("path", { class: `line ${colour}`, d: "M0 5h26", "stroke-dasharray": dash }),
    ...(mark ? [shape("path", { class: `mark ${colour}`, d: mark, transform: "translate(13 5)" })] : []));
}
