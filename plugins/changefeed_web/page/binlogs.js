// Choices for fields that name a place in the binlog: the files that the source has, and times.

import { get } from "./api.js";
import { bytes, el } from "./dom.js";

const utcText = (milliseconds) => new Date(milliseconds).toISOString().slice(0, 16).replace("T", " ");

// The binlog files of a pipeline, read once for a dialog. `choice` returns a list of them for an input; the chosen file's
// `valueOf` is written into the input. `note` says why there are no lists.
export function binlogFiles(path) {
  const note = el("p", { class: "soft", role: "status" });
  const reading = get(`${path}/binlogs`).then(({ files, more }) => {
    if (more) note.replaceChildren(`The lists have the newest ${files.length} binlog files of the source. The names of older ones can be typed.`);
    return files;
  }).catch((error) => {
    note.replaceChildren(`The binlog files of the source cannot be listed, but their names can be typed: ${error.message}`);
    return [];
  });
  const choice = (input, label, valueOf = (file) => file) => {
    const select = el("select", { "aria-label": label, "data-free": true, hidden: true }, el("option", { value: "" }, `${label}…`));
    reading.then((files) => {
      select.append(...files.map(({ name, size_bytes: size, begun_seconds: begun }) => el("option", { value: valueOf(name) },
        `${name}: ${bytes(size)}${begun ? `, begins ${utcText(begun * 1000)} UTC` : ""}`)));
      select.hidden = !files.length;
    });
    select.addEventListener("change", () => {
      fill(input, select.value);
      select.value = "";
    });
    return select;
  };
  return { choice, note };
}

// The coordinates of a file's begin.
export const beginOf = (file) => `${file}:4`;

function fill(input, value) {
  if (!value) return;
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

// A field for a date and a time in UTC. `utcOf` is its value for a request, "" without one.
export const timeInput = (name, required = false) => el("input", { type: "datetime-local", name, required, step: 1, max: "9999-12-31T23:59:59" });
export const utcOf = ({ value }) => (value ? `${value.length === 16 ? `${value}:00` : value.slice(0, 19)}Z` : "");
export const setUtc = (input, milliseconds) => fill(input, new Date(milliseconds).toISOString().slice(0, 19));

// The hint of a field in UTC. Beside it, all times of the page are in the browser's time zone, so it has the chosen time there, too.
export function timeHint(input, more = "") {
  const text = el("span", {});
  const draw = () => {
    const moment = new Date(utcOf(input) || Date.now());
    const here = moment.getTimezoneOffset() ? `${moment.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })} in your time zone` : "";
    const now = input.value ? "" : `, where it is ${utcText(Date.now())} now`;
    text.replaceChildren(`in UTC${now}${here ? `${now ? ", " : ": "}${here}` : ""}${more ? `; ${more}` : ""}`);
  };
  input.addEventListener("input", draw);
  input.addEventListener("change", draw);
  draw();
  return text;
}

// A date-and-time field that writes its time into a field which takes other values, too.
export function timeChoice(input) {
  const time = el("input", { type: "datetime-local", step: 1, "data-free": true });
  time.addEventListener("change", () => fill(input, utcOf(time)));
  return el("label", {}, "Or a time", el("small", {}, timeHint(time, "it is written into the field To")), time);
}
