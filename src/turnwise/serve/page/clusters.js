// The view of the clusters of the indexed conversations, with examples.
import { button, byId, element, pluralise, textSpan } from "./elements.js";
import { attempt, busyNotice, errorNotice, notConfigured } from "./notices.js";
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

export class ClustersView {
  #about;
  #open;
  #filled = false;

  // `open(turns)` shows a conversation.
  constructor(about, open) {
    this.#about = about;
    this.#open = open;
  }

  show() {
    if (this.#filled) return;
    this.#filled = true;
    if (this.#about.conversations) this.#load();
    else {
      byId("clusters-body").replaceChildren(
        notConfigured("No conversations", "This service was started without an index of conversations.", [
          ["Index the conversations of a store:", "turnwise conversations index STORE --model MODEL --out conversations"],
          ["Serve it:", "turnwise serve --model MODEL --conversations conversations"],
        ]),
      );
    }
  }

  // The first request takes a while.
  async #load() {
    const body = byId("clusters-body");
    body.replaceChildren(busyNotice("Finding clusters…"));
    try {
      const { clusters } = await request("conversations/clusters");
      const none = element("p", {}, "No clusters: the conversations are too few, or too different.");
      body.replaceChildren(...(clusters.length ? clusters.map((each) => clusterEntry(each, this.#open)) : [none]));
    } catch (error) {
      body.replaceChildren(errorNotice(error, () => this.#load()));
    }
  }
}
