// The questions of a new pipeline, as `changefeed init` asks them, beside its YAML. The answers write the YAML until somebody
// edits it.

import { post } from "./api.js";
import { columnChoices } from "./columns.js";
import { bytes, el, number, problem, table } from "./dom.js";
import { scalarOf, wordsOf } from "./yaml.js";

const OTHER = "other";
const MOST = 200; // tables that are shown at once
const STARTS = [["snapshot", "Existing rows, then the changes"], ["latest", "Changes from now on"], ["earliest", "Changes since the oldest binlog file"]];
const SCHEDULES = ["*/5 * * * *", "@hourly", "@daily", "none"];

// The elements of the questions: `form`, and `picker` for the tables of the source. `written` resolves when the YAML has the
// last answers.
export function wizard(field, offered, formats) {
  const inputs = inputsOf(field.text.value, offered, formats);
  const [tested, answer] = [1, 2].map(() => el("div", { class: "stack", "aria-live": "polite" }));
  const picker = el("section", { class: "card", "aria-label": "Tables of the source", hidden: true });
  const state = { inputs, offered, field, tested, answer, written: field.text.value, round: 0, writing: null };
  state.columns = columnChoices(() => connectionsOf(state), () => begin(state, false));
  let { source } = connectionsOf(state);
  const test = el("button", { onclick: () => tryServers(state, test, picker) }, "Test the connections");
  const others = el("div", { class: "fields wide" }, question("Source", "connection of the MySQL or MariaDB server", inputs.source), question("Kafka", "connection of the cluster", inputs.kafka));
  const registry = question("Schema registry", "connection of the registry", inputs.registry);
  const form = el("section", { class: "card stack", "aria-label": "Questions" },
    el("div", { class: "fields" },
      question("Name", "lower case letters, digits, - and _", inputs.name),
      offered.length ? question("Connections", "that you may combine", inputs.pair) : null, others,
      question("Tables", "DATABASE.TABLE with * and ?, one a line", inputs.tables, true),
      question("Format", null, inputs.format), registry,
      question("First load", null, inputs.start),
      question("Schedule", "cron expression, preset or none", inputs.schedule), el("datalist", { id: "schedules" }, SCHEDULES.map((value) => el("option", { value })))),
    el("div", { class: "row" }, test), tested, answer);
  const show = () => {
    others.hidden = inputs.pair.value !== OTHER;
    registry.hidden = inputs.format.value !== "avro";
  };
  show();
  form.addEventListener("change", ({ target }) => {
    show();
    if ([inputs.pair, inputs.source, inputs.kafka].includes(target)) {
      tested.replaceChildren(); // they are of the former connections
      picker.hidden = true;
    }
    if (source !== connectionsOf(state).source) {
      ({ source } = connectionsOf(state));
      const count = state.columns.forget();
      if (count) tested.replaceChildren(el("p", { class: "notice" }, `${count === 1 ? "1 choice" : `${count} choices`} of columns to leave out or mask ${count === 1 ? "was" : "were"} dropped, because the source is another one. Choose again after the test of the connections.`));
    }
    begin(state, false);
  });
  return { form, picker, written: () => state.writing };
}

const question = (label, hint, input, wide = false) => el("label", { class: wide ? "wide" : null }, label, hint ? el("small", {}, hint) : null, input);

