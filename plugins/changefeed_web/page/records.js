// The records of a pipeline's topics: the newest ones, or those of a key, an id, coordinates or a time.

import { airflow, get } from "./api.js";
import { setUtc, timeHint, timeInput, utcOf } from "./binlogs.js";
import { tabBar } from "./detail.js";
import { backfillDialog, discardDialog } from "./dialogs.js";
import { coordinates, el, hollow, loading, number, problem, table, toast } from "./dom.js";
import { Outage } from "./state.js";

const OPS = { c: "insert", u: "update", d: "delete", r: "read", w: "write", t: "truncate", q: "statement", s: "statement" };
const LIMITS = [20, 50, 100];
const STOPPED = { records: "50,000 records", bytes: "32 MiB", seconds: "10 seconds" };
const KINDS = { "schema changes": "DDL", published: "chosen by rows" };

// A time with seconds, in the time zone of the browser.
function at(milliseconds) {
  const moment = new Date(milliseconds);
  const text = moment.toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return el("time", { datetime: moment.toISOString(), title: moment.toISOString() }, text);
}

const field = (label, hint, input) => el("label", {}, label, hint ? el("small", {}, hint) : null, input);
const input = (name, placeholder = "") => el("input", { name, placeholder, autocomplete: "off", spellcheck: "false" });

// The name of a topic in the list: its tables, or what else it has.
function nameOf({ topic, kind, tables }) {
  const [first, ...others] = tables;
  if (!first) return `${topic} (${KINDS[kind] || kind})`;
  const names = others.length ? `${first} and ${number(others.length)} more` : first;
  return first === topic && !others.length ? topic : `${names} (${topic})`;
}

export async function records(main, alive, name) {
  const pipelinePath = `pipelines/${encodeURIComponent(name)}`;
  const path = `${pipelinePath}/records`;
  const content = el("div", { class: "stack" }, loading("the topics"));
  main.replaceChildren(el("div", { class: "stack" },
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: "#/" }, "All pipelines")),
    el("h1", {}, name), tabBar(name, "records"), content));
  let found;
  try {
    found = await get(path);
  } catch (error) {
    if (error.status === 404) throw error;
    if (alive()) content.replaceChildren(error.status === 403 ? hollow("h2", "You may not see records", error.message) : problem("The topics cannot be read", error.message));
    return;
  }
  if (!alive()) return;
  search(content, alive, path, found.topics, {
    retryLetter: (letter) => retry(pipelinePath, letter, alive),
    discard: (upTo, after) => discardDialog(pipelinePath, upTo, after),
  });
}

const LETTERS = "Dead letters are records that Kafka refused, and changes for which a function failed. No run reads them. They stay in this topic until its retention deletes them, or until they are discarded. ";

// Returns what opens the replay of the binlog file and the table of a dead letter. A row of an XA transaction is published by the
// file of its commit.
async function retry(path, letter, alive) {
  const [file] = (letter.commit || letter.coordinates).split(/:(?=\d+$)/);
  const tables = letter.tables.length ? `the changes of ${letter.tables.join(", ")}` : "all changes";
  const isLater = letter.commit && !letter.coordinates.startsWith(`${file}:`);
  const about = `Publishes ${tables} in ${file} again, not only this record.${isLater ? " That file has the XA COMMIT of its row; the plan counts such rows only in the file where they were prepared." : ""} The reason was: ${letter.reason}. Remove its cause first, or the record becomes a dead letter again. With a suffix, the changes go to topics of their own; without one, consumers of the live topics get all of them a second time.`;
  try {
    const pipeline = await get(path);
    return () => { if (alive()) backfillDialog(path, pipeline, async () => {}, { file, tables: letter.tables, about }); };
  } catch (error) {
    return () => { if (alive()) toast(error.message, true); };
  }
}

