// The heat map: who had how many tasks when. A canvas, because 500 workers times 120 columns are too many elements.

const RAMP_STEPS = 256;
const AXIS_SPACE = 36;

/** Colours of the ramp, as dots of an image, from the style sheet: the light and the dark theme run in opposite directions. */
function readRamp() {
  const style = getComputedStyle(document.documentElement);
  const stops = ["--heat0", "--heat1", "--heat2", "--heat3"].map((name) =>
    style.getPropertyValue(name).trim().match(/\w\w/g).map((hex) => parseInt(hex, 16)));
  const ramp = new Uint8ClampedArray(RAMP_STEPS * 4).fill(255);
  for (let k = 0; k < RAMP_STEPS; k++) {
    const along = (k / (RAMP_STEPS - 1)) * (stops.length - 1);
    const from = Math.min(Math.floor(along), stops.length - 2);
    ramp.set(stops[from].map((value, c) => value + (stops[from + 1][c] - value) * (along - from)), k * 4);
  }
  return new Uint32Array(ramp.buffer);
}

class HeatMap {
  constructor(root) {
    Object.assign(this, { root, order: "number", workers: [], columns: [] });
    this.canvas = el("canvas", { role: "img", tabindex: 0, "aria-describedby": "hint" });
    this.marker = el("div", { class: "marker" });
    this.tip = el("div", { class: "tip", "aria-hidden": "true" });
    this.marker.hidden = this.tip.hidden = true;
    this.frame = el("div", { class: "frame" }, this.canvas, this.marker, this.tip);
    this.scaleText = [el("span", {}, "0"), el("span"), el("span")];
    this.legend = el("p", { class: "heat-legend faint" },
      "tasks per iteration", el("span", { class: "ramp" }), el("span", { class: "ramp-ticks" }, ...this.scaleText));
    this.table = new DataTable(() => this.rows());
    root.append(el("div", { class: "card" }, this.frame, this.legend, this.table.details));
    this.cells = document.createElement("canvas");
    this.listen();
  }

