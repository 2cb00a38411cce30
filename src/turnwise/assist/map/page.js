// The page of a map: search, legend, and details of the selected cluster or utterance. Embedded after map.js.

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const [canvas, tip, panel, search, status] = ["canvas", "tip", "panel", "search", "status"].map(find);
const PAGE_SIZE = 100;  // entries that are listed at once
const clusters = new Map(data.clusters.map((cluster) => [cluster.number, cluster]));
const members = new Map();
data.groups.forEach((group, row) => {
  if (!members.has(group)) members.set(group, []);
  members.get(group).push(row);
});
const lowerCaseTexts = data.texts.map((text) => text.toLowerCase());
const total = data.counts.reduce((sum, count) => sum + count, 0);
const format = new Intl.NumberFormat("en-GB");
let query = [], onlyNew = false, order = "size";

const onselect = (row, event) => {
  if (row === null && event?.key === "Escape" && map.lasso && panel.querySelector(".order")) setLasso(false);
  else if (row === null) showLegend();
  else showUtterance(row);
};
const onlasso = (rows, adding) => {
  const kept = adding ? chosen.filter((row) => rows.length > 1 || row !== rows[0]) : [];
  const removed = adding && rows.length === 1 && kept.length < chosen.length;
  chosen = removed ? kept : [...new Set([...kept, ...rows])];
  showChosen();
};
const map = new UtteranceMap(canvas, data, { onhover: showTip, onselect, onlasso });
let chosen = [];  // rows that the lasso has encircled

// ---- elements

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") element.addEventListener("click", value);
    else if (value !== null) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function swatch(group) {
  const element = make("span", { class: "swatch", "aria-hidden": "true", "data-group": group });
  element.style.background = map.colour(group);
  return element;
}

const nameOf = (group) => clusters.get(group)?.name ?? "no cluster";
const plural = (count, what) => `${format.format(count)} ${what}${count === 1 ? "" : "s"}`;

/** Replace the contents of the panel, and move the focus to its heading if the focus was inside. */
function show(...children) {
  const within = panel.contains(document.activeElement);
  panel.replaceChildren(...children);
  panel.scrollTop = 0;
  if (within) panel.querySelector("h2")?.focus();
}

const heading = (text) => make("h2", { tabindex: -1 }, text);
const back = (label, action) => make("button", { class: "back", type: "button", onclick: action }, `← ${label}`);

/** Return a list of the first rows, and a button that shows more. */
function entries(rows, entry) {
  const list = make("ul", { class: "entries" });
  const more = make("button", { class: "more", type: "button", onclick: () => showMore(true) });
  let shown = 0;
  function showMore(focus) {
    const added = rows.slice(shown, shown + PAGE_SIZE).map((row) => make("li", {}, entry(row)));
    list.append(...added);
    shown += added.length;
    more.hidden = shown >= rows.length;
    more.textContent = `Show more (${format.format(rows.length - shown)} left)`;
    if (focus) added[0]?.firstChild.focus();
  }
  showMore(false);
  return [list, more];
}

function utteranceEntry(row) {
  const count = data.counts[row];
  return make(
    "button", { type: "button", onclick: () => { map.select(row); showUtterance(row); } },
    swatch(data.groups[row]),
    make("span", {}, ...markTerms(data.texts[row]), ...(data.new?.[row] ? [badge("new")] : [])),
    make("span", { class: "number" }, count > 1 ? `×${format.format(count)}` : ""),
  );
}

const badge = (text) => make("span", { class: "badge" }, text);

/** Return a text with the search terms marked. */
function markTerms(text) {
  if (!query.length) return [text];
  const words = query.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = text.split(new RegExp(`(${words.join("|")})`, "gi"));
  return parts.map((part, index) => (index % 2 ? make("mark", {}, part) : part));
}

// ---- tooltip

function showTip(row, x, y) {
  tip.hidden = row === null;
  if (row === null) return;
  const count = data.counts[row];
  const occurrences = count > 1 ? ` · ${format.format(count)} occurrences` : "";
  tip.replaceChildren(
    make("p", {}, data.texts[row]),
    make("small", {}, swatch(data.groups[row]), nameOf(data.groups[row]) + occurrences),
  );
  const { clientWidth: width, clientHeight: height } = canvas;
  tip.style.left = `${Math.max(8, Math.min(x + 16, width - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 20 + tip.offsetHeight > height ? Math.max(8, y - tip.offsetHeight - 14) : y + 20}px`;
}

