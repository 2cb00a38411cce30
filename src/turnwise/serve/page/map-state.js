// The state that the parts of the map view share: the map, its current groups and labels, and changes to them.
import { announce, pluralise } from "./elements.js";
import { attempt, toast } from "./notices.js";
import { request } from "./service.js";

export class MapState {
  // `redraw()` is called after every change; `canLabel`: whether changes are possible.
  constructor(data, canLabel, redraw) {
    this.data = data;
    this.canLabel = canLabel;
    this.redraw = redraw;
    this.version = 0; // number of changes made on this page
    this.opened = null; // the number of the open group
    this.previous = null; // the group that was open before
    this.row = null; // the selected utterance
    this.checked = new Set(); // numbers of groups selected for merging
    this.chosen = []; // rows chosen on the map or by a search, in this order
    this.query = ""; // the filter of the table of groups
    this.#index();
  }

  #index() {
    this.clusters = new Map(this.data.clusters.map((cluster) => [cluster.number, cluster]));
    this.members = new Map();
    this.data.groups.forEach((group, row) => {
      if (!this.members.has(group)) this.members.set(group, []);
      this.members.get(group).push(row);
    });
    this.checked = new Set([...this.checked].filter((number) => this.clusters.has(number)));
    if (this.opened !== null && !this.clusters.has(this.opened)) this.opened = null;
  }

  rowsOf(group) {
    return this.members.get(group) ?? [];
  }

  // Whether a group has a name, which is the label of its utterances.
  named(group) {
    const rows = this.rowsOf(group);
    return rows.length > 0 && this.data.labels[rows[0]] !== null;
  }

  title(group) {
    const cluster = this.clusters.get(group);
    if (cluster === undefined) return "no group";
    return cluster.name ?? cluster.suggested ?? cluster.words.join(", ");
  }

  names() {
    return [...new Set(this.data.labels.filter((label) => label !== null))].sort((a, b) => a.localeCompare(b));
  }

  // Number of labelled utterances and of all, with repetitions.
  labelled() {
    const { labels, counts } = this.data;
    let labelled = 0;
    let all = 0;
    counts.forEach((count, row) => {
      all += count;
      if (labels[row] !== null) labelled += count;
    });
    return [labelled, all];
  }

  // Makes a change, which is on disk when the service responds, and resolves to whether it succeeded.
  async change(path, body, message) {
    const state = await attempt(() => request(`map/${path}`, { body }));
    if (state === undefined) return false;
    Object.assign(this.data, state);
    this.version += 1;
    this.#index();
    this.redraw();
    toast(message);
    return true;
  }

  undo() {
    return this.change("undo", {}, "Undone.");
  }

  redo() {
    return this.change("redo", {}, "Redone.");
  }

  // Number of utterances of rows, with repetitions.
  utterances(rows) {
    return rows.reduce((sum, row) => sum + this.data.counts[row], 0);
  }

  // Opens a group; null: the table of all groups.
  open(group) {
    this.previous = this.opened;
    this.opened = group;
    this.row = null;
    this.chosen = [];
    this.redraw();
    if (group !== null) announce(`${this.title(group)}: ${pluralise(this.clusters.get(group).utterances, "utterance")}.`);
  }

  // Chooses utterances to label together. `adding`: adds them to those chosen before, or removes a single one of these.
  choose(rows, adding = false) {
    if (!adding) this.chosen = rows;
    else if (rows.length === 1 && this.chosen.includes(rows[0])) this.chosen = this.chosen.filter((row) => row !== rows[0]);
    else this.chosen = [...new Set([...this.chosen, ...rows])];
    this.row = null;
    this.redraw();
    announce(this.chosen.length ? `${pluralise(this.chosen.length, "text")} selected.` : "No text selected.");
  }

  // Selects an utterance; null: back to the open group, if any.
  select(row) {
    this.row = row;
    if (row !== null) {
      const group = this.data.groups[row];
      announce(`${this.data.texts[row]}. ${group < 0 ? "In no group." : `In ${this.title(group)}.`}`);
    }
    this.redraw();
  }
}
