// The dialogs. Those of snapshot, replay and seek first show a plan, and then start the action.

import { airflow, get, post, REQUIRED } from "./api.js";
import { beginOf, binlogFiles, timeChoice, timeHint, timeInput, utcOf } from "./binlogs.js";
import { bytes, el, number, problem, shown, table, toast, when } from "./dom.js";

export function dialog(title, ...content) {
  const box = el("dialog", { "aria-labelledby": "dialog-title" }, el("div", { class: "stack" },
    el("div", { class: "row between" }, el("h2", { id: "dialog-title" }, title), el("button", { onclick: () => box.close(), "aria-label": "Close" }, "✕")), ...content));
  box.addEventListener("close", () => box.remove());
  box.addEventListener("input", () => showMistakes(box, {}));
  document.body.append(box);
  box.showModal();
  return box;
}

// A labelled field, with a place for what is wrong with its value.
function field(label, hint, input, wide = false) {
  const mistake = el("small", { class: "mistake", id: `mistake-${input.name}`, hidden: true });
  input.setAttribute("aria-describedby", mistake.id);
  return el("label", { class: wide ? "wide" : null }, label, input.required ? el("span", { class: "required" }, "required") : null,
    hint ? el("small", {}, hint) : null, input, mistake);
}

// Patterns of tables, one a line, with a list of the captured tables to choose from.
function tablesField(pipeline) {
  const input = el("textarea", { name: "tables", placeholder: "shop.orders" });
  const names = Object.keys(pipeline.topics || {}).sort();
  const choice = el("select", { "aria-label": "Add a captured table", "data-free": true }, el("option", { value: "" }, "Add a captured table…"), names.map((name) => el("option", { value: name }, name)));
  choice.addEventListener("change", () => {
    if (!choice.value) return;
    input.value = [...input.value.split("\n").filter(Boolean), choice.value].join("\n");
    choice.value = "";
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
  return { input, field: el("div", { class: "wide" }, field("Tables", "patterns, one a line; empty: all captured tables", input, true), names.length ? choice : null) };
}

const fieldsOf = (box) => [...box.querySelectorAll("[aria-describedby]")].filter((input) => !input.closest("[hidden]"));

// Show mistakes (texts by the fields' names) at the fields themselves, and move to the first one.
function showMistakes(box, mistakes) {
  for (const input of fieldsOf(box).reverse()) {
    const place = document.getElementById(`mistake-${input.name}`);
    const text = mistakes[input.name];
    place.replaceChildren(text ? shown(text) : "");
    place.hidden = !text;
    if (text) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    if (text) input.focus();
  }
}

// The mistakes that the browser sees. A plan needs no value of a field that is required for the start only (data-free).
function mistakesOf(box, isPlan) {
  const mistake = (input) => {
    if (input.required && !input.value.trim() && !input.validity.badInput) return isPlan && input.hasAttribute("data-free") ? "" : REQUIRED;
    return input.validationMessage;
  };
  return Object.fromEntries(fieldsOf(box).map((input) => [input.name, mistake(input)]).filter(([, text]) => text));
}

// Whether no field has a mistake; if one has, it is shown there.
function areValid(box, isPlan = false) {
  const mistakes = mistakesOf(box, isPlan);
  showMistakes(box, mistakes);
  return !Object.keys(mistakes).length;
}

// Show a refusal: at the fields that it names, and the rest of it in `message`.
function refuse(box, message, error) {
  const names = new Set(fieldsOf(box).map((input) => input.name));
  const others = Object.entries(error.fields || {}).filter(([name]) => !names.has(name)).map(([name, text]) => `${name}: ${text}`);
  const text = [...others, error.fields ? error.rest : error.message].filter(Boolean).join("\n");
  showMistakes(box, error.fields || {});
  message.replaceChildren(...(text ? [problem("Refused", text)] : []));
}

function form(box, message, plan, start, { values, planPath, startPath, show, started, after }) {
  let planned = null;
  let edits = 0;
  const busy = async (button, work) => {
    button.disabled = true;
    message.replaceChildren(el("p", { class: "soft", role: "status" }, "Reading the servers…"));
    try {
      await work();
    } catch (error) {
      refuse(box, message, error);
      start.disabled = true;
    }
    button.disabled = false;
  };
  const invalidate = () => { edits += 1; planned = null; start.disabled = true; };
  box.addEventListener("input", (event) => { if (!event.target.hasAttribute("data-free")) invalidate(); });
  plan.addEventListener("click", () => areValid(box, true) && busy(plan, async () => {
    let read;
    do { // again if a field was changed meanwhile: text and button are of one plan
      read = edits;
      planned = await post(planPath, values());
    } while (read !== edits);
    message.replaceChildren(show(planned));
    start.disabled = false;
  }));
  start.addEventListener("click", async () => {
    if (!areValid(box)) return;
    start.disabled = true;
    try {
      const done = await post(startPath, { ...values(), ...(started.more ? started.more(planned) : {}) });
      box.close();
      toast(started.text(done));
      await after();
    } catch (error) {
      refuse(box, message, error);
      start.disabled = false;
    }
  });
}

// `from` fills in a binlog file and tables, and says why (`about`).
export function backfillDialog(path, pipeline, after, from = { file: "", tables: [], about: "" }) {
  const input = (name, placeholder = "", required = false) => el("input", { name, placeholder, required, autocomplete: "off" });
  const { choice, note } = binlogFiles(path);
  const ofFile = (label, hint, one) => el("div", {}, field(label, hint, one), choice(one, "Choose a binlog file"));
  const ofBegin = (label, hint, one) => el("div", {}, field(label, hint, one), choice(one, "Begin of a binlog file", beginOf));
  const [since, until] = [timeInput("from_time", true), timeInput("to_time")];
  const forms = {
    files: [ofFile("From file", "first binlog file", input("from_file", "binlog.000012", true)), ofFile("To file", "last binlog file, included; empty: the first one", input("to_file"))],
    coordinates: [ofBegin("From", "FILE:POSITION of a commit boundary", input("from_coordinates", "binlog.000012:4", true)), ofBegin("To", "FILE:POSITION, not included", input("to_coordinates", "", true))],
    gtids: [field("GTID set", "publishes the shortest range with all of these transactions", input("gtids", "", true), true)],
    times: [field("From", timeHint(since), since), field("To", timeHint(until, "not included; empty: now"), until)],
  };
  const kind = el("select", { name: "kind" }, [["files", "Binlog files"], ["coordinates", "Coordinates"], ["gtids", "GTIDs"], ["times", "Times"]].map(([value, text]) => el("option", { value }, text)));
  const groups = Object.entries(forms).map(([name, fields]) => el("div", { class: "fields", "data-form": name }, fields));
  const choose = () => {
    groups.forEach((group) => { group.hidden = group.dataset.form !== kind.value; });
    note.hidden = !["files", "coordinates"].includes(kind.value);
  };
  kind.addEventListener("change", choose);
  choose();
  const { input: tables, field: tablesInput } = tablesField(pipeline);
  forms.files[0].querySelector("input").value = from.file;
  tables.value = from.tables.join("\n");
  const suffix = el("input", { name: "suffix", value: ".replay", autocomplete: "off" });
  const archive = input("archive", "s3://bucket/binlogs");
  const message = el("div", { "aria-live": "polite" });
  const plan = el("button", {}, "Show the plan");
  const start = el("button", { class: "primary", disabled: true }, "Start the replay");
  const box = dialog(`Replay ${pipeline.name}`,
    el("p", { class: "soft" }, "Publishes a range of the binlog again. The checkpoint of the pipeline does not move."),
    from.about ? el("p", {}, from.about) : null,
    field("Range", null, kind), groups, note,
    el("div", { class: "fields" },
      tablesInput,
      field("Suffix of the topics", "appended to each topic's name; empty: the live topics", suffix),
      field("Archived files", "folder or URL to read from; empty: the server", archive)),
    message, el("div", { class: "row" }, plan, start));
  form(box, message, plan, start, {
    planPath: `${path}/backfill/plan`,
    startPath: `${path}/backfill`,
    after,
    values: () => {
      const group = groups.find((one) => one.dataset.form === kind.value);
      const range = Object.fromEntries([...group.querySelectorAll("input")].map((one) => [one.name, one.type === "datetime-local" ? utcOf(one) : one.value.trim()]).filter(([, value]) => value));
      return { ...range, tables: tables.value.split(/[\s,]+/).filter(Boolean), suffix: suffix.value.trim(), ...(archive.value.trim() ? { archive: archive.value.trim() } : {}) };
    },
    show: (planned) => el("div", {},
      el("p", {}, el("strong", {}, `${bytes(planned.size_bytes)} of binlog in ${planned.files.length} ${planned.files.length === 1 ? "file" : "files"}`), ", ", el("code", {}, `${planned.window.start} → ${planned.window.head}`)),
      suffix.value.trim() ? null : el("p", {}, el("span", { class: "badge warn" }, "live topics"), " Consumers of the live topics get these changes a second time."),
      table("Tables in the range", ["Table", "#Rows", "#Bytes", "Topic"], Object.entries(planned.tables).map(([name, one]) =>
        [name, number(one.rows), bytes(one.size_bytes), planned.topics[name] ? el("code", {}, planned.topics[name]) : el("span", { class: "soft" }, "left out")]))),
    started: { text: (done) => `Replay ${done.run_id} started` },
  });
}

export function snapshotDialog(path, pipeline, after) {
  const { input: tables, field: tablesInput } = tablesField(pipeline);
  const where = el("input", { name: "where", autocomplete: "off", placeholder: "id > 1000 AND status = 'open'" });
  const speed = el("input", { name: "rows_per_second", type: "number", min: 1, "data-free": true });
  const connections = el("input", { name: "connections", type: "number", min: 1, "data-free": true });
  const message = el("div", { "aria-live": "polite" });
  const plan = el("button", {}, "Show the plan");
  const start = el("button", { class: "primary", disabled: true }, "Start the snapshot");
  const box = dialog(`Snapshot ${pipeline.name}`,
    el("p", { class: "soft" }, "Publishes the existing rows of tables to their live topics, as op r. No table is locked, and the pipeline continues to run."),
    el("div", { class: "fields" },
      tablesInput,
      field("Where", "condition on the rows to publish; empty: all rows", where, true),
      field("Rows per second", "upper limit; empty: no limit", speed),
      field("Connections", "upper limit of concurrent connections to the source; empty: one for each core", connections)),
    message, el("div", { class: "row" }, plan, start, el("a", { href: airflow(`/dags/changefeed_snapshot__${pipeline.name}`), target: "_top" }, "Earlier runs in Airflow")));
  form(box, message, plan, start, {
    planPath: `${path}/snapshot/plan`,
    startPath: `${path}/snapshot`,
    after,
    values: () => ({
      tables: tables.value.split(/[\s,]+/).filter(Boolean),
      ...(where.value.trim() ? { where: where.value.trim() } : {}),
      ...(speed.value ? { rows_per_second: Number(speed.value) } : {}),
      ...(connections.value ? { connections: Number(connections.value) } : {}),
    }),
    show: (planned) => table("Tables", ["Table", "#Rows (estimate)", "Primary key", "Topic"], planned.tables.map((one) => {
      const name = `${one.database}.${one.table}`;
      return [name, number(one.estimated_rows), one.key || "none: one consistent read", el("code", {}, planned.topics[name])];
    })),
    started: { text: (done) => `Snapshot ${done.run_id} started` },
  });
}

// A run with limits. It has no plan: what it publishes is decided when it begins.
export function runDialog(path, pipeline, after) {
  const until = el("input", { name: "until", autocomplete: "off", placeholder: "binlog.000012:4077" });
  const size = el("input", { name: "max_bytes", type: "number", min: 1 });
  const seconds = el("input", { name: "max_seconds", type: "number", min: 1 });
  const { choice, note } = binlogFiles(path);
  const message = el("div", { "aria-live": "polite" });
  const start = el("button", { class: "primary" }, "Start the run");
  const box = dialog(`Run ${pipeline.name} until…`,
    el("p", { class: "soft" }, "Publishes new changes from the checkpoint on, and ends at the first of these limits. ", pipeline.run_for
      ? `Without a place or a size it publishes what comes for ${pipeline.run_for}, as Run now does.` : "Without one it ends at the head, as Run now does."),
    el("p", {}, "The checkpoint is at ", el("code", {}, pipeline.position.checkpoint || "none yet"), "."),
    el("div", { class: "fields" },
      el("div", { class: "wide" }, field("Until", "FILE:POSITION of a commit boundary after the checkpoint; empty: no place", until), choice(until, "Begin of a binlog file", beginOf)),
      field("Maximum bytes", "of binlog; the run ends at the last commit before; empty: no limit", size),
      field("Maximum seconds", "after which no further window begins; empty: no limit", seconds)),
    note, message, el("div", { class: "row" }, start));
  const limits = () => ({
    ...(until.value.trim() ? { until: until.value.trim() } : {}),
    ...(size.value ? { max_bytes: Number(size.value) } : {}),
    ...(seconds.value ? { max_seconds: Number(seconds.value) } : {}),
  });
  startAtOnce(box, message, start, `${path}/run`, limits, runText, after);
}

// What has become of a run that was asked for.
export const runText = ({ run_id: run, held, queued }) => `Run ${run} ${held ? "is held until the pipeline is resumed" : queued ? "is queued until the run under way has ended" : "started"}`;

// Do an action without a plan when `start` is clicked.
function startAtOnce(box, message, start, path, values, text, after) {
  start.addEventListener("click", async () => {
    if (!areValid(box)) return;
    start.disabled = true;
    try {
      const done = await post(path, values());
      box.close();
      toast(text(done));
      await after();
    } catch (error) {
      refuse(box, message, error);
      start.disabled = false;
    }
  });
}

export function verifyDialog(path, pipeline, after) {
  const server = el("select", { name: "follower" }, el("option", { value: "" }, "the source"),
    pipeline.followers.map((follower) => el("option", { value: follower }, `follower ${follower}`)));
  const { input: tables, field: tablesInput } = tablesField(pipeline);
  const deep = el("input", { type: "checkbox", name: "deep" });
  const sample = el("input", { name: "sample_percent", type: "number", min: 1, max: 100, value: 100, required: true });
  const message = el("div", { "aria-live": "polite" });
  const start = el("button", { class: "primary" }, "Start the verification");
  const box = dialog(`Verify ${pipeline.name}`,
    el("p", { class: "soft" }, "Compares each row of a server with the topics, and changes neither. No table is locked."),
    el("div", { class: "fields" },
      pipeline.followers.length ? field("Server", "a follower is compared at its own position", server) : null,
      field("Percent", "share of the chunks to compare, 1 to 100; rows of other chunks are not checked", sample),
      field("Deep", "also checks that each record's before image equals the after image of the key's previous record", deep),
      tablesInput),
    message, el("div", { class: "row" }, start, el("a", { href: airflow(`/dags/changefeed_verify__${pipeline.name}`), target: "_top" }, "Earlier runs in Airflow")));
  const request = () => ({
    tables: tables.value.split(/[\s,]+/).filter(Boolean),
    sample_percent: Number(sample.value),
    deep: deep.checked,
    ...(server.value ? { follower: server.value } : {}),
  });
  startAtOnce(box, message, start, `${path}/verify`, request, (done) => `Verification ${done.run_id} started`, after);
}

export function seekDialog(path, pipeline, after, to = "") {
  const where = el("input", { name: "to", value: to, required: true, list: "seek-places", autocomplete: "off", placeholder: "latest, binlog.000012:4077, 2026-01-31T12:00:00Z" });
  const why = el("input", { name: "why", autocomplete: "off", required: true, "data-free": true });
  const choice = el("input", { type: "checkbox", name: "finish", checked: true });
  const finish = el("label", { hidden: true }, choice, "Finish unfinished windows first",
    el("small", {}, "if on, they are published and committed before the seek; if off, they are discarded, and messages of them that are in Kafka may be published again"));
  const { choice: files, note } = binlogFiles(path);
  const message = el("div", { "aria-live": "polite" });
  const plan = el("button", {}, "Show what happens");
  const start = el("button", { class: "danger", disabled: true }, "Move the checkpoint");
  const box = dialog(`Seek ${pipeline.name}`,
    el("p", { class: "soft" }, "Moves the checkpoint, from which the next run continues. The seek is recorded; a seek back undoes it."),
    el("p", {}, "The checkpoint is at ", el("code", {}, pipeline.position.checkpoint || "none yet"), "."),
    el("div", {}, field("To", "earliest, latest, FILE:POSITION, a GTID set, or a time", where), files(where, "Begin of a binlog file", beginOf)), timeChoice(where), note, el("datalist", { id: "seek-places" }, el("option", { value: "earliest" }), el("option", { value: "latest" })),
    field("Reason", "stored in the record of the seek; the plan does not need it", why), message, finish,
    el("div", { class: "row" }, plan, start, el("a", { href: airflow(`/dags/changefeed_seek__${pipeline.name}`), target: "_top" }, "Earlier runs in Airflow")));
  form(box, message, plan, start, {
    planPath: `${path}/seek/plan`,
    startPath: `${path}/seek`,
    after,
    values: () => ({ to: where.value.trim(), why: why.value.trim(), finish: choice.checked }),
    show: (planned) => {
      finish.hidden = !planned.unfinished.length;
      const moves = planned.skipped_bytes || planned.repeated_bytes || planned.not_known;
      const what = planned.repeated_bytes ? "repeats" : planned.skipped_bytes ? "skips" : planned.not_known ? "unknown" : planned.unfinished.length && choice.checked ? "finishes a window" : "no effect";
      return el("div", {},
        el("p", {}, el("code", {}, `${planned.from || "no checkpoint"} → ${planned.to}`)),
        el("p", {}, el("span", { class: moves ? "badge warn" : "badge good" }, what), ` ${planned.effect}.`));
    },
    started: { more: (planned) => ({ expected: planned.from || undefined }), text: (done) => `Seek ${done.run_id} started` },
  });
  choice.addEventListener("change", () => plan.click()); // the text is of the plan for this choice
}

export function cancelDialog(path, run, after) {
  const message = el("div", { "aria-live": "polite" });
  const end = el("button", { class: "danger" }, "Cancel the run");
  const back = el("button", {}, "Let it run");
  const box = dialog("Cancel the run",
    el("p", {}, "Run ", el("code", {}, run), " ends as failed, as with “mark failed” in Airflow, and its job ends within seconds."),
    el("ul", {},
      el("li", {}, "Windows that it has sealed stay published."),
      el("li", {}, "The next run goes on with the rest, and repeats no message that is in Kafka.")),
    message, el("div", { class: "row" }, end, back));
  back.addEventListener("click", () => box.close());
  startAtOnce(box, message, end, `${path}/runs/${encodeURIComponent(run)}/cancel`, () => undefined, () => `Run ${run} cancelled`, after);
}

// A discard of dead letters. `upTo` has the offset of the last one by partition; {} for all that are there now.
export function discardDialog(path, upTo, after) {
  const [partition] = Object.keys(upTo);
  const why = el("input", { name: "why", autocomplete: "off", required: true, "data-free": true });
  const message = el("div", { "aria-live": "polite" });
  const plan = el("button", {}, "Show what is deleted");
  const start = el("button", { class: "danger", disabled: true }, "Delete the dead letters");
  const box = dialog("Discard dead letters",
    el("p", {}, partition === undefined ? "Deletes all dead letters of the pipeline that are there now."
      : `Deletes this dead letter and all older ones of partition ${partition}: Kafka deletes no single record, only the oldest ones of a partition.`),
    el("p", { class: "soft" }, "This cannot be undone. Records of other topics stay. What was not published is published by a replay or a snapshot."),
    field("Reason", "stored in the record of the discard; the plan does not need it", why), message, el("div", { class: "row" }, plan, start));
  form(box, message, plan, start, {
    planPath: `${path}/dead-letters/discard/plan`,
    startPath: `${path}/dead-letters/discard`,
    after,
    values: () => ({ up_to: upTo, why: why.value.trim() }),
    show: (planned) => (planned.letters ? el("div", {},
      el("p", {}, el("strong", {}, `${number(planned.letters)} dead ${planned.letters === 1 ? "letter" : "letters"}`), " of ", el("code", {}, planned.topic), ", of changes from ", when(planned.oldest_ms), " to ", when(planned.newest_ms)),
      table("Dead letters", ["Table or topic", "#Dead letters"], Object.entries(planned.tables).map(([name, count]) => [name, number(count)])))
      : el("p", {}, "There is no dead letter.")),
    started: { more: (planned) => ({ up_to: planned.up_to }), text: (done) => `${number(done.letters)} dead ${done.letters === 1 ? "letter" : "letters"} deleted` },
  });
}
