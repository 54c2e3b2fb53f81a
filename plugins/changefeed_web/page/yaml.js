// Reads the lines of a pipeline's YAML by their indentation, also while the text is not valid YAML yet.

const KEY = /^("[^"]*"|'[^']*'|[^\s#:'"[\]{},&*!|>%@`-][^:#]*?)\s*:(?=\s|$)/;
const ITEM = /^-(\s+|$)/;
const BLOCK_TEXT = /^[|>][-+\d]*\s*(#.*)?$/;

export const unquoted = (text) => (/^(["']).*\1$/.test(text) ? text.slice(1, -1) : text);

// The settings of the lines before `until`, by line: [{ line, path }]. `path` has keys, and the numbers of list entries.
// `open` has the settings that the next line may continue, the outermost first: [{ indent, part, item }].
export function read(lines, until = lines.length) {
  const open = [];
  const settings = [];
  let text = null; // indentation of the key whose block of text is being skipped
  for (const [line, whole] of lines.slice(0, until).entries()) {
    const indent = whole.search(/\S/);
    if (indent < 0 || whole[indent] === "#") continue;
    if (text !== null && indent > text) continue;
    const at = enter(open, whole, indent);
    text = BLOCK_TEXT.test(at.rest) ? at.indent : null;
    settings.push({ line, path: open.map(({ part }) => part) });
  }
  return { open, settings };
}

// Changes `open` from the settings before the line to those at its end. Returns what follows the last key or dash: `rest`,
// which begins at column `column`, with `indent`, the column of this key or dash.
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
  return { indent, column: column + blank, rest: rest.slice(blank) };
}

// The number, from 0, of the line of a setting with a dotted name, as in `source.server_ids`; -1 if the text has none. An
// entry of a list may be left out of the name.
export function lineOf(lines, name) {
  const named = ({ path }) => path.filter((part) => typeof part === "string").join(".");
  const { settings } = read(lines);
  return (settings.find((one) => named(one) === name) || { line: -1 }).line;
}
