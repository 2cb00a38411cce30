// Clusters of the indexed conversations, with examples.
import { button, element, pluralise, textSpan } from "./elements.js";
import { attempt, busyNotice, errorNotice } from "./notices.js";
import { request } from "./service.js";

// Examples shown per cluster.
const EXAMPLES = 3;

function clusterEntry({ name, words, size, examples, titles }, open) {
  const load = (dialogue) =>
    attempt(async () => {
      open((await request(`conversations/dialogue?id=${encodeURIComponent(dialogue)}`)).turns);
    });
  return element(
    "details",
    { class: "similar" },
    element("summary", {}, textSpan(name), element("small", {}, pluralise(size, "conversation"))),
    element("p", { class: "help" }, textSpan(words.join(", "))),
    element(
      "ul",
      { class: "members" },
      examples.slice(0, EXAMPLES).map((dialogue, place) =>
        element("li", {}, button([textSpan(titles[place] || dialogue)], () => load(dialogue), { class: "utterance", title: `Open ${dialogue}` })),
      ),
    ),
  );
}

// Loaded when the list is opened, as the first request takes a while. `open(turns)` shows a conversation.
export function conversationClusters(place, open) {
  const list = element("div", {});
  const all = element("details", { class: "disclosure" }, element("summary", {}, "Clusters of conversations"), list);
  const load = async () => {
    list.replaceChildren(busyNotice("Finding clusters…"));
    try {
      const { clusters } = await request("conversations/clusters");
      const none = element("p", {}, "No clusters: the conversations are too few, or too different.");
      list.replaceChildren(...(clusters.length ? clusters.map((each) => clusterEntry(each, open)) : [none]));
    } catch (error) {
      list.replaceChildren(errorNotice(error, load));
    }
  };
  all.addEventListener("toggle", () => {
    if (all.open && !list.hasChildNodes()) load();
  });
  place.replaceChildren(all);
}
