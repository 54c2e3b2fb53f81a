// A bar chart of the last windows: rows by table, rows per second, or seconds by phase.

import { el, number, svg } from "./dom.js";

const HEIGHT = 220, LEFT = 58, BOTTOM = 24, TOP = 10;
const LABEL = 36; // width of a window's number in pixels
const COLOURS = 6;

export const MEASURES = {
  "Rows": (window) => Object.fromEntries(Object.entries(window.rows).map(([table, ops]) => [table, sum(ops)])),
  "Rows/s": (window) => ({ "rows/s": Math.round(rowsOf(window) / Math.max(0.001, totalOf(window))) }),
  "Seconds": (window) => window.seconds,
};

export const rowsOf = (window) => Object.values(window.rows).reduce((all, ops) => all + sum(ops), 0);
// Seconds of the window's own work, without the wait for Spark.
export const totalOf = (window) => window.seconds.prepare + window.seconds.ingest;
const sum = (values) => Object.values(values).reduce((all, one) => all + one, 0);

// `width` is in pixels, so that texts have the same size on each screen.
export function chart(windows, measure, width) {
  const bars = windows.slice().reverse().map((window) => ({ window, parts: MEASURES[measure](window) }));
  const totals = {};
  for (const { parts } of bars) for (const [name, value] of Object.entries(parts)) totals[name] = (totals[name] || 0) + value;
  const names = Object.keys(totals).sort((a, b) => totals[b] - totals[a]);
  const colour = (name) => `c${Math.min(names.indexOf(name), COLOURS - 1)}`;
  const top = nice(Math.max(1e-9, ...bars.map(({ parts }) => sum(parts))));
  const step = (width - LEFT) / Math.max(8, bars.length);
  const scale = (value) => (value / top) * (HEIGHT - TOP - BOTTOM);
  const chartElement = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${measure} of the last ${bars.length} windows; the table below has the figures` });
  for (const share of [0, 0.5, 1]) {
    const y = HEIGHT - BOTTOM - scale(top * share);
    chartElement.append(svg("line", { x1: LEFT, x2: width, y1: y, y2: y, class: "grid" }),
      svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, short(top * share)));
  }
  bars.forEach(({ window, parts }, index) => {
    let y = HEIGHT - BOTTOM;
    const x = LEFT + index * step + step * 0.14;
    for (const name of names) {
      if (!parts[name]) continue;
      const height = Math.max(1, scale(parts[name]));
      y -= height;
      const bar = svg("rect", { x, y, width: step * 0.72, height, rx: 2, class: `bar ${colour(name)}` });
      bar.append(svg("title", {}, `window ${window.window.number}, ${name}: ${number(parts[name])}`));
      chartElement.append(bar);
    }
    if (index % Math.ceil(LABEL / step) === 0) {
      chartElement.append(svg("text", { x: x + step * 0.36, y: HEIGHT - 7, "text-anchor": "middle" }, `#${window.window.number}`));
    }
  });
  const named = names.slice(0, COLOURS - 1);
  const entry = (kind, text) => el("li", {}, svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, rx: 2, class: kind })), text);
  const legend = el("ul", { class: "legend" }, named.map((name) => entry(colour(name), name)),
    names.length > named.length ? entry(`c${COLOURS - 1}`, names.length === COLOURS ? names[COLOURS - 1] : `${names.length - named.length} more`) : null);
  return el("div", {}, chartElement, legend);
}

export function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= value);
}

function short(value) {
  if (value >= 1e6) return `${+(value / 1e6).toFixed(1)} M`;
  if (value >= 1e3) return `${+(value / 1e3).toFixed(1)} k`;
  return String(+value.toFixed(2));
}