// The form of a search, and its result. `retryLetter` is called with a dead letter, `discard` with the offset of the last one by
// partition, and with what to do afterwards.
function search(content, alive, path, topics, { retryLetter, discard }) {
  if (!topics.length) {
    content.replaceChildren(hollow("h2", "No topic yet", "The pipeline captures no table now, and has published nothing."));
    return;
  }
  const topic = el("select", { name: "topic" }, topics.map((one) => el("option", { value: one.topic }, nameOf(one))));
  const limit = el("select", { name: "limit" }, LIMITS.map((one) => el("option", { value: one }, String(one))));
  const conditions = { key: input("key", '7 or {"id":7}'), id: input("id", "SERVER_UUID/FILE:POSITION/ROW"),
    coordinates: input("coordinates", "binlog.000012:4077"), since: timeInput("since"), until: timeInput("until") };
  const status = el("p", { class: "soft", role: "status" });
  const about = el("div", { class: "row between" }, el("p", { class: "soft" }, LETTERS), el("button", { onclick: () => discard({}, () => run()) }, "Discard all…"));
  const result = el("div", { class: "stack" });
  let busy = false;
  let again = false; // the conditions changed while a search was under way

  const read = async () => {
    for (const one of Object.values(conditions)) one.dispatchEvent(new Event("change")); // their hints are of the new values
    const given = Object.entries(conditions).map(([name, one]) => [name, one.type === "datetime-local" ? utcOf(one) : one.value.trim()]).filter(([, value]) => value);
    const query = new URLSearchParams([["topic", topic.value], ["limit", limit.value], ...given]);
    about.hidden = topics.find((one) => one.topic === topic.value).kind !== "dead letters";
    result.replaceChildren(loading("records"));
    status.replaceChildren();
    try {
      const answer = await get(`${path}?${query}`);
      if (!alive() || again) return;
      status.replaceChildren(answer.exists ? outcome(answer.records.length, answer.searched, given.length > 0)
        : "The topic does not exist yet. The first run that publishes to it creates it.");
      draw(result, answer, { searchKey, retryLetter, discardTo: (letter) => discard({ [letter.partition]: letter.offset }, () => run()) }, searchBefore);
    } catch (error) {
      if (alive() && !again) result.replaceChildren(problem("The records cannot be read", error.message));
    }
  };
  const run = async () => {
    again = busy;
    if (busy) return;
    busy = true;
    do {
      again = false;
      await read();
    } while (again && alive());
    busy = false;
  };
  const searchKey = (key) => {
    Object.entries(conditions).forEach(([name, one]) => { one.value = name === "key" ? key : ""; });
    run();
  };
  const searchBefore = (milliseconds) => {
    more.open = true;
    setUtc(conditions.until, milliseconds);
    run();
  };
  const more = el("details", {}, el("summary", {}, "More conditions"),
    el("div", { class: "fields" },
      field("Event id", "the header changefeed.id", conditions.id),
      field("Coordinates", "FILE:POSITION of the change", conditions.coordinates),
      field("Since", timeHint(conditions.since), conditions.since),
      field("Until", timeHint(conditions.until, "not included"), conditions.until),
      field("Records", "at most, the newest ones", limit)));
  const form = el("form", { class: "card stack", "aria-label": "Search", onsubmit: (event) => { event.preventDefault(); run(); } },
    el("div", { class: "fields" }, field("Topic", "of the pipeline", topic), field("Key", "as JSON, or the value of its only column", conditions.key)),
    more,
    el("div", { class: "row" }, el("button", { class: "primary", type: "submit" }, "Show records"), el("button", { type: "reset", onclick: () => setTimeout(run) }, "Reset")));
  topic.addEventListener("change", run);
  content.replaceChildren(form, about, status, result);
  run();
}

function draw(place, { records: list, searched, stale }, calls, searchBefore) {
  const outage = el("div", {});
  const servers = new Outage();
  servers.add(stale);
  servers.draw(outage);
  place.replaceChildren(outage,
    list.length ? el("section", { class: "card records", "aria-label": "Records" }, el("h2", {}, "Records"), list.map((one) => entry(one, calls))) : "",
    searched.stopped_by && searched.back_to_ms !== null ? el("div", { class: "row" }, el("button", { onclick: () => searchBefore(searched.back_to_ms + 1000) }, "Search further back")) : "");
}

// A sentence about what was found, and how far the topic was searched.
function outcome(count, searched, isFiltered) {
  const what = !count ? "Nothing found" : count === 1 ? "1 record" : `${number(count)} records`;
  const where = searched.partitions.length === 1 ? ` in partition ${searched.partitions[0]}` : "";
  if (searched.stopped_by) {
    const back = searched.back_to_ms === null ? "" : [" searched back to ", at(searched.back_to_ms), ","];
    return el("span", {}, `${what}${where}:`, back, ` ${number(searched.records)} records read. The search ended at its limit of ${STOPPED[searched.stopped_by]}.`);
  }
  if (!searched.complete) return `${what}, the newest first.`;
  if (!count && !isFiltered) return "The topic has no record yet.";
  return `${what}${where}. ${isFiltered ? "The search is complete" : "The topic has no more"}.`;
}

const opOf = (record) => (record.reason ? "dead letter" : record.changes.length ? OPS[record.changes[0].op] || "DDL" : record.value_bytes === null ? "tombstone" : "message");
const BADGES = { "dead letter": "bad", insert: "good", delete: "bad", tombstone: "bad", update: "warn" };

