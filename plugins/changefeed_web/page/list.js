// All pipelines: first the state that Airflow has of them, then each one's position as its source answers. Only rows on the
// screen are refreshed, several by one request.

import { get } from "./api.js";
import { ago, bytes, duration, el, empty, every, loading, problem } from "./dom.js";
import { words } from "./overview.js";
import { sparkline } from "./sparkline.js";
import { badge, facts, notLoaded, Outage } from "./state.js";

const EVERY_MS = 10000;
const AIRFLOW_EACH = 6; // refreshes between two reads of all pipelines' states in Airflow
const BATCH = 20; // pipelines of a request
const ROWS_FROM = 5; // pipelines
const WIDE = matchMedia("(min-width: 800px)");
const HEADS = ["Pipeline", "Status", "Newest change published", "Rows, last hour", "Last error"];

export async function list(main, alive) {
  main.replaceChildren(heading(), loading("pipelines"));
  const found = await get("pipelines?live=false");
  if (!alive()) return;
  const places = found.pipelines.map((pipeline) => ({ pipeline, shown: null, readAt: 0 }));
  const view = new View(places);
  const refused = Object.entries(found.refused).map(([file, text]) => problem(`${file} is invalid`, text));
  const none = empty("No pipelines yet", "A pipeline is a YAML file that names a MySQL source, a Kafka cluster and a set of tables.",
    el("p", {}, el("a", { href: "#/new" }, "Create the first pipeline")));
  const several = places.length > 1;
  main.replaceChildren(el("div", { class: "stack" }, heading(several ? view.search : null), several ? view.summary : null, several ? view.states : null,
    view.outage, refused, places.length ? view.body : refused.length ? null : none, view.nothing, el("p", {}, el("a", { href: "docs" }, "REST API"))));
  view.sort();
  await follow(view, alive);
}

// Reads all pipelines once, those on the screen first, and then again those on the screen.
async function follow(view, alive) {
  const { places } = view;
  const relayout = () => (alive() ? view.relayout() : WIDE.removeEventListener("change", relayout));
  WIDE.addEventListener("change", relayout);
  const onScreen = () => places.filter(isOnScreen);
  const look = async (queue) => {
    for (let at = 0; at < queue.length && alive(); at += BATCH) await readPlaces(view, queue.slice(at, at + BATCH), alive);
  };
  await look([...new Set([...onScreen(), ...places])]);
  if (!alive()) return;
  view.sort();
  let looks = 0;
  let waiting = null;
  const scrolled = () => {
    if (!alive()) { removeEventListener("scroll", scrolled); return; }
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (alive()) look(onScreen().filter((place) => Date.now() - place.readAt > EVERY_MS)); }, 300);
  };
  addEventListener("scroll", scrolled, { passive: true });
  await every(EVERY_MS, alive, async () => {
    looks += 1;
    const changed = looks % AIRFLOW_EACH ? [] : await readAirflow(view);
    const unanswered = places.filter(hasNoAnswer).slice(0, BATCH); // they waited for others' servers, perhaps
    await look([...new Set([...onScreen(), ...changed, ...unanswered])]);
    if (alive() && looks % AIRFLOW_EACH === 0) view.sort();
  });
}

// Whether the request for several pipelines ended before the servers of this one answered or refused.
const hasNoAnswer = ({ pipeline: { position, stale } }) => Boolean(position && position.unavailable && !stale);

async function readPlaces(view, places, alive) {
  const names = places.map(({ pipeline }) => `name=${encodeURIComponent(pipeline.name)}`).join("&");
  try {
    const { pipelines } = await get(`pipelines?${names}`);
    if (!alive()) return;
    const byName = new Map(pipelines.map((one) => [one.name, one]));
    for (const place of places) {
      const fresh = byName.get(place.pipeline.name);
      place.readAt = Date.now();
      view.replace(place, fresh || { ...place.pipeline, standing: { text: "deleted", kind: "warn" } });
    }
    view.failed = null;
  } catch (error) {
    view.failed = error;
  }
  if (alive()) view.tally();
}

const stateInAirflow = ({ known, paused, last_run: last }) => `${known} ${paused} ${last && last.state}`;

