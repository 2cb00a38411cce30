// The conversation view: intents of the user's turns, out-of-place turns, suggested answers, similar conversations.
import { answersNotConfigured, suggestedAnswers } from "./answers.js";
import { intentBars, nearestExamples } from "./decision.js";
import { announce, byId, element, formatScore, paragraph, pluralise, textSpan } from "./elements.js";
import { errorNotice, fillAsync, notConfigured } from "./notices.js";
import { formatTurns, parseTurns, swapSpeakers } from "./parsing.js";
import { LatestRun, request } from "./service.js";

const SPEAKERS = { user: "User", system: "Agent" };

// From this score on a turn is out of place.
const OUT_OF_PLACE = 0.5;

// A classifier reads up to this many turns before a text.
const CONTEXT = 5;

function transcript(turns, extras) {
  return element(
    "ol",
    { class: "turns" },
    turns.map((turn, place) =>
      element(
        "li",
        { class: `turn ${turn.speaker === "user" ? "user" : "agent"}${extras?.outOfPlace === place ? " out-of-place" : ""}` },
        element("p", { class: "speaker" }, SPEAKERS[turn.speaker] ?? textSpan(turn.speaker)),
        paragraph(turn.text),
        extras?.below(place) ?? null,
      ),
    ),
  );
}

function intent(decision) {
  const summary = decision.abstained
    ? element("span", { class: "chip none" }, "no intent")
    : decision.intents.map((name) => element("span", { class: "chip" }, textSpan(name)));
  return element(
    "details",
    { class: "decision" },
    element("summary", {}, element("span", { class: "visually-hidden" }, "Intent: "), summary, element("small", {}, formatScore(decision.score))),
    element("p", { class: "reason" }, textSpan(decision.reason)),
    intentBars(decision),
    nearestExamples(decision),
  );
}

function outOfPlaceNote(value, first) {
  const text = value >= OUT_OF_PLACE ? `Out of place (${formatScore(value)})` : `Highest out-of-place score (${formatScore(value)}), but below the threshold`;
  if (first) return element("p", { class: value >= OUT_OF_PLACE ? "out-of-place-note" : "out-of-place-note weak" }, text);
  return value >= OUT_OF_PLACE ? element("p", { class: "out-of-place-note weak" }, `Possibly out of place as well (${formatScore(value)})`) : null;
}

export class ConversationView {
  #about;
  #runs = new LatestRun();

  constructor(about) {
    this.#about = about;
    const text = byId("conversation-text");
    const form = byId("conversation-form");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (text.value.trim()) this.analyse();
      else text.focus();
    });
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      form.requestSubmit();
    });
    byId("conversation-swap").addEventListener("click", () => {
      text.value = formatTurns(swapSpeakers(parseTurns(text.value)));
      if (text.value) this.analyse();
    });
    byId("conversation-clear").addEventListener("click", () => {
      this.#runs.start();
      text.value = "";
      for (const place of ["turns", "answers", "similar"]) byId(`conversation-${place}`).replaceChildren();
      text.focus();
    });
  }

  show() {}

  open(turns) {
    const text = byId("conversation-text");
    text.value = formatTurns(turns);
    text.focus();
    this.analyse();
  }

  analyse() {
    const turns = parseTurns(byId("conversation-text").value);
    const signal = this.#runs.start();
    const retry = () => this.analyse();
    fillAsync(byId("conversation-turns"), signal, () => this.#turns(turns, signal), retry);
    fillAsync(byId("conversation-answers"), signal, () => this.#answers(turns, signal), retry);
    fillAsync(byId("conversation-similar"), signal, () => this.#similar(turns, signal), retry);
  }

  async #answers(turns, signal) {
    const heading = "Suggested answers";
    if (!this.#about.responses) return answersNotConfigured(heading);
    return suggestedAnswers(heading, turns, signal, (text) => {
      byId("conversation-text").value = formatTurns([...turns, { speaker: "system", text }]);
      this.analyse();
    });
  }

  // Intents and coherence are two requests: if one fails, the result of the other is still shown.
  async #turns(turns, signal) {
    const users = turns.flatMap((turn, place) => (turn.speaker === "user" ? [place] : []));
    const withContext = (place) => turns.slice(Math.max(0, place - CONTEXT), place + 1);
    const requests = [
      this.#about.intents && users.length
        ? request("intents/predict", { body: { texts: users.map(withContext), neighbours: 3 }, signal })
        : null,
      this.#about.reranker && turns.length > 1 ? request("coherence", { body: { conversation: turns }, signal }) : null,
    ];
    const [predicted, coherence] = await Promise.allSettled(requests);
    const decisions = new Map(users.map((place, number) => [place, predicted.value?.predictions[number]]));
    const scores = coherence.value;
    const below = (place) => [
      decisions.get(place) ? intent(decisions.get(place)) : null,
      scores ? outOfPlaceNote(scores.scores[place], scores.index === place) : null,
    ];
    const outOfPlace = scores && scores.scores[scores.index] >= OUT_OF_PLACE ? scores.index : null;
    announce(this.#summary(turns, [...decisions.values()].filter(Boolean), outOfPlace));
    const failures = [predicted, coherence].filter((each) => each.status === "rejected").map((each) => errorNotice(each.reason, () => this.analyse()));
    return [element("h2", {}, pluralise(turns.length, "turn")), ...failures, transcript(turns, { outOfPlace, below }), ...this.#missing(turns)];
  }

  #summary(turns, decisions, outOfPlace) {
    const detected = decisions.filter((decision) => !decision.abstained).length;
    return [
      `${pluralise(turns.length, "turn")} analysed.`,
      decisions.length ? `${pluralise(detected, "user turn has", "user turns have")} an intent, ${decisions.length - detected} none.` : "",
      outOfPlace === null ? "" : `Turn ${outOfPlace + 1} is out of place.`,
    ].join(" ");
  }

  #missing(turns) {
    const missing = [];
    if (!this.#about.intents) {
      missing.push(
        notConfigured("Intents: not configured", "This service was started without an intent classifier.", [
          ["Fit a classifier on a few examples per intent:", "turnwise intents fit examples.csv --model MODEL --out intents"],
          ["Serve it:", "turnwise serve --model MODEL --intents intents"],
        ]),
      );
    }
    if (!this.#about.reranker) {
      missing.push(
        notConfigured("Coherence check: not configured", "It needs a re-ranker, and this service was started without one.", [
          ["Train one:", "turnwise train ums --corpus STORE --out reranker"],
          ["Serve it:", "turnwise serve --model MODEL --reranker reranker"],
        ]),
      );
    } else if (turns.length < 2) missing.push(element("p", { class: "help" }, "The coherence check needs at least two turns."));
    return missing;
  }

  async #similar(turns, signal) {
    const heading = "Similar conversations";
    if (!this.#about.conversations) {
      return notConfigured(`${heading}: not configured`, "This service was started without an index of conversations.", [
        ["Index the conversations of a store:", "turnwise conversations index STORE --model MODEL --out conversations"],
        ["Serve it:", "turnwise serve --model MODEL --conversations conversations"],
      ]);
    }
    const { conversations } = await request("conversations/similar", { body: { conversation: turns, top: 5 }, signal });
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
            textSpan(each.title || each.dialogue),
            element("small", {}, textSpan([formatScore(each.similarity), pluralise(each.turns.length, "turn"), each.source, each.dialogue].filter(Boolean).join(" · "))),
          ),
          transcript(each.turns),
        ),
      ),
    ].flat();
  }
}
