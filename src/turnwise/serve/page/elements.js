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

// Characters of a text that are shown at first.
const EXCERPT = 300;

const shorten = (text, length) => `${[...text].slice(0, length - 1).join("").trimEnd()}…`;

// The same as a block; long texts can be expanded.
export const paragraph = (text, kind = "text") => element("p", { class: kind, dir: "auto" }, text.length <= EXCERPT ? text : longText(text));

// A text on one line, for labels and titles.
export function excerpt(text, length = 80) {
  const line = text.trim().replace(/\s+/gu, " ");
  return line.length <= length ? line : shorten(line, length);
}

// A user's text; a long one is cut off with an ellipsis and a button that shows all of it.
export function longText(text) {
  if (text.length <= EXCERPT) return textSpan(text);
  const short = shorten(text, EXCERPT);
  const content = textSpan(short);
  const toggle = button("Show all", () => {
    const expand = toggle.getAttribute("aria-expanded") === "false";
    toggle.setAttribute("aria-expanded", String(expand));
    toggle.textContent = expand ? "Show less" : "Show all";
    content.textContent = expand ? text : short;
  }, { class: "link expand", "aria-expanded": "false" });
  return element("span", { class: "long" }, content, " ", toggle);
}

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
