// The REST API for people, written from openapi.json: each call with what it takes.

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
    el("p", {}, api.info.description, " The same for machines: ", el("a", { href: "openapi.json" }, "openapi.json"), "."),
    Object.entries(groups).map(([tag, calls]) => el("section", { class: "card stack", "aria-label": tag },
      el("h2", {}, tag), calls.map((one) => described(one, api))))));
}

function described({ path, method, operation }, api) {
  const inputs = (operation.parameters || []).filter((one) => one.in !== "path").map((one) => [one.name, one.in, typeOf(one.schema, api), one.description || ""]);
  const body = operation.requestBody && resolved(operation.requestBody.content["application/json"].schema, api);
  const needed = (body && body.required) || [];
  for (const [name, schema] of Object.entries((body && body.properties) || {})) {
    inputs.push([name, needed.includes(name) ? "body, needed" : "body", typeOf(schema, api), schema.description || ""]);
  }
  return el("article", {},
    el("h3", { class: "call" }, el("span", { class: "badge" }, method.toUpperCase()), el("code", {}, path)),
    el("p", {}, (operation.description || operation.summary).replaceAll("``", "")),
    inputs.length ? table(`What ${method} ${path} takes`, ["Name", "Where", "Type", "~Meaning"], inputs.map(([name, ...rest]) => [el("code", {}, name), ...rest])) : null);
}

// A reference, or the one choice that is not null.
function resolved(schema, api) {
  if (schema.$ref) return resolved(api.components.schemas[schema.$ref.split("/").at(-1)], api);
  const choices = (schema.anyOf || []).filter((one) => one.type !== "null");
  return choices.length === 1 ? resolved(choices[0], api) : schema;
}

function typeOf(schema, api) {
  const { type, items, default: standard } = { ...resolved(schema, api), ...(schema.default === undefined ? {} : { default: schema.default }) };
  const named = type === "array" ? `array of ${resolved(items, api).type}` : type || "any";
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
