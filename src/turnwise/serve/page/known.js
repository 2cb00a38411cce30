// The intents that the service knows, with their examples.
import { button, counted, element, keepingFocus, said } from "./elements.js";
import { attempt, failed } from "./notices.js";
import { ask } from "./service.js";

// Beyond this many there is a field to find one by its name.
const MANY = 12;

async function examples(intent, remove) {
  const { examples: texts } = await ask(`intents/${encodeURIComponent(intent)}/examples`);
  return texts.map((text) =>
    element(
      "li",
      {},
      element("span", { class: "text" }, said(text)),
      button("Remove", () => remove({ text, intent }), { class: "small quiet", "aria-label": `Remove the example: ${text}` }),
    ),
  );
}

function entry({ intent, examples: count }, remove, open) {
  const list = element("ul", { class: "examples" });
  const made = element(
    "details",
    { class: "intent", open: open.has(intent), data: { intent } },
    element("summary", { data: { key: `known-${intent}` } }, said(intent), element("small", {}, counted(count, "example"))),
    list,
  );
  const load = () =>
    attempt(async () => {
      list.replaceChildren(...(await examples(intent, remove)));
    });
  made.addEventListener("toggle", () => {
    if (made.open) open.add(intent);
    else open.delete(intent);
    if (made.open && !list.hasChildNodes()) load();
  });
  return made;
}

function finder(entries) {
  const input = element("input", { id: "known-find", type: "search", autocomplete: "off", data: { key: "known-find" } });
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    for (const made of entries) made.hidden = !made.dataset.intent.toLowerCase().includes(wanted);
  });
  return element("div", { class: "inline" }, element("label", { for: "known-find" }, "Find an intent"), input);
}

// The list in a place; `fill()` reads it anew, and what was unfolded stays so. `remove(example)` takes one away.
export function known(place, remove) {
  const open = new Set();
  let unfolded = false;
  const list = {
    filled: false,
    names: [],
    async fill() {
      try {
        const { intents, false_rejection: rate } = await ask("intents");
        list.filled = true;
        list.names = intents.map(({ intent }) => intent);
        const entries = intents.map((each) => entry(each, remove, open));
        const total = intents.reduce((sum, each) => sum + each.examples, 0);
        const rejects = typeof rate === "number" ? `Set to turn away ${+(100 * rate).toFixed(1)}% of what is in scope.` : "Set to never abstain.";
        const all = element(
          "details",
          { class: "known", open: unfolded },
          element("summary", { data: { key: "known" } }, `What it knows: ${counted(intents.length, "intent")}, ${counted(total, "example")}`),
          element("p", { class: "help" }, rejects),
          intents.length > MANY ? finder(entries) : null,
          entries,
        );
        all.addEventListener("toggle", () => {
          unfolded = all.open;
        });
        const names = element("datalist", { id: "intent-names" }, list.names.map((name) => element("option", { value: name })));
        keepingFocus(place, () => place.replaceChildren(all, names));
      } catch (error) {
        place.replaceChildren(failed(error, () => list.fill()));
      }
    },
  };
  return list;
}
