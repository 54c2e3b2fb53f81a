// Creates elements. Text of a server never becomes markup, and never changes the direction of the text after it.

// The text with control and format characters escaped, as in \u202e: names of tables, topics and files may have any, and so may
// the errors of servers.
export const shown = (value) =>
  typeof value !== "string" ? value
    : value.replace(/(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]/gu, (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`);

// Attributes that are set unescaped: addresses, and values that a form sends back.
const UNESCAPED = new Set(["href", "value", "id", "for", "src", "pattern"]);

export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : UNESCAPED.has(key) ? value : shown(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false).map(shown));
  return element;
}

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.map(shown));
  return element;
}

export function toast(text, bad = false) {
  const element = el("div", { class: bad ? "bad" : "" }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), bad ? 12000 : 6000);
}

// Call `work` periodically while the view is shown, except while the browser tab is hidden.
export async function every(milliseconds, alive, work) {
  while (alive()) {
    await new Promise((done) => setTimeout(done, milliseconds));
    if (alive() && !document.hidden) await work();
  }
}

export const loading = (what) =>
  el("div", { class: "card loading", role: "status", "aria-label": `Loading ${what}` }, el("i"), el("i"), el("i"), el("i"));

export const problem = (title, text, ...more) =>
  el("div", { class: "problem", role: "alert" }, el("strong", {}, title), el("pre", {}, text), ...more);

export const empty = (title, text, ...more) => hollow("h2", title, text, ...more);

export const hollow = (heading, title, text, ...more) =>
  el("div", { class: "card empty" }, el(heading, {}, title), el("p", {}, text), ...more);

export function table(caption, heads, rows) {
  const cell = (value, index, tag) => {
    const head = heads[index];
    return el(tag, { class: head.startsWith("#") ? "number" : head.startsWith("~") ? "wrap" : null, scope: tag === "th" ? "col" : null }, value);
  };
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${caption}` },
    el("table", {},
      el("thead", {}, el("tr", {}, heads.map((head, index) => cell(head.replace(/^[#~]/, ""), index, "th")))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, index) => cell(value, index, "td")))))));
}

export const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en"));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let index = 0;
  let left = value;
  while (Math.abs(left) >= 1000 && index < units.length - 1) { left /= 1000; index += 1; }
  return `${index ? left.toFixed(1) : left} ${units[index]}`;
}

// FILE:POSITION, which may wrap only after the colon.
export function coordinates(text) {
  const [file, at] = (text || "–").split(/(?<=:)/);
  return el("span", { class: "mono" }, file, at ? el("wbr") : null, at);
}

export const whenText = (milliseconds) =>
  new Date(milliseconds).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export const clock = (milliseconds) => new Date(milliseconds).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

export function when(milliseconds) {
  const iso = new Date(milliseconds).toISOString();
  return el("time", { datetime: iso, title: iso }, whenText(milliseconds));
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return seconds ? "under 1 s" : "0 s";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

export function ago(iso) {
  if (!iso) return "–";
  const seconds = (Date.now() - new Date(iso).getTime()) / 1000;
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}
