// A whole conversation: an intent for each of the user's turns, the turn that does not belong, next answers, conversations like it.
import { answers, noAnswers } from "./answers.js";
import { clusters } from "./conversation-clusters.js";
import { bars, nearest } from "./decision.js";
import { announce, counted, element, find, paragraph, said, score } from "./elements.js";
import { failed, filled, notConfigured } from "./notices.js";
import { parse, swapped, written } from "./parsing.js";
import { ask, Latest } from "./service.js";

const SPEAKERS = { user: "User", system: "Agent" };

// From here on a turn is said not to belong; below it, it is only the one that belongs least.
const FOREIGN = 0.5;

function transcript(turns, extras) {
  return element(
    "ol",
    { class: "turns" },
    turns.map((turn, place) =>
      element(
        "li",
        { class: `turn ${turn.speaker === "user" ? "user" : "agent"}${extras?.foreign === place ? " foreign" : ""}` },
        element("p", { class: "speaker" }, SPEAKERS[turn.speaker] ?? said(turn.speaker)),
        paragraph(turn.text),
        extras?.below(place) ?? null,
      ),
    ),
  );
}

function intent(decision) {
  const summary = decision.abstained
    ? element("span", { class: "chip none" }, "no intent")
    : decision.intents.map((name) => element("span", { class: "chip" }, said(name)));
  return element(
    "details",
    { class: "decision" },
    element("summary", {}, element("span", { class: "unseen" }, "Intent: "), summary, element("small", {}, score(decision.score))),
    element("p", { class: "reason" }, said(decision.reason)),
    bars(decision),
    nearest(decision),
  );
}

function misfit(value, first) {
  const text = value >= FOREIGN ? `Does not belong here (${score(value)})` : `Belongs least (${score(value)}), though not clearly foreign`;
  if (first) return element("p", { class: value >= FOREIGN ? "misfit" : "misfit weak" }, text);
  return value >= FOREIGN ? element("p", { class: "misfit weak" }, `May not belong either (${score(value)})`) : null;
}

export class ConversationView {
  #about;
  #runs = new Latest();

  constructor(about) {
    this.#about = about;
    const text = find("conversation-text");
    const form = find("conversation-form");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (text.value.trim()) this.read();
      else text.focus();
    });
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      form.requestSubmit();
    });
    find("conversation-swap").addEventListener("click", () => {
      text.value = written(swapped(parse(text.value)));
      if (text.value) this.read();
    });
    find("conversation-clear").addEventListener("click", () => {
      this.#runs.start();
      text.value = "";
      for (const place of ["turns", "answers", "similar"]) find(`conversation-${place}`).replaceChildren();
      text.focus();
    });
    if (about.conversations) clusters(find("conversation-clusters"), (turns) => this.#open(turns));
  }

  show() {}

  #open(turns) {
    const text = find("conversation-text");
    text.value = written(turns);
    text.focus();
    this.read();
  }

  read() {
    const turns = parse(find("conversation-text").value);
    const signal = this.#runs.start();
    const again = () => this.read();
    filled(find("conversation-turns"), signal, () => this.#turns(turns, signal), again);
    filled(find("conversation-answers"), signal, () => this.#answers(turns, signal), again);
    filled(find("conversation-similar"), signal, () => this.#similar(turns, signal), again);
  }

  async #answers(turns, signal) {
    const heading = "Next answers";
    if (!this.#about.responses) return noAnswers(heading);
    return answers(heading, turns, signal, (text) => {
      find("conversation-text").value = written([...turns, { speaker: "system", text }]);
      this.read();
    });
  }

  // Intents and coherence are two questions: where one fails the answer of the other is still shown.
  async #turns(turns, signal) {
    const users = turns.flatMap((turn, place) => (turn.speaker === "user" ? [place] : []));
    const wanted = [
      this.#about.intents && users.length
        ? ask("intents/predict", { body: { texts: users.map((place) => turns[place].text), neighbours: 3 }, signal })
        : null,
      this.#about.reranker && turns.length > 1 ? ask("coherence", { body: { conversation: turns }, signal }) : null,
    ];
    const [predicted, coherence] = await Promise.allSettled(wanted);
    const decisions = new Map(users.map((place, number) => [place, predicted.value?.predictions[number]]));
    const told = coherence.value;
    const below = (place) => [
      decisions.get(place) ? intent(decisions.get(place)) : null,
      told ? misfit(told.scores[place], told.index === place) : null,
    ];
    const foreign = told && told.scores[told.index] >= FOREIGN ? told.index : null;
    announce(this.#told(turns, [...decisions.values()].filter(Boolean), foreign));
    const failures = [predicted, coherence].filter((each) => each.status === "rejected").map((each) => failed(each.reason, () => this.read()));
    return [element("h2", {}, counted(turns.length, "turn")), ...failures, transcript(turns, { foreign, below }), ...this.#missing(turns)];
  }

  #told(turns, decisions, foreign) {
    const found = decisions.filter((decision) => !decision.abstained).length;
    return [
      `${counted(turns.length, "turn")} read.`,
      decisions.length ? `${counted(found, "user turn has", "user turns have")} an intent, ${decisions.length - found} none.` : "",
      foreign === null ? "" : `Turn ${foreign + 1} does not belong.`,
    ].join(" ");
  }

  #missing(turns) {
    const missing = [];
    if (!this.#about.intents) {
      missing.push(
        notConfigured("Intents: none", "This service was started without intents.", [
          ["Fit them on a few examples each:", "turnwise intents fit examples.csv --model MODEL --out intents"],
          ["Serve them:", "turnwise serve --model MODEL --intents intents"],
        ]),
      );
    }
    if (!this.#about.reranker) {
      missing.push(
        notConfigured("The turn that does not belong: not looked for", "That takes a re-ranker, and this service was started without one.", [
          ["Train one:", "turnwise train ums --corpus STORE --out reranker"],
          ["Serve it:", "turnwise serve --model MODEL --reranker reranker"],
        ]),
      );
    } else if (turns.length < 2) missing.push(element("p", { class: "help" }, "Which turn does not belong can be told of two turns or more."));
    return missing;
  }

  async #similar(turns, signal) {
    const heading = "Conversations like it";
    if (!this.#about.conversations) {
      return notConfigured(`${heading}: none`, "This service was started without conversations to compare with.", [
        ["Index those of a store:", "turnwise conversations index STORE --model MODEL --out conversations"],
        ["Serve them:", "turnwise serve --model MODEL --conversations conversations"],
      ]);
    }
    const { conversations } = await ask("conversations/similar", { body: { conversation: turns, top: 5 }, signal });
    if (!conversations.length) return [element("h2", {}, heading), element("p", {}, "None: no conversations are indexed.")];
    return [
      element("h2", {}, heading),
      conversations.map((each) =>
        element(
          "details",
          { class: "similar" },
          element(
            "summary",
            {},
            said(each.turns[0]?.text ?? each.dialogue),
            element("small", {}, said([score(each.similarity), counted(each.turns.length, "turn"), each.source, each.dialogue].filter(Boolean).join(" · "))),
          ),
          transcript(each.turns),
        ),
      ),
    ].flat();
  }
}
