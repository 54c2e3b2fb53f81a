// Shows the view of the address: #/ all pipelines, #/pipelines/NAME one, with the tab TAB by #/pipelines/NAME/TAB,
// #/new a new one.

import { detail, notThere } from "./detail.js";
import { el, problem, shown as shownText } from "./dom.js";
import { editor } from "./editor.js";
import { list } from "./list.js";
import { records } from "./records.js";
import { followTheme } from "./theme.js";

const main = document.getElementById("main");
let shown = 0;

// A decoded part of the address. A malformed one, as in %E0%A4%A, is returned as it is: no pipeline has such a name.
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  const mine = ++shown;
  const alive = () => mine === shown;
  const [kind, name, part] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  document.querySelectorAll("dialog").forEach((one) => one.close());
  document.title = name ? `${shownText(name)} · Changefeed` : "Changefeed";
  try {
    if (kind === "pipelines" && name && part === "records") await records(main, alive, name);
    else if (kind === "pipelines" && name) await (part === "settings" ? editor(main, alive, name) : detail(main, alive, name, part || "overview"));
    else if (kind === "new") await editor(main, alive, null);
    else await list(main, alive);
  } catch (error) {
    if (!alive()) return;
    if (error.status === 404) main.replaceChildren(notThere(name));
    else main.replaceChildren(problem("This view cannot be shown", error.message, el("p", {}, el("button", { onclick: show }, "Try again"))));
  }
}

followTheme();
addEventListener("hashchange", () => { show(); main.focus(); scrollTo(0, 0); });
show();
