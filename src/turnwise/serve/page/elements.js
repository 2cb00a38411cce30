// Elements of the page. Texts only ever become text nodes: nothing here, or anywhere on the page, parses markup.

// An element by its name. Properties: `class`, `on` (listeners by event), `data` (data attributes), anything else is an attribute;
// null, undefined and false leave an attribute out, true sets it empty. Children are nodes, texts, lists of these, or null.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (key === "data") Object.assign(made.dataset, value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

// What somebody wrote: it decides its own direction, whatever the page's.
export const said = (text, properties = {}) => element("bdi", { dir: "auto", ...properties }, text);

// The same as a block of its own: a text that is written from the right stands at the right.
export const paragraph = (text, kind = "text") => element("p", { class: kind, dir: "auto" }, text);

export const button = (text, listener, properties = {}) =>
  element("button", { type: "button", on: { click: listener }, ...properties }, text);

export const find = (id) => document.getElementById(id);

// What follows `count`, in the singular or the plural.
export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

export const score = (value) => value.toFixed(2).replace("-", "−");

// Draws anew what is inside, and keeps the focus there: on what has the data-key of what had it, or else the first of `otherwise`
// that there is.
export function keepingFocus(inside, draw, otherwise = []) {
  const before = inside.contains(document.activeElement) ? document.activeElement : null;
  draw();
  if (before === null || inside.contains(before)) return;
  const keys = before.dataset.key === undefined ? otherwise : [before.dataset.key, ...otherwise];
  const found = keys.map((key) => inside.querySelector(`[data-key="${CSS.escape(key)}"]`)).find((each) => each !== null && !each.disabled);
  found?.focus({ preventScroll: true });
}

// Told to screen readers, and shown nowhere.
export function announce(text) {
  const place = find("announcer");
  place.textContent = "";
  // a reader is told of changes only: the same words twice would be none
  setTimeout(() => place.append(text), 50);
}
