/* Points with two figures each, the ones that nothing beats in both joined by a line. */

class Scatter {
  constructor(data) {
    this.data = data;
    this.toggles = data.series.map((one) => Object.assign(one, {isOn: true}));
    if (this.toggles.length < 2) this.toggles = [];
    const ends = (values, {log: isLog, from_zero: fromZero}) => {
      let low = Infinity, high = -Infinity;
      for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
      if (!(high > -Infinity)) return [isLog ? 1 : 0, isLog ? 10 : 1];
      if (isLog) return [low / (high / low) ** 0.06 / 1.02, high * (high / low) ** 0.06 * 1.02];
      const room = 0.07 * (high - low) || 0.05 * Math.abs(high) || 1;
      return [fromZero ? 0 : low >= 0 ? Math.max(0, low - room) : low - room, high + room];
    };
    const all = (key) => data.series.flatMap((one) => one[key]).filter((value) => value !== null);
    this.axes = {
      x: new Axis(...ends(all("x"), data.x), data.x.log),
      y: new Axis(...ends([...all("y"), ...all("low"), ...all("high")], data.y), data.y.log),
    };
    this.marked = undefined;
  }

  height(width) { return width < 600 ? 340 : 440; }

  draw(pen, width) {
    const height = this.height(width);
    pen.clearRect(0, 0, width, height);
    pen.font = SMALL;
    const marks = this.axes.y.ticks(8);
    const left = 14 + Math.max(...marks.map((tick) => pen.measureText(said(tick)).width), 16);
    this.frame = {left, top: 26, width: width - left - 10, height: height - 26 - 44};
    this.grid(pen, marks);
    pen.save();
    pen.beginPath();
    pen.rect(left - 8, 18, this.frame.width + 16, this.frame.height + 16); // a point on the edge is seen whole
    pen.clip();
    for (const one of this.data.series) if (one.isOn && one.is_front) this.line(pen, one);
    for (const one of this.data.series) if (one.isOn) this.points(pen, one);
    pen.restore();
    if (this.data.has_names) this.names(pen);
  }

  place(x, y) {
    const {left, top, width, height} = this.frame;
    return [left + this.axes.x.share(x) * width, top + (1 - this.axes.y.share(y)) * height];
  }

  grid(pen, marks) {
    const {left, top, width, height} = this.frame;
    for (const tick of marks) {
      const [, y] = this.place(this.axes.x.isLog ? 1 : 0, tick);
      pen.fillStyle = RULE;
      pen.fillRect(left, y, width, 1);
      pen.fillStyle = INK;
      pen.textAlign = "right";
      pen.fillText(said(tick), left - 6, y);
    }
    pen.textAlign = "center";
    for (const tick of this.axes.x.ticks(Math.max(2, width / 80))) {
      const [x] = this.place(tick, this.axes.y.isLog ? 1 : 0);
      pen.fillStyle = RULE;
      pen.fillRect(x, top, 1, height);
      pen.fillStyle = INK;
      pen.fillText(said(tick), clamp(x, left + 8, left + width - 8), top + height + 13);
    }
    pen.font = TEXT;
    pen.fillText(fitted(pen, this.data.x.name, width), left + width / 2, top + height + 32);
    pen.textAlign = "left";
    pen.fillText(fitted(pen, this.data.y.name, left + width), 0, 10);
    pen.font = SMALL;
  }

  line(pen, one) {
    const order = one.x.map((_, k) => k).sort((a, b) => one.x[a] - one.x[b]);
    pen.strokeStyle = one.colour;
    pen.lineWidth = 1.4;
    pen.beginPath();
    for (const k of order) pen.lineTo(...this.place(one.x[k], one.y[k])); // no steps: they run through beaten points
    pen.stroke();
  }

  points(pen, one) {
    const radius = one.is_small ? 3 : 5;
    for (let k = 0; k < one.x.length; k += 1) {
      const [x, y] = this.place(one.x[k], one.y[k]), isMarked = this.marked === one.item[k];
      if (one.low.length && one.low[k] !== null) {
        const [, low] = this.place(one.x[k], one.low[k]), [, high] = this.place(one.x[k], one.high[k]);
        pen.fillStyle = MUTED;
        pen.fillRect(x - 0.5, high, 1, low - high);
      }
      pen.fillStyle = one.colour;
      pen.beginPath();
      pen.arc(x, y, isMarked ? radius + 2 : radius, 0, 7);
      pen.fill();
      pen.strokeStyle = isMarked ? INK : "#ffffff";
      pen.lineWidth = isMarked ? 2 : 1;
      if (isMarked || !one.is_small) pen.stroke();
    }
  }

