// All pipelines: first the state that Airflow has of them, then each one's position as its source answers. Rows on the screen are
// refreshed, several by one request, and others when they come there, when Airflow has another state of them, or while a run is
// under way.

import { get } from "./api.js";
import { ago, bytes, clock, duration, el, empty, every, loading, problem } from "./dom.js";
import { freshnessText, words } from "./overview.js";
import { sparkline } from "./sparkline.js";
import { badge, facts, notLoaded, Outage } from "./state.js";

const EVERY_MS = 10000;
const AIRFLOW_EACH = 6; // refreshes between two reads of all pipelines' states in Airflow
const BATCH = 20; // pipelines of a request
const RUNNING = 40; // pipelines off the screen with a run under way that are read again after each read of Airflow's states
const ROWS_FROM = 5; // pipelines
const WIDE = matchMedia("(min-width: 800px)");
const HEADS = ["Pipeline", "Status", "Newest change published", "Rows, last hour", "Last error"];

export async function list(main, alive) {
  main.replaceChildren(heading(), loading("pipelines"));
  const found = await get("pipelines?live=false");
  if (!alive()) return;
  const view = new View(found);
  main.replaceChildren(el("div", { class: "stack" }, heading(view.search), view.summary, view.states, view.outage, view.refused,
    view.body, view.none, view.nothing, el("p", {}, el("a", { href: "docs" }, "REST API"))));
  await follow(view, alive);
}

// Reads all pipelines once, those on the screen first, and then again those on the screen.
async function follow(view, alive) {
  const relayout = () => (alive() ? view.relayout() : WIDE.removeEventListener("change", relayout));
  WIDE.addEventListener("change", relayout);
  const onScreen = () => view.places.filter(isOnScreen);
  const look = async (queue) => {
    for (let at = 0; at < queue.length && alive(); at += BATCH) await readPlaces(view, queue.slice(at, at + BATCH), alive);
  };
  await look([...new Set([...onScreen(), ...view.places])]);
  if (!alive()) return;
  view.sort();
  let looks = 0;
  let waiting = null;
  const moved = () => {
    if (!alive()) { removeEventListener("scroll", moved); return; }
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (alive()) look(onScreen().filter((place) => Date.now() - place.readAt > EVERY_MS)); }, 300);
  };
  addEventListener("scroll", moved, { passive: true });
  view.filtered = moved;
  await every(EVERY_MS, alive, async () => {
    looks += 1;
    const changed = looks % AIRFLOW_EACH ? [] : await readAirflow(view);
    const unanswered = view.places.filter(hasNoAnswer).slice(0, BATCH); // they waited for others' servers, perhaps
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
      place.readAt = Date.now();
      if (byName.has(place.pipeline.name)) view.replace(place, byName.get(place.pipeline.name));
    }
    const deleted = new Set(places.filter(({ pipeline }) => !byName.has(pipeline.name)));
    view.setPlaces(view.places.filter((place) => !deleted.has(place)));
    view.failed = null;
  } catch (error) {
    view.failed = error;
  }
  if (alive()) view.tally();
}

const stateInAirflow = ({ known, paused, last_run: last }) => `${known} ${paused} ${last && last.state}`;

// The states in Airflow of all pipelines, also of new ones; returns the places whose servers have to be read: the new ones, those
// whose state was Airflow's and is not any more, and of those with a run under way the ones that were read longest ago.
async function readAirflow(view) {
  let found;
  try {
    found = await get("pipelines?live=false");
  } catch {
    return []; // the next request for rows on the screen says why
  }
  view.update(found);
  const byName = new Map(found.pipelines.map((one) => [one.name, one]));
  const changed = [];
  const running = []; // a run of another minute has the same state
  for (const place of view.places) {
    const fresh = byName.get(place.pipeline.name);
    const { standing } = place.pipeline;
    const { dag, last_error: error } = fresh;
    if (fresh.standing.text !== "…") view.replace(place, { ...place.pipeline, dag, last_error: error, standing: standing.kind === "bad" && fresh.standing.kind !== "bad" ? standing : fresh.standing });
    else if (!place.readAt || stateInAirflow(place.pipeline.dag) !== stateInAirflow(dag)) changed.push(place);
    else if (dag.running.length) running.push(place);
  }
  running.sort((one, other) => one.readAt - other.readAt);
  return [...changed, ...running.slice(0, RUNNING)];
}

