// Notices instead of content: not configured, errors, busy; and toasts.
import { button, byId, element } from "./elements.js";

const HEADINGS = {
  0: "No response",
  401: "Key required",
  403: "Not allowed",
  413: "Request too large",
  503: "The service is busy",
  504: "Timeout",
};

// For a feature that the service was started without. `steps`: pairs of a description and a command.
export function notConfigured(heading, explanation, steps, level = "h2") {
  return element(
    "div",
    { class: "notice" },
    element(level, {}, heading),
    element("p", {}, explanation),
    element(
      "ol",
      { class: "steps" },
      steps.map(([what, command]) => element("li", {}, what, element("pre", {}, element("code", {}, command)))),
    ),
  );
}

// For a failed request, with a retry button unless the feature is not configured.
export function errorNotice(error, retry) {
  if (error.code === "not_configured") return element("div", { class: "notice" }, element("h2", {}, "Not configured"), element("p", {}, error.message));
  const wait = error.wait ? ` Try again in ${error.wait} s.` : "";
  return element(
    "div",
    { class: "notice bad", role: "alert" },
    element("h2", {}, HEADINGS[error.status] ?? "Error"),
    element("p", {}, `${error.message ?? error}${wait}`),
    retry ? button("Try again", retry) : null,
  );
}

export const busyNotice = (text) => element("p", { class: "busy" }, text);

// Fills an element with the nodes that `work` resolves to. The old content stays, dimmed, until then. Aborted runs are ignored.
export async function fillAsync(place, signal, work, retry) {
  if (!place.hasChildNodes()) place.replaceChildren(busyNotice("Loading…"));
  place.setAttribute("aria-busy", "true");
  try {
    const nodes = await work();
    if (signal.aborted) return;
    place.replaceChildren(...[nodes].flat());
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    place.replaceChildren(errorNotice(error, retry));
  }
  place.removeAttribute("aria-busy");
}

// Milliseconds that a toast stays: longer with an error or an action.
const SHORT = 5000;
const LONG = 15000;

// A short message at the bottom of the page with at most one action; the next toast replaces it. It stays while it is hovered or
// focused. Its action is also available elsewhere on the page.
export function toast(text, action = null, { bad = false } = {}) {
  const node = element("div", { class: bad ? "toast bad" : "toast" }, element("span", {}, text));
  const close = () => node.remove();
  if (action) {
    const [name, run] = action;
    node.append(
      button(name, () => {
        close();
        run();
      }),
    );
  }
  node.append(button("×", close, { class: "quiet", "aria-label": "Close" }));
  byId("toasts").replaceChildren(node);
  const leave = () => {
    if (node.matches(":hover, :focus-within")) setTimeout(leave, SHORT);
    else close();
  };
  setTimeout(leave, action || bad ? LONG : SHORT);
}

// Runs an action; an error becomes a toast.
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, null, { bad: true });
    return undefined;
  }
}