// The states in Airflow of all pipelines; returns the places whose state was Airflow's, and is not any more.
async function readAirflow(view) {
  const { pipelines } = await get("pipelines?live=false").catch(() => ({ pipelines: [] }));
  const byName = new Map(pipelines.map((one) => [one.name, one]));
  const changed = [];
  for (const place of view.places) {
    const fresh = byName.get(place.pipeline.name);
    if (!fresh) continue;
    const { standing } = place.pipeline;
    const { dag, last_error: error } = fresh;
    if (fresh.standing.text !== "…") view.replace(place, { ...place.pipeline, dag, last_error: error, standing: standing.kind === "bad" && fresh.standing.kind !== "bad" ? standing : fresh.standing });
    else if (stateInAirflow(place.pipeline.dag) !== stateInAirflow(dag)) changed.push(place);
  }
  return changed;
}

const ORDER = ["bad", "warn", "", "good"];
const worstFirst = (a, b) => ORDER.indexOf(a.pipeline.standing.kind) - ORDER.indexOf(b.pipeline.standing.kind) || a.pipeline.name.localeCompare(b.pipeline.name);

// The state of a pipeline as the filter has it: without numbers.
const stateOf = ({ standing }) => (/parked$/.test(standing.text) ? "parked" : standing.text);

// The pipelines as a table or as cards, the filters, and what is said about all of them.
class View {
  constructor(places) {
    this.places = places;
    this.state = null; // the chosen state; null for all
    this.failed = null; // the error of the last request
    this.search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search pipelines", oninput: () => this.filter() });
    this.states = el("div", { class: "row states", role: "group", "aria-label": "Show pipelines in a state" });
    this.summary = el("p", { class: "unseen", role: "status" }); // the buttons show the same
    this.outage = el("div", {});
    this.nothing = empty("Nothing found", "No pipeline has these words in its name, source, owner, tags or tables, and this state.");
    this.body = el("div", {});
    this.relayout();
    this.tally();
  }

  get isTable() {
    return WIDE.matches && this.places.length >= ROWS_FROM;
  }

  relayout() {
    for (const place of this.places) place.shown = this.isTable ? row(place) : card(place.pipeline);
    const items = this.places.map(({ shown }) => shown);
    this.items = el(this.isTable ? "tbody" : "div", { class: this.isTable ? null : "cards" }, items);
    this.body.replaceChildren(this.isTable ? tableOf(this.items) : this.items);
    this.filter();
  }

  replace(place, pipeline) {
    place.pipeline = pipeline;
    if (place.shown.contains(document.activeElement)) return; // the focus would be lost
    const fresh = this.isTable ? row(place) : card(pipeline);
    fresh.hidden = place.shown.hidden;
    place.shown.replaceWith(fresh);
    place.shown = fresh;
  }

  sort() {
    const before = [...this.places];
    this.places.sort(worstFirst);
    if (before.every((place, index) => place === this.places[index]) && this.items.firstElementChild === this.places[0]?.shown) return;
    if (!this.items.contains(document.activeElement)) this.items.append(...this.places.map(({ shown }) => shown));
  }

  filter() {
    const wanted = this.search.value.toLowerCase().split(/\s+/);
    for (const { pipeline, shown } of this.places) {
      const { name, owner, tags, tables, source } = pipeline;
      const text = [name, owner, source, ...tags, ...tables.include].join(" ").toLowerCase();
      shown.hidden = !(wanted.every((word) => text.includes(word)) && (this.state === null || stateOf(pipeline) === this.state));
    }
    this.nothing.hidden = !this.places.length || this.places.some(({ shown }) => !shown.hidden);
  }

  tally() {
    const servers = new Outage();
    for (const { pipeline } of this.places) servers.add(pipeline.stale, pipeline.name);
    if (this.failed) servers.addRefusal(this.failed, Math.min(...this.places.map(({ readAt }) => readAt || Infinity)));
    servers.draw(this.outage);
    const counts = new Map();
    for (const { pipeline } of [...this.places].sort(worstFirst)) counts.set(stateOf(pipeline), (counts.get(stateOf(pipeline)) || 0) + 1);
    if (!counts.has(this.state)) this.state = null;
    const text = [...counts].map(([state, count]) => `${count} ${state}`).join(", ");
    if (this.summary.textContent === text) return; // else it would be announced again
    this.summary.textContent = text;
    this.drawStates(counts);
    this.filter();
  }

