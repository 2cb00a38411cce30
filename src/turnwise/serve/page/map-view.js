// The map view: drawn by the module that the map's own page uses, and labelled here.
import { MapState } from "./map-state.js";
import { button, byId, element, keepFocus, pluralise, textSpan } from "./elements.js";
import { groupDetail, selectionDetail, utteranceDetail } from "./map-detail.js";
import { groupTable } from "./map-groups.js";
import { LabellingQuestions } from "./map-questions.js";
import { attempt, busyNotice, errorNotice, notConfigured, toast } from "./notices.js";
import { download } from "./download.js";
import { fetchFile, request } from "./service.js";

// Search results, and neighbours of an utterance.
const RESULTS = 30;
const NEIGHBOURS = 5;

export class MapView {
  #about;
  #onFitted;
  #status = "empty"; // "empty", "loading" or "shown"
  #loading = null; // resolves when the map is loaded
  #state;
  #map;
  #parts;
  #questions;
  #revealed = [null, null]; // the group and the row that the view was last moved to, if necessary
  #drawnVersion = 0; // the version of the groups that is drawn
  #highlighted = null; // rows found by the search

  // `onFitted()` runs after a classifier was fitted and is used.
  constructor(about, onFitted) {
    this.#about = about;
    this.#onFitted = onFitted;
    addEventListener("themechange", () => {
      if (this.#status !== "shown") return;
      this.#map.refresh();
      this.#redraw(); // the table uses the map's colours
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#status === "shown" && this.#redraw());
    byId("view-map").addEventListener("keydown", (event) => this.#onKeyDown(event));
  }

  show() {
    if (this.#status !== "empty") return;
    if (this.#about.map) this.#loading = this.#load();
    else byId("map-body").replaceChildren(this.#missing());
  }

  // Opens a group, once the map is loaded.
  async openGroup(group) {
    await this.#loading;
    if (this.#status === "shown" && this.#state.clusters.has(group)) this.#state.open(group);
  }

  #missing() {
    return notConfigured("No map", "A map shows utterances in groups of similar ones; named groups become intents.", [
      ["Create a map of a store:", "turnwise map STORE --model MODEL --out map"],
      ["Serve it:", "turnwise serve --model MODEL --map map"],
    ]);
  }

  async #load() {
    this.#status = "loading";
    const body = byId("map-body");
    body.replaceChildren(busyNotice("Loading the map…"));
    try {
      const [data, { UtteranceMap }] = await Promise.all([request("map"), import("./map.js")]); // loaded only when needed
      this.#state = new MapState(data, this.#about.labelling, () => this.#redraw());
      this.#createParts(body, UtteranceMap);
      this.#status = "shown";
      this.#redraw();
    } catch (error) {
      this.#status = "empty";
      body.replaceChildren(errorNotice(error, () => this.show()));
    }
  }

  // ---- created once

  #createParts(body, UtteranceMap) {
    const canvas = element("canvas", {
      class: "map",
      "aria-label": `Map of ${pluralise(this.#state.data.texts.length, "different text")}; the table of groups has the same information`,
    });
    const tip = element("div", { class: "tip", hidden: true });
    const parts = {
      canvas,
      tip,
      tools: element("div", { class: "map-tools" }),
      panel: element("section", { class: "panel", "aria-label": "Groups and utterances" }),
      questions: element("section", { class: "questions", "aria-label": "Suggested to label", hidden: !this.#state.canLabel }),
      names: element("datalist", { id: "label-names" }),
      results: element("div", {}),
      lasso: button("Select", () => this.#setLasso(!this.#map.lasso), {
        class: "small",
        "aria-pressed": "false",
        title: "Draw around texts to select them; so does dragging with Shift",
      }),
      distant: button("", () => this.#map.showAll(), { class: "small quiet distant", title: "Zoom out to texts far from all others" }),
    };
    this.#parts = parts;
    body.replaceChildren(
      parts.tools,
      element(
        "div",
        { class: "map-columns" },
        element("div", { class: "map-left" }, this.#searchForm(), parts.results, element("div", { class: "map-frame" }, canvas, tip, this.#mapButtons()), this.#mapHelp()),
        element("div", { class: "map-right" }, parts.panel, parts.questions),
      ),
      parts.names,
    );
    this.#map = new UtteranceMap(canvas, this.#drawingData(), {
      onhover: (row, x, y) => this.#hover(row, x, y),
      onselect: (row, event) => this.#select(row, event),
      onlasso: (rows, adding) => this.#choose(rows, adding),
    });
    const { distant } = this.#map;
    parts.distant.hidden = !distant;
    parts.distant.textContent = pluralise(distant, "distant text");
    this.#questions = new LabellingQuestions(this.#state, parts.questions);
  }

  // The drawing's data: unnamed groups are titled with their keywords.
  #drawingData() {
    const { data } = this.#state;
    return { ...data, clusters: data.clusters.map((cluster) => ({ ...cluster, name: this.#state.title(cluster.number), unnamed: !this.#state.named(cluster.number) })) };
  }

  #searchForm() {
    const input = element("input", { id: "map-find", type: "search", autocomplete: "off" });
    const onlyNew = element("input", { type: "checkbox", id: "map-new" });
    const search = () => this.#search(input.value.trim().toLowerCase(), onlyNew.checked);
    input.addEventListener("input", search);
    onlyNew.addEventListener("change", search);
    const count = this.#state.data.new?.filter(Boolean).length ?? 0;
    return element(
      "div",
      { class: "inline finder", role: "search" },
      element("label", { for: "map-find" }, "Search"),
      input,
      count ? element("label", { class: "check" }, onlyNew, `new only (${count.toLocaleString("en")})`) : null,
    );
  }

  #search(query, onlyNew) {
    const { texts, new: recent } = this.#state.data;
    if (!query && !onlyNew) {
      this.#highlighted = null;
      this.#parts.results.replaceChildren();
    } else {
      this.#highlighted = texts.flatMap((text, row) => ((!onlyNew || recent[row]) && text.toLowerCase().includes(query) ? [row] : []));
      const items = this.#highlighted.slice(0, RESULTS).map((row) => element("li", {}, button([textSpan(texts[row])], () => this.#state.select(row), { class: "utterance" })));
      const rest = this.#highlighted.length > RESULTS ? `, the first ${RESULTS} are listed` : "";
      this.#parts.results.replaceChildren(
        element("p", { class: "help", role: "status" }, `${pluralise(this.#highlighted.length, "text")}${rest}`),
        element("ul", { class: "members results", tabindex: "0", "aria-label": "Search results" }, items),
        ...(this.#highlighted.length ? [button(`Select ${this.#highlighted.length === 1 ? "it" : `all ${this.#highlighted.length.toLocaleString("en")}`}`, () => this.#state.choose(this.#highlighted), { class: "small" })] : []),
      );
    }
    this.#emphasise();
  }

  #mapButtons() {
    const small = { class: "small" };
    return element(
      "div",
      {},
      element("div", { class: "zoom" }, this.#parts.lasso, button("+", () => this.#map.zoom(1.5), { ...small, "aria-label": "Zoom in" }), button("−", () => this.#map.zoom(1 / 1.5), { ...small, "aria-label": "Zoom out" }), button("Fit", () => this.#map.zoomTo(null), { ...small, title: "Show most texts" })),
      this.#parts.distant,
    );
  }

  #mapHelp() {
    const keys = (...names) => names.map((name, place) => [place ? " " : null, element("kbd", {}, name)]);
    return element(
      "details",
      { class: "help map-help" },
      element("summary", {}, this.#state.canLabel ? "Groups, mouse and keys" : "Mouse and keys"),
      this.#state.canLabel ? element("p", {}, "A group’s name is the label of its utterances; unnamed groups show keywords. Select two or more groups to merge them.") : null,
      element("p", {}, "Drag to move the map, scroll to zoom, click a text to read it. ", keys("Shift"), "+drag draws around texts to select them; with ", keys("Ctrl"), " as well they are added to the selection."),
      element(
        "p",
        {},
        "With the map focused: ", keys("←", "↑", "↓", "→"), " move between texts, with ", keys("Shift"), " they pan; ", keys("Space"), " selects the text for labelling; ", keys("+", "−"), " zoom, ", keys("0"),
        " shows most texts, ", keys("Esc"), " cancels. The search selects texts as well, and the table of groups has the same information.",
      ),
    );
  }

  #setLasso(on) {
    this.#map.lasso = on;
    this.#parts.lasso.setAttribute("aria-pressed", String(on));
  }

  #choose(rows, adding) {
    this.#state.choose(rows, adding);
    // on narrow screens the list of the selection is below the map
    if (rows.length && !adding && matchMedia("(max-width: 64rem)").matches) this.#parts.panel.scrollIntoView({ block: "start" });
  }

  // Escape goes back one step: from a text, from the selection, from drawing.
  #select(row, event) {
    if (row === null && event?.key === "Escape" && this.#state.row === null) this.#cancel();
    else this.#state.select(row);
  }

  #cancel() {
    if (this.#state.chosen.length) this.#state.choose([]);
    else this.#setLasso(false);
  }

  #hover(row, x, y) {
    const { tip } = this.#parts;
    tip.hidden = row === null;
    if (row === null) return;
    const { data } = this.#state;
    tip.replaceChildren(textSpan(data.texts[row]), element("small", {}, textSpan(this.#state.title(data.groups[row]))));
    tip.style.setProperty("--x", `${Math.min(x + 12, this.#parts.canvas.clientWidth - 230)}px`);
    tip.style.setProperty("--y", `${y + 14}px`);
  }

  #onKeyDown(event) {
    if (this.#status === "shown" && event.key === "Escape" && !event.target.matches("canvas, input")) this.#cancel();
    if (this.#status !== "shown" || !(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
    if (event.target.matches("input, textarea")) return; // there the browser undoes typing
    event.preventDefault();
    const { data } = this.#state;
    if (event.shiftKey ? data.can_redo : data.can_undo) this.#state[event.shiftKey ? "redo" : "undo"]();
  }

  // ---- redrawn after a change

  #redraw() {
    const state = this.#state;
    if (this.#drawnVersion !== state.version) {
      this.#drawnVersion = state.version; // costly with tens of thousands of points
      this.#map.update(this.#drawingData());
    }
    if (state.row !== null || !state.chosen.length) this.#map.select(state.row); // else arrow keys continue from the last text
    this.#map.choose(state.chosen);
    this.#reveal();
    this.#emphasise();
    keepFocus(byId("map-body"), () => {
      this.#parts.tools.replaceChildren(...this.#tools());
      this.#parts.names.replaceChildren(...state.names().map((name) => element("option", { value: name })));
      this.#parts.panel.className = state.row === null && state.opened === null && !state.chosen.length ? "panel" : "panel card";
      this.#parts.panel.replaceChildren(...this.#panel());
    }, [`group-${state.previous}`, "panel"]);
  }

  // Moves the view to the group or text that was opened, if it is outside.
  #reveal() {
    const { opened, row } = this.#state;
    if (this.#revealed[0] === opened && this.#revealed[1] === row) return;
    this.#revealed = [opened, row];
    if (row !== null) this.#map.reveal([row]);
    else if (opened !== null) this.#map.reveal(this.#state.rowsOf(opened));
  }

  // The table of groups, or the selected group, utterance or utterances.
  #panel() {
    if (this.#state.row !== null) return utteranceDetail(this.#state, this.#map.near(this.#state.row, NEIGHBOURS));
    if (this.#state.chosen.length) return selectionDetail(this.#state);
    return this.#state.opened === null ? groupTable(this.#state, (group) => this.#map.colour(group)) : groupDetail(this.#state);
  }

  #emphasise() {
    const { opened, row } = this.#state;
    this.#map.emphasise(this.#highlighted ?? (opened === null || row !== null ? null : this.#state.rowsOf(opened)));
  }

  #tools() {
    const { data, canLabel } = this.#state;
    const [labelled, all] = this.#state.labelled();
    const progress = element("p", { class: "label-progress" }, `${labelled.toLocaleString("en")} of ${pluralise(all, "utterance")} labelled`);
    if (!canLabel) return [progress];
    const named = this.#state.names().length;
    return [
      progress,
      element(
        "div",
        { class: "row" },
        button("Undo", () => this.#state.undo(), { class: "small", disabled: !data.can_undo, data: { key: "undo" }, title: "Ctrl+Z" }),
        button("Redo", () => this.#state.redo(), { class: "small", disabled: !data.can_redo, data: { key: "redo" }, title: "Ctrl+Shift+Z" }),
        element("span", { class: "help" }, pluralise(data.changes, "change")),
        button("Download labels (CSV)", () => attempt(async () => download(await fetchFile("map/labels.csv"), "labels.csv")), { class: "small", data: { key: "csv" } }),
        button("Fit classifier", (event) => this.#fit(event.target), {
          class: "small main",
          disabled: named < 2,
          data: { key: "fit" },
        }),
        named < 2 ? element("span", { class: "help" }, "Name at least two groups first.") : null,
      ),
    ];
  }

  async #fit(pressed) {
    pressed.disabled = true;
    pressed.textContent = "Fitting…";
    await attempt(async () => {
      const { intents, examples, names, log_texts: others, folder } = await request("map/fit", { body: {} });
      const also = [[names, "name"], [others, "other text"]].filter(([count]) => count).map(([count, noun]) => pluralise(count, noun));
      toast(`Fitted on ${[`${pluralise(examples, "example")} of ${pluralise(intents, "intent")}`, ...also].join(", ")}, and in use. Saved in ${folder}.`, ["Try it", () => { location.hash = "#utterance"; }]);
      await this.#onFitted();
    });
    this.#redraw();
  }
}
