// A decision about a text: bars, the threshold on them, the reason, the nearest examples.
import { button, element, said, score } from "./elements.js";

// Where a score stands, from 0 at the left to 1 at the right. Scores mostly lie between 0 and 1: what lies outside widens the scale.
function scale(decision) {
  const values = [...decision.ranked.map((ranked) => ranked.score), decision.threshold ?? 0];
  const least = Math.min(0, ...values);
  const most = Math.max(1, ...values);
  return (value) => (value - least) / (most - least);
}

// From zero to a score, to the left where that is negative. Places are set through the object model: the page's policy allows no
// style attributes.
function bar(zero, place, threshold = null) {
  const drawn = element("span", { class: "bar", "aria-hidden": "true" }, element("span", { class: place < zero ? "fill negative" : "fill" }));
  drawn.style.setProperty("--from", Math.min(zero, place));
  drawn.style.setProperty("--share", Math.abs(place - zero));
  if (zero > 0) {
    drawn.append(element("span", { class: "zero" }));
    drawn.style.setProperty("--zero", zero);
  }
  if (threshold !== null) {
    drawn.append(element("span", { class: "threshold" }));
    drawn.style.setProperty("--threshold", threshold);
  }
  return drawn;
}

const below = (decision) => `below the ${score(decision.threshold)} that it takes`;

// The decision in a line: what it is, or that there is none.
export function verdict(decision) {
  if (!decision.abstained) {
    const names = decision.intents.length ? decision.intents : [decision.intent];
    return element("p", { class: "verdict" }, names.map((name, place) => [place ? " + " : null, said(name)]));
  }
  return element("p", { class: "verdict none" }, "No intent: it abstains");
}

// In words, for a reader who does not see bars.
export function told(decision) {
  if (!decision.abstained) return `Intent: ${decision.intents.join(" and ") || decision.intent}, score ${score(decision.score)}.`;
  return `No intent. The best guess, ${decision.ranked[0]?.intent}, scores ${score(decision.score)}, ${below(decision)}.`;
}

function legend(decision) {
  if (decision.threshold === null) return "It never abstains: the best intent is always taken.";
  return ["The line on the first bar is the threshold, ", element("b", {}, score(decision.threshold)), "; a best score below it is no intent."];
}

// The best intents with their bars. `add(intent)` makes the text an example of one; without it there are no buttons.
export function bars(decision, add = null) {
  const at = scale(decision);
  const threshold = decision.threshold === null ? null : at(decision.threshold);
  const rows = decision.ranked.map((ranked, place) => {
    const taken = decision.intents.includes(ranked.intent);
    const roles = [taken ? "taken" : null, place === 1 && !taken ? "runner-up" : null].filter(Boolean);
    return element(
      "li",
      { class: taken ? "taken" : null },
      element("span", { class: "name" }, said(ranked.intent), roles.map((role) => element("small", { class: "role" }, role))),
      bar(at(0), at(ranked.score), place === 0 ? threshold : null),
      element("span", { class: "value" }, score(ranked.score)),
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

export function nearest(decision) {
  if (!decision.nearest.length) return null;
  return element(
    "ul",
    { class: "nearest", "aria-label": "Nearest examples" },
    decision.nearest.map((near) =>
      element(
        "li",
        {},
        element("span", { class: "text" }, said(near.text)),
        element("span", { class: "chip" }, said(near.intent)),
        element("span", { class: "value", title: "Cosine of the two vectors" }, score(near.similarity)),
      ),
    ),
  );
}
