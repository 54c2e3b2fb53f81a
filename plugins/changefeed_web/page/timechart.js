// Latency and lag of the sealed windows, on an axis of time: the bar of a window is at the time at which it was sealed.

import { nice } from "./chart.js";
import { bytes, duration, svg } from "./dom.js";

const HEIGHT = 180, LEFT = 58, RIGHT = 12, BOTTOM = 24, TOP = 10;
const LABEL = 90; // width of a time in pixels
const BAR = 6;

export const OVER_TIME = {
  Latency: {
    value: (window) => Math.max(0, (window.sealed_at_ms - window.window.frozen_at_ms) / 1000),
    show: duration,
    about: "Seconds from reading the end of the binlog until the changes before it were in Kafka, by window.",
  },
  Lag: {
    value: (window) => window.size_bytes,
    show: bytes,
    about: "Bytes of binlog that waited when a run began to publish them, by window.",
  },
};

const STEPS_S = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 604800];

// Times between `from` and `to`, at most `count` of them, that are multiples of a usual step in local time.
function ticks(from, to, count) {
  const step = 1000 * (STEPS_S.find((one) => (to - from) / (1000 * one) <= count) || STEPS_S.at(-1));
  const shift = new Date(to).getTimezoneOffset() * 60000;
  const times = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) times.push(at);
  return { step, times };
}

function timeText(at, step) {
  const moment = new Date(at);
  if (step >= 86400000) return moment.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return moment.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(step < 60000 ? { second: "2-digit" } : {}) });
}

function describe(name, shown, values, from, to) {
  const sorted = values.slice().sort((a, b) => a - b);
  const range = [from, to].map((at) => new Date(at).toLocaleString("en-GB")).join(" to ");
  return `${name} of ${values.length} windows from ${range}: median ${shown(sorted[Math.floor(sorted.length / 2)])}, at most ${shown(sorted.at(-1))}; the table below has the figures`;
}

// `width` is in pixels. The axis ends now, so that a pipeline that stopped is seen to have stopped.
export function timeChart(windows, name, width, now = Date.now()) {
  const { value, show } = OVER_TIME[name];
  const values = windows.map(value);
  const times = windows.map((window) => window.sealed_at_ms);
  const to = Math.max(now, ...times), from = Math.min(to - 60000, ...times);
  const top = nice(Math.max(1, ...values));
  const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT - BAR);
  const y = (one) => HEIGHT - BOTTOM - (one / top) * (HEIGHT - TOP - BOTTOM);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": describe(name, show, values, from, to) });
  for (const share of [0, 0.5, 1]) {
    drawn.append(svg("line", { x1: LEFT, x2: width, y1: y(top * share), y2: y(top * share), class: "grid" }),
      svg("text", { x: LEFT - 8, y: y(top * share) + 4, "text-anchor": "end" }, show(top * share)));
  }
  const { step, times: marks } = ticks(from, to, Math.max(2, Math.floor((width - LEFT) / LABEL)));
  for (const at of marks) {
    const near = x(at) > width - 30 ? "end" : x(at) < LEFT + 20 ? "start" : "middle";
    drawn.append(svg("line", { x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM, class: "grid" }), svg("text", { x: x(at), y: HEIGHT - 7, "text-anchor": near }, timeText(at, step)));
  }
  windows.forEach((window, index) => {
    const height = Math.max(2, HEIGHT - BOTTOM - y(values[index]));
    const bar = svg("rect", { x: x(times[index]), y: HEIGHT - BOTTOM - height, width: BAR, height, rx: 2, class: "bar c0" });
    bar.append(svg("title", {}, `window ${window.window.number}, ${new Date(times[index]).toLocaleTimeString("en-GB")}: ${show(values[index])}`));
    drawn.append(bar);
  });
  return drawn;
}
