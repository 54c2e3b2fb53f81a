// One pipeline: its state, windows, topics, tables, schemas, snapshots, backfills, verifications and seeks, and its actions.

import { actionMenu } from "./actions.js";
import { airflow, get, post } from "./api.js";
import { chart, MEASURES, rowsOf, totalOf } from "./chart.js";
import { runText, seekDialog } from "./dialogs.js";
import { bytes, duration, el, every, hollow, loading, number, problem, table, toast, when, whenText } from "./dom.js";
import { activity, olderWindows, overTime, sentence } from "./overview.js";
import { Runs } from "./runs.js";
import { badge, facts, notLoaded, Outage } from "./state.js";

const EVERY_MS = 5000;
const TABLES_EACH = 12; // refreshes between two reads of all tables' columns from the source
const PADDING = 34; // padding and border of a card in pixels

// The tabs of a pipeline, and which parts each shows.
const TABS = {
  overview: ["head", "activity", "freshness", "windows"],
  tables: ["tables", "schema", "topics"],
  records: [], // records.js
  runs: ["runs"],
  history: ["snapshots", "backfills", "verifications", "seeks", "discards"],
  settings: [],
};

export const tabBar = (name, chosen) => el("nav", { class: "row tabbar", "aria-label": "Views of the pipeline" },
  Object.keys(TABS).map((tab) => el("a", { href: `#/pipelines/${encodeURIComponent(name)}${tab === "overview" ? "" : `/${tab}`}`, "aria-current": tab === chosen ? "page" : null }, tab[0].toUpperCase() + tab.slice(1))));

