// The map: drawn by the module that the map's own page uses, and labelled here.
import { Desk } from "./desk.js";
import { button, counted, element, find, keepingFocus, said } from "./elements.js";
import { groupDetail, utteranceDetail } from "./map-detail.js";
import { groupTable } from "./map-groups.js";
import { Questions } from "./map-questions.js";
import { attempt, busy, failed, notConfigured, toast } from "./notices.js";
import { save } from "./saving.js";
import { ask, fetchFile } from "./service.js";

// Utterances that a search lists, and that are shown beside one.
const FOUND = 30;
const NEAR = 5;

export class MapView {
  #about;
  #fitted;
  #state = "empty"; // "empty", "loading" or "shown"
  #desk;
  #map;
  #parts;
  #questions;
  #drawnAt = 0; // the version of the groups that is drawn
  #focusOn = null; // rows that a search or the switch brings out

  // `fitted()` runs after a classifier was fitted and taken into use.
  constructor(about, fitted) {
    this.#about = about;
    this.#fitted = fitted;
    addEventListener("themechange", () => {
      if (this.#state !== "shown") return;
      this.#map.refresh();
      this.#redraw(); // the table has the map's colours
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#state === "shown" && this.#redraw());
    find("view-map").addEventListener("keydown", (event) => this.#key(event));
  }

  show() {
    if (this.#state !== "empty") return;
    if (this.#about.map) this.#load();
    else find("map-body").replaceChildren(this.#missing());
  }

  #missing() {
    return notConfigured("There is no map", "A map lays out what people say, and groups what is alike; here groups get names, and become intents.", [
      ["Make one of a store:", "turnwise map STORE --model MODEL --out map"],
      ["Serve it:", "turnwise serve --model MODEL --map map"],
    ]);
  }

  async #load() {
    this.#state = "loading";
    const body = find("map-body");
    body.replaceChildren(busy("Reading the map…"));
    try {
      const [data, { UtteranceMap }] = await Promise.all([ask("map"), import("./map.js")]); // drawing is read where there is something to draw
      this.#desk = new Desk(data, this.#about.labelling, () => this.#redraw());
      this.#lay(body, UtteranceMap);
      this.#state = "shown";
      this.#redraw();
    } catch (error) {
      this.#state = "empty";
      body.replaceChildren(failed(error, () => this.show()));
    }
  }

  // ---- the parts, made once

  #lay(body, UtteranceMap) {
    const canvas = element("canvas", {
      class: "map",
      "aria-label": `Map of ${counted(this.#desk.data.texts.length, "different text")}; the table of groups holds the same`,
    });
    const tip = element("div", { class: "tip", hidden: true });
    const parts = {
      canvas,
      tip,
      tools: element("div", { class: "map-tools" }),
      panel: element("section", { "aria-label": "Groups and utterances" }),
      questions: element("section", { "aria-label": "Be asked next", hidden: !this.#desk.canLabel }),
      names: element("datalist", { id: "label-names" }),
      found: element("div", {}),
    };
    this.#parts = parts;
    body.replaceChildren(
      parts.tools,
      element(
        "div",
        { class: "map-columns" },
        element("div", { class: "map-left" }, this.#finder(), parts.found, element("div", { class: "map-frame" }, canvas, tip, this.#zooming()), this.#keys()),
        element("div", { class: "map-right" }, parts.panel, parts.questions),
      ),
      parts.names,
    );
    this.#map = new UtteranceMap(canvas, this.#drawn(), {
      onhover: (row, x, y) => this.#hover(row, x, y),
      onselect: (row) => this.#desk.select(row),
    });
    this.#questions = new Questions(this.#desk, parts.questions);
  }

  // What the drawing is given: a name for every group, be it a person's or its words.
  #drawn() {
    const { data } = this.#desk;
    return { ...data, clusters: data.clusters.map((cluster) => ({ ...cluster, name: this.#desk.title(cluster.number) })) };
  }

  #finder() {
    const input = element("input", { id: "map-find", type: "search", autocomplete: "off" });
    const fresh = element("input", { type: "checkbox", id: "map-new" });
    const look = () => this.#find(input.value.trim().toLowerCase(), fresh.checked);
    input.addEventListener("input", look);
    fresh.addEventListener("change", look);
    const marked = this.#desk.data.new?.filter(Boolean).length ?? 0;
    return element(
      "div",
      { class: "inline finder", role: "search" },
      element("label", { for: "map-find" }, "Find"),
      input,
      marked ? element("label", { class: "check" }, fresh, `only what is new (${marked.toLocaleString("en")})`) : null,
    );
  }

  #find(wanted, fresh) {
    const { texts, new: recent } = this.#desk.data;
    if (!wanted && !fresh) {
      this.#focusOn = null;
      this.#parts.found.replaceChildren();
    } else {
      this.#focusOn = texts.flatMap((text, row) => ((!fresh || recent[row]) && text.toLowerCase().includes(wanted) ? [row] : []));
      const items = this.#focusOn.slice(0, FOUND).map((row) => element("li", {}, button([said(texts[row])], () => this.#desk.select(row), { class: "utterance" })));
      const rest = this.#focusOn.length > FOUND ? `, of which ${FOUND} are listed` : "";
      this.#parts.found.replaceChildren(
        element("p", { class: "help", role: "status" }, `${counted(this.#focusOn.length, "text")}${rest}`),
        element("ul", { class: "members found", tabindex: "0", "aria-label": "Found" }, items),
      );
    }
    this.#emphasise();
  }

  #zooming() {
    const small = { class: "small" };
    return element(
      "div",
      { class: "zoom" },
      button("+", () => this.#map.zoom(1.5), { ...small, "aria-label": "Nearer" }),
      button("−", () => this.#map.zoom(1 / 1.5), { ...small, "aria-label": "Further" }),
      button("All", () => this.#map.zoomTo(null), { ...small, "aria-label": "Show all of the map" }),
    );
  }

  #keys() {
    const keys = (...names) => names.map((name, place) => [place ? " " : null, element("kbd", {}, name)]);
    return element(
      "p",
      { class: "help" },
      "On the map: ", keys("←", "↑", "↓", "→"), " go from text to text, with ", keys("Shift"), " they move it; ", keys("+", "−"), " zoom, ", keys("0"), " shows all, ", keys("Esc"),
      " lets go. The table of groups holds the same.",
    );
  }

  #hover(row, x, y) {
    const { tip } = this.#parts;
    tip.hidden = row === null;
    if (row === null) return;
    const { data } = this.#desk;
    tip.replaceChildren(said(data.texts[row]), element("small", {}, said(this.#desk.title(data.groups[row]))));
    tip.style.setProperty("--x", `${Math.min(x + 12, this.#parts.canvas.clientWidth - 230)}px`);
    tip.style.setProperty("--y", `${y + 14}px`);
  }

  #key(event) {
    if (this.#state !== "shown" || !(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
    if (event.target.matches("input, textarea")) return; // there the browser undoes what was typed
    event.preventDefault();
    const { data } = this.#desk;
    if (event.shiftKey ? data.can_redo : data.can_undo) this.#desk[event.shiftKey ? "redo" : "undo"]();
  }

  // ---- the parts, drawn anew after a change

  #redraw() {
    const desk = this.#desk;
    if (this.#drawnAt !== desk.version) {
      this.#drawnAt = desk.version; // tens of thousands of points are gone through only where their groups changed
      this.#map.update(this.#drawn());
    }
    this.#map.select(desk.row);
    this.#emphasise();
    keepingFocus(find("map-body"), () => {
      this.#parts.tools.replaceChildren(...this.#tools());
      this.#parts.names.replaceChildren(...desk.names().map((name) => element("option", { value: name })));
      this.#parts.panel.className = desk.row === null && desk.opened === null ? "" : "card";
      this.#parts.panel.replaceChildren(...this.#panel());
    }, [`group-${desk.left}`, "panel"]);
  }

  // The table of groups, or what was chosen in it or on the map.
  #panel() {
    if (this.#desk.row !== null) return utteranceDetail(this.#desk, this.#map.near(this.#desk.row, NEAR));
    return this.#desk.opened === null ? groupTable(this.#desk, (group) => this.#map.colour(group)) : groupDetail(this.#desk);
  }

  #emphasise() {
    const { opened, row } = this.#desk;
    this.#map.emphasise(this.#focusOn ?? (opened === null || row !== null ? null : this.#desk.rowsOf(opened)));
  }

  #tools() {
    const { data, canLabel } = this.#desk;
    const [labelled, all] = this.#desk.labelled();
    const share = element("p", { class: "share" }, `${labelled.toLocaleString("en")} of ${counted(all, "utterance")} have a label`);
    if (!canLabel) return [share];
    const named = this.#desk.names().length;
    return [
      share,
      element(
        "div",
        { class: "row" },
        button("Undo", () => this.#desk.undo(), { class: "small", disabled: !data.can_undo, data: { key: "undo" }, title: "Ctrl+Z" }),
        button("Redo", () => this.#desk.redo(), { class: "small", disabled: !data.can_redo, data: { key: "redo" }, title: "Ctrl+Shift+Z" }),
        element("span", { class: "help" }, counted(data.changes, "change")),
        button("Save labels as CSV", () => attempt(async () => save(await fetchFile("map/labels.csv"), "labels.csv")), { class: "small", data: { key: "csv" } }),
        button("Fit the classifier", (event) => this.#fit(event.target), {
          class: "small main",
          disabled: named < 2,
          data: { key: "fit" },
        }),
        named < 2 ? element("span", { class: "help" }, "Name two groups to fit one.") : null,
      ),
    ];
  }

  async #fit(pressed) {
    pressed.disabled = true;
    pressed.textContent = "Fitting…";
    await attempt(async () => {
      const { intents, examples, folder } = await ask("map/fit", { body: {} });
      toast(`Fitted on ${counted(examples, "example")} of ${counted(intents, "intent")}, and in use now. It is kept in ${folder}.`, ["Try it", () => { location.hash = "#utterance"; }]);
      await this.#fitted();
    });
    this.#redraw();
  }
}
