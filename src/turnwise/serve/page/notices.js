// What the page says when there is nothing to show: not configured, failed, busy, done.
import { button, element, find } from "./elements.js";

const HEADINGS = {
  0: "No answer",
  401: "A key is needed",
  403: "Not allowed",
  413: "Too much at once",
  503: "The service is busy",
  504: "It took too long",
};

// A part of the service that was not asked for when it was started. `steps`: pairs of what to do and the command that does it.
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

// A request that failed, with a button that tries again. What the service does not have is no failure, and would not come by trying.
export function failed(error, again) {
  if (error.code === "not_configured") return element("div", { class: "notice" }, element("h2", {}, "Not configured"), element("p", {}, error.message));
  const wait = error.wait ? ` It asks to wait ${error.wait} s.` : "";
  return element(
    "div",
    { class: "notice bad", role: "alert" },
    element("h2", {}, HEADINGS[error.status] ?? "That did not work"),
    element("p", {}, `${error.message ?? error}${wait}`),
    again ? button("Try again", again) : null,
  );
}

// While an answer is awaited.
export const busy = (text) => element("p", { class: "busy" }, text);

// Fills a place with what `work` resolves to: a node, or a list of them. What was there stays, dimmed, until then. An answer that
// nobody waits for any more is dropped.
export async function filled(place, signal, work, again) {
  if (!place.hasChildNodes()) place.replaceChildren(busy("Asking…"));
  place.setAttribute("aria-busy", "true");
  try {
    const made = await work();
    if (signal.aborted) return;
    place.replaceChildren(...[made].flat());
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    place.replaceChildren(failed(error, again));
  }
  place.removeAttribute("aria-busy");
}

// How long a message stays: one that says what went wrong, or that offers something, longer.
const SHORT = 5000;
const LONG = 15000;

// A short message at the foot of the page, with at most one thing to do about it; the next one takes its place. `role=status` reads it
// out. It does not go while the pointer or the focus is on it. Whatever it offers can also be done elsewhere on the page.
export function toast(text, action = null, { bad = false } = {}) {
  const made = element("div", { class: bad ? "toast bad" : "toast" }, element("span", {}, text));
  const close = () => made.remove();
  if (action) {
    const [name, run] = action;
    made.append(
      button(name, () => {
        close();
        run();
      }),
    );
  }
  made.append(button("×", close, { class: "quiet", "aria-label": "Close this message" }));
  find("toasts").replaceChildren(made);
  const leave = () => {
    if (made.matches(":hover, :focus-within")) setTimeout(leave, SHORT);
    else close();
  };
  setTimeout(leave, action || bad ? LONG : SHORT);
}

// Runs what a button asks for; a failure becomes a message, and nothing else happens.
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, null, { bad: true });
    return undefined;
  }
}
