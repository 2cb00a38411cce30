// One group or one utterance of the map, with what can be done about it.
import { button, counted, element, paragraph, said } from "./elements.js";

// Utterances that are listed at a time.
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

// A form that gives utterances a label. `rows()` says which ones, when it is sent.
function labelForm(desk, id, words, rows, after = () => {}) {
  const input = element("input", { id, list: "label-names", autocomplete: "off", data: { key: id } });
  const send = async (name) => {
    const chosen = rows();
    if (!chosen.length) return;
    const told = name === null ? `${counted(chosen.length, "text is", "texts are")} in no group now.` : `${counted(chosen.length, "text is", "texts are")} “${name}” now.`;
    after();
    await desk.change("label", { rows: chosen, name }, told);
  };
  const form = element(
    "form",
    { class: "inline" },
    element("label", { for: id }, words),
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

function naming(desk, group) {
  const input = element("input", { id: "group-name", autocomplete: "off", list: "label-names", data: { key: "group-name" } });
  input.value = desk.named(group) ? desk.title(group) : "";
  input.placeholder = desk.named(group) ? "" : desk.title(group);
  const form = element(
    "form",
    { class: "inline" },
    element("label", { for: "group-name" }, "Name"),
    input,
    element("button", { type: "submit", class: "small main", data: { key: "group-name-send" } }, "Name it"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = input.value.trim();
    if (name) desk.change("name", { group, name }, `The group is called “${name}”; its utterances have that label.`);
    else input.focus();
  });
  return form;
}

function splitting(desk, group) {
  const most = Math.min(10, desk.rowsOf(group).length);
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
    desk.change("split", { group, parts }, `The group is ${parts} groups now.`);
  });
  return form;
}

// The utterances of a group, those that stand for it first; marked ones can be labelled together.
function members(desk, group) {
  const standing = desk.clusters.get(group).representatives;
  const rows = [...standing, ...desk.rowsOf(group).filter((row) => !standing.includes(row))];
  const marked = new Set();
  const list = element("ul", { class: "members" });
  const more = element("div", { class: "row" });
  const told = element("span", { class: "help" });
  const mark = (row, on) => {
    if (on) marked.add(row);
    else marked.delete(row);
    told.textContent = marked.size ? `${marked.size} marked` : "Mark texts that belong elsewhere.";
  };
  const item = (row) => {
    const box = desk.canLabel ? element("input", { type: "checkbox", "aria-label": `Mark: ${desk.data.texts[row]}`, on: { change: () => mark(row, box.checked) } }) : null;
    return element(
      "li",
      {},
      box,
      button([said(desk.data.texts[row])], () => desk.select(row), { class: "utterance", data: { key: `row-${row}` } }),
      times(desk.data.counts[row]),
    );
  };
  const grow = () => {
    const from = list.childElementCount;
    list.append(...rows.slice(from, from + PAGE).map(item));
    const left = rows.length - list.childElementCount;
    more.replaceChildren(...(left ? [button(`Show ${Math.min(PAGE, left)} more of ${left.toLocaleString("en")}`, grow, { class: "small quiet" })] : []));
  };
  grow();
  mark(null, false);
  return [
    element("h3", {}, counted(rows.length, "different text")),
    desk.canLabel ? [told, labelForm(desk, "members-label", "Those are", () => [...marked])] : null,
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Texts of the group" }, list, more),
  ]
    .flat()
    .filter(Boolean);
}

export function groupDetail(desk) {
  const group = desk.opened;
  const cluster = desk.clusters.get(group);
  return [
    head(said(desk.title(group)), () => desk.open(null)),
    element("p", { class: "help" }, `${counted(cluster.utterances, "utterance")}. Characteristic: `, said(cluster.words.join(", ")), "."),
    desk.canLabel ? naming(desk, group) : null,
    desk.canLabel ? splitting(desk, group) : null,
    members(desk, group),
  ]
    .flat()
    .filter(Boolean);
}

// `near`: rows that lie nearest on the map.
export function utteranceDetail(desk, near) {
  const { row, data } = desk;
  const group = data.groups[row];
  return [
    head("Utterance", () => desk.open(null)),
    paragraph(data.texts[row], "text quote"),
    element(
      "p",
      { class: "help" },
      [`Said ${counted(data.counts[row], "time")}`, data.new?.[row] ? "new" : null].filter(Boolean).join(", "),
      ". ",
      group < 0 ? "It is in no group." : ["Group: ", button([said(desk.title(group))], () => desk.open(group), { class: "link", data: { key: "to-group" } })],
    ),
    desk.canLabel ? labelForm(desk, "row-label", "Its label", () => [row]) : null,
    near.length
      ? [
          element("h3", {}, "Beside it on the map"),
          element(
            "ul",
            { class: "members" },
            near.map((other) => element("li", {}, button([said(data.texts[other])], () => desk.select(other), { class: "utterance" }), times(data.counts[other]))),
          ),
        ]
      : null,
  ]
    .flat()
    .filter(Boolean);
}
