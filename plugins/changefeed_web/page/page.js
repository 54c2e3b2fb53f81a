// Which view is shown: #/ all pipelines, #/pipelines/NAME one, #/pipelines/NAME/yaml its settings, #/new a new one.

import { detail, notThere, yaml } from "./detail.js";
import { el, problem } from "./dom.js";
import { list } from "./list.js";

const main = document.getElementById("main");
let shown = 0;

function theme() {
  let dark = matchMedia("(prefers-color-scheme: dark)").matches;
  try {
    if (parent !== window) {
      const outer = parent.document.documentElement;
      if (outer.classList.contains("dark") || outer.dataset.theme === "dark") dark = true;
      else if (outer.classList.contains("light") || outer.dataset.theme === "light") dark = false;
    }
  } catch {
    // a frame of another site: the system's choice stands
  }
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

async function show() {
  const mine = ++shown;
  const alive = () => mine === shown;
  const [kind, name, part] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  document.querySelectorAll("dialog").forEach((one) => one.close());
  document.title = name ? `${name} · Changefeed` : "Changefeed";
  try {
    if (kind === "pipelines" && name) await (part === "yaml" ? yaml(main, alive, name) : detail(main, alive, name));
    else if (kind === "new") await yaml(main, alive, null);
    else await list(main, alive);
  } catch (error) {
    if (!alive()) return;
    if (error.status === 404) main.replaceChildren(notThere(name));
    else main.replaceChildren(problem("This cannot be shown now", error.message, el("p", {}, el("button", { onclick: show }, "Try again"))));
  }
}

theme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
try {
  // In Airflow's frame its theme is followed. Outside, this would watch the attribute that theme() sets, for ever.
  if (parent !== window) new MutationObserver(theme).observe(parent.document.documentElement, { attributes: true });
} catch {
  // as above
}
addEventListener("hashchange", () => { show(); main.focus(); scrollTo(0, 0); });
show();
