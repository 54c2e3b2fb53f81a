// The tab Runs: each run under way with what it has done so far and a button that ends it, and the last runs.

import { airflow } from "./api.js";
import { cancelDialog } from "./dialogs.js";
import { clock, duration, el, number, table, when } from "./dom.js";

const UNFINISHED = new Set(["running", "queued"]);
const STAGES = { "scout": "Scouting tasks done", "decode": "Decoding tasks done", "decode and publish": "Slices decoded and published", "compare": "Comparing tasks done", "publish": "Publishing tasks done" };

export class Runs {
  constructor(part, path, after) {
    this.part = part;
    this.path = path;
    this.after = after;
    this.cards = new Map(); // by the run's id: a card stays while its figures change, with the focus on its button
    this.underWay = el("div", {});
    this.ended = el("div", {});
    this.drawn = "";
  }

  // `mayCancel` says that the user may end a run.
  draw(runs, mayCancel) {
    if (!this.ended.isConnected) this.part.replaceChildren(el("h2", {}, "Runs"), this.underWay, this.ended);
    const text = JSON.stringify(runs.map(({ live, seconds_left: left, ...rest }) => rest));
    if (text !== this.drawn) this.ended.replaceChildren(runs.length ? tableOf(runs) : el("p", { class: "empty" }, "None yet. A run publishes the changes since the last one."));
    this.drawn = text;
    this.drawUnderWay(runs.filter(({ state }) => UNFINISHED.has(state)), mayCancel);
  }

  drawUnderWay(runs, mayCancel) {
    const ids = new Set(runs.map((run) => run.run_id));
    for (const [id, { card }] of this.cards) {
      if (ids.has(id)) continue;
      const hadFocus = card.contains(document.activeElement);
      card.remove();
      this.cards.delete(id);
      if (hadFocus) this.ended.querySelector("[tabindex]")?.focus();
    }
    for (const run of runs) {
      if (!this.cards.has(run.run_id)) this.add(run);
      const { state, figures, spark, cancel } = this.cards.get(run.run_id);
      spark.hidden = !run.live.spark_page;
      if (run.live.spark_page) spark.href = run.live.spark_page;
      cancel.hidden = !mayCancel;
      state.textContent = run.state === "running" ? run.outcome : run.state;
      figures.replaceChildren(...figuresOf(run));
    }
  }

  add(run) {
    const state = el("span", { class: "badge" });
    const figures = el("dl", { class: "facts" });
    const spark = el("a", { class: "button", target: "_blank", rel: "noreferrer", hidden: true, title: "Spark's web page, on the machine of the job's driver" }, "Spark");
    const cancel = el("button", { onclick: () => cancelDialog(this.path, run.run_id, this.after) }, "Cancel…");
    const card = el("article", { class: "run", "aria-label": `Run ${run.run_id}` },
      el("div", { class: "row between" },
        el("div", { class: "row" }, el("h3", {}, run.run_id), state),
        el("div", { class: "row" }, el("a", { class: "button", href: airflow(`${run.href}/tasks/ingest`), target: "_top" }, "Log"), spark, cancel)),
      figures);
    this.cards.set(run.run_id, { card, state, figures, spark, cancel });
    this.underWay.append(card);
  }
}

// Rows and windows of a run whose first windows are not kept one by one: the rows of one that has ended are null.
const since = ({ since_ms: at }) => (at === null ? null : `since ${clock(at)}`);
const rowsOf = (run) => (run.rows === null ? el("span", { class: "soft" }, "not kept") : !run.rows ? "" : run.since_ms === null ? number(run.rows) : `${number(run.rows)} ${since(run)}`);

// The windows of a run, as `3` or `3 to 7`.
const numbers = (windows) => !windows.length ? "" : windows.length === 1 ? `#${windows[0]}` : `#${windows[0]} to #${windows.at(-1)}`;

function tableOf(runs) {
  const seconds = ({ start, end }) => (start && end ? (new Date(end) - new Date(start)) / 1000 : null);
  return table("Runs", ["Due", "State", "Outcome", "#Rows", "Windows", "#Duration"], runs.map((run) => [
    el("a", { href: airflow(run.href), target: "_top", title: run.run_id }, when(new Date(run.run_after).getTime())),
    el("span", { class: `badge ${{ success: "good", failed: "bad" }[run.state] || ""}` }, run.state), run.outcome, rowsOf(run),
    run.since_ms === null ? numbers(run.windows) : "", UNFINISHED.has(run.state) ? "" : duration(seconds(run))]));
}

// What a stage has done: slices if they are known, else tasks. Topic-partitions have a figure of their own.
function doneOf({ name, done, total, parts }) {
  if (name === "decode" && parts && parts.done !== null) return ["Slices decoded", `${number(parts.done)} of ${number(parts.total)}`];
  return [STAGES[name] || name, `${number(done)} of ${number(total)}${parts && name === "decode" ? `, ${number(parts.total)} slices` : ""}`];
}

// What is known of a run under way: of all its windows, of its current window in Kafka, and of the stage of its job.
function figuresOf(run) {
  const { windows, planned, rows, seconds_left: left, live } = run;
  const fact = (name, value, small = null) => el("div", {}, el("dt", {}, name), el("dd", {}, value, small ? el("small", {}, small) : null));
  const { window, stage, topic_partitions_total: partitions } = live;
  const ofWindow = window === null ? null : `of window #${window}`;
  const timeLeft = left !== null ? ["Time left", `about ${duration(left)}`, "by the sealed windows"]
    : stage && stage.seconds_left !== null ? ["Time left", `about ${duration(stage.seconds_left)}`, "of this stage"] : null;
  return [
    planned === null && !windows.length ? null : fact("Windows sealed", planned === null ? number(windows.length) : `${number(windows.length)} of ${number(planned)}`, since(run)),
    rows ? fact("Rows in sealed windows", number(rows), since(run)) : null,
    stage && fact(...doneOf(stage), stage.messages === null ? null : `${number(stage.messages)} messages`),
    stage && stage.messages_per_second !== null ? fact("Rate", `${number(Math.round(stage.messages_per_second))} messages/s`) : null,
    window === null ? null : fact("Topic-partitions published", `${number(live.topic_partitions)}${partitions === null ? "" : ` of ${number(partitions)}`}`, ofWindow),
    window === null ? null : fact("Messages published", number(live.messages), ofWindow),
    timeLeft && fact(...timeLeft),
  ].filter(Boolean);
}
