// The table of the map's groups, with the same information as the drawing; selected groups can be merged.
import { button, element, pluralise, textSpan } from "./elements.js";

function swatch(colour) {
  const node = element("span", { class: "swatch", "aria-hidden": "true" });
  node.style.setProperty("--colour", colour);
  return node;
}

function row(state, cluster, colour) {
  const { number } = cluster;
  const mark = element("input", {
    type: "checkbox",
    "aria-label": `Select ${state.title(number)} for merging`,
    data: { key: `mark-${number}` },
  });
  mark.checked = state.checked.has(number);
  mark.addEventListener("change", () => {
    if (mark.checked) state.checked.add(number);
    else state.checked.delete(number);
    state.redraw();
  });
  const open = button([swatch(colour), textSpan(state.title(number))], () => state.open(number), {
    class: `group-name${state.named(number) ? " named" : ""}`,
    data: { key: `group-${number}` },
  });
  return element(
    "tr",
    {},
    state.canLabel ? element("td", {}, mark) : null,
    element(
      "th",
      { scope: "row" },
      open,
      state.named(number) ? element("small", {}, textSpan(cluster.words.join(", "))) : element("span", { class: "visually-hidden" }, " (unnamed)"),
    ),
    element("td", { class: "value" }, cluster.utterances.toLocaleString("en")),
  );
}

function mergeForm(state) {
  const marked = [...state.checked];
  const input = element("input", {
    id: "merge-name",
    list: "label-names",
    autocomplete: "off",
    value: marked.map((number) => (state.named(number) ? state.title(number) : null)).find(Boolean) ?? "",
    data: { key: "merge-name" },
  });
  const form = element(
    "form",
    { class: "inline merging" },
    element("label", { for: "merge-name" }, `Merge ${pluralise(marked.length, "group")} as`),
    input,
    element("button", { type: "submit", class: "small", data: { key: "merge" } }, "Merge"),
    button("Clear selection", () => {
      state.checked.clear();
      state.redraw();
    }, { class: "small quiet" }),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = input.value.trim();
    const body = name ? { groups: marked, name } : { groups: marked };
    state.checked.clear();
    state.opened = marked[0];
    await state.change("merge", body, `Merged ${marked.length} groups.`);
  });
  return form;
}

// `colour(number)` returns the colour of a group's points.
export function groupTable(state, colour) {
  const clusters = [...state.clusters.values()].sort((a, b) => b.utterances - a.utterances);
  const ungrouped = state.rowsOf(-1).length;
  return [
    element("h2", { tabindex: "-1", data: { key: "panel" } }, pluralise(clusters.length, "group")),
    state.canLabel
      ? element("p", { class: "help" }, "Unnamed groups show their keywords in italics. The name of a group is the label of its utterances. Select two or more groups to merge them.")
      : null,
    state.canLabel && state.checked.size > 1 ? mergeForm(state) : null,
    element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Groups", data: { key: "groups" } },
      element(
        "table",
        { class: "groups" },
        element(
          "thead",
          {},
          element(
            "tr",
            {},
            state.canLabel ? element("th", { scope: "col" }, element("span", { class: "visually-hidden" }, "Select")) : null,
            element("th", { scope: "col" }, "Group"),
            element("th", { scope: "col", class: "value" }, "Utterances"),
          ),
        ),
        element("tbody", {}, clusters.map((cluster) => row(state, cluster, colour(cluster.number)))),
      ),
    ),
    ungrouped ? element("p", { class: "help" }, `${pluralise(ungrouped, "different text is", "different texts are")} in no group.`) : null,
  ].filter(Boolean);
}
