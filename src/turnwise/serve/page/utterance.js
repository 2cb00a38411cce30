// The utterance view: intents, nearest examples, suggested answers, and adding examples.
import { answersNotConfigured, suggestedAnswers } from "./answers.js";
import { decisionSummary, describeDecision, intentBars, nearestExamples } from "./decision.js";
import { announce, byId, element, keepFocus, pluralise, textSpan } from "./elements.js";
import { createIntentList } from "./intent-list.js";
import { attempt, fillAsync, notConfigured, toast } from "./notices.js";
import { LatestRun, request } from "./service.js";

const NO_INTENTS = [
  "Intents: not configured",
  "This service was started without an intent classifier.",
  [
    ["Fit a classifier on a few examples per intent, in a table with the columns text and intent:", "turnwise intents fit examples.csv --model MODEL --out intents"],
    ["Serve it:", "turnwise serve --model MODEL --intents intents"],
  ],
];

const ANSWERS = "Suggested answers";

export class UtteranceView {
  #about;
  #runs = new LatestRun();
  #intentList;

  constructor(about) {
    this.#about = about;
    const form = byId("utterance-form");
    const text = byId("utterance-text");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (text.value.trim()) this.submit();
      else text.focus();
    });
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    this.#intentList = createIntentList(byId("intent-list"), (example) => this.#remove(example));
    if (!about.responses) byId("utterance-answers").replaceChildren(answersNotConfigured(ANSWERS));
  }

  // Also after a classifier was fitted on the map, which changes the intents.
  show() {
    byId("utterance-several-label").hidden = !this.#about.intents;
    byId("utterance-form").querySelector("button").disabled = !this.#about.intents && !this.#about.responses;
    if (!this.#about.intents) byId("utterance-intents").replaceChildren(notConfigured(...NO_INTENTS));
    else if (!this.#intentList.filled) this.#intentList.fill();
  }

  intentsChanged() {
    this.#intentList.filled = false;
    byId("utterance-intents").replaceChildren();
  }

  // Fills in a text and submits it.
  try(text) {
    byId("utterance-text").value = text;
    this.submit();
  }

  submit() {
    const text = byId("utterance-text").value.trim();
    const signal = this.#runs.start();
    const retry = () => this.submit();
    if (this.#about.intents) fillAsync(byId("utterance-intents"), signal, () => this.#predict(text, signal), retry);
    if (this.#about.responses) fillAsync(byId("utterance-answers"), signal, () => suggestedAnswers(ANSWERS, [text], signal), retry);
  }

  async #predict(text, signal) {
    const several = byId("utterance-several").checked;
    const { predictions } = await request("intents/predict", { body: { texts: [text], neighbours: 5, several }, signal });
    const decision = predictions[0];
    announce(describeDecision(decision));
    const examples = nearestExamples(decision);
    return [
      element("h2", {}, "Intent"),
      decisionSummary(decision),
      element("p", { class: "reason" }, textSpan(decision.reason)),
      intentBars(decision, (intent) => this.#add(text, intent)),
      this.#other(text),
      examples ? [element("h2", {}, "Nearest examples"), examples] : null,
    ]
      .flat()
      .filter(Boolean);
  }

  // A form to add the text as an example of any other intent, also a new one.
  #other(text) {
    const input = element("input", { id: "other-intent", list: "intent-names", autocomplete: "off", data: { key: "other" } });
    const form = element(
      "form",
      { class: "inline" },
      element("label", { for: "other-intent" }, "Another or a new intent"),
      input,
      element("button", { type: "submit", class: "small" }, "Add example"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const intent = input.value.trim();
      if (intent) this.#add(text, intent);
      else input.focus();
    });
    return form;
  }

  #add(text, intent) {
    const example = { text, intent };
    return attempt(async () => {
      const { added } = await request("intents/examples", { body: { examples: [example], wait: true } });
      if (added) toast(`Added as an example of ${intent}.`, ["Undo", () => this.#remove(example, false)]);
      else toast(`Already an example of ${intent}.`);
      await this.#changed();
    });
  }

  #remove(example, canUndo = true) {
    return attempt(async () => {
      const { removed } = await request("intents/examples/remove", { body: { examples: [example], wait: true } });
      const undo = canUndo ? ["Undo", () => this.#add(example.text, example.intent)] : null;
      toast(removed ? `${pluralise(removed, "example")} of ${example.intent} removed.` : "This example no longer exists.", undo);
      await this.#changed();
    });
  }

  // Repeats the prediction, which may have changed.
  async #changed() {
    await this.#intentList.fill();
    if (!byId("utterance-text").value.trim() || !byId("utterance-intents").querySelector(".bars")) return;
    const place = byId("utterance-intents");
    const text = byId("utterance-text").value.trim();
    const signal = this.#runs.start();
    const nodes = await this.#predict(text, signal);
    keepFocus(place, () => place.replaceChildren(...nodes));
  }
}
