"use strict";
/* What all charts share: axes, ticks, the frame around a canvas with its tools, and the text under the pointer.
   A chart has `axes` (x, and y where it can be moved), `toggles`, `height(width)`, `draw(pen, width)` and `find(x, y)`. */

const INK = "#222222", MUTED = "#666666", RULE = "#dddddd", PALE = "#f4f4f4";
const SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const TEXT = `12px ${SANS}`, BOLD = `600 13px ${SANS}`, SMALL = `11px ${SANS}`;
const TIMES = [[3 * 86400, 86400, "d"], [5400, 3600, "h"], [120, 60, "min"], [2, 1, "s"], [2e-3, 1e-3, "ms"], [0, 1e-6, "µs"]];

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const unitOf = (seconds) => TIMES.find(([least]) => Math.abs(seconds) >= least).slice(1);

function said(value, digits = 4) {
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2);
  return String(Number(size >= 1000 ? value.toFixed(0) : value.toPrecision(digits)));
}

function duration(seconds) {
  const [size, unit] = unitOf(seconds);
  return `${said(seconds / size, 3)} ${unit}`;
}

function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let most = text.length;
  while (most > 1 && pen.measureText(`${text.slice(0, most)}…`).width > width) most -= 1;
  return most > 1 ? `${text.slice(0, most)}…` : "";
}

class Axis {
  constructor(low, high, isLog = false) {
    this.isLog = isLog;
    this.whole = [this.to(low), this.to(high)];
    if (!(this.whole[1] > this.whole[0])) this.whole[1] = this.whole[0] + 1;
    this.reset();
  }

  get span() { return this.high - this.low; }

  to(value) { return this.isLog ? Math.log10(value) : value; }

  reset() { [this.low, this.high] = this.whole; }

  share(value) { return (this.to(value) - this.low) / this.span; }

  at(share) { return this.low + share * this.span; }

  zoom(factor, share) {
    const all = this.whole[1] - this.whole[0];
    const span = clamp(this.span * factor, all * 1e-5, all);
    this.set(this.at(share) - share * span, span);
  }

  move(share) { this.set(this.low + share * this.span, this.span); }

  set(low, span) {
    this.low = clamp(low, this.whole[0], this.whole[1] - span);
    this.high = this.low + span;
  }

  /* Values of ticks, at most so many, in units of `size`. */
  ticks(most, size = 1) {
    if (this.isLog) {
      for (const firsts of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
        const found = [];
        for (let power = Math.floor(this.low); power <= this.high; power += 1) {
          for (const first of firsts) {
            const value = first * 10 ** power;
            if (this.to(value) >= this.low && this.to(value) <= this.high) found.push(value);
          }
        }
        if (found.length <= most) return found;
      }
    }
    const raw = this.span / size / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((first) => first * power).find((one) => one >= raw * (1 - 1e-9));
    const found = [];
    for (let k = Math.ceil(this.low / size / step - 1e-9); k * step <= (this.high / size) * (1 + 1e-12); k += 1) {
      found.push(Number((k * step).toPrecision(9)) * size);
    }
    return this.isLog ? found.map((power) => 10 ** power) : found;
  }
}

function made(tag, parent, className = "", text = "") {
  const one = document.createElement(tag);
  if (className) one.className = className;
  if (text) one.textContent = text;
  parent.append(one);
  return one;
}

class Frame {
  constructor(box, chart, label) {
    this.box = box;
    this.chart = chart;
    box.hidden = false;
    const tools = made("div", box, "tools");
    this.button(tools, "+", "Zoom in", () => this.zoom(0.5));
    this.button(tools, "−", "Zoom out", () => this.zoom(2));
    this.button(tools, "All", "Show everything", () => this.reset());
    for (const toggle of chart.toggles) this.toggle(tools, toggle);
    this.canvas = made("canvas", box);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", label);
    this.tip = made("div", box, "tip");
    this.tip.setAttribute("role", "status");
    this.tip.hidden = true;
    this.listen();
    new ResizeObserver(() => this.draw()).observe(box);
    this.draw();
  }

  button(parent, text, title, act) {
    const one = made("button", parent, "", text);
    one.type = "button";
    one.title = title;
    one.setAttribute("aria-label", title);
    one.addEventListener("click", act);
    return one;
  }

  toggle(parent, toggle) {
    const one = made("button", parent, "toggle");
    one.type = "button";
    if (toggle.colour) made("span", one, "swatch").style.background = toggle.colour;
    made("span", one, "", toggle.name);
    const show = () => one.setAttribute("aria-pressed", String(toggle.isOn));
    one.addEventListener("click", () => {
      toggle.isOn = !toggle.isOn;
      show();
      this.draw();
    });
    show();
  }

  zoom(factor, x = 0.5, y = 0.5) {
    for (const [axis, share] of [[this.chart.axes.x, x], [this.chart.axes.y, y]]) axis?.zoom(factor, share);
    this.draw();
  }

  move(x, y) {
    this.chart.axes.x.move(x);
    this.chart.axes.y?.move(y);
    this.draw();
  }

  reset() {
    this.chart.axes.x.reset();
    this.chart.axes.y?.reset();
    this.draw();
  }

  listen() {
    let held = null;
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    const shares = ([x, y]) => {
      const {left, top, width, height} = this.chart.frame;
      return [clamp((x - left) / width, 0, 1), clamp(1 - (y - top) / height, 0, 1)];
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      held = place(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const now = place(event);
      if (held && event.buttons) {
        const {width, height} = this.chart.frame;
        this.move((held[0] - now[0]) / width, (now[1] - held[1]) / height);
        held = now;
      }
      this.tell(...now);
    });
    this.canvas.addEventListener("pointerup", () => { held = null; });
    this.canvas.addEventListener("pointercancel", () => { held = null; });
    this.canvas.addEventListener("pointerleave", () => this.tell(-1, -1));
    this.canvas.addEventListener("dblclick", (event) => this.zoom(0.4, ...shares(place(event))));
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return; // the page scrolls
      event.preventDefault();
      this.zoom(Math.exp(clamp(event.deltaY || event.deltaX, -100, 100) / 200), ...shares(place(event)));
    }, {passive: false});
    const keys = {
      ArrowLeft: () => this.move(-0.1, 0), ArrowRight: () => this.move(0.1, 0), "+": () => this.zoom(0.7),
      "=": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7), 0: () => this.reset(),
      Escape: () => this.tell(-1, -1),
    };
    if (this.chart.axes.y) Object.assign(keys, {ArrowUp: () => this.move(0, 0.1), ArrowDown: () => this.move(0, -0.1)});
    this.canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  tell(x, y) {
    const found = x < 0 ? null : this.chart.find(x, y);
    if (found?.key !== this.chart.marked) {
      this.chart.marked = found?.key;
      this.draw();
    }
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.replaceChildren();
    found.lines.forEach((line, number) => made("div", this.tip, number ? "" : "first", line));
    const room = this.box.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${clamp(x + 14, 0, Math.max(0, room))}px`;
    this.tip.style.top = `${this.canvas.offsetTop + y + 16}px`;
  }

  draw() {
    const width = this.box.clientWidth, height = this.chart.height(width), ratio = window.devicePixelRatio || 1;
    if (!width) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.textBaseline = "middle";
    this.chart.draw(pen, width);
  }
}

/* Columns of an item as lines: the first is its name, the others what is known. */
function told(items, number) {
  const lines = [];
  items.columns.forEach((column, k) => {
    const value = items.rows[number][k];
    if (value !== null) lines.push(k === 0 ? said(value) : `${column}: ${said(value)}`);
  });
  return lines;
}
