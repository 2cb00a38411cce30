// Answers that are suggested for a conversation.
import { button, counted, element, paragraph, said, score } from "./elements.js";
import { notConfigured, toast } from "./notices.js";
import { ask } from "./service.js";

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("The browser does not let the page copy: mark the answer and copy it by hand.", null, { bad: true });
  }
}

function facts(suggestion) {
  const place = suggestion.dialogue === null || suggestion.dialogue === undefined ? null : `${suggestion.dialogue}, turn ${suggestion.turn}`;
  return [
    `score ${score(suggestion.score)}`,
    `cosine ${score(suggestion.similarity)}`,
    typeof suggestion.rerank === "number" ? `re-ranker ${score(suggestion.rerank)}` : null,
    suggestion.count > 1 ? `said ${counted(suggestion.count, "time")}` : null,
    suggestion.source || null,
    place,
  ].filter(Boolean);
}

function folded(suggestion) {
  if (!suggestion.folded?.length) return null;
  return element(
    "details",
    {},
    element("summary", {}, `${counted(suggestion.folded.length, "answer")} like it`),
    element("ul", {}, suggestion.folded.map((text) => element("li", {}, said(text)))),
  );
}

function item(suggestion, use) {
  return element(
    "li",
    {},
    paragraph(suggestion.text),
    element("p", { class: "help facts" }, facts(suggestion).map((fact) => element("span", {}, said(fact)))),
    folded(suggestion),
    element(
      "div",
      { class: "row" },
      use ? button("Say it", () => use(suggestion.text), { class: "small", "aria-label": `Say it: ${suggestion.text}` }) : null,
      navigator.clipboard ? button("Copy", () => copy(suggestion.text), { class: "small quiet", "aria-label": `Copy: ${suggestion.text}` }) : null,
    ),
  );
}

// What is said in place of answers where the service has none.
export function noAnswers(heading) {
  return notConfigured(`${heading}: none`, "This service was started without an index of answers.", [
    ["Index the agent’s turns of a store:", "turnwise responses index STORE --model MODEL --out answers"],
    ["Serve it:", "turnwise serve --model MODEL --responses answers"],
  ]);
}

// The answers for a conversation. `use(text)` goes on with one of them.
export async function answers(heading, conversation, signal, use = null) {
  const title = element("h2", {}, heading);
  const { suggestions } = await ask("respond", { body: { conversation, top: 5 }, signal });
  if (!suggestions.length) return [title, element("p", {}, "Nothing fits: the index of answers has none to suggest.")];
  return [title, element("ol", { class: "answers" }, suggestions.map((suggestion) => item(suggestion, use)))];
}
