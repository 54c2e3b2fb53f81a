// The menu of what can be done with a pipeline: each with what it does, or why it cannot be done now.

import { airflow, get } from "./api.js";
import { backfillDialog, runDialog, seekDialog, snapshotDialog, verifyDialog } from "./dialogs.js";
import { el } from "./dom.js";

const ACTIONS = [
  ["run", "Run until…", "Publish new changes up to a place in the binlog, or a size or time.", runDialog],
  ["snapshot", "Snapshot…", "Publish the rows that tables have now.", snapshotDialog],
  ["backfill", "Replay…", "Publish a range of the binlog again. Its runs are of the DAG “backfill”; Airflow's own backfill repeats scheduled runs.", backfillDialog],
  ["verify", "Verify…", "Compare the topics with the source or a follower, row by row.", verifyDialog],
  ["seek", "Seek…", "Move the checkpoint, to skip or repeat changes.", seekDialog],
];

// The menu; `current` returns the pipeline as it was last read.
export function actionMenu(path, current, after) {
  const items = el("div", { class: "card menu" });
  const menu = el("details", { class: "dropdown" }, el("summary", { class: "button" }, "More"), items);
  const close = () => { menu.open = false; };
  const draw = (reasons) => {
    const draws = ACTIONS.map(([action, label, text, dialog]) => {
      const reason = reasons[action];
      const note = el("small", { id: `about-${action}` }, reason || text);
      return el("div", {}, el("button", { disabled: Boolean(reason), "aria-describedby": note.id, onclick: () => { close(); dialog(path, current(), after); } }, label), note);
    });
    items.replaceChildren(...draws, el("div", {}, el("a", { class: "button", href: airflow(`/dags/${current().dag.dag_id}`), target: "_top" }, "DAG"), el("small", {}, "The pipeline's DAG in Airflow.")));
  };
  menu.addEventListener("toggle", async () => {
    if (!menu.open) return;
    draw({});
    try {
      const reasons = await get(`${path}/actions`);
      if (menu.open) draw(reasons);
    } catch {
      // the actions answer with their own errors
    }
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    close();
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", (event) => { if (event.relatedTarget && !menu.contains(event.relatedTarget)) close(); });
  return menu;
}