function inputsOf(yaml, offered, formats) {
  const input = (name, value = "", more = {}) => el("input", { name, value, autocomplete: "off", ...more });
  const select = (name, options, chosen) => el("select", { name }, options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  const pairs = offered.map(({ source, kafka, checkpoint }, index) => [String(index), `${source} → ${kafka}${checkpoint ? `, checkpoint in ${checkpoint}` : ""}`]);
  const tables = el("textarea", { name: "tables", rows: 3, spellcheck: "false" });
  tables.value = wordsOf(yaml, "tables.include").join("\n");
  return {
    name: input("name", scalarOf(yaml, "name")),
    pair: select("pair", [...pairs, [OTHER, "Other connections"]], offered.length ? "0" : OTHER),
    source: input("source", offered.length ? "" : scalarOf(yaml, "source.connection")),
    kafka: input("kafka", offered.length ? "" : scalarOf(yaml, "kafka.connection")),
    tables,
    format: select("format", formats.map((name) => [name, name]), scalarOf(yaml, "format")),
    registry: input("registry"),
    start: select("start", STARTS, scalarOf(yaml, "start")),
    schedule: input("schedule", scalarOf(yaml, "schedule"), { list: "schedules" }),
  };
}

const patternsOf = ({ tables }) => tables.value.split(/\s+/).filter(Boolean);

function connectionsOf({ inputs, offered }) {
  const pair = offered[Number(inputs.pair.value)];
  return pair || { source: inputs.source.value.trim(), kafka: inputs.kafka.value.trim() };
}

function answersOf(state) {
  const { inputs } = state;
  const patterns = patternsOf(inputs);
  const answers = {
    ...connectionsOf(state), ...state.columns.rules(), name: inputs.name.value.trim(), tables: patterns, format: inputs.format.value,
    start: inputs.start.value, schedule: inputs.schedule.value.trim() || "none",
  };
  return inputs.format.value === "avro" && inputs.registry.value.trim() ? { ...answers, registry: inputs.registry.value.trim() } : answers;
}

function begin(state, replaces) {
  state.writing = write(state, replaces);
}

function offerToReplace(state) {
  const replace = el("button", { onclick: () => begin(state, true) }, "Replace the YAML");
  state.answer.replaceChildren(el("p", { class: "notice" }, "The YAML was edited, so the answers do not change it. "), replace);
}

// Write the YAML of the answers, unless it was edited and `replaces` is false.
async function write(state, replaces) {
  const { field: { text }, answer } = state;
  const answers = answersOf(state);
  state.round += 1;
  const { round } = state;
  if (!answers.name || !answers.source || !answers.kafka || !answers.tables.length) {
    answer.replaceChildren(el("p", { class: "soft" }, "Name, connections and tables are required."));
    return;
  }
  if (text.value !== state.written && !replaces) {
    offerToReplace(state);
    return;
  }
  const before = text.value;
  try {
    const { yaml, problem: mistake } = await post("new-pipeline/yaml", answers);
    if (round !== state.round) return;
    if (text.value !== before) { // somebody edits it meanwhile
      offerToReplace(state);
      return;
    }
    text.value = yaml;
    state.written = text.value;
    text.dispatchEvent(new Event("input", { bubbles: false }));
    answer.replaceChildren(...(mistake ? [problem("An answer is wrong", mistake)] : []));
  } catch (error) {
    if (round === state.round) answer.replaceChildren(problem("The YAML was not written", error.message));
  }
}

async function tryServers(state, button, picker) {
  const { tested } = state;
  button.disabled = true;
  tested.replaceChildren(el("p", { class: "soft", role: "status" }, "Reading the servers…"));
  try {
    const { source, kafka } = await post("new-pipeline/servers", connectionsOf(state));
    const result = (name, { problem: mistake, text }) => (mistake ? problem(`${name} cannot be used`, mistake) : el("p", {}, el("span", { class: "badge good" }, "ok"), ` ${name} ${text}`));
    tested.replaceChildren(result("Source", source), result("Kafka", kafka));
    drawPicker(state, picker, source);
  } catch (error) {
    tested.replaceChildren(problem("Not tested", error.message));
  }
  button.disabled = false;
}

function drawPicker(state, picker, { tables, more }) {
  picker.hidden = !tables;
  if (!tables) return;
  const search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search tables" });
  const [list, columns] = [el("div", {}), el("div", {})];
  const draw = () => {
    const found = tables.filter((one) => nameOf(one).includes(search.value.trim()));
    const patterns = patternsOf(state.inputs);
    list.replaceChildren(...rowsOf(state, found, draw));
    state.columns.draw(columns, found.filter((one) => isCaptured(patterns, nameOf(one))).slice(0, MOST));
  };
  search.addEventListener("input", draw);
  state.inputs.tables.oninput = draw;
  picker.replaceChildren(el("div", { class: "row between" }, el("h2", {}, "Tables of the source"), search),
    more ? el("p", { class: "notice" }, `The source has more than ${number(tables.length)} tables. Write patterns for the others.`) : "", list, columns);
  draw();
}

const nameOf = ({ database, table: name }) => `${database}.${name}`;

// The tables with a box each, and before those of a database a box for all of them.
function rowsOf(state, tables, draw) {
  if (!tables.length) return [el("p", { class: "empty" }, "No table has this in its name, or the connection's user may see none.")];
  const row = (one) => [box(state, nameOf(one), draw), number(one.rows), bytes(one.size_bytes), one.key.join(", ") || "none", one.warnings.join("; ").replaceAll("`", "")];
  const isFirst = (one, index) => index === 0 || tables[index - 1].database !== one.database;
  const rows = tables.slice(0, MOST).flatMap((one, index) => [...(isFirst(one, index) ? [[box(state, `${one.database}.*`, draw), "", "", "", ""]] : []), row(one)]);
  const rest = tables.length > MOST ? [el("p", { class: "soft" }, `The first ${MOST} of ${number(tables.length)} tables. Search for the others.`)] : [];
  return [table("Tables of the source", ["Table", "#Rows, about", "#Size, about", "Primary key", "~Warnings"], rows), ...rest];
}

// A box that adds a pattern to the captured tables, and removes it. It cannot be changed where another pattern captures it.
function box(state, name, draw) {
  const { tables } = state.inputs;
  const patterns = patternsOf(state.inputs);
  const own = patterns.includes(name);
  const other = patterns.some((pattern) => pattern !== name && captures(pattern, name));
  const input = el("input", { type: "checkbox", checked: own || other, disabled: other && !own, onchange: (event) => {
    event.stopPropagation();
    tables.value = (own ? patterns.filter((pattern) => pattern !== name) : [...patterns, name]).join("\n");
    draw();
    state.field.box.ownerDocument.querySelector(`[data-box="${CSS.escape(name)}"]`)?.focus();
    begin(state, false);
  }, "data-box": name });
  return el("label", { class: "pick" }, input, el("code", {}, name));
}

const isCaptured = (patterns, name) => patterns.some((pattern) => pattern === name || captures(pattern, name));

// Whether a pattern with * and ? captures the table, or all tables of a database (DATABASE.*).
function captures(pattern, name) {
  const escaped = pattern.replace(/[\\^$+.()|{}[\]]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp(`^${escaped}$`, "s").test(name);
}
