// Suggested answers for a conversation.
import { button, element, excerpt, formatScore, longText, paragraph, pluralise, textSpan } from "./elements.js";
import { notConfigured, toast } from "./notices.js";
import { request } from "./service.js";

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("The browser does not allow copying: select the answer and copy it manually.", null, { bad: true });
  }
}

function facts(suggestion) {
  const place = suggestion.dialogue === null || suggestion.dialogue === undefined ? null : `${suggestion.dialogue}, turn ${suggestion.turn}`;
  return [
    `score ${formatScore(suggestion.score)}`,
    `cosine ${formatScore(suggestion.similarity)}`,
    typeof suggestion.rerank === "number" ? `re-ranker ${formatScore(suggestion.rerank)}` : null,
    suggestion.count > 1 ? `used ${pluralise(suggestion.count, "time")}` : null,
    suggestion.source || null,
    place,
  ].filter(Boolean);
}

function folded(suggestion) {
  if (!suggestion.folded?.length) return null;
  return element(
    "details",
    {},
    element("summary", {}, `${pluralise(suggestion.folded.length, "similar answer")}`),
    element("ul", {}, suggestion.folded.map((text) => element("li", {}, longText(text)))),
  );
}

function item(suggestion, use) {
  return element(
    "li",
    {},
    paragraph(suggestion.text),
    element("p", { class: "help facts" }, facts(suggestion).map((fact) => element("span", {}, textSpan(fact)))),
    folded(suggestion),
    element(
      "div",
      { class: "row" },
      use ? button("Use", () => use(suggestion.text), { class: "small", "aria-label": `Use: ${excerpt(suggestion.text)}` }) : null,
      navigator.clipboard ? button("Copy", () => copy(suggestion.text), { class: "small quiet", "aria-label": `Copy: ${excerpt(suggestion.text)}` }) : null,
    ),
  );
}

export function answersNotConfigured(heading) {
  return notConfigured(`${heading}: not configured`, "This service was started without an index of answers.", [
    ["Index the agent turns of a store:", "turnwise responses index STORE --model MODEL --out answers"],
    ["Serve it:", "turnwise serve --model MODEL --responses answers"],
  ]);
}

// `use(text)` continues the conversation with an answer.
export async function suggestedAnswers(heading, conversation, signal, use = null) {
  const title = element("h2", {}, heading);
  const { suggestions } = await request("respond", { body: { conversation, top: 5 }, signal });
  if (!suggestions.length) return [title, element("p", {}, "No suggestions: the index has no matching answer.")];
  return [title, element("ol", { class: "answers" }, suggestions.map((suggestion) => item(suggestion, use)))];
}
