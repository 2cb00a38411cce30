// Applies the colour scheme before the page is drawn, so that it does not flash: a plain script, not a module.
(() => {
  const name = "turnwise-theme";
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  const stored = () => {
    try {
      return localStorage.getItem(name) ?? "system";
    } catch {
      return "system"; // the browser may forbid storage: the choice then lasts as long as the page
    }
  };
  const store = (theme) => {
    try {
      localStorage.setItem(name, theme);
    } catch {
      // as above
    }
  };
  apply(stored());
  addEventListener("DOMContentLoaded", () => {
    for (const radio of document.querySelectorAll("input[name=theme]")) {
      radio.checked = radio.value === stored();
      radio.addEventListener("change", () => {
        apply(radio.value);
        store(radio.value);
        dispatchEvent(new Event("themechange"));
      });
    }
  });
})();
