// One utterance: its intents, why, what is like it, what could be answered, and the right intent at one click.
import { answers, noAnswers } from "./answers.js";
import { bars, nearest, told, verdict } from "./decision.js";
import { announce, counted, element, find, keepingFocus, said } from "./elements.js";
import { known } from "./known.js";
import { attempt, filled, notConfigured, toast } from "./notices.js";
import { ask, Latest } from "./service.js";

const NO_INTENTS = [
  "Intents: none",
  "This service was started without intents, so that it cannot tell what is asked for.",
  [
    ["Fit them on a few examples each, in a table with the columns text and intent:", "turnwise intents fit examples.csv --model MODEL --out intents"],
    ["Serve them:", "turnwise serve --model MODEL --intents intents"],
  ],
];

const ANSWERS = "Suggested answers";

export class UtteranceView {
  #about;
  #runs = new Latest();
  #known;

  constructor(about) {
    this.#about = about;
    const form = find("utterance-form");
    const text = find("utterance-text");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (text.value.trim()) this.ask();
      else text.focus();
    });
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    this.#known = known(find("utterance-known"), (example) => this.#remove(example));
    if (!about.responses) find("utterance-answers").replaceChildren(noAnswers(ANSWERS));
  }

  // Also after a classifier was fitted on the map: there may be intents now, or others.
  show() {
    find("utterance-several-label").hidden = !this.#about.intents;
    find("utterance-form").querySelector("button").disabled = !this.#about.intents && !this.#about.responses;
    if (!this.#about.intents) find("utterance-intents").replaceChildren(notConfigured(...NO_INTENTS));
    else if (!this.#known.filled) this.#known.fill();
  }

  intentsChanged() {
    this.#known.filled = false;
    find("utterance-intents").replaceChildren();
  }

  ask() {
    const text = find("utterance-text").value.trim();
    const signal = this.#runs.start();
    const again = () => this.ask();
    if (this.#about.intents) filled(find("utterance-intents"), signal, () => this.#decided(text, signal), again);
    if (this.#about.responses) filled(find("utterance-answers"), signal, () => answers(ANSWERS, [text], signal), again);
  }

  async #decided(text, signal) {
    const several = find("utterance-several").checked;
    const { predictions } = await ask("intents/predict", { body: { texts: [text], neighbours: 5, several }, signal });
    const decision = predictions[0];
    announce(told(decision));
    const close = nearest(decision);
    return [
      element("h2", {}, "Intent"),
      verdict(decision),
      element("p", { class: "reason" }, said(decision.reason)),
      bars(decision, (intent) => this.#add(text, intent)),
      this.#other(text),
      close ? [element("h2", {}, "Nearest examples"), close] : null,
    ]
      .flat()
      .filter(Boolean);
  }

  // None of those ranked is right: any other intent, also a new one.
  #other(text) {
    const input = element("input", { id: "other-intent", list: "intent-names", autocomplete: "off", data: { key: "other" } });
    const form = element(
      "form",
      { class: "inline" },
      element("label", { for: "other-intent" }, "Another intent, or a new one"),
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
      const { added } = await ask("intents/examples", { body: { examples: [example] } });
      if (added) toast(`Added as an example of ${intent}; it is on disk.`, ["Undo", () => this.#remove(example, false)]);
      else toast(`It is an example of ${intent} already.`);
      await this.#changed();
    });
  }

  #remove(example, canUndo = true) {
    return attempt(async () => {
      const { removed } = await ask("intents/examples/remove", { body: { examples: [example] } });
      const undo = canUndo ? ["Undo", () => this.#add(example.text, example.intent)] : null;
      toast(removed ? `${counted(removed, "example")} of ${example.intent} removed.` : "There is no such example any more.", undo);
      await this.#changed();
    });
  }

  // What was asked is asked again: the answer may be another one now.
  async #changed() {
    await this.#known.fill();
    if (!find("utterance-text").value.trim() || !find("utterance-intents").querySelector(".bars")) return;
    const place = find("utterance-intents");
    const text = find("utterance-text").value.trim();
    const signal = this.#runs.start();
    const made = await this.#decided(text, signal);
    keepingFocus(place, () => place.replaceChildren(...made));
  }
}
