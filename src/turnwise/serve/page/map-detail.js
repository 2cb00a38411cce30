// The panel of a group or an utterance of the map.
import { button, element, excerpt, paragraph, pluralise, textSpan } from "./elements.js";

// Utterances per page.
const PAGE = 50;

function head(title, back, label = "← All groups") {
  return element(
    "div",
    { class: "detail-head" },
    button(label, back, { class: "small quiet", data: { key: "back" } }),
    element("h2", { tabindex: "-1", data: { key: "panel" } }, title),
  );
}

const times = (count) => (count > 1 ? element("small", { class: "value" }, `${count.toLocaleString("en")} ×`) : null);

// A form that labels utterances. `rows()` returns which ones when it is submitted; `done()` runs after they were labelled.
function labelForm(state, id, label, rows, done = () => {}) {
  const input = element("input", { id, list: "label-names", autocomplete: "off", data: { key: id } });
  const send = async (name) => {
    const chosen = rows();
    if (!chosen.length) return;
    const target = name === null ? "removed from the group" : `labelled “${name}”`;
    if (await state.change("label", { rows: chosen, name }, `${pluralise(chosen.length, "text")} ${target}.`)) done();
  };
  const form = element(
    "form",
    { class: "inline" },
    element("label", { for: id }, label),
    input,
    element("button", { type: "submit", class: "small", data: { key: `${id}-send` } }, "Label"),
    button("No group", () => send(null), { class: "small quiet", data: { key: `${id}-none` } }),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value.trim()) send(input.value.trim());
    else input.focus();
  });
  return form;
}

function nameForm(state, group) {
  const input = element("input", { id: "group-name", autocomplete: "off", list: "label-names", data: { key: "group-name" } });
  input.value = state.named(group) ? state.title(group) : "";
  input.placeholder = state.named(group) ? "" : state.title(group);
  const form = element(
    "form",
    { class: "inline" },
    element("label", { for: "group-name" }, "Name"),
    input,
    element("button", { type: "submit", class: "small main", data: { key: "group-name-send" } }, state.named(group) ? "Rename" : "Name"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = input.value.trim();
    if (name) state.change("name", { group, name }, `Group named “${name}”.`);
    else input.focus();
  });
  return form;
}

function splitForm(state, group) {
  const most = Math.min(10, state.rowsOf(group).length);
  if (most < 2) return null;
  const input = element("input", { id: "parts", type: "number", min: "2", max: String(most), value: "2", data: { key: "parts" } });
  const form = element(
    "form",
    { class: "inline splitting" },
    element("label", { for: "parts" }, "Split into"),
    input,
    element("span", {}, "parts"),
    element("button", { type: "submit", class: "small", data: { key: "split" } }, "Split"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const parts = Number(input.value);
    state.change("split", { group, parts }, `Split into ${parts} groups.`);
  });
  return form;
}

// A list of utterances with boxes; those that are ticked can be labelled together. `marked`: the rows ticked at first.
function members(state, rows, marked, { title, none, name, done }) {
  const list = element("ul", { class: "members" });
  const more = element("div", { class: "row" });
  const status = element("span", { class: "help" });
  const mark = (row, on) => {
    if (on) marked.add(row);
    else marked.delete(row);
    status.textContent = marked.size ? `${marked.size.toLocaleString("en")} selected` : none;
  };
  const item = (row) => {
    const box = element("input", { type: "checkbox", "aria-label": `Select: ${excerpt(state.data.texts[row])}`, on: { change: () => mark(row, box.checked) } });
    box.checked = marked.has(row);
    return element(
      "li",
      {},
      state.canLabel ? element("label", { class: "tap" }, box) : null,
      button([textSpan(state.data.texts[row])], () => state.select(row), { class: "utterance", data: { key: `row-${row}` } }),
      times(state.data.counts[row]),
    );
  };
  const showMore = () => {
    const from = list.childElementCount;
    list.append(...rows.slice(from, from + PAGE).map(item));
    const left = rows.length - list.childElementCount;
    more.replaceChildren(...(left ? [button(`Show ${Math.min(PAGE, left)} more of ${left.toLocaleString("en")}`, showMore, { class: "small quiet" })] : []));
  };
  showMore();
  mark(null, false);
  return [
    title ? element("h3", {}, title) : null,
    state.canLabel ? [status, labelForm(state, "members-label", "Label as", () => [...marked], done)] : null,
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, list, more),
  ]
    .flat()
    .filter(Boolean);
}

export function groupDetail(state) {
  const group = state.opened;
  const cluster = state.clusters.get(group);
  return [
    head(textSpan(state.title(group)), () => state.open(null)),
    element("p", { class: "help" }, `${pluralise(cluster.utterances, "utterance")}. Keywords: `, textSpan(cluster.words.join(", ")), "."),
    state.canLabel ? nameForm(state, group) : null,
    state.canLabel ? splitForm(state, group) : null,
    members(state, [...cluster.representatives, ...state.rowsOf(group).filter((row) => !cluster.representatives.includes(row))], new Set(), {
      title: pluralise(cluster.size, "different text"),
      none: "Select texts that belong to another group.",
      name: "Texts of the group",
    }),
  ]
    .flat()
    .filter(Boolean);
}

// Groups listed for a selection.
const GROUPS = 5;

// The groups of rows with their numbers of texts, the most frequent first.
function groupCounts(state, rows) {
  const counts = new Map();
  for (const row of rows) counts.set(state.data.groups[row], (counts.get(state.data.groups[row]) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

// The utterances chosen on the map or by a search: the most frequent first, with their groups.
export function selectionDetail(state) {
  const rows = [...state.chosen].sort((a, b) => state.data.counts[b] - state.data.counts[a] || a - b);
  const counts = groupCounts(state, rows);
  const rest = counts.length > GROUPS ? `, and ${pluralise(counts.length - GROUPS, "other group")}` : "";
  return [
    head(`${pluralise(rows.length, "text")} selected`, () => state.open(null)),
    element("p", { class: "help" }, `${pluralise(state.utterances(rows), "utterance")}. In: `, textSpan(counts.slice(0, GROUPS).map(([group, count]) => `${state.title(group)} (${count.toLocaleString("en")})`).join(", ")), `${rest}.`),
    members(state, rows, new Set(rows), {
      none: "None selected: tick texts to label them.",
      name: "Selected texts",
      done: () => state.open(null),
    }),
  ]
    .flat()
    .filter(Boolean);
}

// `near`: the nearest rows on the map.
export function utteranceDetail(state, near) {
  const { row, data } = state;
  const group = data.groups[row];
  return [
    state.chosen.length ? head("Utterance", () => state.select(null), "← Selection") : head("Utterance", () => state.open(null)),
    paragraph(data.texts[row], "text quote"),
    element(
      "p",
      { class: "help" },
      [`Occurs ${pluralise(data.counts[row], "time")}`, data.new?.[row] ? "new" : null].filter(Boolean).join(", "),
      ". ",
      group < 0 ? "In no group." : ["Group: ", button([textSpan(state.title(group))], () => state.open(group), { class: "link", data: { key: "to-group" } })],
    ),
    state.canLabel ? labelForm(state, "row-label", "Label", () => [row]) : null,
    near.length
      ? [
          element("h3", {}, "Nearest on the map"),
          element(
            "ul",
            { class: "members" },
            near.map((other) => element("li", {}, button([textSpan(data.texts[other])], () => state.select(other), { class: "utterance" }), times(data.counts[other]))),
          ),
        ]
      : null,
  ]
    .flat()
    .filter(Boolean);
}
