/* Who is busy when: panels one above the other along one time axis, a lane for each device or rank. */

class Gantt {
  constructor(data) {
    this.data = data;
    this.axes = {x: new Axis(data.begin, data.end)};
    this.shown = data.panels.map((panel, number) => ({name: panel.name, isOn: number < 2}));
    this.toggles = data.panels.length > 1 ? this.shown : [];
    this.marked = undefined;
  }

  panels() { return this.data.panels.filter((_, number) => this.shown[number].isOn); }

  lane(panel) { return clamp(360 / panel.num_lanes, 3, 14); }

  strip(panel) { return panel.marks.at.length ? 18 : 0; }

  legend(pen, width, draw = true) {
    pen.font = SMALL;
    let x = 0, y = 10;
    for (const {name, colour} of this.data.types) {
      const text = fitted(pen, name, width - 20), wide = 18 + pen.measureText(text).width + 14;
      if (x && x + wide > width) [x, y] = [0, y + 18];
      if (draw) {
        pen.fillStyle = colour;
        pen.fillRect(x, y - 5, 11, 11);
        pen.fillStyle = INK;
        pen.fillText(text, x + 16, y + 1);
      }
      x += wide;
    }
    return y + 14;
  }

  height(width) {
    const pen = document.createElement("canvas").getContext("2d");
    const panels = this.panels().reduce((sum, one) => sum + 44 + this.strip(one) + this.lane(one) * one.num_lanes + 12, 0);
    return this.legend(pen, width, false) + panels + 40;
  }

  draw(pen, width) {
    pen.clearRect(0, 0, width, 1e5);
    let top = this.legend(pen, width);
    pen.font = SMALL;
    const groups = this.panels().flatMap((panel) => panel.groups);
    const left = Math.min(0.3 * width, 150, 12 + Math.max(24, ...groups.map((one) => pen.measureText(one.name).width)));
    this.frame = {left, top, width: width - left - 6, height: 1};
    this.places = [];
    for (const panel of this.panels()) top = this.panel(pen, panel, top);
    this.frame.height = Math.max(1, top - this.frame.top);
    this.time(pen, top, this.places.map(({top: y, height}) => [y, y + height]));
  }

  panel(pen, panel, top) {
    const {left, width} = this.frame, lane = this.lane(panel), height = lane * panel.num_lanes;
    pen.font = BOLD;
    pen.fillStyle = INK;
    pen.fillText(fitted(pen, panel.name, left + width), 0, top + 12);
    pen.font = TEXT;
    pen.fillStyle = MUTED;
    pen.fillText(fitted(pen, panel.note, left + width), 0, top + 30);
    const strip = top + 44, begin = strip + this.strip(panel);
    this.places.push({panel, strip, top: begin, height, lane});
    pen.fillStyle = PALE;
    pen.fillRect(left, begin, width, height);
    this.groups(pen, panel, begin, lane);
    pen.save();
    pen.beginPath();
    pen.rect(left, strip, width, height + begin - strip);
    pen.clip();
    this.bars(pen, panel, begin, lane);
    this.marks(pen, panel, strip);
    pen.restore();
    return begin + height + 12;
  }

  groups(pen, panel, top, lane) {
    const {left, width} = this.frame;
    let free = -Infinity;
    pen.font = SMALL;
    for (const {name, first, count} of panel.groups) {
      const middle = top + (first + count / 2) * lane;
      if (first && count * lane >= 5) {
        pen.fillStyle = RULE;
        pen.fillRect(left, top + first * lane - 0.5, width, 1);
      }
      if (middle < free) continue;
      free = middle + 12;
      pen.fillStyle = INK;
      pen.fillText(fitted(pen, name, left - 6), 0, middle);
    }
  }

