// Active learning: asks for the labels of the most informative utterances.
import { announce, button, element, paragraph, textSpan } from "./elements.js";
import { attempt } from "./notices.js";
import { request } from "./service.js";

const COUNT = 5;

export class LabellingQuestions {
  #state;
  #place;
  #remaining = null; // null: not started

  constructor(state, place) {
    this.#state = state;
    this.#place = place;
    this.draw();
  }

  draw() {
    this.#place.replaceChildren(element("h2", {}, "Suggested to label"), ...this.#content());
  }

  #content() {
    if (this.#remaining === null) {
      return [
        element("p", { class: "help" }, "The utterances whose labels are most informative: uncertain ones that are similar to many others."),
        button("Start", () => this.#more()),
      ];
    }
    if (!this.#remaining.length) {
      return [element("p", {}, "All labelled."), button("More", () => this.#more(), { data: { key: "ask" } })];
    }
    return this.#card(this.#remaining[0]);
  }

  async #more() {
    const response = await attempt(() => request(`map/next?count=${COUNT}`));
    if (response === undefined) return;
    this.#remaining = response.questions;
    if (!this.#remaining.length) announce("Nothing left to label.");
    this.draw();
    this.#focus();
  }

  #focus() {
    this.#place.querySelector("[data-first]")?.focus();
  }

  #card({ row, text, guess, reason }) {
    announce(`${text}. ${guess === null ? "" : `Is it ${guess}?`}`);
    const input = element("input", { id: "question-label", list: "label-names", autocomplete: "off" });
    if (guess === null) input.dataset.first = "";
    const form = element(
      "form",
      { class: "inline" },
      element("label", { for: "question-label" }, guess === null ? "Label" : "Other label"),
      input,
      element("button", { type: "submit", class: "small" }, "Label"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (input.value.trim()) this.#answer(row, input.value.trim());
      else input.focus();
    });
    return [
      paragraph(text, "text quote"),
      element("p", { class: "help" }, textSpan(reason)),
      guess === null ? null : button(["Label as ", textSpan(guess)], () => this.#answer(row, guess), { class: "main", data: { first: "" } }),
      form,
      element(
        "div",
        { class: "row" },
        button("No label", () => this.#answer(row, null), { class: "small" }),
        button("Skip", () => this.#next(), { class: "small quiet" }),
        button("Show on the map", () => this.#state.select(row), { class: "small quiet" }),
        element("small", { class: "help" }, `${this.#remaining.length - 1} more`),
      ),
    ].filter(Boolean);
  }

  async #answer(row, name) {
    const changed = await this.#state.change("label", { rows: [row], name }, name === null ? "Removed from its group." : `Labelled “${name}”.`);
    if (changed) this.#next();
  }

  #next() {
    this.#remaining = this.#remaining.slice(1);
    this.draw();
    if (this.#remaining.length) this.#focus();
    else this.#place.querySelector("button").focus();
  }
}
