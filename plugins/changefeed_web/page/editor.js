// The editor of a pipeline's YAML, for the view of its settings and for a new pipeline.

import { call, get } from "./api.js";
import { codeField } from "./code-field.js";
import { tabBar } from "./detail.js";
import { dialog } from "./dialogs.js";
import { changesOf, shortened } from "./diff.js";
import { el, loading, problem, toast } from "./dom.js";
import { suggest } from "./suggest.js";
import { wizard } from "./wizard.js";
import { lineOf } from "./yaml.js";

// The warnings of the pipeline that was just created, for its own view of settings.
let saved = null;
const warning = (text) => el("p", { class: "notice", role: "status" }, `${text}.`);
const note = (text) => el("p", { role: "note" }, text);

export async function editor(main, alive, name) {
  main.replaceChildren(loading("the settings"));
  const isNew = name === null;
  const path = isNew ? "pipelines" : `pipelines/${encodeURIComponent(name)}`;
  const schema = get("settings-schema").catch(() => null); // without it nothing is suggested
  const start = isNew ? { value: template(await get("pipelines?live=false")), etag: null } : await call("GET", path);
  const known = await schema;
  if (!alive()) return;
  const { yaml, bundle } = start.value;
  const field = codeField("The pipeline's YAML", yaml);
  field.text.readOnly = Boolean(bundle);
  const { box, open } = known && !bundle ? suggest(field, known) : {};
  const { form, picker, written } = isNew ? wizard(field, start.value.offered, formatsOf(known)) : {};
  const message = el("div", { class: "stack" }, notes(name, start.value));
  const pipeline = { name, path, etag: start.etag, before: field.text.value, written, hasCrlf: yaml.includes("\r\n") };
  if (!isNew && !bundle) keepDraft(pipeline, field, message);
  const save = el("button", { class: "primary", disabled: Boolean(bundle), onclick: () => during(save, () => (isNew ? create(pipeline, field, message) : change(pipeline, field, message))) }, isNew ? "Create" : "Save…");
  const check = el("button", { disabled: Boolean(bundle), onclick: () => during(check, () => examine(pipeline, field, message)) }, "Check");
  const remove = isNew ? null : el("button", { class: "danger apart", disabled: Boolean(bundle), onclick: () => during(remove, () => destroy(pipeline, message)) }, "Delete");
  main.replaceChildren(el("div", { class: "stack" },
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: "#/" }, "All pipelines")),
    el("h1", {}, isNew ? "New pipeline" : name), isNew ? null : tabBar(name, "settings"), message,
    el("div", { class: isNew ? "beside" : null }, form, el("div", { class: "card" }, field.box, box)), picker, el("div", { class: "row" }, save, check, open, remove)));
}

function notes(name, { note: text, bundle }) {
  const warnings = saved && saved.name === name ? saved.warnings : [];
  saved = null;
  return [
    ...warnings.map(warning),
    text ? note(text) : null,
    bundle ? note(`This pipeline is in the DAG bundle ${bundle}. Change or delete its file where the bundle gets it from, as in its git repository.`) : null,
  ];
}

async function during(button, work) {
  button.disabled = true;
  await work();
  button.disabled = false;
}

// Texts that were changed and not saved, by the path of their pipeline: they are shown again when their editor is.
const drafts = new Map();

function keepDraft(pipeline, field, message) {
  const { text } = field;
  const show = (yaml) => {
    text.value = yaml;
    text.dispatchEvent(new Event("input"));
  };
  const draft = drafts.get(pipeline.path);
  if (draft !== undefined && draft !== pipeline.before) {
    show(draft);
    const discard = el("button", { onclick: () => { show(pipeline.before); message.replaceChildren(); } }, "Discard it");
    message.append(el("p", { class: "notice" }, "Your text from before, which is not saved, is shown. "), discard);
  }
  text.addEventListener("input", () => (text.value === pipeline.before ? drafts.delete(pipeline.path) : drafts.set(pipeline.path, text.value)));
}

// The text as it is sent: a browser's field has no carriage returns.
const textOf = ({ hasCrlf }, field) => (hasCrlf ? field.text.value.replaceAll("\n", "\r\n") : field.text.value);

async function create(pipeline, field, message) {
  await pipeline.written();
  try {
    const { value } = await call("POST", pipeline.path, { yaml: field.text.value });
    toast(`Pipeline ${value.name} created`);
    saved = { name: value.name, warnings: value.warnings };
    location.hash = `#/pipelines/${encodeURIComponent(value.name)}${value.warnings.length ? "/settings" : ""}`;
  } catch (error) {
    refuse("Not saved", error, field, message);
  }
}

async function change(pipeline, field, message) {
  const yaml = field.text.value;
  if (yaml === pipeline.before) {
    message.replaceChildren(note("The text has no changes to save."));
    return;
  }
  if (!await agrees(pipeline.name, pipeline.before, yaml)) {
    field.text.focus();
    return;
  }
  try {
    const { value, etag } = await call("PUT", pipeline.path, { yaml: textOf(pipeline, field) }, { "If-Match": pipeline.etag });
    Object.assign(pipeline, { etag, before: yaml });
    drafts.delete(pipeline.path);
    field.mark([]);
    message.replaceChildren(...value.warnings.map(warning));
    toast("Saved");
  } catch (error) {
    if (error.status === 412) await readAgain(pipeline, message, error);
    else refuse("Not saved", error, field, message);
  }
}

// After somebody else changed the pipeline: the next save shows the differences between that version and the text.
async function readAgain(pipeline, message, error) {
  try {
    const { value, etag } = await call("GET", pipeline.path);
    Object.assign(pipeline, { etag, before: value.yaml.replaceAll("\r\n", "\n") });
    message.replaceChildren(problem("Not saved: the pipeline was changed meanwhile", "Your text is still here. Save it again to see how it differs from the changed pipeline, and add those changes to it first if they should stay."));
  } catch {
    message.replaceChildren(problem("Not saved: the pipeline was changed meanwhile", error.message));
  }
}

