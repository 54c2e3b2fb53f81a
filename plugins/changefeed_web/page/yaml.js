// Reads the lines of a pipeline's YAML by their indentation, also while the text is not valid YAML yet.

const KEY = /^("[^"]*"|'[^']*'|[^\s#:'"[\]{},&*!|>%@`-][^:#]*?)\s*:(?=\s|$)/;
const ITEM = /^-(\s+|$)/;
const BLOCK_TEXT = /^[|>][-+\d]*\s*(#.*)?$/;

export const unquoted = (text) => (/^(["']).*\1$/.test(text) ? text.slice(1, -1) : text);

// The settings of the lines before `until`, by line: [{ line, path }]. `path` has keys, and the numbers of list entries.
// `open` has the settings that the next line may continue, the outermost first: [{ indent, part, item }]. `block` is the
// indentation of the key whose block of text may go on, or null.
export function read(lines, until = lines.length) {
  const open = [];
  const settings = [];
  let block = null;
  for (const [line, whole] of lines.slice(0, until).entries()) {
    const indent = whole.search(/\S/);
    if (indent < 0 || whole[indent] === "#") continue;
    if (block !== null && indent > block) continue;
    const at = enter(open, whole, indent);
    block = BLOCK_TEXT.test(at.rest) ? at.indent : null;
    settings.push({ line, path: open.map(({ part }) => part) });
  }
  return { open, settings, block };
}

// Changes `open` from the settings before the line to those at its end. Returns what follows the last key or dash: `rest`,
// which begins at column `column`, with `indent`, the column of this key or dash, and `key`, whether a key was read.
export function enter(open, whole, start) {
  let column = start;
  let indent = start;
  let rest = whole.slice(column);
  const leave = (outside) => { while (open.length && !outside(open.at(-1))) open.pop(); };
  for (let dash = ITEM.exec(rest); dash; dash = ITEM.exec(rest)) {
    const here = column;
    indent = column;
    const earlier = open.find((one) => one.item && one.indent === here);
    leave((one) => one.indent < here || (one.indent === here && !one.item));
    open.push({ indent: here, part: earlier ? earlier.part + 1 : 0, item: true });
    column += dash[0].length;
    rest = whole.slice(column);
  }
  const key = KEY.exec(rest);
  leave((one) => one.indent < column);
  if (key) {
    indent = column;
    open.push({ indent, part: unquoted(key[1]), item: false });
    column += key[0].length;
    rest = whole.slice(column);
  }
  const blank = rest.search(/\S|$/);
  return { indent, column: column + blank, rest: rest.slice(blank), key: Boolean(key) };
}

// The number, from 0, of the line of a setting with a dotted name, as in `source.server_ids`; -1 if the text has none. An
// entry of a list may be left out of the name.
export function lineOf(lines, name) {
  const named = ({ path }) => path.filter((part) => typeof part === "string").join(".");
  const { settings } = read(lines);
  return (settings.find((one) => named(one) === name) || { line: -1 }).line;
}

// The text after the colon of a setting on one line, without its comment; "" if there is none.
function restOf(text, name) {
  const lines = text.split("\n");
  const line = lineOf(lines, name);
  return line < 0 ? "" : lines[line].replace(/^[^:]*:\s*/, "").replace(/\s+#.*$/, "").trim();
}

// The value of a setting that is a word or a quoted text, and the quoted texts of a list on one line.
export const scalarOf = (text, name) => unquoted(restOf(text, name));
export const wordsOf = (text, name) => [...restOf(text, name).matchAll(/"([^"]*)"|([^\s,[\]"]+)/g)].map(([, quoted, bare]) => quoted ?? bare);

const COMMENT = /(^|\s)#/;

// What is being written at a position of the text: { path, kind, word, from, flow }, or null where nothing can be offered.
// `kind` is "value" after a key's colon, and otherwise "key"; `path` has the settings around it, `word` is its begin, which
// is at `from` in the text. `flow` says that it is within { } or [ ].
export function placeAt(text, at) {
  const lines = text.slice(0, at).split("\n");
  const whole = lines.pop();
  const { open, block } = read(lines);
  const start = whole.search(/\S|$/);
  if (COMMENT.test(whole) || (block !== null && start > block)) return null;
  const { rest, key } = enter(open, whole, start);
  if (key && whole.endsWith(":")) return null; // a space is missing
  const flow = /^[{[]/.test(rest) ? within(rest) : { parts: [], word: rest, kind: key ? "value" : "key", inside: false };
  if (!flow || /[\s:{}[\]]/.test(flow.word.trimEnd())) return null;
  return { path: [...open.map(({ part }) => part), ...flow.parts], kind: flow.kind, word: flow.word.replace(/^["']/, ""), from: at - flow.word.length, flow: flow.inside };
}

// The same within the { } and [ ] of one line; null after their end.
function within(text) {
  const frames = [];
  let token = 0;
  for (let at = 0; at < text.length; at += 1) {
    const one = text[at];
    if (one === '"' || one === "'") {
      const end = text.indexOf(one, at + 1);
      if (end < 0) break;
      at = end;
    } else if (one === "{" || one === "[") {
      frames.push(one === "{" ? { key: null } : { index: 0 });
      token = at + 1;
    } else if (one === "}" || one === "]") {
      frames.pop();
      if (!frames.length) return null;
      token = at + 1;
    } else if (one === "," && frames.length) {
      const frame = frames.at(-1);
      if ("index" in frame) frame.index += 1;
      else frame.key = null;
      token = at + 1;
    } else if (one === ":" && text[at + 1] === " " && frames.at(-1).key === null) {
      frames.at(-1).key = unquoted(text.slice(token, at).trim());
      token = at + 1;
    }
  }
  const last = frames.at(-1);
  const parts = frames.map(({ key, index }) => key ?? index).filter((part) => part !== undefined && part !== null);
  return { parts, word: text.slice(token).trimStart(), kind: last.key === null ? "key" : "value", inside: true };
}
