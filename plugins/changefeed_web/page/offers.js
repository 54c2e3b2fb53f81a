// What the settings' JSON schema allows at a place of a pipeline's YAML.

import { placeAt, read } from "./yaml.js";

const WORDS = new Set(["null", "true", "false", "yes", "no", "on", "off", "y", "n"]);

// The offers for a position of the text: { from, offers }, with offers [{ name, insert, about, fallback }], where `insert`
// replaces the text from `from`, and `fallback` is the default; null if there are none.
export function offersAt(schema, text, at) {
  const place = placeAt(text, at);
  if (!place) return null;
  const schemas = place.path.reduce((found, part) => found.flatMap((one) => below(schema, one, part)), alternatives(schema, schema));
  const all = place.kind === "value" ? valuesOf(schemas) : [...keysOf(schema, schemas, place, taken(text, at, place)), ...valuesOf(schemas)];
  const begins = ({ name }) => name.toLowerCase().startsWith(place.word.toLowerCase());
  const offers = all.filter((one) => begins(one) && one.name !== place.word);
  return offers.length ? { from: place.from, word: place.word, kind: place.kind, offers } : null;
}

// The schemas that a value may have, without references and null.
function alternatives(root, schema) {
  const { default: fallback, examples } = schema;
  if (schema.$ref) return alternatives(root, { default: fallback, ...root.$defs[schema.$ref.split("/").at(-1)] });
  if (schema.anyOf) return schema.anyOf.flatMap((one) => alternatives(root, { default: fallback, examples, ...one }));
  return schema.type === "null" ? [] : [schema];
}

function below(root, schema, part) {
  const inner = typeof part === "number" ? schema.items : (schema.properties || {})[part] || schema.additionalProperties;
  return inner && typeof inner === "object" ? alternatives(root, inner) : [];
}

// The other keys of the mapping at the place.
function taken(text, at, { path }) {
  const line = text.slice(0, at).split("\n").length - 1;
  const inside = JSON.stringify(path);
  const { settings } = read(text.split("\n"));
  return new Set(settings.filter((one) => one.line !== line && JSON.stringify(one.path.slice(0, -1)) === inside).map((one) => one.path.at(-1)));
}

function keysOf(root, schemas, { flow }, others) {
  const properties = Object.assign({}, ...schemas.map((one) => one.properties || {}));
  const required = new Set(schemas.flatMap((one) => one.required || []));
  return Object.entries(properties).filter(([name]) => !others.has(name)).map(([name, schema]) => ({
    name,
    insert: `${name}:${opening(alternatives(root, schema), flow)}`,
    about: schema.description || alternatives(root, schema).map((one) => one.description).find(Boolean) || "",
    fallback: required.has(name) ? "required" : plain(schema.default),
  }));
}

// What follows the colon of a new key: a line for a section and for a list, and otherwise a space. {INDENT} is the key's.
function opening(schemas, flow) {
  const inner = schemas.at(-1) || {};
  if (flow || schemas.some((one) => one.enum)) return " ";
  if (inner.type === "object") return "\n{INDENT}  ";
  return inner.type === "array" ? "\n{INDENT}  - " : " ";
}

function valuesOf(schemas) {
  return schemas.flatMap((schema) => {
    const words = schema.enum || (schema.const !== undefined ? [schema.const] : schema.examples) || [];
    const all = schema.type === "boolean" ? [["true", "true"], ["false", "false"]] : words.filter((word) => typeof word === "string" && word).map((word) => [word, quoted(word)]);
    return all.map(([name, insert]) => ({ name, insert, about: "", fallback: String(schema.default) === name ? "default" : "" }));
  });
}

const quoted = (word) => (/^[A-Za-z][\w.-]*$/.test(word) && !WORDS.has(word.toLowerCase()) ? word : JSON.stringify(word));

const plain = (value) => (["string", "number", "boolean"].includes(typeof value) && value !== "" ? `default: ${value}` : "");
