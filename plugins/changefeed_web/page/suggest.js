// A list of what the settings' schema allows at the cursor of a code field. Typing opens it, and Ctrl+Space; the arrow keys
// choose, Enter inserts, and Escape closes it. Tab leaves the field.

import { insert } from "./code-field.js";
import { el } from "./dom.js";
import { offersAt } from "./offers.js";

const ID = "suggestions";
const MOST = 100;

export function suggest(field, schema) {
  const { text } = field;
  const list = el("ul", { id: ID, role: "listbox", tabindex: "0", "aria-label": "Settings that are possible here", hidden: true });
  const status = el("p", { class: "soft", role: "status" }, HINT);
  const state = { found: null, chosen: 0 };
  const parts = { text, list, status, state, schema };
  text.setAttribute("aria-autocomplete", "list");
  text.setAttribute("aria-controls", ID);
  text.addEventListener("input", () => look(parts, false));
  text.addEventListener("keydown", (event) => press(parts, event), { capture: true });
  list.addEventListener("keydown", (event) => press(parts, event));
  for (const one of [text, list]) one.addEventListener("focusout", ({ relatedTarget }) => { if (relatedTarget !== text && relatedTarget !== list) close(parts); });
  text.addEventListener("click", () => close(parts));
  const open = el("button", { onpointerdown: (event) => event.preventDefault(), onclick: () => { text.focus(); look(parts, true); } }, "Suggest");
  return { box: el("div", { class: "suggest" }, list, status), open };
}

const HINT = "Ctrl+Space or Suggest lists the settings that are possible at the cursor. Tab leaves the field.";

// Show what is possible at the cursor. While typing, a list without a begun word is shown only for the values of a key.
function look(parts, isAsked) {
  const { text, state, schema } = parts;
  const at = text.selectionStart;
  const found = text.readOnly || text.selectionEnd !== at ? null : offersAt(schema, text.value, at);
  if (!found || !(isAsked || found.word || found.kind === "value")) {
    close(parts);
    if (isAsked) parts.status.textContent = "Nothing can be suggested at the cursor. Place it on an empty line, or after a key's colon and a space.";
    return;
  }
  state.found = { ...found, at, offers: found.offers.slice(0, MOST) };
  state.chosen = 0;
  draw(parts);
  parts.status.textContent = `${found.offers.length === 1 ? "1 suggestion" : `${found.offers.length} suggestions`}. Arrow keys choose, Enter inserts, Escape closes the list.`;
}

function draw(parts) {
  const { text, list, state } = parts;
  list.replaceChildren(...state.found.offers.map((offer, index) => el("li", {
    id: `${ID}-${index}`, role: "option", "aria-selected": String(index === state.chosen),
    onpointerdown: (event) => event.preventDefault(), onclick: () => { state.chosen = index; take(parts); },
  }, el("code", {}, offer.name), el("span", { class: "soft" }, offer.fallback), el("span", {}, offer.about.replaceAll("`", "")))));
  list.hidden = false;
  text.setAttribute("aria-activedescendant", `${ID}-${state.chosen}`);
  list.setAttribute("aria-activedescendant", `${ID}-${state.chosen}`);
  list.children[state.chosen].scrollIntoView({ block: "nearest" });
}

function close(parts) {
  if (!parts.state.found) return;
  parts.state.found = null;
  parts.list.hidden = true;
  parts.text.removeAttribute("aria-activedescendant");
  parts.status.textContent = HINT;
}

function press(parts, event) {
  const { text, state } = parts;
  if (event.isComposing) return;
  if (event.ctrlKey && event.key === " " && event.target === text) {
    event.preventDefault();
    look(parts, true);
  }
  if (!state.found || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    state.chosen = (state.chosen + step + state.found.offers.length) % state.found.offers.length;
    draw(parts);
  } else if (event.key === "Enter") {
    if (text.selectionStart !== state.found.at || text.selectionEnd !== state.found.at) {
      close(parts); // the cursor is elsewhere: the key is the text's
      return;
    }
    take(parts);
  } else if (event.key === "Escape") close(parts);
  else {
    if (["ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"].includes(event.key)) close(parts);
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}

// Put the chosen offer into the text in place of the word at the cursor. A key that has its colon keeps it.
function take(parts) {
  const { text, state } = parts;
  const { found: { from, at, kind, offers }, chosen } = state;
  const column = from - (text.value.lastIndexOf("\n", from - 1) + 1);
  const rest = /^[\w-]*/.exec(text.value.slice(at))[0].length;
  const quote = /["']/.test(text.value[from] || "") && text.value[at + rest] === text.value[from];
  const after = rest + (quote ? 1 : 0);
  const words = text.value.slice(at + after).startsWith(":") && kind === "key" ? offers[chosen].name : offers[chosen].insert.replaceAll("{INDENT}", " ".repeat(column));
  close(parts);
  text.focus();
  text.setSelectionRange(from, at + after);
  insert(text, words);
}
