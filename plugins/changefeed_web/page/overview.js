// The first parts of a pipeline's overview: one sentence on its state, its last events in one line, and latency and lag over time.

import { rowsOf } from "./chart.js";
import { bytes, el, number, table, when } from "./dom.js";
import { OVER_TIME, timeChart } from "./timechart.js";

// The time of day, with the date if it is of another day.
function moment(milliseconds) {
  const at = new Date(milliseconds);
  const time = at.toLocaleTimeString("en-GB");
  const text = at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
  return el("time", { datetime: at.toISOString(), title: at.toISOString() }, text);
}

// The text of `headline` of the API as nodes: its {at} becomes a time.
export function words({ text, at_ms: at }) {
  const [before, after] = text.split("{at}");
  return after === undefined ? [before] : [before, moment(at), after];
}

const DO = { run: "Run now", resume: "Resume" };

// The sentence, with a button for what helps; `act` does it.
export function sentence(headline, act) {
  if (!headline) return null;
  const button = headline.do ? el("button", { onclick: () => act(headline.do, button) }, DO[headline.do]) : null;
  return el("p", { class: `headline ${headline.kind}` }, el("span", {}, words(headline)), button);
}

const tabOf = (name, tab) => `#/pipelines/${encodeURIComponent(name)}/${tab}`;

// The last events, latest first, each a link to its tab.
export function activity(place, name, events) {
  place.replaceChildren(el("h2", {}, "Activity"), events.length
    ? el("ul", { class: "events" }, events.map((one) => el("li", { class: one.kind }, moment(one.at_ms), " ", el("a", { href: tabOf(name, one.tab) }, one.text))))
    : el("p", { class: "empty" }, "Nothing yet."));
}

const figure = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;

// The freshness of the API in a few words.
export const freshnessText = ({ p50_seconds: half, p99_seconds: most }) => `${figure(half)} after commit (99 %: ${figure(most)})`;

// The freshness of the API in a sentence; null for an idle pipeline.
function freshnessSentence(freshness) {
  if (!freshness) return null;
  const { p50_seconds: half, p99_seconds: most, windows, since_ms: since } = freshness;
  return el("p", {}, `Changes were readable within ${figure(half)} of their commit half of the time, and within ${figure(most)} for 99 % of it: ${windows} ${windows === 1 ? "window" : "windows"} with rows since `, moment(since), ".");
}

let chosen = Object.keys(OVER_TIME)[0];

// Windows whose manifests are merged: a line for each hour or day in which some were sealed.
export const olderWindows = (periods) => [
  el("h3", {}, "Older windows, by hour and day"),
  table("Older windows", ["From", "#Hours", "#Windows", "Numbers", "Sealed range", "#Rows", "#Dead letters", "#Binlog"], periods.map((one) => [
    when(one.begins_ms), number(one.hours), number(one.windows), `#${one.first} to #${one.last}`, el("code", {}, `${one.start} → ${one.head}`), number(rowsOf(one)),
    number(Object.values(one.topics).reduce((all, topic) => all + topic.dead_letters, 0)), bytes(one.size_bytes)])),
];

// How soon changes were in Kafka: in a sentence, and latency and lag of the sealed windows on an axis of time.
export function overTime(place, windows, width, freshness) {
  place.hidden = !windows.length;
  if (!windows.length) return;
  const choose = (one) => { chosen = one; overTime(place, windows, width, freshness); place.querySelector('[aria-pressed="true"]').focus(); };
  const buttons = Object.keys(OVER_TIME).map((one) => el("button", { "aria-pressed": String(one === chosen), onclick: () => choose(one) }, one));
  place.replaceChildren(
    el("div", { class: "row between" }, el("h2", {}, "Freshness"), el("div", { class: "tabs", role: "group", "aria-label": "What is shown over time" }, buttons)),
    ...[freshnessSentence(freshness)].filter(Boolean),
    el("p", { class: "soft" }, OVER_TIME[chosen].about),
    el("div", { class: "chart" }, timeChart(windows, chosen, width)));
}
