// Follows the theme of the Airflow page around this one, or else of the system: light or dark.

function apply() {
  let dark = matchMedia("(prefers-color-scheme: dark)").matches;
  try {
    if (parent !== window) {
      const outer = parent.document.documentElement;
      if (outer.classList.contains("dark") || outer.dataset.theme === "dark") dark = true;
      else if (outer.classList.contains("light") || outer.dataset.theme === "light") dark = false;
    }
  } catch {
    // a frame of another site: use the system's theme
  }
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

export function followTheme() {
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  try {
    // Only in Airflow's frame: otherwise this would observe the attribute that apply() sets, in an endless loop.
    if (parent !== window) new MutationObserver(apply).observe(parent.document.documentElement, { attributes: true });
  } catch {
    // as above
  }
}
