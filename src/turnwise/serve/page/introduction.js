// The introduction: explains the views with the data of the service. Shown at the first visit, later with the Help button.
import { button, byId, element, excerpt, pluralise, textSpan } from "./elements.js";
import { attempt } from "./notices.js";
import { key, request } from "./service.js";

const SEEN = "turnwise-introduced";

function wasShown() {
  try {
    return localStorage.getItem(SEEN) !== null;
  } catch {
    return true; // the browser forbids storage: it would be shown at every visit
  }
}

function remember() {
  try {
    localStorage.setItem(SEEN, "yes");
  } catch {
    // as above
  }
}

const quote = (text) => ["“", textSpan(text), "”"];
// A part that is not loaded, with the commands that add it.
const missing = (what, ...commands) => element("div", {}, element("p", { class: "help" }, `Not loaded: ${what}. To add it:`), element("pre", {}, element("code", {}, commands.join("\n"))));

function card(heading, explanation, ...content) {
  return element("section", { class: "card" }, element("h3", {}, heading), element("p", {}, explanation), ...content);
}

function utteranceCard(about, data, go) {
  const intents = data?.intents;
  return card(
    "Utterance",
    "Type what somebody says: the page shows its intent, or that none fits, with the nearest examples and suggested answers.",
    about.intents ? null : missing("intents", "turnwise intents fit examples.csv --out intents", "turnwise serve --intents intents"),
    intents
      ? element("p", { class: "own" }, `Your classifier has ${pluralise(intents.intents, "intent")} with ${pluralise(intents.examples, "example")}; the largest is `, quote(intents.largest), ` with ${intents.largest_examples.toLocaleString("en")}.`)
      : null,
    intents ? button(["Try ", quote(excerpt(intents.example, 60))], () => go("utterance", (view) => view.try(intents.example))) : button("Open", () => go("utterance")),
  );
}

function conversationCard(about, data, go) {
  const facts = [
    about.conversations && data ? pluralise(data.conversations, "conversation") : null,
    about.responses && data ? pluralise(data.answers, "answer") : null,
  ].filter(Boolean);
  return card(
    "Conversation",
    "Paste a conversation: the page shows the intent of each user turn, turns that are out of place, suggested answers and similar conversations.",
    facts.length ? element("p", { class: "own" }, `Your service searches ${facts.join(" and ")}.`) : null,
    about.conversations ? null : missing("conversations", "turnwise conversations index STORE --out conversations", "turnwise serve --conversations conversations"),
    about.responses ? null : missing("answers", "turnwise responses index STORE --out answers", "turnwise serve --responses answers"),
    about.reranker ? null : missing("the check for out-of-place turns", "turnwise serve --reranker turnwise-reranker"),
    button("Open", () => go("conversation")),
  );
}

function mapCard(about, data, go) {
  const map = data?.map;
  const largest = map?.largest;
  return card(
    "Map",
    "What people say, in groups of similar utterances. Name, merge and split groups, then fit a classifier on the names.",
    about.map ? null : missing("the map", "turnwise map STORE --speaker user --out map", "turnwise serve --map map"),
    map
      ? element(
          "p",
          { class: "own" },
          `Your map has ${pluralise(map.utterances, "utterance")} in ${pluralise(map.groups, "group")}, ${map.named.toLocaleString("en")} of them named`,
          largest ? ["; the largest is ", quote(largest.title), ` with ${pluralise(largest.utterances, "utterance")}.`] : ".",
        )
      : null,
    largest ? button(["Open ", quote(excerpt(largest.title, 40))], () => go("map", (view) => view.openGroup(largest.group))) : button("Open", () => go("map")),
  );
}

function reportCard(about, go) {
  return card(
    "Report",
    "The metrics of a model on tasks and data sets, with confidence intervals, beside published results.",
    about.report ? null : missing("the report", "turnwise evaluate MODEL --task intents --data DIR --out results", "turnwise serve --report results"),
    button("Open", () => go("report")),
  );
}

// `show(name, then)` shows a view and calls `then(view)`.
export function setUpIntroduction(about, show) {
  const dialog = byId("introduction");
  const go = (name, then) => {
    dialog.close();
    show(name, then);
  };
  const open = async () => {
    const known = !about.needs_key || key.get() !== null; // a first visit should not begin with a prompt for the key
    const data = known ? await attempt(() => request("overview")) : null;
    byId("introduction-views").replaceChildren(
      utteranceCard(about, data, go),
      conversationCard(about, data, go),
      mapCard(about, data, go),
      reportCard(about, go),
    );
    if (!dialog.open) dialog.showModal();
    byId("introduction-heading").focus();
  };
  byId("introduction-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", remember);
  byId("help-button").hidden = false;
  byId("help-button").addEventListener("click", open);
  if (!wasShown()) open();
}