// ---- panel

function showLegend() {
  map.select(null);
  map.choose(chosen = []);
  if (query.length || onlyNew) return showMatches();
  map.emphasise(null);
  const sorted = [...clusters.values()];
  const growth = (cluster) => cluster.utterances / total - (cluster.before ?? 0) / Math.max(1, data.before);
  const orders = {
    size: (a, b) => b.utterances - a.utterances,
    name: (a, b) => a.name.localeCompare(b.name),
    new: (a, b) => b.new / b.size - a.new / a.size,
    grown: (a, b) => growth(b) - growth(a),
  };
  sorted.sort((a, b) => a.small_talk - b.small_talk || orders[order](a, b) || a.number - b.number);
  const newChoices = { new: "most new texts first", grown: "largest growth first" };
  const choices = Object.entries({ size: "largest first", name: "by name", ...(data.new ? newChoices : {}) });
  const options = choices.map(([value, label]) =>
    make("option", { value, ...(value === order ? { selected: "" } : {}) }, label));
  const select = make("select", { class: "order", "aria-label": "Order of clusters" }, ...options);
  select.addEventListener("change", () => {
    order = select.value;
    showLegend();
    panel.querySelector("select").focus();
  });
  const most = Math.max(1, ...sorted.map((cluster) => cluster.utterances));
  const [list, more] = entries(sorted, (cluster) =>
    legendEntry(cluster.number, cluster.utterances, most, newBadge(cluster)));
  const none = members.get(-1) ?? [];
  const outside = none.reduce((sum, row) => sum + data.counts[row], 0);
  if (none.length) list.append(make("li", {}, legendEntry(-1, outside, most, "")));
  show(make("div", { class: "head" }, heading("Clusters"), select), list, more);
}

function newBadge(cluster) {
  if (!data.new || !cluster.new) return "";
  return cluster.new * 2 > cluster.size ? "new" : `${Math.max(1, Math.round((100 * cluster.new) / cluster.size))}% new`;
}

function legendEntry(group, utterances, most, note) {
  const bar = make("i");
  bar.style.width = `${(100 * utterances) / most}%`;
  bar.style.color = map.colour(group);
  const button = make(
    "button", { type: "button", onclick: () => showCluster(group, true) },
    swatch(group),
    make("span", {}, nameOf(group), ...(note ? [badge(note)] : [])),
    make("span", { class: "number" }, format.format(utterances)),
    make("span", { class: "bar", "aria-hidden": "true" }, bar),
  );
  button.addEventListener("pointerenter", () => map.emphasise(members.get(group)));
  button.addEventListener("pointerleave", () => { if (panel.querySelector(".order")) map.emphasise(null); });
  return button;
}

function showCluster(group, zoom) {
  const rows = members.get(group) ?? [];
  const cluster = clusters.get(group);
  map.select(null);
  map.choose(chosen = []);
  map.emphasise(rows);
  if (zoom) map.zoomTo(group === -1 ? null : rows);
  const utterances = rows.reduce((sum, row) => sum + data.counts[row], 0);
  const share = ((100 * utterances) / total).toFixed(1);
  const facts = [plural(rows.length, "text"), plural(utterances, "occurrence"), `${share}%`];
  if (cluster && data.new) {
    const earlier = ((100 * cluster.before) / Math.max(1, data.before)).toFixed(1);
    facts.push(`${format.format(cluster.new)} new`, `${earlier}% earlier`);
  }
  const representatives = cluster?.representatives ?? [];
  const words = (cluster?.words ?? []).map((word) => make("li", {}, word));
  const restHeading = representatives.length ? "Other texts" : "Texts";
  const listed = new Set(representatives);
  const rest = rows.filter((row) => !listed.has(row)).sort((a, b) => data.counts[b] - data.counts[a] || a - b);
  show(
    back("All clusters", () => { showLegend(); map.zoomTo(null); }),
    heading(nameOf(group)),
    make("p", { class: "facts" }, facts.join(" · ")),
    ...(words.length ? [make("ul", { class: "words", "aria-label": "Characteristic words" }, ...words)] : []),
    ...(representatives.length ? [make("h3", {}, "Representatives"), ...entries(representatives, utteranceEntry)] : []),
    ...(rest.length ? [make("h3", {}, restHeading), ...entries(rest, utteranceEntry)] : []),
  );
}

