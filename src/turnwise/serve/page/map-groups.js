// The table of the map's groups, with the same information as the drawing; selected groups can be merged.
import { announce, button, element, pluralise, textSpan } from "./elements.js";

function swatch(colour) {
  const node = element("span", { class: "swatch", "aria-hidden": "true" });
  node.style.setProperty("--colour", colour);
  return node;
}

// Keywords shown below the name of a group.
const KEYWORDS = 4;

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
    state.canLabel ? element("td", {}, element("label", { class: "tap" }, mark)) : null,
    element(
      "th",
      { scope: "row" },
      open,
      state.named(number) ? element("small", {}, textSpan(cluster.words.slice(0, KEYWORDS).join(", "))) : element("span", { class: "visually-hidden" }, " (unnamed)"),
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

// With more groups than this there is a search field.
const SEARCHABLE = 8;

// A field that filters the table by names and keywords. `entries`: pairs of a table row and the words to search.
function filterField(state, entries, shown) {
  const input = element("input", { id: "group-search", type: "search", placeholder: "Find a group", autocomplete: "off", value: state.query, data: { key: "group-search" } });
  const filter = () => {
    const words = state.query.toLowerCase().split(/\s+/u).filter(Boolean);
    let count = 0;
    for (const [node, text] of entries) {
      node.hidden = !words.every((word) => text.includes(word));
      if (!node.hidden) count += 1;
    }
    shown.textContent = words.length ? `${count.toLocaleString("en")} of ${pluralise(entries.length, "group")}` : "largest first";
  };
  input.addEventListener("input", () => {
    state.query = input.value;
    filter();
    announce(shown.textContent);
  });
  filter();
  return element("div", { class: "inline" }, element("label", { class: "visually-hidden", for: "group-search" }, "Find a group"), input);
}

// `colour(number)` returns the colour of a group's points.
export function groupTable(state, colour) {
  const clusters = [...state.clusters.values()];
  const ungrouped = state.rowsOf(-1);
  const rows = clusters.map((cluster) => row(state, cluster, colour(cluster.number)));
  const shown = element("span", { class: "help" }, "largest first");
  const entries = rows.map((node, place) => [node, `${state.title(clusters[place].number)} ${clusters[place].words.join(" ")}`.toLowerCase()]);
  const search = clusters.length > SEARCHABLE ? filterField(state, entries, shown) : null;
  return [
    element("div", { class: "panel-head" }, element("h2", { tabindex: "-1", data: { key: "panel" } }, pluralise(clusters.length, "group")), search),
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
            element("th", { scope: "col" }, "Group, ", shown),
            element("th", { scope: "col", class: "value" }, "Utterances"),
          ),
        ),
        element("tbody", {}, rows),
      ),
      ungrouped.length
        ? element(
            "p",
            { class: "help ungrouped" },
            `${pluralise(ungrouped.length, "different text is", "different texts are")} in no group. `,
            button("Show", () => state.choose(ungrouped), { class: "link", "aria-label": "Show the texts in no group", data: { key: "ungrouped" } }),
          )
        : null,
    ),
  ].filter(Boolean);
}