  bars(pen, panel, top, lane) {
    const {left, width} = this.frame, {x} = this.axes, {begin, end, first, count, type, item} = panel.bars;
    const per = width / x.span, edge = lane >= 5 ? 0.5 : 0;
    pen.font = SMALL;
    for (let k = 0; k < begin.length; k += 1) {
      if (end[k] < x.low || begin[k] > x.high) continue;
      const from = left + (Math.max(begin[k], x.low) - x.low) * per, to = left + (Math.min(end[k], x.high) - x.low) * per;
      const wide = Math.max(to - from - edge, 0.6), y = top + first[k] * lane, high = count[k] * lane - edge;
      const kind = this.data.types[type[k]], isMarked = this.marked === `${panel.name}/${item[k]}`;
      pen.fillStyle = kind.colour;
      pen.fillRect(from, y, wide, high);
      if (isMarked) {
        pen.strokeStyle = INK;
        pen.lineWidth = 2;
        pen.strokeRect(from + 1, y + 1, Math.max(wide - 2, 0.5), Math.max(high - 2, 0.5));
      }
      if (wide < 16 || high < 11) continue;
      const text = String(panel.items.rows[item[k]][0]).replace(/^job /, "");
      if (pen.measureText(text).width + 4 > wide) continue;
      pen.fillStyle = kind.ink;
      pen.fillText(text, from + (wide - pen.measureText(text).width) / 2, y + high / 2);
    }
  }

  marks(pen, panel, top) {
    const {left, width} = this.frame;
    panel.marks.at.forEach((at, k) => {
      const x = left + this.axes.x.share(at) * width, isMarked = this.marked === `${panel.name}!${k}`;
      pen.fillStyle = this.data.types[panel.marks.type[k]].colour;
      pen.beginPath();
      pen.moveTo(x - 4, top + 3);
      pen.lineTo(x + 4, top + 3);
      pen.lineTo(x, top + 13);
      pen.fill();
      if (!isMarked) return;
      pen.strokeStyle = INK;
      pen.stroke();
    });
  }

  time(pen, top, spans) {
    const {left, width} = this.frame, {x} = this.axes, [size, unit] = unitOf(x.span);
    pen.font = SMALL;
    pen.textAlign = "center";
    for (const tick of x.ticks(Math.max(2, width / 90), size)) {
      const at = left + x.share(tick) * width;
      pen.fillStyle = "rgba(0, 0, 0, 0.08)";
      for (const [from, to] of spans) pen.fillRect(at, from, 1, to - from);
      pen.fillStyle = INK;
      pen.fillText(said(tick / size, 6), clamp(at, left + 8, left + width - 12), top + 4);
    }
    pen.fillStyle = MUTED;
    pen.fillText(fitted(pen, `${this.data.axis} (${unit})`, width), left + width / 2, top + 22);
    pen.textAlign = "left";
  }

  find(px, py) {
    const {left, width} = this.frame, place = this.places.find((one) => py >= one.strip && py < one.top + one.height);
    if (!place || px < left || px > left + width) return null;
    const {panel} = place, at = this.axes.x.at((px - left) / width);
    if (py < place.top) {
      const near = (k) => Math.abs(left + this.axes.x.share(panel.marks.at[k]) * width - px);
      let best = -1;
      panel.marks.at.forEach((_, k) => { if (near(k) < 7 && (best < 0 || near(k) < near(best))) best = k; });
      return best < 0 ? null : {key: `${panel.name}!${best}`, lines: [panel.marks.text[best], `at ${duration(panel.marks.at[best])}`]};
    }
    const lane = Math.floor((py - place.top) / place.lane), {begin, end, first, count, type, item} = panel.bars;
    const reach = (1.5 / width) * this.axes.x.span;
    for (let k = begin.length - 1; k >= 0; k -= 1) {
      if (lane < first[k] || lane >= first[k] + count[k] || at < begin[k] - reach || at > end[k] + reach) continue;
      const lasts = `${duration(begin[k])} to ${duration(end[k])}, ${duration(end[k] - begin[k])} long`;
      return {
        key: `${panel.name}/${item[k]}`,
        lines: [...told(panel.items, item[k]), this.data.types[type[k]].name, panel.lanes?.[lane] ?? "", lasts].filter(Boolean),
      };
    }
    return null;
  }
}
