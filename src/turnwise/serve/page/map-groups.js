// The groups of a map in a table, which says all that the drawing does; those that are marked can be merged.
import { button, counted, element, said } from "./elements.js";

function swatch(colour) {
  const made = element("span", { class: "swatch", "aria-hidden": "true" });
  made.style.setProperty("--colour", colour);
  return made;
}

function row(desk, cluster, colour) {
  const { number } = cluster;
  const mark = element("input", {
    type: "checkbox",
    "aria-label": `Mark ${desk.title(number)} for merging`,
    data: { key: `mark-${number}` },
  });
  mark.checked = desk.checked.has(number);
  mark.addEventListener("change", () => {
    if (mark.checked) desk.checked.add(number);
    else desk.checked.delete(number);
    desk.redraw();
  });
  const open = button([swatch(colour), said(desk.title(number))], () => desk.open(number), {
    class: `group-name${desk.named(number) ? " named" : ""}`,
    data: { key: `group-${number}` },
  });
  return element(
    "tr",
    {},
    desk.canLabel ? element("td", {}, mark) : null,
    element(
      "th",
      { scope: "row" },
      open,
      desk.named(number) ? element("small", {}, said(cluster.words.join(", "))) : element("span", { class: "unseen" }, " (not named)"),
    ),
    element("td", { class: "value" }, cluster.utterances.toLocaleString("en")),
  );
}

function merging(desk) {
  const marked = [...desk.checked];
  const input = element("input", {
    id: "merge-name",
    list: "label-names",
    autocomplete: "off",
    value: marked.map((number) => (desk.named(number) ? desk.title(number) : null)).find(Boolean) ?? "",
    data: { key: "merge-name" },
  });
  const form = element(
    "form",
    { class: "inline merging" },
    element("label", { for: "merge-name" }, `Merge ${counted(marked.length, "group")} as`),
    input,
    element("button", { type: "submit", class: "small", data: { key: "merge" } }, "Merge"),
    button("Unmark", () => {
      desk.checked.clear();
      desk.redraw();
    }, { class: "small quiet" }),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = input.value.trim();
    const body = name ? { groups: marked, name } : { groups: marked };
    desk.checked.clear();
    desk.opened = marked[0];
    await desk.change("merge", body, `${marked.length} groups are one now.`);
  });
  return form;
}

// `colour(number)` is what a group's points are drawn in.
export function groupTable(desk, colour) {
  const clusters = [...desk.clusters.values()].sort((a, b) => b.utterances - a.utterances);
  const alone = desk.rowsOf(-1).length;
  return [
    element("h2", { tabindex: "-1", data: { key: "panel" } }, counted(clusters.length, "group")),
    desk.canLabel
      ? element("p", { class: "help" }, "In italics: words that are characteristic of a group. Give it a name, and its utterances have a label. Mark two or more to merge them.")
      : null,
    desk.canLabel && desk.checked.size > 1 ? merging(desk) : null,
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
            desk.canLabel ? element("th", { scope: "col" }, element("span", { class: "unseen" }, "Mark")) : null,
            element("th", { scope: "col" }, "Group"),
            element("th", { scope: "col", class: "value" }, "Utterances"),
          ),
        ),
        element("tbody", {}, clusters.map((cluster) => row(desk, cluster, colour(cluster.number)))),
      ),
    ),
    alone ? element("p", { class: "help" }, `${counted(alone, "different text is", "different texts are")} in no group.`) : null,
  ].filter(Boolean);
}
