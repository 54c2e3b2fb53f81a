// The badge of a pipeline's state, and its figures.

import { ago, bytes, coordinates, duration, el } from "./dom.js";

export const badge = ({ standing }) => el("span", { class: `badge ${standing.kind}` }, standing.text);

export function facts(pipeline, long = false) {
  const { position, dag } = pipeline;
  const at = position || {};
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
    fact("Schedule", dag.schedule && dag.schedule !== "None" ? dag.schedule : "by hand", dag.paused ? "paused" : nextRun(dag)));
}

function nextRun({ next_run: next, running }) {
  if (!next) return null;
  if (new Date(next) > Date.now()) return `next ${ago(next)}`;
  return running.length ? "next after the current run" : `due ${ago(next)}, not started yet`;
}