// Show what `changefeed check` finds. The text is not saved.
async function examine(pipeline, field, message) {
  const { path, written } = pipeline;
  if (written) await written();
  message.replaceChildren(el("p", { class: "soft", role: "status" }, "Reading the servers…"));
  try {
    const { value } = await call("POST", `${path}/check`, { yaml: textOf(pipeline, field) });
    const failures = value.lines.filter(({ level }) => level === "FAIL").map(({ text }) => text.replace(/^\w+: /, ""));
    const lines = failures.flatMap((text) => linesOf(text, field.text.value.split("\n")));
    field.mark([...new Set(lines)]);
    message.replaceChildren(findings(value));
    message.scrollIntoView({ block: "nearest" });
  } catch (error) {
    refuse("Refused", error, field, message);
  }
}

const LEVELS = { FAIL: ["bad", "fails"], WARN: ["warn", "warning"], OK: ["good", "ok"] };

// The findings of a check: failures and warnings, and the others in a closed list.
function findings({ lines, summary }) {
  const item = ({ level, text }) => el("li", {}, el("span", { class: `badge ${LEVELS[level][0]}` }, LEVELS[level][1]), el("span", {}, text));
  const of = (...levels) => levels.flatMap((level) => lines.filter((one) => one.level === level));
  const [shown, fine] = [of("FAIL", "WARN"), of("OK")];
  const result = of("FAIL").length ? "A run would fail." : shown.length ? "A run would succeed, with warnings." : "A run would succeed.";
  return el("section", { class: "card findings", "aria-label": "Check" },
    el("p", { role: "status" }, el("strong", {}, result), ` ${summary}. Nothing is saved.`),
    shown.length ? el("ul", {}, shown.map(item)) : null,
    fine.length ? el("details", {}, el("summary", {}, fine.length === 1 ? "1 finding without a problem" : `${fine.length} findings without a problem`), el("ul", {}, fine.map(item))) : null);
}

async function destroy({ name, path, etag }, message) {
  if (!confirm(`Delete pipeline ${name}? Its checkpoint, commit log and topics are not deleted.`)) return;
  try {
    await call("DELETE", path, undefined, { "If-Match": etag });
    toast("Deleted");
    location.hash = "#/";
  } catch (error) {
    message.replaceChildren(problem("Not deleted", error.message));
  }
}

// Show an error, and mark the lines of the YAML that it is about.
function refuse(title, error, field, message) {
  const lines = linesOf(error.message, field.text.value.split("\n"));
  field.mark(lines);
  const links = lines.map((line) => el("button", { onclick: () => field.go(line) }, `Go to line ${line + 1}`));
  message.replaceChildren(problem(title, error.message, links.length ? el("div", { class: "row" }, links) : ""));
  message.scrollIntoView({ block: "nearest" });
}

// The lines, as numbers from 0, whose numbers or settings an error names; of a setting that the text does not have, its section.
function linesOf(text, lines) {
  const numbers = [...text.matchAll(/\bline (\d+)/g)].map(([, line]) => Number(line) - 1).filter((line) => line < lines.length);
  if (numbers.length) return [...new Set(numbers)];
  const names = [...text.matchAll(/([a-z_]+(?:\.[a-z_]+)+)|`([a-z_]+)`|^([a-z_]+)\b/g)].map(([, ...names_]) => names_.find(Boolean));
  const line = names.flatMap((name) => [name, name.split(".")[0]]).map((name) => lineOf(lines, name)).find((found) => found >= 0);
  return line === undefined ? [] : [line];
}

const SIGNS = { same: ["span", "  "], removed: ["del", "− "], added: ["ins", "+ "] };

const changedLine = ({ kind, text, count }) => {
  if (kind === "left out") return el("span", { class: "soft" }, count === 1 ? "… 1 unchanged line" : `… ${count} unchanged lines`);
  const [tag, sign] = SIGNS[kind];
  return el(tag, {}, sign + text);
};

// Show what saving would change. Resolves to whether the user saves it.
function agrees(name, before, after) {
  const changes = changesOf(before, after);
  const count = (kind) => changes.filter((one) => one.kind === kind).length;
  const isContinuous = /^windows:/m.test(before);
  return new Promise((done) => {
    const save = el("button", { class: "primary", onclick: () => box.close("save") }, "Save");
    const box = dialog(`Save ${name}?`,
      el("p", {}, `Lines: ${count("added")} added, ${count("removed")} removed. The next run uses the new settings.${isContinuous ? " A run in progress uses them from its next window on, or ends there if only the next run can; spark, checkpoint and commit_log wait for the next run." : ""}`),
      el("div", { class: "scroll diff", tabindex: "0", role: "region", "aria-label": "Changed lines" }, el("pre", {}, shortened(changes).map(changedLine))),
      el("div", { class: "row" }, save, el("button", { onclick: () => box.close() }, "Back")));
    save.focus();
    box.addEventListener("close", () => done(box.returnValue === "save"));
  });
}

const formatsOf = (schema) => (schema ? schema.$defs.FormatChoice.anyOf[0].enum : ["debezium", "flat", "avro"]);

// The settings of a new pipeline: the server's template, and the connections that this user may combine.
function template({ connections: offered, template: yaml }) {
  const missing = offered.length ? null : "You may only name connections that you may edit in Airflow (Admin, Connections). For others, the administrator lists them in connections of the site file, which the variable CHANGEFEED_SITE names.";
  return { note: missing, yaml, offered };
}
