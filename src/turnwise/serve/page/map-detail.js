// The panel of a group or an utterance of the map.
import { button, element, paragraph, pluralise, textSpan } from "./elements.js";

// Utterances per page.
const PAGE = 50;

function head(title, back) {
  return element(
    "div",
    { class: "detail-head" },
    button("← All groups", back, { class: "small quiet", data: { key: "back" } }),
    element("h2", { tabindex: "-1", data: { key: "panel" } }, title),
  );
}

const times = (count) => (count > 1 ? element("small", { class: "value" }, `${count.toLocaleString("en")} ×`) : null);

// A form that labels utterances. `rows()` returns which ones when it is submitted.
function labelForm(state, id, label, rows) {
  const input = element("input", { id, list: "label-names", autocomplete: "off", data: { key: id } });
  const send = async (name) => {
    const chosen = rows();
    if (!chosen.length) return;
    const target = name === null ? "removed from the group" : `labelled “${name}”`;
    await state.change("label", { rows: chosen, name }, `${pluralise(chosen.length, "text")} ${target}.`);
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
    element("button", { type: "submit", class: "small main", data: { key: "group-name-send" } }, "Rename"),
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

// The utterances of a group, representatives first; selected ones can be labelled together.
function members(state, group) {
  const representatives = state.clusters.get(group).representatives;
  const rows = [...representatives, ...state.rowsOf(group).filter((row) => !representatives.includes(row))];
  const marked = new Set();
  const list = element("ul", { class: "members" });
  const more = element("div", { class: "row" });
  const status = element("span", { class: "help" });
  const mark = (row, on) => {
    if (on) marked.add(row);
    else marked.delete(row);
    status.textContent = marked.size ? `${marked.size} selected` : "Select texts that belong to another group.";
  };
  const item = (row) => {
    const box = state.canLabel ? element("input", { type: "checkbox", "aria-label": `Select: ${state.data.texts[row]}`, on: { change: () => mark(row, box.checked) } }) : null;
    return element(
      "li",
      {},
      box,
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
    element("h3", {}, pluralise(rows.length, "different text")),
    state.canLabel ? [status, labelForm(state, "members-label", "Label selected as", () => [...marked])] : null,
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Texts of the group" }, list, more),
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
    members(state, group),
  ]
    .flat()
    .filter(Boolean);
}

// `near`: the nearest rows on the map.
export function utteranceDetail(state, near) {
  const { row, data } = state;
  const group = data.groups[row];
  return [
    head("Utterance", () => state.open(null)),
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
