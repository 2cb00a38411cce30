// Creates DOM elements. Texts become text nodes: nothing on the page parses markup.

// Properties: `on` (listeners by event), `data` (data attributes), anything else is an attribute; null, undefined and false omit
// an attribute, true sets it empty. Children are nodes, texts, lists of these, or null.
export function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (key === "data") Object.assign(node.dataset, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

// A user's text, which has its own writing direction.
export const textSpan = (text, properties = {}) => element("bdi", { dir: "auto", ...properties }, text);

// The same as a block.
export const paragraph = (text, kind = "text") => element("p", { class: kind, dir: "auto" }, text);

export const button = (text, listener, properties = {}) =>
  element("button", { type: "button", on: { click: listener }, ...properties }, text);

export const byId = (id) => document.getElementById(id);

// "1 text", "2 texts".
export const pluralise = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

export const formatScore = (value) => value.toFixed(2).replace("-", "−");

// Redraws the contents of `inside` and restores the focus: to the element with the same data-key, else to the first of `fallbacks`.
export function keepFocus(inside, draw, fallbacks = []) {
  const before = inside.contains(document.activeElement) ? document.activeElement : null;
  draw();
  if (before === null || inside.contains(before)) return;
  const keys = before.dataset.key === undefined ? fallbacks : [before.dataset.key, ...fallbacks];
  const target = keys.map((key) => inside.querySelector(`[data-key="${CSS.escape(key)}"]`)).find((each) => each !== null && !each.disabled);
  target?.focus({ preventScroll: true });
}

// For screen readers only.
export function announce(text) {
  const place = byId("announcer");
  place.textContent = "";
  // screen readers announce changes only, so the same text must be removed first
  setTimeout(() => place.append(text), 50);
}