const ORDER = ["bad", "warn", "", "good"];
const worstFirst = (a, b) => ORDER.indexOf(a.pipeline.standing.kind) - ORDER.indexOf(b.pipeline.standing.kind) || a.pipeline.name.localeCompare(b.pipeline.name);

// The state of a pipeline as the filter has it: without numbers.
const stateOf = ({ standing }) => (/parked$/.test(standing.text) ? "parked" : standing.text);

// The pipelines as a table or as cards, the filters, and what is said about all of them.
class View {
  constructor(found) {
    this.places = [];
    this.state = null; // the chosen state; null for all
    this.failed = null; // the error of the last request
    this.filtered = () => {}; // called when other rows may be on the screen
    this.search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search pipelines", oninput: () => this.filter() });
    this.states = el("div", { class: "row states", role: "group", "aria-label": "Show pipelines in a state" });
    this.summary = el("p", { class: "unseen", role: "status" }); // the buttons show the same
    this.outage = el("div", {});
    this.refused = el("div", { class: "stack" });
    this.drawnRefused = "";
    this.none = empty("No pipelines yet", "A pipeline is a YAML file that names a MySQL source, a Kafka cluster and a set of tables.",
      el("p", {}, el("a", { href: "#/new" }, "Create the first pipeline")));
    this.nothing = empty("Nothing found", "No pipeline has these words in its name, source, owner, tags or tables, and this state.");
    this.body = el("div", {});
    this.relayout();
    this.update(found);
  }

  get isTable() {
    return WIDE.matches && this.places.length >= ROWS_FROM;
  }

  // Shows the pipelines that are found: new ones are added, deleted ones removed.
  update({ pipelines, refused }) {
    const names = new Set(pipelines.map(({ name }) => name));
    const kept = this.places.filter(({ pipeline }) => names.has(pipeline.name));
    const known = new Set(kept.map(({ pipeline }) => pipeline.name));
    const added = pipelines.filter(({ name }) => !known.has(name)).map((pipeline) => ({ pipeline, shown: null, readAt: 0 }));
    this.setPlaces([...kept, ...added].sort(worstFirst));
    const text = JSON.stringify(refused);
    if (text !== this.drawnRefused) this.refused.replaceChildren(...Object.entries(refused).map(([file, error]) => problem(`${file} is invalid`, error)));
    this.drawnRefused = text; // else they would be announced again
    this.refused.hidden = !Object.keys(refused).length;
    this.hideEmpty();
    this.tally();
  }

  setPlaces(places) {
    const before = new Set(this.places);
    if (places.length === before.size && places.every((place) => before.has(place))) return;
    this.places = places;
    this.relayout();
  }

  relayout() {
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest("[data-pipeline]") : null;
    const index = focused ? [...focused.parentElement.children].indexOf(focused) : -1;
    for (const place of this.places) place.shown = this.isTable ? row(place) : card(place.pipeline);
    const items = this.places.map(({ shown }) => shown);
    this.items = el(this.isTable ? "tbody" : "div", { class: this.isTable ? null : "cards" }, items);
    this.body.replaceChildren(this.isTable ? tableOf(this.items) : this.items);
    this.hideEmpty();
    this.filter();
    if (focused) (items.find((item) => item.dataset.pipeline === focused.dataset.pipeline) || items[Math.min(index, items.length - 1)])?.querySelector("a").focus();
  }

  // Hides what helps only with several pipelines, and what is said only without one.
  hideEmpty() {
    for (const part of [this.search, this.states, this.summary]) part.hidden = this.places.length < 2;
    this.none.hidden = this.places.length > 0 || !this.refused.hidden;
  }