function entry(record, calls) {
  const op = opOf(record);
  const rows = record.changes.length > 1 ? ` (${number(record.changes.length)} rows)` : "";
  const body = el("div", { class: "stack body" });
  const details = el("details", { ontoggle: () => { if (details.open && !body.childElementCount) body.append(...parts(record, calls)); } },
    el("summary", {}, at(record.timestamp_ms), " ", el("span", { class: `badge ${BADGES[op] || ""}` }, `${op}${rows}`), " ",
      el("code", {}, record.key === null ? "no key" : record.key), " ",
      el("span", { class: "soft" }, record.coordinates ? coordinates(record.coordinates) : "", ` partition ${record.partition}, offset ${record.offset}${record.window === null ? "" : `, window #${record.window}`}`),
      record.reason ? el("span", { class: "reason" }, [record.tables.join(", "), record.reason].filter(Boolean).join(": ")) : null),
    body);
  return details;
}

// The parts of an opened record: where it is, its rows, its headers and its value.
function parts(record, { searchKey, retryLetter, discardTo }) {
  const run = record.run ? el("a", { href: airflow(record.run.href), target: "_top" }, `run ${record.run.run_id}`) : null;
  const places = [
    ["Topic", el("code", {}, record.topic)], record.tables.length ? ["Table", record.tables.join(", ")] : null, ["Partition", record.partition], ["Offset", record.offset],
    ["Coordinates", record.coordinates ? coordinates(record.coordinates) : "none"], record.gtid ? ["GTID", el("code", {}, record.gtid)] : null,
    ["Window", record.window === null ? "not published by a known window" : [`#${record.window} `, run]],
    record.reason ? ["Reason", record.reason] : null, record.meant_for ? ["Meant for topic", el("code", {}, record.meant_for)] : null,
  ].filter(Boolean);
  return [
    el("dl", { class: "sample" }, places.map(([label, value]) => [el("dt", {}, label), el("dd", {}, value)].flat()).flat()),
    record.key === null || record.key === "(hidden)" ? null : el("div", { class: "row" }, el("button", { onclick: () => searchKey(record.key) }, "All records of this key")),
    record.reason ? el("div", { class: "row" }, again(record, retryLetter), el("button", { onclick: () => discardTo(record) }, "Discard up to here…")) : null,
    ...record.changes.map(images),
    fold("Headers", el("dl", { class: "sample" }, record.headers.flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, el("code", {}, value))]))),
    record.value_note ? el("p", { class: "soft" }, record.value_note)
      : record.value === null ? el("p", { class: "soft" }, "The value is null.") : fold("Value", el("pre", { class: "value", tabindex: "0" }, record.value), !record.changes.length),
  ].filter(Boolean);
}

// How the change of a dead letter is published again. Rows of a snapshot are in no binlog file.
function again(record, retryLetter) {
  if (!record.coordinates) {
    return el("p", { class: "soft" }, record.is_read ? "A snapshot read this row: take a snapshot of its table to publish it again."
      : "The record has no coordinates, so the file of its change is not known.");
  }
  const button = el("button", { onclick: async () => {
    button.disabled = true;
    const open = await retryLetter(record);
    button.disabled = false;
    button.focus(); // which returns there from the dialog
    open();
  } }, "Retry…");
  return el("div", { class: "row" }, button, el("span", { class: "soft" }, "Opens a replay of its binlog file and table."));
}

const fold = (title, content, open = false) => el("details", { open }, el("summary", {}, title), content);

// A row before and after its change, side by side. A changed column has the word, too, so that color is not needed.
function images(change) {
  const { before, after } = change;
  const changed = new Set(change.changed);
  const columns = [...new Set([...Object.keys(before || {}), ...Object.keys(after || {})])];
  const value = (image, column) => (image && column in image ? el("code", { class: changed.has(column) ? "changed" : null }, image[column]) : el("span", { class: "soft" }, "–"));
  const sides = [before ? ["~Before", before] : null, after ? ["~After", after] : null].filter(Boolean);
  const marked = before && after;
  return el("div", {},
    el("h3", {}, `${change.table || "Row"}: ${OPS[change.op] || "DDL"}`),
    columns.length ? table("Columns", ["Column", ...sides.map(([head]) => head), ...(marked ? ["Change"] : [])],
      columns.map((column) => [column, ...sides.map(([, image]) => value(image, column)), ...(marked ? [changed.has(column) ? el("strong", {}, "changed") : ""] : [])])) : null,
    change.hidden.length ? el("p", { class: "soft" }, `Hidden by the pipeline's settings: ${change.hidden.join(", ")}`) : null);
}
