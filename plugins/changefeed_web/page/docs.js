// The description of the REST API for people, generated from openapi.json.

import { el, loading, problem, table } from "./dom.js";
import { followTheme } from "./theme.js";

const main = document.getElementById("main");

function show(api) {
  const groups = {};
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) (groups[operation.tags[0]] ||= []).push({ path, method, operation });
  }
  main.replaceChildren(el("div", { class: "stack" },
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: "." }, "All pipelines")),
    el("h1", {}, "REST API"),
    el("p", {}, api.info.description, " For programs: ", el("a", { href: "openapi.json" }, "openapi.json"), "."),
    Object.entries(groups).map(([tag, calls]) => el("section", { class: "card stack", "aria-label": tag },
      el("h2", {}, tag), calls.map((one) => article(one, api))))));
}

function article({ path, method, operation }, api) {
  const inputs = (operation.parameters || []).filter((one) => one.in !== "path").map((one) => [one.name, one.in, typeOf(one.schema, api), example(one.example), one.description || ""]);
  const body = operation.requestBody && resolve(operation.requestBody.content["application/json"].schema, api);
  const required = (body && body.required) || [];
  for (const [name, schema] of Object.entries((body && body.properties) || {})) {
    inputs.push([name, required.includes(name) ? "body, required" : "body", typeOf(schema, api), example(schema.examples && schema.examples[0]), schema.description || ""]);
  }
  return el("article", {},
    el("h3", { class: "call" }, el("span", { class: "badge" }, method.toUpperCase()), el("code", {}, path)),
    el("p", {}, (operation.description || operation.summary).replaceAll("``", "")),
    inputs.length ? table(`Parameters of ${method} ${path}`, ["Name", "In", "Type", "Example", "~Description"], inputs.map(([name, ...rest]) => [el("code", {}, name), ...rest])) : null);
}

const example = (value) => (value === undefined ? "" : el("code", {}, typeof value === "string" ? value : JSON.stringify(value)));

// The schema that a reference names, or the only alternative that is not null.
function resolve(schema, api) {
  if (schema.$ref) return resolve(api.components.schemas[schema.$ref.split("/").at(-1)], api);
  const choices = (schema.anyOf || []).filter((one) => one.type !== "null");
  return choices.length === 1 ? resolve(choices[0], api) : schema;
}

function typeOf(schema, api) {
  const { type, items, default: standard } = { ...resolve(schema, api), ...(schema.default === undefined ? {} : { default: schema.default }) };
  const named = type === "array" ? `array of ${resolve(items, api).type}` : type || "any";
  return standard === undefined || standard === null ? named : `${named}, default ${JSON.stringify(standard)}`;
}

followTheme();
main.replaceChildren(loading("the description"));
try {
  const answer = await fetch("openapi.json", { credentials: "same-origin" });
  show(await answer.json());
} catch (error) {
  main.replaceChildren(problem("The description cannot be read", error.message));
}
