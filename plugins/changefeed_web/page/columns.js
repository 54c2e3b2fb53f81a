// What a new pipeline publishes of each column of its captured tables: its values, nothing, or a mask.

import { post } from "./api.js";
import { el, problem, table } from "./dom.js";

const PUBLISH = "publish";
// What records may have of a column. The third entry is the label of what the mask needs, and the fourth its first value.
const TREATMENTS = [
  [PUBLISH, "publish"], ["exclude", "leave out"], ["null", "mask: null"], ["text", "mask: a text", "Text", "***"],
  ["characters", "mask: first characters", "Characters", "3"],
  ["hmac_sha256", "mask: HMAC-SHA256", "Connection with the key", "mask_key"], ["sha256", "mask: SHA-256", "Connection with the salt", "mask_key"],
  ["text_from", "mask: a secret text", "Connection with the text", "mask_text"],
];
const IN_KEY = "in the primary key: it may be neither left out nor masked, because it is the records' key";

// The choices for the columns of a source's tables. `connections` returns the source and cluster, and `changed` is called
// after each choice.
export function columnChoices(connections, changed) {
  let chosen = new Map(); // by pattern of the column: its treatment and argument
  let parts = new Map(); // by table, so that an open one stays open
  const part = (one) => {
    const name = `${one.database}.${one.table}`;
    if (!parts.has(name)) parts.set(name, columnsOf(one, name, connections, chosen, changed));
    return parts.get(name);
  };
  return {
    draw: (place, tables) => place.replaceChildren(...(tables.length ? [el("h3", {}, "Columns left out or masked"),
      el("p", { class: "soft" }, "Open a captured table to choose. Values that are left out or masked never reach Kafka."), ...tables.map(part)] : [])),
    // The settings of all choices, also for tables that no pattern captures now: only the server knows all patterns.
    rules: () => {
      const rules = [...chosen];
      const exclude = rules.filter(([, { kind }]) => kind === "exclude").map(([pattern]) => pattern);
      const mask = Object.fromEntries(rules.filter(([, { kind }]) => kind !== "exclude").map(([pattern, one]) => [pattern, maskOf(one)]));
      return { ...(exclude.length ? { exclude } : {}), ...(Object.keys(mask).length ? { mask } : {}) };
    },
    // Drop the choices, as for another source; returns how many there were.
    forget: () => {
      const { size } = chosen;
      chosen = new Map();
      parts = new Map();
      return size;
    },
  };
}

function maskOf({ kind, argument }) {
  if (kind === "null") return { text: null };
  if (kind === "text") return { text: argument };
  return kind === "characters" ? { characters: Number(argument) } : { [kind]: { connection: argument.trim() } };
}

// A table whose columns are read when it is opened.
function columnsOf(one, name, connections, chosen, changed) {
  const body = el("div", {});
  const read = async () => {
    body.replaceChildren(el("p", { class: "soft", role: "status" }, "Reading the columns…"));
    try {
      const { problem: mistake, columns } = await post("new-pipeline/columns", { ...connections(), database: one.database, table: one.table });
      body.replaceChildren(mistake ? problem("The columns cannot be read", mistake)
        : table(`Columns of ${name}`, ["Column", "Type", "~Records have"], columns.map((column) => [el("code", {}, column.name), column.type, choice(column, name, chosen, changed)])));
    } catch (error) {
      body.replaceChildren(problem("The columns cannot be read", error.message));
    }
  };
  const details = el("details", { "data-columns": name, ontoggle: () => { if (details.open && !body.querySelector("table")) read(); } },
    el("summary", {}, el("code", {}, name)), body);
  return details;
}

// In a pattern, * ? and [ of a name stand for themselves in brackets.
const patternOf = (name) => name.replace(/[*?[]/g, "[$&]");

function choice(column, name, chosen, changed) {
  if (column.in_key) return el("span", { class: "soft" }, IN_KEY);
  const pattern = patternOf(`${name}.${column.name}`);
  const [label, input] = [el("span", {}), el("input", { autocomplete: "off", spellcheck: "false" })];
  const argument = el("label", { hidden: true }, label, input);
  const possible = TREATMENTS.filter(([kind]) => kind !== "characters" || column.is_text);
  const select = el("select", { "aria-label": `What records have of ${name}.${column.name}` }, possible.map(([kind, text]) => el("option", { value: kind }, text)));
  const take = () => {
    if (select.value === PUBLISH) chosen.delete(pattern);
    else chosen.set(pattern, { kind: select.value, argument: input.value });
    changed();
  };
  select.addEventListener("change", () => {
    const [, , needs, first] = TREATMENTS.find(([kind]) => kind === select.value);
    argument.hidden = needs === undefined;
    label.replaceChildren(needs || "");
    input.type = select.value === "characters" ? "number" : "text";
    input.value = first || "";
    take();
  });
  input.addEventListener("change", take);
  return el("div", {}, select, argument);
}
