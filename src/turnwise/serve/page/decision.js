// An intent decision: score bars with the threshold, and the nearest examples.
import { button, element, formatScore, longText, textSpan } from "./elements.js";

// Maps scores to positions from 0 (left) to 1 (right). Scores outside 0 to 1 widen the scale.
function scale(decision) {
  const values = [...decision.ranked.map((ranked) => ranked.score), decision.threshold ?? 0];
  const least = Math.min(0, ...values);
  const most = Math.max(1, ...values);
  return (value) => (value - least) / (most - least);
}

// A bar from zero to a score. Positions are set through the object model: the page's policy forbids style attributes.
function bar(zero, place, threshold = null) {
  const node = element("span", { class: "bar", "aria-hidden": "true" }, element("span", { class: place < zero ? "fill negative" : "fill" }));
  node.style.setProperty("--from", Math.min(zero, place));
  node.style.setProperty("--share", Math.abs(place - zero));
  if (zero > 0) {
    node.append(element("span", { class: "zero" }));
    node.style.setProperty("--zero", zero);
  }
  if (threshold !== null) {
    node.append(element("span", { class: "threshold" }));
    node.style.setProperty("--threshold", threshold);
  }
  return node;
}

export function decisionSummary(decision) {
  if (!decision.abstained) {
    const names = decision.intents.length ? decision.intents : [decision.intent];
    return element("p", { class: "verdict" }, names.map((name, place) => [place ? " + " : null, textSpan(name)]));
  }
  return element("p", { class: "verdict none" }, "No intent (abstained)");
}

// As text, for screen readers.
export function describeDecision(decision) {
  if (!decision.abstained) return `Intent: ${decision.intents.join(" and ") || decision.intent}, score ${formatScore(decision.score)}.`;
  return `No intent. The best guess, ${decision.ranked[0]?.intent}, scores ${formatScore(decision.score)}, below the threshold of ${formatScore(decision.threshold)}.`;
}

function legend(decision) {
  if (decision.threshold === null) return "The classifier never abstains: the best intent is always predicted.";
  return ["The line on the first bar is the threshold, ", element("b", {}, formatScore(decision.threshold)), "; below it the classifier abstains."];
}

// The best intents with their bars. `add(intent)` adds the text as an example of one; without it there are no buttons.
export function intentBars(decision, add = null) {
  const position = scale(decision);
  const threshold = decision.threshold === null ? null : position(decision.threshold);
  const rows = decision.ranked.map((ranked, place) => {
    const predicted = decision.intents.includes(ranked.intent);
    const roles = [predicted ? "predicted" : null, place === 1 && !predicted ? "runner-up" : null].filter(Boolean);
    return element(
      "li",
      { class: predicted ? "predicted" : null },
      element("span", { class: "name" }, textSpan(ranked.intent), roles.map((role) => element("small", { class: "role" }, role))),
      bar(position(0), position(ranked.score), place === 0 ? threshold : null),
      element("span", { class: "value" }, formatScore(ranked.score)),
      add
        ? button("Add example", () => add(ranked.intent), {
            class: "small",
            "aria-label": `Add the text as an example of ${ranked.intent}`,
            data: { key: `add-${ranked.intent}` },
          })
        : null,
    );
  });
  return [
    element("ol", { class: add ? "bars adding" : "bars", "aria-label": "Best intents" }, rows),
    element("p", { class: "help" }, legend(decision)),
  ];
}

export function nearestExamples(decision) {
  if (!decision.nearest.length) return null;
  return element(
    "ul",
    { class: "nearest", "aria-label": "Nearest examples" },
    decision.nearest.map((near) =>
      element(
        "li",
        {},
        element("span", { class: "text" }, longText(near.text)),
        element("span", { class: "chip" }, textSpan(near.intent)),
        element("span", { class: "value", title: "Cosine similarity" }, formatScore(near.similarity)),
      ),
    ),
  );
}
