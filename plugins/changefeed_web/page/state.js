// A pipeline's state in a word, and the facts that stand beside it.

import { ago, bytes, duration, el } from "./dom.js";

export function badge(pipeline) {
  const { dag, position } = pipeline;
  if (!dag.known) return el("span", { class: "badge warn" }, "not loaded yet");
  if (position && position.state === "error") return el("span", { class: "badge bad" }, "error");
  if (dag.running.length) return el("span", { class: "badge" }, "running");
  if (dag.last_run && dag.last_run.state === "failed") return el("span", { class: "badge bad" }, "failed");
  if (dag.paused) return el("span", { class: "badge warn" }, "paused");
  if (!position) return el("span", { class: "badge" }, "…");
  if (position.state === "current") return el("span", { class: "badge good" }, "up to date");
  return el("span", { class: "badge" }, position.state);
}

export function facts(pipeline, long = false) {
  const { position, dag } = pipeline;
  const at = position || {};
  const low = pipeline.alerts.headroom_hours && at.retention_headroom_seconds !== null
    && at.retention_headroom_seconds < pipeline.alerts.headroom_hours * 3600;
  const headroom = at.checkpoint ? (at.retention_headroom_seconds === null ? "unlimited" : duration(at.retention_headroom_seconds)) : "–";
  const fact = (name, value, small, kind) => el("div", {}, el("dt", {}, name), el("dd", { class: kind }, value, small ? el("small", {}, small) : null));
  return el("dl", { class: "facts" },
    fact("Lag", bytes(at.lag_bytes), at.lag_seconds ? `${duration(at.lag_seconds)} old` : null),
    fact("Retention headroom", headroom, low ? `below ${pipeline.alerts.headroom_hours} h` : null, low ? "warn" : null),
    fact("Checkpoint", el("span", { class: "mono" }, at.checkpoint || "–"), at.committed_at_ms ? ago(new Date(at.committed_at_ms).toISOString()) : null),
    long ? fact("Head", el("span", { class: "mono" }, at.head || "–")) : null,
    fact("Last run", dag.last_run ? `${dag.last_run.state}` : "none yet", dag.last_run ? ago(dag.last_run.run_after) : null),
    long ? fact("Schedule", dag.schedule && dag.schedule !== "None" ? dag.schedule : "by hand", dag.paused ? "paused" : dag.next_run ? `next ${ago(dag.next_run)}` : null) : null);
}
