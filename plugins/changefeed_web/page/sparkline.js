// The rows of the last hour as small bars, with a text for screen readers.

import { el, number, svg } from "./dom.js";

const WIDTH = 120, HEIGHT = 24;

// `hour` is `last_hour` of the API; null if it could not be read.
export function sparkline(hour) {
  if (!hour) return el("span", { class: "soft" }, "–");
  const { rows, total, bin_seconds: seconds } = hour;
  const text = total ? `${number(total)} rows in the last hour, at most ${number(Math.max(...rows))} in ${seconds / 60} minutes` : "no rows in the last hour";
  if (!total) return el("span", { class: "soft" }, "none");
  const drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": text, class: "sparkline" });
  const top = Math.max(...rows), step = WIDTH / rows.length;
  rows.forEach((count, index) => {
    const height = count ? Math.max(1.5, (count / top) * HEIGHT) : 0.5;
    drawn.append(svg("rect", { x: index * step + 0.5, y: HEIGHT - height, width: step - 1, height, class: count ? "c0" : "none" }));
  });
  return el("span", { class: "spark" }, drawn, el("span", { "aria-hidden": "true" }, number(total)));
}