  /* Points along the lines of fronts, close to each other. */
  alongFronts() {
    return this.data.series.filter(({isOn, is_front: isFront}) => isOn && isFront).flatMap((one) => {
      const line = one.x.map((x, k) => this.place(x, one.y[k])).sort((a, b) => a[0] - b[0]);
      return line.slice(1).flatMap(([x, y], k) => Array.from({length: 200}, (_, i) =>
        [line[k][0] + (i / 199) * (x - line[k][0]), line[k][1] + (i / 199) * (y - line[k][1])]));
    });
  }

  /* Names beside their points, where none covers another or a point, and off the line of the front where that can be. */
  names(pen) {
    const front = this.alongFronts();
    const isCrossed = ([from, middle], wide) =>
      front.some(([x, y]) => x > from && x < from + wide && y > middle - 7 && y < middle + 7);
    const {left, top, width, height} = this.frame, taken = [], wanted = [];
    for (const one of this.data.series.filter(({isOn, is_small: isSmall}) => isOn && !isSmall).reverse()) {
      one.x.forEach((value, k) => {
        const [x, y] = this.place(value, one.y[k]);
        if (x < left || x > left + width || y < top || y > top + height) return;
        taken.push([x - 6, y - 6, x + 6, y + 6]);
        wanted.push([x, y, String(this.data.items.rows[one.item[k]][0])]);
      });
    }
    pen.fillStyle = INK;
    for (const [x, y, name] of wanted) {
      const text = fitted(pen, name, Math.min(200, 0.45 * width)), wide = pen.measureText(text).width;
      const places = [[x + 9, y], [x - 9 - wide, y], [x - wide / 2, y - 14], [x - wide / 2, y + 14], [x + 5, y - 14]];
      for (const [from, middle] of places.sort((a, b) => isCrossed(a, wide) - isCrossed(b, wide))) {
        const box = [from, middle - 7, from + wide, middle + 7];
        const isFree = from >= left && box[2] <= left + width && middle > top && middle < top + height
          && taken.every((one) => one[2] < box[0] || one[0] > box[2] || one[3] < box[1] || one[1] > box[3]);
        if (!isFree) continue;
        taken.push(box);
        pen.strokeStyle = "#ffffff";
        pen.lineWidth = 3;
        pen.strokeText(text, from, middle);
        pen.fillText(text, from, middle);
        break;
      }
    }
  }

  find(px, py) {
    let best = null, least = 16;
    for (const one of this.data.series.filter(({isOn}) => isOn)) {
      one.x.forEach((value, k) => {
        const [x, y] = this.place(value, one.y[k]), away = Math.hypot(x - px, y - py) + (one.is_small ? 0.01 : 0);
        if (away <= least) [least, best] = [away, {one, k}];
      });
    }
    if (!best) return null;
    const {one, k} = best, figures = [`${this.data.x.name}: ${said(one.x[k])}`, `${this.data.y.name}: ${said(one.y[k])}`];
    if (one.low.length && one.low[k] !== null) figures[1] += ` [${said(one.low[k])}, ${said(one.high[k])}]`;
    const [name, ...rest] = told(this.data.items, one.item[k]);
    return {key: one.item[k], lines: [name, ...figures, ...rest]};
  }
}

for (const box of document.querySelectorAll(".interactive")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  new Frame(box, new {gantt: Gantt, scatter: Scatter}[data.kind](data), data.label);
  const drawing = box.parentElement.querySelector(".drawing");
  if (drawing) {
    const swap = made("button", box.querySelector(".tools"), "swap", "Drawing");
    swap.type = "button";
    swap.title = "Show or hide the drawing, which prints";
    const show = (isShown) => {
      drawing.classList.toggle("away", !isShown);
      swap.setAttribute("aria-pressed", String(isShown));
    };
    swap.addEventListener("click", () => show(drawing.classList.contains("away")));
    show(false);
  }
}
