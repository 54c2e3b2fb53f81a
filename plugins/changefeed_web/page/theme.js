// Light or dark: as Airflow's page around this one is, or as the system is.

function apply() {
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

export function followTheme() {
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  try {
    // In Airflow's frame its theme is followed. Outside, this would watch the attribute that apply() sets, for ever.
    if (parent !== window) new MutationObserver(apply).observe(parent.document.documentElement, { attributes: true });
  } catch {
    // as above
  }
}
