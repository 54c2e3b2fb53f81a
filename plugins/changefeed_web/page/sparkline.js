// The rows of the last hour as small bars, with a text for screen readers.

import { clock, el, number, svg } from "./dom.js";

const WIDTH = 120, HEIGHT = 24;

// `hour` is `last_hour` of the API; null if it could not be read. Of the time before `since_ms` nothing is known, and nothing drawn.
export function sparkline(hour) {
  if (!hour) return el("span", { class: "soft" }, "–");
  const { rows, total, bin_seconds: seconds, since_ms: since } = hour;
  const about = since === null ? null : `since ${clock(since)}`;
  if (!total) return el("span", { class: "soft" }, about ? `none ${about}` : "none");
  const top = Math.max(...rows), step = WIDTH / rows.length;
  const text = `${number(total)} rows ${about || "in the last hour"}, at most ${number(top)} in ${seconds / 60} minutes`;
  const drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": text, class: "sparkline" });
  rows.forEach((count, index) => {
    if (count === null) return;
    const height = count ? Math.max(1.5, (count / top) * HEIGHT) : 0.5;
    drawn.append(svg("rect", { x: index * step + 0.5, y: HEIGHT - height, width: step - 1, height, class: count ? "c0" : "none" }));
  });
  return el("span", { class: "spark" }, drawn, el("span", { "aria-hidden": "true" }, number(total), about ? [" ", el("small", {}, about)] : null));
}
