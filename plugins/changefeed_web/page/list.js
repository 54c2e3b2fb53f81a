// All pipelines: first the state that Airflow has of them, then each one's position as its source answers. Cards that are
// on the screen are refreshed.

import { get } from "./api.js";
import { ago, el, empty, every, loading, problem } from "./dom.js";
import { badge, facts, notLoaded, Outage } from "./state.js";

const EVERY_MS = 10000;

export async function list(main, alive) {
  main.replaceChildren(heading(), loading("pipelines"));
  const found = await get("pipelines?live=false");
  if (!alive()) return;
  const search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search pipelines" });
  const cards = el("div", { class: "cards" });
  const outage = el("div", {});
  const summary = el("p", { class: "soft", role: "status" });
  const nothing = empty("Nothing found", "No pipeline has these words in its name, source, owner, tags or tables.");
  nothing.hidden = true;
  const places = found.pipelines.map((pipeline) => ({ pipeline, card: card(pipeline) }));
  cards.append(...places.map((place) => place.card));
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const place of places) {
      const { name, owner, tags, tables, source } = place.pipeline;
      const text = [name, owner, source, ...tags, ...tables.include].join(" ").toLowerCase();
      place.card.hidden = !words.every((word) => text.includes(word));
    }
    nothing.hidden = places.some((place) => !place.card.hidden);
  });
  const refused = Object.entries(found.refused).map(([file, text]) => problem(`${file} is invalid`, text));
  const none = empty("No pipelines yet", "A pipeline is a YAML file that names a MySQL source, a Kafka cluster and a set of tables.",
    el("p", {}, el("a", { href: "#/new" }, "Create the first pipeline")));
  main.replaceChildren(el("div", { class: "stack" }, heading(places.length > 1 ? search : null), places.length > 1 ? summary : null, outage, refused, places.length ? cards : refused.length ? null : none, nothing,
    el("p", {}, el("a", { href: "docs" }, "REST API"))));
  const look = async (queue) => {
    while (queue.length && alive()) {
      const place = queue.shift();
      try {
        place.pipeline = await get(`pipelines/${encodeURIComponent(place.pipeline.name)}`);
      } catch (error) {
        place.pipeline.position = { ...place.pipeline.position, state: "error", error: error.message };
        place.pipeline.standing = { text: "error", kind: "bad" };
      }
      const fresh = card(place.pipeline);
      fresh.hidden = place.card.hidden;
      place.card.replaceWith(fresh);
      place.card = fresh;
    }
  };
  const lookAt = async (queue) => {
    await Promise.all([look(queue), look(queue), look(queue), look(queue)]);
    const servers = new Outage();
    for (const { pipeline } of places) servers.add(pipeline.stale, pipeline.name);
    if (!alive()) return;
    servers.draw(outage);
    const text = summaryOf(places.map(({ pipeline }) => pipeline.standing.text));
    if (summary.textContent !== text) summary.textContent = text; // else it would be announced again
  };
  await lookAt([...places]);
  if (alive()) cards.append(...places.sort(worstFirst).map((place) => place.card));
  await every(EVERY_MS, alive, () => lookAt(places.filter((place) => isSeen(place.card))));
}

const ORDER = ["bad", "warn", "", "good"];
const worstFirst = (a, b) => ORDER.indexOf(a.pipeline.standing.kind) - ORDER.indexOf(b.pipeline.standing.kind) || a.pipeline.name.localeCompare(b.pipeline.name);

// How many pipelines are in each state, as in `1 failed, 3 up to date`.
function summaryOf(states) {
  const counts = new Map();
  for (const state of states.sort()) counts.set(state, (counts.get(state) || 0) + 1);
  return [...counts].map(([state, count]) => `${count} ${state}`).join(", ");
}

function isSeen(card) {
  const { top, bottom } = card.getBoundingClientRect();
  return !card.hidden && bottom > 0 && top < innerHeight && !card.contains(document.activeElement);
}

function heading(more) {
  return el("header", { class: "row" }, el("h1", {}, "Pipelines"), el("div", { class: "row tools" }, more, el("a", { class: "button", href: "#/new" }, "New pipeline")));
}

function card(pipeline) {
  const at = pipeline.position;
  const { missing } = pipeline.dag;
  const error = (at && !at.unavailable && at.error) || (pipeline.last_error && pipeline.last_error.text);
  return el("article", { class: "card", "data-pipeline": pipeline.name },
    el("div", { class: "row between" },
      el("h2", {}, el("a", { href: `#/pipelines/${encodeURIComponent(pipeline.name)}` }, pipeline.name)), badge(pipeline)),
    el("p", { class: "soft" }, `${pipeline.source} → ${pipeline.kafka}, `, el("code", {}, pipeline.tables.include.join(", "))),
    at && at.last_known ? el("p", { class: "soft" }, `Last known, read ${ago(new Date(pipeline.stale.read_at_ms).toISOString())}:`) : null,
    facts(pipeline),
    missing && missing.overdue ? notLoaded(missing) : null,
    error ? problem("Last error", error) : null);
}
