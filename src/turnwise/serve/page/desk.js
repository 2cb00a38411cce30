// What the parts of the map's view share: the map's data, its present groups and labels, and changes to them.
import { announce, counted } from "./elements.js";
import { attempt, toast } from "./notices.js";
import { ask } from "./service.js";

export class Desk {
  // `redraw()` shows the state anew after a change; `canLabel`: whether changes are possible at all.
  constructor(data, canLabel, redraw) {
    this.data = data;
    this.canLabel = canLabel;
    this.redraw = redraw;
    this.version = 0; // counts the changes that were made here
    this.opened = null; // a group's number
    this.left = null; // the group that was opened last
    this.row = null; // the utterance that is looked at
    this.checked = new Set(); // numbers of groups that may be merged
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

  // A group has a label once somebody named it; until then its characteristic words stand for one.
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

  // How many utterances have a label, repeats counted.
  labelled() {
    const { labels, counts } = this.data;
    let with_ = 0;
    let all = 0;
    counts.forEach((count, row) => {
      all += count;
      if (labels[row] !== null) with_ += count;
    });
    return [with_, all];
  }

  // Makes a change. It is on disk when the service answers; only then is it shown. Gives whether it was made.
  async change(path, body, told) {
    const state = await attempt(() => ask(`map/${path}`, { body }));
    if (state === undefined) return false;
    Object.assign(this.data, state);
    this.version += 1;
    this.#index();
    this.redraw();
    toast(told);
    return true;
  }

  undo() {
    return this.change("undo", {}, "Undone.");
  }

  redo() {
    return this.change("redo", {}, "Done again.");
  }

  // A group, or the table of all.
  open(group) {
    this.left = this.opened;
    this.opened = group;
    this.row = null;
    this.redraw();
    if (group !== null) announce(`${this.title(group)}: ${counted(this.clusters.get(group).utterances, "utterance")}.`);
  }

  // An utterance; none leads back to its group, if it was opened.
  select(row) {
    this.row = row;
    if (row !== null) {
      const group = this.data.groups[row];
      announce(`${this.data.texts[row]}. ${group < 0 ? "In no group." : `In ${this.title(group)}.`}`);
    }
    this.redraw();
  }
}
