// Which view is shown: #/ all pipelines, #/pipelines/NAME one, #/pipelines/NAME/yaml its settings, #/new a new one.

import { detail, notThere, yaml } from "./detail.js";
import { el, problem, shown as shownText } from "./dom.js";
import { list } from "./list.js";
import { followTheme } from "./theme.js";

const main = document.getElementById("main");
let shown = 0;

// A part of the address. One that somebody cut or mistyped, as in %E0%A4%A, is what it is: no pipeline has such a name.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  const mine = ++shown;
  const alive = () => mine === shown;
  const [kind, name, part] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  document.querySelectorAll("dialog").forEach((one) => one.close());
  document.title = name ? `${shownText(name)} · Changefeed` : "Changefeed";
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

followTheme();
addEventListener("hashchange", () => { show(); main.focus(); scrollTo(0, 0); });
show();
