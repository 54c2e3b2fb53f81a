// The badge of a pipeline's state, its figures, and the banner about servers that do not answer.

import { ago, bytes, coordinates, duration, el, problem, shown } from "./dom.js";

const LATE_MS = 60000; // as LATE in standing.py

export const badge = ({ standing }) => el("span", { class: `badge ${standing.kind}` }, standing.text);

export function facts(pipeline, long = false) {
  const { position, dag } = pipeline;
  const at = (position && position.last_known) || position || {};
  const low = pipeline.alerts.headroom_hours && at.retention_headroom_seconds !== null
    && at.retention_headroom_seconds < pipeline.alerts.headroom_hours * 3600;
  const headroom = at.retention_unlimited ? "unlimited" : at.retention_headroom_seconds == null ? "–" : duration(at.retention_headroom_seconds);
  const fact = (name, value, small, kind, wide) => el("div", { class: wide }, el("dt", {}, name), el("dd", { class: kind }, value, small ? el("small", {}, small) : null));
  return el("dl", { class: "facts" },
    fact("Lag", bytes(at.lag_bytes), at.lag_seconds ? `${duration(at.lag_seconds)} old` : at.lag_bytes && at.own_changes === false ? "no change of its tables" : null),
    fact("Retention headroom", headroom, low ? `below ${pipeline.alerts.headroom_hours} h` : null, low ? "warn" : null),
    fact("Checkpoint", coordinates(at.checkpoint), at.committed_at_ms ? ago(new Date(at.committed_at_ms).toISOString()) : null, null, "coordinates"),
    long ? fact("Head", coordinates(at.head), null, null, "coordinates") : null,
    fact("Last run", !dag.last_run ? "none yet" : dag.held.includes(dag.last_run.run_id) ? "held" : dag.last_run.state, dag.last_run ? ago(dag.last_run.run_after) : null),
    fact("Schedule", pipeline.schedule || "by hand", dag.paused ? "paused" : nextRun(dag)));
}

// Servers that do not answer, from all answers of the API that a view shows, as one banner.
export class Outage {
  constructor() {
    this.errors = new Map();
    this.since = Infinity;
  }

  // `stale` is that of an answer; `about` names what is affected.
  add(stale, about = "") {
    if (!stale) return;
    for (const [kind, text] of Object.entries(stale.errors)) {
      const key = about ? kind + text : kind; // one pipeline has one server of a kind
      if (!this.errors.has(key)) this.errors.set(key, { text, about: new Set() });
      if (about) this.errors.get(key).about.add(about);
    }
    this.knownSince(stale.read_at_ms);
  }

  // An answer that could not be given: the view shows that of the time `at` (Unix milliseconds), or none.
  addRefusal(error, at = null) {
    const isKnown = error.kind ? this.errors.has(error.kind) : this.errors.size; // without a kind, too many requests wait
    if (!isKnown) this.errors.set(error.kind || "", { text: error.message, about: new Set() });
    this.knownSince(at);
  }

  knownSince(at) {
    if (at) this.since = Math.min(this.since, at);
  }

  // Draw the banner into `place`; nothing if all servers answer.
  draw(place) {
    const parts = [...this.errors.values()];
    const about = (names) => (names.size ? `${[...names].sort().join(", ")}: ` : "");
    const text = parts.map((one) => about(one.about) + one.text).join("\n");
    const whose = parts.some((one) => one.about.size) ? " of these pipelines" : "";
    const age = this.since < Infinity ? `What is shown are the last known values${whose}, read ${ago(new Date(this.since).toISOString())}.` : "No earlier values are known.";
    const before = place.querySelector("pre");
    if (before && before.textContent === shown(text)) place.querySelector("p").textContent = age; // is not announced again
    else place.replaceChildren(...(parts.length ? [problem(parts.length > 1 ? "Servers do not answer" : "A server does not answer", text, el("p", {}, age))] : []));
  }
}

// A pipeline whose DAGs Airflow should have loaded.
export const notLoaded = ({ since, text }) =>
  problem("Airflow has not loaded the pipeline's DAGs", `${since ? `Not loaded for ${duration((Date.now() - new Date(since)) / 1000)}. ` : ""}${text}`);

function nextRun({ next_run: next, running }) {
  if (!next) return null;
  if (new Date(next) > Date.now()) return `next ${ago(next)}`;
  if (running.length) return "next after the current run";
  return Date.now() - new Date(next) < LATE_MS ? "the next run starts" : `due ${ago(next)}, not started yet`;
}
