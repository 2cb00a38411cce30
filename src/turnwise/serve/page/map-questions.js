// Active learning: asks for the labels of the most informative utterances, each with similar ones.
import { announce, button, element, excerpt, paragraph, pluralise, textSpan } from "./elements.js";
import { attempt } from "./notices.js";
import { request } from "./service.js";

const COUNT = 5;

// Milliseconds after a question appears in which nothing answers it: the second press of a double click and keys typed
// for the question before are not meant for it.
const PAUSE = 500;

export class LabellingQuestions {
  #state;
  #place;
  #remaining = null; // null: not started
  #shownAt = 0; // when the current question appeared
  #busy = false; // an answer is being sent, or questions are being requested

  constructor(state, place) {
    this.#state = state;
    this.#place = place;
    this.draw();
  }

  draw() {
    this.#place.replaceChildren(...this.#content());
  }

  #content() {
    if (this.#remaining === null) {
      return [
        element(
          "div",
          { class: "panel-head" },
          element("h2", { tabindex: "-1" }, "Suggested to label"),
          button("Ask me", () => this.#more(), { class: "small", data: { key: "ask" }, title: "Uncertain utterances that are similar to many others: their labels help most" }),
        ),
      ];
    }
    if (!this.#remaining.length) {
      return [element("h2", { tabindex: "-1" }, "Suggested to label"), element("p", {}, "All labelled."), button("More", () => this.#more(), { data: { key: "ask" } })];
    }
    return this.#card(this.#remaining[0]);
  }

  async #more() {
    if (this.#busy) return;
    this.#busy = true;
    const response = await attempt(() => request(`map/next?count=${COUNT}`));
    this.#busy = false;
    if (response === undefined) return;
    this.#remaining = response.questions;
    if (!this.#remaining.length) announce("Nothing left to label.");
    this.#show();
  }

  // Draws the next question. The focus moves to its empty field, never to a button that Enter or the space bar would
  // press, and stays where it is if the user has moved on to another part of the page.
  #show() {
    const active = document.activeElement;
    const follow = active === null || active === document.body || this.#place.contains(active);
    this.#shownAt = performance.now();
    this.draw();
    // on touch screens a focused field would open the keyboard
    const field = matchMedia("(pointer: coarse)").matches ? "h2" : "#question-label";
    if (follow) (this.#place.querySelector(field) ?? this.#place.querySelector("button")).focus();
  }

  #card({ row, rows, text, guess, reason }) {
    const ticked = new Set(rows);
    announce(`${rows.length > 1 ? `${rows.length} texts, the first: ` : ""}${text}. ${guess === null ? "" : `Is it ${guess}?`}`);
    const input = element("input", { id: "question-label", list: "label-names", autocomplete: "off" });
    const form = element(
      "form",
      { class: "inline" },
      element("label", { for: "question-label" }, guess === null ? "Label" : "Other label"),
      input,
      element("button", { type: "submit", class: "small" }, "Label"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (input.value.trim()) this.#answer(ticked, input.value.trim());
      else input.focus();
    });
    const item = (other) => {
      const box = element("input", { type: "checkbox", "aria-label": `Include: ${excerpt(this.#state.data.texts[other])}`, on: { change: () => (box.checked ? ticked.add(other) : ticked.delete(other)) } });
      box.checked = true;
      return element(
        "li",
        {},
        element("label", { class: "tap" }, box),
        button([textSpan(this.#state.data.texts[other])], () => this.#state.select(other), { class: "utterance" }),
      );
    };
    return [
      element("h2", { tabindex: "-1" }, "Suggested to label"),
      ...(rows.length > 1
        ? [
            element("p", { class: "help" }, "One label for all of them? Untick those that do not belong: they are asked about next."),
            element("ul", { class: "members" }, rows.map(item)),
          ]
        : [paragraph(text, "text quote")]),
      element("p", { class: "help" }, textSpan(reason)),
      guess === null ? null : button(["Label as ", textSpan(guess)], () => this.#answer(ticked, guess), { class: "main" }),
      form,
      element(
        "div",
        { class: "row" },
        button("No label", () => this.#answer(ticked, null), { class: "small" }),
        button("Skip", () => this.#busy || this.#next(), { class: "small quiet" }),
        button("Show on the map", () => (rows.length > 1 ? this.#state.choose(rows) : this.#state.select(row)), { class: "small quiet" }),
        element("small", { class: "help" }, `${this.#remaining.length - 1} more`),
      ),
    ].filter(Boolean);
  }

  // Labels the ticked rows of the question. The others become a question each, without a guess.
  async #answer(ticked, name) {
    if (this.#busy || !ticked.size || performance.now() - this.#shownAt < PAUSE) return;
    this.#busy = true;
    const rows = [...ticked];
    const many = rows.length > 1 ? pluralise(rows.length, "text") : null;
    const done = name === null ? "removed from the group" : `labelled “${name}”`;
    const single = name === null ? "Removed from its group." : `Labelled “${name}”.`;
    const changed = await this.#state.change("label", { rows, name }, many ? `${many} ${done}.` : single);
    this.#busy = false;
    if (!changed) return;
    const left = this.#remaining[0].rows.filter((row) => !rows.includes(row));
    const reason = "It did not belong to the texts of the previous question.";
    this.#remaining.splice(1, 0, ...left.map((row) => ({ row, rows: [row], text: this.#state.data.texts[row], guess: null, reason })));
    this.#next();
  }

  #next() {
    this.#remaining = this.#remaining.slice(1);
    this.#show();
  }
}
