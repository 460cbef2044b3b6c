// Curves over time in a card with a title, a legend with values, and room that is kept before there is anything to show.

import { element, NONE, time, visible } from "./text.js";

const MINUTES_15 = 900;
const SHORTEST_S = 60;
const charts = new Set();
const cursor = uPlot.sync("time");

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Seconds only where the curves are short enough.
const label = ({ scales: { x } }, s) => time(1000 * s).slice(0, x.max - x.min < 300 ? 8 : 5);

// The colours are asked for when something is drawn, so light and dark need nothing but to be drawn again.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.redraw()));
new ResizeObserver(() => charts.forEach((chart) => chart.fit())).observe(document.documentElement);

// Places of the values between two gaps: no line leads there, and a burst of a second would leave no trace.
const lonely = (u, curve) => {
  const values = u.data[curve];
  const alone = (value, i) => value != null && values[i - 1] == null && values[i + 1] == null;
  return values.flatMap((value, i) => (alone(value, i) ? [i] : []));
};

export class Chart {
  // curves: [{name, color, dashed, fill}]; format: what a value is written as; least: the smallest top of the scale.
  constructor(parent, { title, unit, curves, format, least = 1, tall = false }) {
    this.format = format;
    this.least = least;
    this.card = element("section", null, "card chart");
    this.card.append(element("h2", `${title} `));
    this.card.firstChild.append(element("small", unit));
    this.legend = element("ol", null, tall ? "legend tall" : "legend");
    this.plot = element("div", null, "plot");
    this.empty = element("p", "Waiting for data", "empty");
    this.plot.append(this.empty);
    this.card.append(this.legend, this.plot);
    parent.append(this.card);
    this.data = [[]];
    this.draw(curves);
    charts.add(this);
  }

  remove() {
    charts.delete(this);
    this.u.destroy();
    this.card.remove();
  }

  draw(curves) {
    this.u?.destroy();
    this.curves = curves;
    this.values = curves.map(() => element("b", NONE));
    this.legend.replaceChildren(...curves.map((curve, i) => this.#entry(curve, this.values[i])));
    this.u = new uPlot(this.#options(), [[], ...curves.map(() => [])], this.plot);
  }

  #entry({ name, color, dashed }, value) {
    const entry = element("li");
    const swatch = element("i", null, dashed ? "dashed" : "");
    swatch.style.color = `var(${color})`;
    const label = element("span", visible(name), "name");
    label.title = visible(name);
    entry.append(swatch, label, value);
    return entry;
  }

  #options() {
    const axis = {
      stroke: () => css("--soft"),
      grid: { stroke: () => css("--line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    return {
      ...this.#size(),
      padding: [8, 28, 0, 0], // half of the last time on the right
      legend: { show: false },
      cursor: { sync: { key: cursor.key }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { range: (_, from, to) => [Math.min(to - SHORTEST_S, Math.max(from, to - MINUTES_15)), to] },
        y: { range: (_, __, top) => [0, Math.max(this.least, (top || 0) * 1.08)] },
      },
      axes: [
        { ...axis, size: 24, gap: 6, space: 80, grid: { show: false }, values: (u, at) => at.map((s) => label(u, s)) },
        { ...axis, size: 58, gap: 6, space: 34, values: (_, at) => at.map((value) => this.format(value)) },
      ],
      series: [
        {},
        ...this.curves.map(({ color, dashed, fill }) => ({
          stroke: () => css(color),
          fill: fill ? () => `color-mix(in srgb, ${css(color)} 14%, transparent)` : undefined,
          width: 1.5,
          dash: dashed ? [5, 5] : undefined,
          points: { show: false, filter: lonely, size: 4, width: 0, fill: () => css(color) },
        })),
      ],
      hooks: { setCursor: [() => this.#tell()] },
    };
  }

  // columns: seconds since the epoch, then the values of each curve, null where there is none.
  show(columns) {
    this.data = columns;
    this.empty.hidden = columns.slice(1).some((column) => column.some((value) => value != null));
    this.u.setData(columns);
    this.#tell();
  }

  // The values under the cursor, or the last ones.
  #tell() {
    if (!this.u) return;
    const at = this.u.cursor.idx ?? this.data[0].length - 1;
    this.values.forEach((value, i) => {
      const found = this.data[i + 1]?.[at];
      value.textContent = found == null ? NONE : this.format(found);
    });
  }

  #size() {
    return { width: Math.max(this.plot.clientWidth, 120), height: this.plot.clientHeight || 178 };
  }

  fit() {
    const { width, height } = this.#size();
    if (width !== this.u.width) this.u.setSize({ width, height });
  }

  redraw() {
    this.u.redraw(false, true);
  }
}