function showUtterance(row) {
  const group = data.groups[row];
  const place = data.dialogues[row] === null ? "" : `${data.dialogues[row]}, turn ${data.turns[row] + 1}`;
  const where = make(
    "button", { type: "button", onclick: () => showCluster(group, true) },
    swatch(group),
    make("span", {}, nameOf(group)),
    make("span", { class: "number" }, format.format((members.get(group) ?? []).length)),
  );
  const first = place ? `first in ${place}` : "", isNew = data.new?.[row] ? "new" : "";
  const facts = [plural(data.counts[row], "occurrence"), data.speakers[row], first, isNew].filter(Boolean);
  show(
    chosen.length ? back("Selection", showChosen)
      : back(query.length || onlyNew ? "Search results" : "All clusters", () => { showLegend(); }),
    heading("Utterance"),
    make("blockquote", {}, data.texts[row]),
    make("p", { class: "facts" }, facts.join(" · ")),
    make("h3", {}, "Cluster"),
    make("ul", { class: "entries" }, make("li", {}, where)),
    make("h3", {}, "Nearby on the map"),
    ...entries(map.near(row, 8), utteranceEntry),
  );
  status.textContent = `${data.texts[row]}. Cluster: ${nameOf(group)}`;
}

function showChosen() {
  if (!chosen.length) return showLegend();
  const rows = [...chosen].sort((a, b) => data.counts[b] - data.counts[a] || a - b);
  map.choose(rows);
  const utterances = rows.reduce((sum, row) => sum + data.counts[row], 0);
  const counts = new Map();
  for (const row of rows) counts.set(data.groups[row], (counts.get(data.groups[row]) ?? 0) + 1);
  const groups = [...counts].sort((a, b) => b[1] - a[1]).map(([group, count]) => `${nameOf(group)} (${format.format(count)})`);
  status.textContent = `${plural(rows.length, "text")} selected`;
  show(
    back("All clusters", showLegend),
    heading(status.textContent),
    make("p", { class: "facts" }, plural(utterances, "occurrence")),
    make("p", { class: "facts" }, groups.slice(0, 6).join(" · ") + (groups.length > 6 ? " · …" : "")),
    make("h3", {}, "Texts"),
    ...entries(rows, utteranceEntry),
  );
}

function setLasso(on) {
  map.lasso = on;
  find("lasso").setAttribute("aria-pressed", String(on));
}

function showMatches() {
  const rows = [];
  lowerCaseTexts.forEach((text, row) => {
    if ((!onlyNew || data.new[row]) && query.every((word) => text.includes(word))) rows.push(row);
  });
  rows.sort((a, b) => data.counts[b] - data.counts[a] || a - b);
  map.emphasise(rows);
  status.textContent = `${plural(rows.length, "text")} found`;
  const none = make("p", { class: "facts" }, "No text contains all of these words.");
  show(heading(status.textContent), ...(rows.length ? entries(rows, utteranceEntry) : [none]));
}

// ---- controls

function updateSearch() {
  query = [...new Set(search.value.toLowerCase().split(/\s+/).filter(Boolean))];
  onlyNew = find("only-new")?.checked ?? false;
  if (!query.length && !onlyNew) status.textContent = "";
  map.zoomTo(null);
  showLegend();
}

let searchTimer = 0;
search.addEventListener("input", () => { clearTimeout(searchTimer); searchTimer = setTimeout(updateSearch, 150); });
find("only-new")?.addEventListener("change", updateSearch);
find("zoom-in").addEventListener("click", () => map.zoom(1.6));
find("zoom-out").addEventListener("click", () => map.zoom(1 / 1.6));
find("fit").addEventListener("click", () => map.zoomTo(null));
find("show-all").addEventListener("click", () => map.showAll());
find("lasso").addEventListener("click", () => setLasso(!map.lasso));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && document.activeElement === search && search.value) {
    search.value = "";
    updateSearch();
  }
});
for (const button of document.querySelectorAll("table button[data-group]")) {
  button.addEventListener("click", () => {
    showCluster(Number(button.dataset.group), true);
    scrollTo({ top: 0 });
    panel.querySelector("h2").focus();
  });
}
function updateColours() {
  for (const element of document.querySelectorAll(".swatch[data-group]")) {
    element.style.background = map.colour(Number(element.dataset.group));
  }
  for (const bar of document.querySelectorAll(".bar i")) {
    bar.style.color = bar.closest("button").querySelector(".swatch").style.background;
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => requestAnimationFrame(updateColours));
showLegend();
updateColours();