  replace(place, pipeline) {
    place.pipeline = pipeline;
    const fresh = this.isTable ? row(place) : card(pipeline);
    fresh.hidden = place.shown.hidden;
    place.shown = renew(place.shown, fresh);
  }

  // Sorts the places. The row with the focus is not moved, but the others around it, else it would lose the focus.
  sort() {
    this.places.sort(worstFirst);
    const items = this.places.map(({ shown }) => shown);
    if (items.every((item, index) => item === this.items.children[index])) return;
    const at = items.findIndex(hasFocus);
    if (at < 0) {
      this.items.append(...items);
      return;
    }
    items[at].before(...items.slice(0, at));
    items[at].after(...items.slice(at + 1));
  }

  filter() {
    const wanted = this.search.value.toLowerCase().split(/\s+/);
    for (const { pipeline, shown } of this.places) {
      const { name, owner, tags, tables, source } = pipeline;
      const text = [name, owner, source, ...tags, ...tables.include].join(" ").toLowerCase();
      const isWanted = wanted.every((word) => text.includes(word)) && (this.state === null || stateOf(pipeline) === this.state);
      shown.hidden = !isWanted && !hasFocus(shown); // hidden, it would lose the focus
    }
    this.nothing.hidden = !this.places.length || this.places.some(({ shown }) => !shown.hidden);
    this.filtered();
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

const hasFocus = (element) => element.contains(document.activeElement);

// Puts `fresh` in place of `old`, and returns what is shown now: `old` if the focus is in it. Then everything in it is
// replaced but the element with the focus, and the elements around that one.
function renew(old, fresh) {
  if (!hasFocus(old)) {
    old.replaceWith(fresh);
    return fresh;
  }
  const index = [...old.children].findIndex(hasFocus);
  if (index < 0) return old;
  const kept = old.children[index];
  const nodes = [...fresh.childNodes];
  const at = nodes.indexOf(fresh.children[index]);
  for (const node of [...old.childNodes]) if (node !== kept) node.remove();
  renew(kept, nodes[at]);
  kept.before(...nodes.slice(0, at));
  kept.after(...nodes.slice(at + 1));
  return old;
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

// The error of an attempt at a continuous run is over while the next attempt is running, which may be for an hour.
const errorOf = ({ position: at, last_error: last, run_for: isContinuous }) => (at && !at.unavailable && at.error)
  || (last && !(isContinuous && last.running_since) && last.text) || "";
const firstSentence = (text) => text.split("\n")[0].replace(/^\w+Error: /, "").match(/^.*?[.!?](?=\s|$)|^.*/)[0];
const linkTo = ({ name }) => el("a", { href: `#/pipelines/${encodeURIComponent(name)}` }, name);

// When the newest change was published, and what waits.
function published({ position, last_hour: hour, freshness }) {
  const at = (position && position.last_known) || position || {};
  const none = !hour ? "–" : hour.since_ms ? `before ${clock(hour.since_ms)}` : "nothing yet";
  const newest = hour && hour.newest_ms ? `${ago(new Date(hour.newest_ms).toISOString())}` : none;
  const waits = at.lag_bytes && at.own_changes !== false ? `${bytes(at.lag_bytes)} behind${at.lag_seconds ? `, ${duration(at.lag_seconds)}` : ""}` : null;
  return [newest, freshness ? el("small", {}, freshnessText(freshness)) : null, waits ? el("small", {}, waits) : null];
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
    newest ? el("p", { class: "soft" }, `Newest change published ${ago(new Date(newest).toISOString())}.${pipeline.freshness ? ` Readable ${freshnessText(pipeline.freshness)}.` : ""} Rows in the last hour: `, sparkline(pipeline.last_hour)) : null,
    at && at.last_known ? el("p", { class: "soft" }, `Last known, read ${ago(new Date(pipeline.stale.read_at_ms).toISOString())}:`) : null,
    facts(pipeline),
    missing && missing.overdue ? notLoaded(missing) : null,
    error ? el("div", { class: "problem" }, el("strong", {}, "Last error"), el("pre", {}, firstSentence(error))) : null); // no alert: cards are drawn again
}