  drawStates(counts) {
    const focused = this.states.contains(document.activeElement) ? document.activeElement.dataset.state : null;
    const choose = (state) => { this.state = state; this.drawStates(counts); this.filter(); };
    const button = (label, state, count) => el("button", { "data-state": label, "aria-pressed": String(this.state === state), onclick: () => choose(state) }, `${label} ${count}`);
    this.states.replaceChildren(button("all", null, this.places.length), ...[...counts].map(([state, count]) => button(state, state, count)));
    if (focused) [...this.states.children].find((one) => one.dataset.state === focused)?.focus();
  }
}

function isOnScreen({ shown }) {
  const { top, bottom } = shown.getBoundingClientRect();
  return !shown.hidden && bottom > 0 && top < innerHeight;
}

function heading(more) {
  return el("header", { class: "row" }, el("h1", {}, "Pipelines"), el("div", { class: "row tools" }, more, el("a", { class: "button", href: "#/new" }, "New pipeline")));
}

const tableOf = (body) => el("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": "Table: Pipelines" },
  el("table", { class: "pipelines" }, el("thead", {}, el("tr", {}, HEADS.map((head) => el("th", { scope: "col" }, head)))), body));

const errorOf = ({ position: at, last_error: last }) => (at && !at.unavailable && at.error) || (last && last.text) || "";
const firstSentence = (text) => text.split("\n")[0].replace(/^\w+Error: /, "").match(/^.*?[.!?](?=\s|$)|^.*/)[0];
const linkTo = ({ name }) => el("a", { href: `#/pipelines/${encodeURIComponent(name)}` }, name);

// When the newest change was published, and what waits.
function published({ position, last_hour: hour }) {
  const at = (position && position.last_known) || position || {};
  const newest = hour && hour.newest_ms ? `${ago(new Date(hour.newest_ms).toISOString())}` : hour ? "nothing yet" : "–";
  const waits = at.lag_bytes && at.own_changes !== false ? `${bytes(at.lag_bytes)} behind${at.lag_seconds ? `, ${duration(at.lag_seconds)}` : ""}` : null;
  return [newest, waits ? el("small", {}, waits) : null];
}

function row({ pipeline }) {
  const error = firstSentence(errorOf(pipeline));
  return el("tr", { "data-pipeline": pipeline.name },
    el("th", { scope: "row" }, linkTo(pipeline), el("small", {}, `${pipeline.source} → ${pipeline.kafka}`)),
    el("td", {}, badge(pipeline), pipeline.headline ? el("small", {}, words(pipeline.headline)) : null),
    el("td", {}, published(pipeline)), el("td", {}, sparkline(pipeline.last_hour)), el("td", { class: "error" }, error));
}

function card(pipeline) {
  const at = pipeline.position;
  const { missing } = pipeline.dag;
  const error = errorOf(pipeline);
  const newest = pipeline.last_hour && pipeline.last_hour.newest_ms;
  return el("article", { class: "card", "data-pipeline": pipeline.name },
    el("div", { class: "row between" }, el("h2", {}, linkTo(pipeline)), badge(pipeline)),
    el("p", { class: "soft" }, `${pipeline.source} → ${pipeline.kafka}, `, el("code", {}, pipeline.tables.include.join(", "))),
    pipeline.headline ? el("p", {}, words(pipeline.headline)) : null,
    newest ? el("p", { class: "soft" }, `Newest change published ${ago(new Date(newest).toISOString())}. Rows in the last hour: `, sparkline(pipeline.last_hour)) : null,
    at && at.last_known ? el("p", { class: "soft" }, `Last known, read ${ago(new Date(pipeline.stale.read_at_ms).toISOString())}:`) : null,
    facts(pipeline),
    missing && missing.overdue ? notLoaded(missing) : null,
    error ? el("div", { class: "problem" }, el("strong", {}, "Last error"), el("pre", {}, firstSentence(error))) : null); // no alert: cards are drawn again
}