  listen() {
    const point = ({ clientX, clientY }) => {
      const box = this.canvas.getBoundingClientRect();
      const iteration = this.x.from(clamp((clientX - box.left - this.left) / this.inner, 0, 1));
      const column = this.columns.findLastIndex(({ first }) => first <= iteration);
      this.select(Math.max(0, column), clamp(Math.floor((clientY - box.top) / this.rowHeight), 0, this.workers.length - 1));
    };
    this.canvas.addEventListener("pointermove", point);
    this.canvas.addEventListener("pointerdown", point);
    this.canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.leave());
    arrowKeys(this.canvas, (right, down) => this.step(right, down), () => this.leave());
    new ResizeObserver(() => {
      if (this.frame.clientWidth !== this.width) this.draw();
    }).observe(this.frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.ramp = null;
      this.draw();
    });
  }

  update(run) {
    this.workers = [...run.workers.values()].sort((a, b) =>
      (this.order === "speed" ? (a.mean_s ?? Infinity) - (b.mean_s ?? Infinity) || 0 : 0) || a.number - b.number);
    this.columns = run.heat;
    this.root.hidden = this.workers.length === 0 || this.columns.length === 0;
    if (this.root.hidden) return;
    this.draw();
    this.table.draw();
  }

  /** Mean tasks per iteration of a worker in a column. */
  value(column, worker) {
    return (column.tasks[worker.number] ?? 0) / column.count;
  }

  draw() {
    this.width = this.frame.clientWidth;
    if (this.columns.length === 0 || this.width === 0) return;
    this.ramp ??= readRamp();
    const rows = this.workers.length;
    const thick = rows <= 12 ? 24 : rows <= 40 ? 15 : Math.max(1, Math.floor(480 / rows));
    const height = Math.min(rows * thick, 960);
    this.rowHeight = height / rows;
    const named = this.rowHeight >= 14;
    this.left = named ? Math.min(150, this.width * 0.3) : 44;
    this.inner = this.width - this.left - 12;

    const dots = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * dots);
    this.canvas.height = Math.round((height + AXIS_SPACE) * dots);
    this.canvas.style.height = `${height + AXIS_SPACE}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(dots, dots);
    const style = getComputedStyle(this.frame);
    pen.fillStyle = style.color;
    pen.font = `12px ${style.fontFamily}`;
    attribute(this.canvas, "aria-label", this.summary());
    const last = this.columns.at(-1);
    this.end = last.first + last.count;
    this.x = linearScale(this.columns[0].first, this.end, "whole", clamp(Math.floor(this.inner / 80), 3, 9), false);
    this.drawCells(pen, height);
    this.drawNames(pen, height, named);
    if (!this.marker.hidden) this.select(...this.selected);
  }

  /** Cells are painted one dot each, and then each column is stretched to its place. */
  drawCells(pen, height) {
    const [columns, rows] = [this.columns.length, this.workers.length];
    this.most = Math.max(...this.columns.map(({ tasks, count }) => Math.max(0, ...Object.values(tasks)) / count)) || 1;
    this.cells.width = columns;
    this.cells.height = rows;
    const image = new ImageData(columns, rows);
    const dots = new Uint32Array(image.data.buffer);
    this.workers.forEach((worker, row) => this.columns.forEach((column, place) => {
      // The square root, so that one task among many stays visible.
      const share = Math.sqrt(this.value(column, worker) / this.most);
      dots[row * columns + place] = this.ramp[Math.round(share * (RAMP_STEPS - 1))];
    }));
    this.cells.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = this.rowHeight < 1;
    this.columns.forEach((_, place) => {
      const [from, to] = this.edges(place);
      pen.drawImage(this.cells, place, 0, 1, rows, from, 0, Math.max(to - from, 0.5), height);
    });
    text(this.scaleText[1], number(this.most / 4, 2));
    text(this.scaleText[2], number(this.most, 2));
  }

  edges(place) {
    const next = this.columns[place + 1]?.first ?? this.end;
    return [this.columns[place].first, next].map((iteration) => Math.round(this.left + this.x.at(iteration) * this.inner));
  }

  drawNames(pen, height, named) {
    const rows = this.workers.length;
    pen.textBaseline = "middle";
    if (named) {
      this.workers.forEach((worker, row) => {
        const words = `${worker.number} ${worker.name}`;
        const room = Math.floor((this.left - 12) / 6.7);
        pen.fillText(words.length > room ? `${words.slice(0, room - 1)}…` : words, 2, (row + 0.5) * this.rowHeight);
      });
    } else if (this.order === "number") {
      pen.textAlign = "right";
      const step = Math.max(1, niceStep(rows / (height / 40)));
      for (let row = 0; row < rows; row += step) {
        const place = row === 0 ? 0 : row - 1;
        pen.fillText(this.workers[place].number, this.left - 6, Math.max(7, (place + 0.5) * this.rowHeight));
      }
    } else {
      pen.textAlign = "right";
      pen.fillText("fast", this.left - 6, 8);
      pen.fillText("slow", this.left - 6, height - 8);
    }
    pen.textAlign = "center";
    for (const [value, words] of this.x.ticks) pen.fillText(words, this.left + this.x.at(value) * this.inner, height + 13);
    pen.fillText("iteration", this.left + this.inner / 2, height + 29);
  }

  step(right, down) {
    const [column, row] = this.marker.hidden ? [this.columns.length - 1, 0] : this.selected;
    const moved = this.marker.hidden ? [0, 0] : [right, down];
    this.select(clamp(column + moved[0], 0, this.columns.length - 1), clamp(row + moved[1], 0, this.workers.length - 1));
    speak(this.tip);
  }

  select(column, row) {
    if (!this.columns[column] || !this.workers[row]) return this.leave();
    this.selected = [column, row];
    const worker = this.workers[row], { first, count } = this.columns[column];
    const [from, to] = this.edges(column);
    const thickness = Math.max(this.rowHeight, 4);
    const top = (row + 0.5) * this.rowHeight - thickness / 2;
    this.marker.hidden = false;
    Object.assign(this.marker.style, { left: `${from}px`, top: `${top}px`, width: `${Math.max(to - from, 4)}px`, height: `${thickness}px` });
    const span = count > 1 ? `iterations ${number(first)} to ${number(first + count - 1)}` : `iteration ${number(first)}`;
    this.tip.replaceChildren(
      el("strong", {}, `worker ${worker.number}, ${worker.name}`),
      el("span", {}, span),
      el("span", {}, `${number(this.value(this.columns[column], worker))} tasks per iteration`),
    );
    placeTip(this.tip, this.frame, (from + to) / 2, top);
  }

  leave() {
    this.marker.hidden = this.tip.hidden = true;
  }

  /** Mean tasks per iteration over some columns. */
  average(worker, columns) {
    let tasks = 0, iterations = 0;
    for (const column of columns) {
      tasks += column.tasks[worker.number] ?? 0;
      iterations += column.count;
    }
    return mean(tasks, iterations);
  }

  summary() {
    const means = this.workers.map((worker) => [this.average(worker, this.columns), worker]).sort(([a], [b]) => b - a);
    const most = means.slice(0, 3).map(([value, { number: n, name }]) => `worker ${n} (${name}) ${number(value)}`);
    const without = means.filter(([value]) => value === 0).length;
    return `Heat map of tasks per iteration: ${means.length} workers. Most on average: ${most.join(", ")}. ${without} had none.`;
  }

  rows() {
    const part = Math.ceil(this.columns.length / 10);
    const spans = [this.columns, this.columns.slice(0, part), this.columns.slice(-part)];
    return [
      ["worker", "tasks per iteration", "in the first tenth", "in the last tenth"],
      ...this.workers.map((worker) => [`${worker.number} ${worker.name}`, ...spans.map((span) => number(this.average(worker, span)))]),
    ];
  }
}
