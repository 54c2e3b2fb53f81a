// A field for YAML with line numbers and marked lines. The key Tab leaves it, as it leaves any other field.

import { el } from "./dom.js";

const LINE = 20; // pixels of a line, and
const TOP = 8; // of the padding above the first one, as in page.css
const FEWEST = 16;
const MOST = 34; // lines without scrolling

// `box` is the element, `text` its textarea, `mark` marks lines (numbers from 0), and `go` selects one.
export function codeField(label, value) {
  const numbers = el("div", {});
  const marks = el("div", {});
  const gutter = el("div", { class: "gutter", "aria-hidden": "true" }, numbers);
  const text = el("textarea", { class: "code", wrap: "off", spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-label": label });
  text.value = value;
  text.rows = Math.min(MOST, Math.max(FEWEST, value.split("\n").length + 1));
  let counted = 0;
  const number = () => {
    const lines = text.value.split("\n").length;
    if (lines !== counted) numbers.textContent = Array.from({ length: lines }, (_, line) => line + 1).join("\n");
    counted = lines;
  };
  const follow = () => {
    numbers.style.transform = `translateY(${-text.scrollTop}px)`;
    marks.style.transform = `translateY(${-text.scrollTop}px)`;
  };
  const mark = (lines) => {
    marks.replaceChildren(...lines.map((line) => {
      const one = el("i", {});
      one.style.top = `${TOP + line * LINE}px`;
      return one;
    }));
    if (lines.length) text.setAttribute("aria-invalid", "true");
    else text.removeAttribute("aria-invalid");
  };
  text.addEventListener("input", () => { number(); mark([]); });
  text.addEventListener("scroll", follow);
  text.addEventListener("keydown", keepIndentation);
  number();
  const box = el("div", { class: "editor" }, gutter, el("div", { class: "lines" }, el("div", { class: "marks", "aria-hidden": "true" }, marks), text));
  return { box, text, mark, go: (line) => select(text, line) };
}

function select(text, line) {
  const lines = text.value.split("\n");
  const start = lines.slice(0, line).reduce((all, one) => all + one.length + 1, 0);
  text.focus();
  text.setSelectionRange(start, start + (lines[line] || "").length);
  text.scrollTop = Math.max(0, line * LINE - text.clientHeight / 2);
}

// A new line begins below the text of the line before it.
function keepIndentation(event) {
  if (event.key !== "Enter" || event.defaultPrevented || event.isComposing || event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
  const { value, selectionStart: at } = event.target;
  const line = value.slice(value.lastIndexOf("\n", at - 1) + 1, at);
  const [, spaces, dashes] = /^( *)((?:- +)*)/.exec(line);
  const deeper = /:\s*$/.test(line) ? "  " : "";
  if (!spaces && !dashes && !deeper) return;
  event.preventDefault();
  insert(event.target, `\n${spaces}${" ".repeat(dashes.length)}${deeper}`);
}

// Replace the selection, so that the browser's undo knows it.
export function insert(text, words) {
  if (!document.execCommand("insertText", false, words)) {
    text.setRangeText(words, text.selectionStart, text.selectionEnd, "end");
    text.dispatchEvent(new Event("input", { bubbles: true }));
  }
}
