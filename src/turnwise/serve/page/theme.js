// Runs before anything is drawn, so that a chosen scheme does not flash in: this is a plain script, not a module.
(() => {
  const name = "turnwise-theme";
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  const kept = () => {
    try {
      return localStorage.getItem(name) ?? "system";
    } catch {
      return "system"; // a browser may forbid storage: the choice then lasts as long as the page
    }
  };
  const keep = (theme) => {
    try {
      localStorage.setItem(name, theme);
    } catch {
      // as above
    }
  };
  apply(kept());
  addEventListener("DOMContentLoaded", () => {
    for (const radio of document.querySelectorAll("input[name=theme]")) {
      radio.checked = radio.value === kept();
      radio.addEventListener("change", () => {
        apply(radio.value);
        keep(radio.value);
        dispatchEvent(new Event("themechange"));
      });
    }
  });
})();