export async function detail(main, alive, name, tab) {
  const shownParts = TABS[tab];
  if (!shownParts) {
    main.replaceChildren(notThere(name, tab));
    return;
  }
  const path = `pipelines/${encodeURIComponent(name)}`;
  const outage = el("div", {});
  const parts = {
    head: el("div", { class: "stack" }, loading("the pipeline")),
    activity: el("section", { class: "card", "aria-label": "Activity" }),
    freshness: el("section", { class: "card", "aria-label": "Freshness", hidden: true }),
    windows: el("section", { class: "card", "aria-label": "Windows" }),
    runs: el("section", { class: "card", "aria-label": "Runs" }),
    topics: el("section", { class: "card", "aria-label": "Topics" }),
    tables: el("section", { class: "card", "aria-label": "Tables" }),
    schema: el("section", { class: "card", "aria-label": "Schemas" }),
    snapshots: el("section", { class: "card", "aria-label": "Snapshots" }),
    backfills: el("section", { class: "card", "aria-label": "Backfills" }),
    verifications: el("section", { class: "card", "aria-label": "Verifications" }),
    seeks: el("section", { class: "card", "aria-label": "Seeks" }),
    discards: el("section", { class: "card", "aria-label": "Discards", hidden: true }),
  };
  // The overview counts the rows of snapshots.
  const read = new Set([...shownParts, ...(tab === "overview" ? ["snapshots"] : [])].map((part) => parts[part]));
  let measure = "Rows";
  let seen = {};
  const readAt = {};
  let looks = 0;
  let sealed = null; // the number of windows that are shown
  let snapshotRows = 0;
  let redraw = () => {};
  let freshness = null;
  let drawnProblems = ""; // what the problems were drawn from
  let shownWindows = [];
  let round = 0; // of refreshes: a later one discards the answers of an earlier one
  let lookedAt = null;
  const troubles = el("div", { class: "stack" });
  const figures = el("div", { class: "stack" });
  const title = el("h1", {}, name);
  const state = el("span", {});
  const actions = el("div", { class: "row actions" });
  let latest = null;
  const runs = new Runs(parts.runs, path, () => refresh());
  const menu = actionMenu(path, () => latest, () => refresh());
  main.replaceChildren(el("div", { class: "stack" },
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: "#/" }, "All pipelines")),
    el("header", { class: "row between" }, el("div", { class: "row" }, title, state), actions),
    tabBar(name, tab), outage, shownParts.map((part) => parts[part])));

  const act = async (button, what, work) => {
    button.disabled = true;
    try {
      const done = await work();
      toast(what(done));
      await refresh();
    } catch (error) {
      toast(error.message, true);
    }
    button.disabled = false;
  };

  const drawActions = (pipeline) => {
    const run = el("button", { class: "primary", onclick: () => act(run, runText, () => post(`${path}/run`, {})) }, "Run now");
    const paused = pipeline.dag.paused;
    const setPaused = async () => {
      const { run_for: isContinuous, dag: { running, held } } = latest;
      const done = await post(`${path}/${paused ? "resume" : "pause"}`);
      if (paused) return done.run_id ? runText(done) : "Resumed";
      return isContinuous && running.length > held.length ? "Paused: the run under way ends after its window" : "Paused";
    };
    const pause = el("button", { onclick: () => act(pause, (text) => text, setPaused) }, paused ? "Resume" : "Pause");
    actions.replaceChildren(run, pause, menu);
  };

  const unparkButton = (parked) => {
    const button = el("button", { onclick: () => act(button, (done) => `Run ${done.run_id} started`, () => post(`${path}/unpark`, { tables: [parked] })) }, "Unpark");
    return el("p", {}, "When the cause is gone: ", button);
  };

  const drawHead = (pipeline) => {
    state.replaceChildren(badge(pipeline));
    freshness = pipeline.freshness;
    figures.replaceChildren(el("div", { class: "card" }, facts(pipeline, true)),
      el("p", { class: "soft" }, `${pipeline.source} → ${pipeline.kafka}; tables `, el("code", {}, pipeline.tables.include.join(", ")),
        pipeline.tables.exclude.length ? ["; excluded ", el("code", {}, pipeline.tables.exclude.join(", "))] : null, `; owner ${pipeline.owner}`));
    const { headline, last_error: lastError, position, dag } = pipeline;
    const from = JSON.stringify([headline, lastError, position.error, position.unavailable, (position.last_known || position).parked, dag.missing, dag.held]);
    if (from !== drawnProblems) drawProblems(pipeline); // else they would be announced again, and lose the focus
    drawnProblems = from;
    if (!figures.isConnected) parts.head.replaceChildren(troubles, figures);
  };

  const drawProblems = (pipeline) => {
    const problems = [];
    if (pipeline.position.error && !pipeline.position.unavailable) problems.push(problem("The pipeline cannot run", pipeline.position.error));
    const { missing } = pipeline.dag;
    if (missing) {
      problems.push(missing.overdue ? notLoaded(missing)
        : el("p", { class: "notice" }, `Airflow has not loaded the pipeline's DAGs yet. ${missing.text}`));
    }
    if (pipeline.last_error) problems.push(failure(pipeline.last_error));
    for (const each of (pipeline.position.last_known || pipeline.position).parked || []) {
      problems.push(problem(`Table ${each.table} is parked`, `Its changes from ${each.at} on are not published since ${whenText(each.since_ms)}${each.reason ? `: ${each.reason}` : "."}`,
        unparkButton(each.table)));
    }
    for (const run of pipeline.dag.held) {
      problems.push(el("p", { class: "notice" }, "The pipeline is paused. Run ", el("a", { href: airflow(`/dags/${pipeline.dag.dag_id}/runs/${run}`), target: "_top" }, run),
        " is held until the pipeline is resumed."));
    }
    const helps = (what, button) => act(button, () => (what === "run" ? "Run started" : "Resumed"), () => post(`${path}/${what}`, what === "run" ? {} : undefined));
    troubles.replaceChildren(...[sentence(pipeline.headline, helps)].filter(Boolean), ...problems);
  };

  // The axis ends now, so it is drawn at each look.
  const drawFreshness = () => {
    if (!parts.freshness.contains(document.activeElement)) overTime(parts.freshness, shownWindows, Math.max(280, parts.windows.clientWidth - PADDING), freshness);
  };

  const drawWindows = ({ windows, merged }) => {
    sealed = windows.length;
    shownWindows = windows;
    drawFreshness();
    if (!sealed) {
      const text = snapshotRows ? `No window is sealed yet, and ${number(snapshotRows)} rows are published by snapshots. The next run that finds changes seals a window.`
        : "No window is sealed yet. The first run that finds changes seals one.";
      parts.windows.replaceChildren(el("h2", {}, "Windows"), el("p", { class: "empty" }, text));
      return;
    }
    const draw = () => {
      const tabs = Object.keys(MEASURES).map((one) => el("button", { "aria-pressed": String(one === measure), onclick: () => { measure = one; draw(); } }, one));
      parts.windows.replaceChildren(
        el("div", { class: "row between" }, el("h2", {}, "Windows"), el("div", { class: "tabs", role: "group", "aria-label": "What the chart shows" }, tabs)),
        el("div", { class: "chart" }, chart(windows, measure, Math.max(280, parts.windows.clientWidth - PADDING))),
        table("Windows", ["Window", "Frozen", "Sealed range", "#Rows", "#Binlog", "#Seconds", "#Latency", "#Rows/s", "~Phases"], windows.map((one) => [
          `#${one.window.number}`, one.run ? el("a", { href: airflow(one.run.href), target: "_top", title: one.run.run_id }, when(one.window.frozen_at_ms)) : when(one.window.frozen_at_ms),
          el("code", {}, `${one.window.start} → ${one.window.head}`), number(rowsOf(one)), bytes(one.size_bytes),
          totalOf(one).toFixed(1), duration(Math.max(0, one.sealed_at_ms - one.window.frozen_at_ms) / 1000), number(Math.round(rowsOf(one) / Math.max(0.001, totalOf(one)))),
          Object.entries(one.seconds).map(([phase, seconds]) => `${phase} ${seconds.toFixed(1)}`).join(", ")])),
        ...(merged.length ? olderWindows(merged) : []));
    };
    redraw = draw;
    draw();
  };
  const onResize = () => (alive() ? redraw() : removeEventListener("resize", onResize));
  addEventListener("resize", onResize);

  const drawTopics = (pipeline, { progress, contents }) => {
    const soft = (text) => el("span", { class: "soft" }, text);
    const rows = Object.entries(pipeline.topics).map(([name_, topic]) => {
      const last = progress.filter((one) => one.topic === topic && one.file).map((one) => `${one.partition}: ${one.file}:${one.position}`).join(", ");
      const filled = contents.filter((one) => one.topic === topic && one.end_offset > one.first_offset);
      const offsets = filled.map((one) => `${one.partition}: ${one.first_offset} to ${one.end_offset - 1}`).join(", ");
      const newest = Math.max(0, ...filled.map((one) => one.newest_ms || 0));
      const without = filled.length ? "by no window yet" : "nothing published yet";
      return [name_, el("code", {}, topic), number(filled.reduce((all, one) => all + one.end_offset - one.first_offset, 0)), newest ? when(newest) : "–",
        offsets ? el("code", {}, offsets) : soft("empty"), last ? el("code", {}, last) : soft(without)];
    });
    parts.topics.replaceChildren(el("h2", {}, "Topics and commit log"),
      pipeline.topics_error && !pipeline.stale ? problem("The tables cannot be read", pipeline.topics_error) : "",
      pipeline.topics_error ? (pipeline.stale ? unknown() : "") : rows.length ? table("Topics", ["Table", "Topic", "#Records, at most", "Newest record", "~Offsets by partition", "~Published up to, by partition"], rows) : el("p", { class: "empty" }, "No table matches the patterns now."));
  };

  const drawTables = (tables) => {
    const open = new Set([...parts.tables.querySelectorAll("details[open]")].map((one) => one.dataset.table));
    const line = (name_, text) => [el("dt", {}, name_), el("dd", {}, text === null ? el("span", { class: "soft" }, "null") : el("code", {}, text))];
    const sample = (one) => el("details", { "data-table": one.table, open: open.has(one.table) },
      el("summary", {}, el("code", {}, one.table), el("span", { class: "soft" }, ` ${one.sample.about}`)),
      one.sample.problem ? problem("No sample message is possible", one.sample.problem) : el("dl", { class: "sample" },
        line("key", one.sample.key), line("value", one.sample.value), Object.entries(one.sample.headers).map(([name_, text]) => line(name_, text))));
    const samples = tables.filter((one) => one.sample);
    const rest = (one) => [
      one.left_out.length ? `excluded: ${one.left_out.join(", ")}` : "", one.masked.length ? `masked: ${one.masked.join(", ")}` : "",
      one.filtered ? "rows filtered by a condition" : "", one.transforms.length ? `functions: ${one.transforms.join(", ")}` : "",
    ].filter(Boolean).join("; ");
    parts.tables.replaceChildren(el("h2", {}, "Routing and transforms"), tables.length
      ? table("Tables", ["Table", "Topic", "#Partitions", "Partition by", "Key", "Format", "~Columns, rows and functions"], tables.map((one) => [
        one.table, el("code", {}, one.topic), number(one.partitions), one.partition_by, one.key.join(", ") || el("span", { class: "soft" }, "none"), one.format, rest(one)]))
      : el("p", { class: "empty" }, "No table matches the patterns now."),
    ...(samples.length ? [el("h3", {}, "Sample messages"), ...samples.map(sample)] : []));
  };

  const drawSchema = ({ until, tables, changes, unknown }) => {
    const answers = { stop: "the run stops before them", placeholder: "published with placeholder names", begin: "left out and counted" };
    const type = (column) => [column.data_type, column.unsigned ? "unsigned" : "", column.collation || ""].filter(Boolean).join(" ");
    const described = tables.map((one) => [`${one.database}.${one.table}`,
      one.problem ? el("span", { class: "soft" }, one.problem) : (one.primary_key.join(", ") || "none"),
      (one.columns || []).map((column) => `${column.name} ${type(column)}`).join(", ")]);
    parts.schema.replaceChildren(el("h2", {}, "Schemas"),
      ...(tables.length ? [table("Schemas", ["Table", "Primary key", "~Columns"], described)]
        : [el("p", { class: "empty" }, "No table matches the patterns.")]),
      until || !tables.length ? "" : el("p", { class: "soft" }, "These are the source's columns now. The first window stores them, and then the history of their changes."),
      ...(unknown.length ? [el("h3", {}, "Rows with unknown columns"),
        el("p", {}, `To define the columns, run changefeed schema ${name} --define. To choose what a run does with such rows, use --unknown or the pipeline's setting unknown_schema.`),
        table("Unknown", ["Table", "#Rows", "From", "To", "Action", "~Reason"], unknown.map((one) => [
          one.table, number(one.rows), el("code", {}, one.start), one.end ? el("code", {}, one.end) : "", answers[one.answer], one.problem]))] : []),
      ...(changes.length ? [el("h3", {}, "Last DDL statements"), table("DDL statements", ["Coordinates", "~Statement"],
        changes.map((one) => [el("code", {}, one.coordinates), one.sql ? el("code", {}, one.sql) : `${one.tables.join(", ")}: ${one.kind}`]))] : []));
  };

  const drawSnapshots = ({ snapshots, runs }) => {
    snapshotRows = snapshots.reduce((all, one) => all + one.rows - one.left_out, 0);
    if (sealed === 0) drawWindows({ windows: [], merged: [] });
    const last = runs[0];
    const open = snapshots.filter((one) => !one.finished);
    const paused = open.some((one) => one.paused);
    const pause = el("button", { onclick: () => act(pause, () => (paused ? "Snapshot resumed" : "The snapshot pauses after the chunks that are being read"), () => post(`${path}/snapshot/${paused ? "resume" : "pause"}`)) }, paused ? "Resume the snapshot" : "Pause the snapshot");
    parts.snapshots.replaceChildren(el("h2", {}, "Snapshots"), ...(open.length ? [pause] : []),
      ...(last ? [el("p", {}, "Last run: ", el("a", { href: airflow(last.href), target: "_top" }, last.state), " ", when(new Date(last.run_after).getTime()))] : []),
      snapshots.length
        ? table("Snapshots", ["State", "Began", "#Tables done", "#Chunks", "#Rows", "#Left to windows", "#Rows/s", "#Time left"], snapshots.map((one) => [
          one.finished ? "finished" : one.paused ? "paused" : "running or stopped", when(one.began_ms), `${number(one.tables_done)} of ${number(one.tables)}${one.gone.length ? `, dropped: ${one.gone.join(", ")}` : ""}`, number(one.chunks),
          one.finished ? number(one.rows) : `${number(one.rows)} of about ${number(Math.max(one.rows, one.estimated_rows))}`, number(one.left_out),
          one.rows_per_second === null ? "" : number(one.rows_per_second), one.finished || one.seconds_left === null ? "" : `${number(one.seconds_left)} s`]))
        : el("p", { class: "empty" }, "None yet. A snapshot publishes the existing rows of tables, concurrently with the windows."));
  };

  const drawBackfills = (backfills) => {
    parts.backfills.replaceChildren(el("h2", {}, "Backfills"), backfills.length
      ? table("Backfills", ["State", "Started", "~Range", "~Tables", "Topics"], backfills.map((one) => {
        const { conf } = one;
        const range = [conf.from_file, conf.to_file, conf.from_coordinates, conf.to_coordinates, conf.gtids, conf.from_time, conf.to_time].filter(Boolean).join(" → ");
        return [el("a", { href: airflow(one.href), target: "_top" }, one.state), when(new Date(one.run_after).getTime()),
          el("code", {}, range), (conf.tables || []).join(", ") || "all", conf.suffix ? `…${conf.suffix}` : "live"];
      }))
      : el("p", { class: "empty" }, "None yet. A backfill publishes a range of the binlog again, concurrently with the windows."));
  };

  const waitingFor = ({ run_id: run, wait_seconds: seconds, for: what }) => {
    const button = el("button", { onclick: () => act(button, () => (what === "run" ? "Run started" : "Resumed"), () => post(`${path}/${what}`, what === "run" ? {} : undefined)) }, what === "run" ? "Run now" : "Resume");
    return el("p", { class: "notice" }, `Verification ${run} needs changes that the pipeline has not published yet, and ${what === "run" ? "no run of the pipeline is planned" : "the pipeline is paused"}. It waits for at most ${duration(seconds)}. `, button);
  };

  const drawVerifications = ({ reports, runs, waiting }) => {
    const colours = { equal: "badge good", differs: "badge bad", incomplete: "badge warn" };
    const tables = (report) => report.tables.filter((one) => one.outcome !== "equal").map((one) => {
      const what = [...Object.entries({ ...one.kinds, ...one.faults }).filter(([kind]) => kind !== "equal").map(([kind, count]) => `${number(count)} ${kind}`),
        ...(one.definition ?? []).map((part) => `${part.what}: ${part.source} on the source, ${part.follower} on the follower`), ...one.reasons];
      return `${one.table}: ${what.join(", ")}`;
    });
    const [last] = runs;
    parts.verifications.replaceChildren(el("h2", {}, "Verifications"),
      last ? el("p", {}, "Last run: ", el("a", { href: airflow(last.href), target: "_top" }, last.state), " ", when(new Date(last.run_after).getTime())) : "",
      waiting ? waitingFor(waiting) : "",
      reports.length ? table("Verifications", ["Result", "Server", "When", "~Range", "#Rows equal", "#Differing", "~Differences"], reports.map((one) => [
        el("span", { class: colours[one.outcome] }, one.outcome), one.follower ? ["follower ", el("code", {}, one.follower)] : "source", when(one.finished_at_ms),
        el("code", {}, `${one.low} → ${one.high}`), number(one.compared), number(one.differing), tables(one).join("; ")]))
        : el("p", { class: "empty" }, "None yet. A verification compares each row of the source with the topics."));
  };

  const drawSeeks = (seeks) => {
    parts.seeks.hidden = !seeks.length;
    parts.seeks.replaceChildren(el("h2", {}, "Seeks"), table("Seeks", ["When", "User", "From → to", "#Skipped", "#Repeated", "~Reason", "Undo"], seeks.map((one) => [
      when(one.at_ms), one.who, el("code", {}, `${one.before || "no checkpoint"} → ${one.to}`), bytes(one.skipped_bytes), bytes(one.repeated_bytes), one.why,
      one.before ? el("button", { onclick: () => seekDialog(path, seen.pipeline, refresh, one.before) }, "Seek back") : ""])));
  };

  const drawDiscards = (discards) => {
    parts.discards.hidden = !discards.length;
    parts.discards.replaceChildren(el("h2", {}, "Discarded dead letters"), table("Discards", ["When", "User", "#Dead letters", "~Tables", "Up to, by partition", "~Reason"], discards.map((one) => [
      when(one.at_ms), one.who, number(one.letters), one.tables.join(", "), el("code", {}, Object.entries(one.up_to).map(([partition, offset]) => `${partition}: ${offset}`).join(", ")), one.why])));
  };

  const refresh = async () => {
    round += 1;
    const mine = round;
    const servers = new Outage();
    const pipeline = await get(path);
    const isLast = () => alive() && mine === round;
    if (!isLast()) return;
    latest = pipeline;
    lookedAt = Date.now();
    servers.add(pipeline.stale);
    const first = !seen.pipeline;
    looks += 1;
    drawHead(pipeline);
    if (first || seen.pipeline.dag.paused !== pipeline.dag.paused) drawActions(pipeline);
    seen = { ...seen, pipeline };
    const quietly = async (what, part, draw) => {
      if (!read.has(part)) return;
      try {
        const found = await get(`${path}/${what}`);
        servers.add(found.stale);
        readAt[what] = found.stale ? found.stale.read_at_ms : Date.now();
        const text = JSON.stringify(found);
        if (!isLast()) return;
        if (seen[what] !== text || what === "commit-log") draw(found);
        seen[what] = text;
      } catch (error) {
        if (error.status === 503 || seen[what]) servers.addRefusal(error, readAt[what]);
        if (isLast() && !seen[what]) part.replaceChildren(...(error.status === 503 ? [el("h2", {}, part.getAttribute("aria-label")), unknown()] : [problem(`The ${what} cannot be read`, error.message)]));
      }
    };
    await Promise.all([
      quietly("windows", parts.windows, drawWindows),
      quietly("activity", parts.activity, (found) => activity(parts.activity, name, found.events)),
      quietly("commit-log", parts.topics, (found) => drawTopics(pipeline, found)),
      !seen.tables || looks % TABLES_EACH === 0 ? quietly("tables", parts.tables, (found) => drawTables(found.tables)) : null,
      quietly("schema", parts.schema, drawSchema),
      quietly("runs", parts.runs, (found) => runs.draw(found.runs, found.may_cancel)),
      quietly("snapshots", parts.snapshots, drawSnapshots),
      quietly("backfills", parts.backfills, (found) => drawBackfills(found.backfills)),
      quietly("verifications", parts.verifications, drawVerifications),
      quietly("seeks", parts.seeks, (found) => drawSeeks(found.seeks)),
      quietly("discards", parts.discards, (found) => drawDiscards(found.discards)),
    ]);
    if (!isLast()) return;
    servers.draw(outage);
    if (tab === "overview") drawFreshness();
  };

  const refused = (error) => {
    const servers = new Outage();
    servers.addRefusal(error, lookedAt);
    servers.draw(outage);
  };

  for (const part of shownParts.filter((each) => each !== "head").map((each) => parts[each])) part.replaceChildren(el("div", { class: "loading" }, el("i"), el("i"), el("i")));
  await refresh();
  await every(EVERY_MS, alive, async () => {
    if (!document.querySelector("dialog[open]")) await refresh().catch(refused);
  });
}

const unknown = () => el("p", { class: "empty" }, "Not known while a server does not answer.");

// The error of the last attempt that failed: a problem, or a notice while the next attempt is running.
function failure({ task_id: task, attempt, attempts, retried, running_since: since, text, href }) {
  const log = el("a", { href: airflow(href), target: "_top" }, "Log of the task");
  const failed = `Attempt ${attempt} of ${attempts} of task ${task} failed`;
  if (since) {
    const next = `attempt ${attempt + 1} has been running since ${whenText(new Date(since))}`;
    return el("div", { class: "notice" }, el("strong", {}, `${failed}; ${next}`), el("pre", {}, text), log);
  }
  return problem(retried ? `${failed}; Airflow tries again` : `The last run failed in task ${task}`, text, log);
}

export const notThere = (name, tab = null) => hollow("h1", "Not found", tab ? `There is no view ${tab} of a pipeline.` : `There is no pipeline ${name}, or you do not have permission to see it.`, el("p", {}, el("a", { href: "#/" }, "All pipelines")));
