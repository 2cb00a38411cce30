// The list of intents with their examples.
import { button, element, excerpt, keepFocus, longText, pluralise, textSpan } from "./elements.js";
import { attempt, errorNotice } from "./notices.js";
import { request } from "./service.js";

// With more intents than this there is a search field.
const SEARCHABLE = 12;

async function loadExamples(intent, remove) {
  const { examples: texts } = await request(`intents/${encodeURIComponent(intent)}/examples`);
  return texts.map((text) =>
    element(
      "li",
      {},
      element("span", { class: "text" }, longText(text)),
      button("Remove", () => remove({ text, intent }), { class: "small quiet", "aria-label": `Remove the example: ${excerpt(text)}` }),
    ),
  );
}

function intentEntry({ intent, examples: count }, remove, open) {
  const list = element("ul", { class: "examples" });
  const details = element(
    "details",
    { class: "intent", open: open.has(intent), data: { intent } },
    element("summary", { data: { key: `intent-${intent}` } }, textSpan(intent), element("small", {}, pluralise(count, "example"))),
    list,
  );
  const load = () =>
    attempt(async () => {
      list.replaceChildren(...(await loadExamples(intent, remove)));
    });
  details.addEventListener("toggle", () => {
    if (details.open) open.add(intent);
    else open.delete(intent);
    if (details.open && !list.hasChildNodes()) load();
  });
  return details;
}

function searchField(entries) {
  const input = element("input", { id: "intent-search", type: "search", autocomplete: "off", data: { key: "intent-search" } });
  input.addEventListener("input", () => {
    const query = input.value.trim().toLowerCase();
    for (const entry of entries) entry.hidden = !entry.dataset.intent.toLowerCase().includes(query);
  });
  return element("div", { class: "inline" }, element("label", { for: "intent-search" }, "Find an intent"), input);
}

// `fill()` reloads the list and keeps open entries open. `remove(example)` is called by the Remove buttons.
export function createIntentList(place, remove) {
  const open = new Set();
  let isOpen = false;
  const list = {
    filled: false,
    names: [],
    async fill() {
      try {
        const { intents, false_rejection: rate } = await request("intents");
        list.filled = true;
        list.names = intents.map(({ intent }) => intent);
        const entries = intents.map((each) => intentEntry(each, remove, open));
        const total = intents.reduce((sum, each) => sum + each.examples, 0);
        const abstention = typeof rate === "number" ? `Target false rejection rate: ${+(100 * rate).toFixed(1)}%.` : "The classifier never abstains.";
        const all = element(
          "details",
          { class: "disclosure", open: isOpen },
          element("summary", { data: { key: "intent-list" } }, `${pluralise(intents.length, "intent")}, ${pluralise(total, "example")}`),
          element("p", { class: "help" }, abstention),
          intents.length > SEARCHABLE ? searchField(entries) : null,
          entries,
        );
        all.addEventListener("toggle", () => {
          isOpen = all.open;
        });
        const names = element("datalist", { id: "intent-names" }, list.names.map((name) => element("option", { value: name })));
        keepFocus(place, () => place.replaceChildren(all, names));
      } catch (error) {
        place.replaceChildren(errorNotice(error, () => list.fill()));
      }
    },
  };
  return list;
}
