// What the conversations that the service knows are about: clusters of them, and some to read of each.
import { button, counted, element, said } from "./elements.js";
import { attempt, busy, failed } from "./notices.js";
import { ask } from "./service.js";

// Examples that are offered of a cluster.
const FEW = 3;

function cluster({ name, words, size, examples }, read) {
  const open = (dialogue) =>
    attempt(async () => {
      read((await ask(`conversations/dialogue?id=${encodeURIComponent(dialogue)}`)).turns);
    });
  return element(
    "details",
    { class: "similar" },
    element("summary", {}, said(name), element("small", {}, counted(size, "conversation"))),
    element("p", { class: "help" }, said(words.join(", "))),
    element(
      "div",
      { class: "row" },
      examples.slice(0, FEW).map((dialogue) => button(["Read ", said(dialogue)], () => open(dialogue), { class: "small" })),
    ),
  );
}

// Clusters in a place, asked for when they are unfolded: the first time takes as long as finding them. `read(turns)` shows one.
export function clusters(place, read) {
  const list = element("div", {});
  const all = element("details", { class: "known" }, element("summary", {}, "What the conversations are about"), list);
  const load = async () => {
    list.replaceChildren(busy("Finding clusters…"));
    try {
      const { clusters: found } = await ask("conversations/clusters");
      const none = element("p", {}, "No clusters: the conversations are too few, or too different.");
      list.replaceChildren(...(found.length ? found.map((each) => cluster(each, read)) : [none]));
    } catch (error) {
      list.replaceChildren(failed(error, load));
    }
  };
  all.addEventListener("toggle", () => {
    if (all.open && !list.hasChildNodes()) load();
  });
  place.replaceChildren(all);
}
