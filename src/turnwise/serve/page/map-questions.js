// Questions about the utterances whose label would help most.
import { announce, button, element, paragraph, said } from "./elements.js";
import { attempt } from "./notices.js";
import { ask } from "./service.js";

const COUNT = 5;

export class Questions {
  #desk;
  #place;
  #left = null; // null: nobody asked to be asked

  constructor(desk, place) {
    this.#desk = desk;
    this.#place = place;
    this.draw();
  }

  draw() {
    this.#place.replaceChildren(element("h2", {}, "Be asked next"), ...this.#content());
  }

  #content() {
    if (this.#left === null) {
      return [
        element("p", { class: "help" }, "About the utterances whose label would help most: those that the labels so far leave open, and that many others are like."),
        button("Ask me", () => this.#more()),
      ];
    }
    if (!this.#left.length) {
      return [element("p", {}, "That is answered."), button("Ask me more", () => this.#more(), { data: { key: "ask" } })];
    }
    return this.#card(this.#left[0]);
  }

  async #more() {
    const told = await attempt(() => ask(`map/next?count=${COUNT}`));
    if (told === undefined) return;
    this.#left = told.questions;
    if (!this.#left.length) announce("There is nothing left to ask.");
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
      element("label", { for: "question-label" }, guess === null ? "Its label" : "Or another"),
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
      element("p", { class: "help" }, said(reason)),
      guess === null ? null : button(["It is ", said(guess)], () => this.#answer(row, guess), { class: "main", data: { first: "" } }),
      form,
      element(
        "div",
        { class: "row" },
        button("None of these", () => this.#answer(row, null), { class: "small" }),
        button("Skip", () => this.#next(), { class: "small quiet" }),
        button("Show on the map", () => this.#desk.select(row), { class: "small quiet" }),
        element("small", { class: "help" }, `${this.#left.length - 1} more`),
      ),
    ].filter(Boolean);
  }

  async #answer(row, name) {
    const made = await this.#desk.change("label", { rows: [row], name }, name === null ? "It is in no group." : `It is “${name}”.`);
    if (made) this.#next();
  }

  #next() {
    this.#left = this.#left.slice(1);
    this.draw();
    if (this.#left.length) this.#focus();
    else this.#place.querySelector("button").focus();
  }
}
