// An interactive map of utterances on a canvas: points coloured by cluster, cluster names, zoom, pan, hover, selection.
//
//   import { UtteranceMap } from "./map.js";
//   const map = new UtteranceMap(canvas, data, { onhover, onselect });
//
// canvas   an element whose size is set by CSS; gets `tabindex` and a role. Colours are its custom properties --paper,
//          --ink and --muted (any CSS colour); --paper determines whether clusters get light or dark colours.
// data     the response of GET /map: { points: [[x, y], …], groups: [cluster number per point, -1: none], counts:
//          [occurrences], clusters: [{ number, name, size, unnamed: true for a name in italics, … }], new: [bool per
//          point] | null, … }. Points have any scale, y grows upwards.
// onhover(row | null, x, y)    the point under the pointer changed; x, y: position in the canvas in CSS pixels.
// onselect(row | null, event)  a point was selected by click or keyboard; null: the selection was cleared.
// onlasso(rows, adding)        points were encircled, or one was toggled with the space bar; adding: to add to those
//                              chosen before. Without this handler there is no lasso.
//
// map.update({ groups, clusters })   after clusters were named, merged or split: colours and names change, points stay.
// map.emphasise(rows | null)         fades all other points (an iterable of rows); null: fades none.
// map.select(row | null)             marks a point without calling onselect.
// map.zoomTo(rows | null)            moves the view to these points; null: to most points, without distant ones.
// map.reveal(rows)                   moves the view to these points if most of them are outside it.
// map.showAll()                      moves the view to all points.
// map.distant                        the number of points outside the view of most points.
// map.lasso                          whether dragging encircles points (true) or moves the map (false); settable.
// map.choose(rows)                   fades all points but those chosen by the lasso; arrow keys still reach all. []: none.
// map.zoom(factor)                   zooms about the centre.
// map.near(row, count)               returns the rows nearest to a point, nearest first.
// map.colour(group)                  returns the CSS colour of a cluster by its number; -1: of no cluster.
// map.refresh()                      call after the page's colours changed, except by the system's colour scheme.
// map.destroy()                      removes every listener.
//
// Pointer: drag moves or, with Shift or in lasso mode, encircles; with Ctrl as well it adds; wheel or pinch zooms, click
// selects. Keys, with the canvas focused: arrow keys move from point to point, with Shift they move the map; + and -
// zoom, 0 shows most points, the space bar adds the selected point to those chosen or removes it, Escape cancels a
// lasso or clears the selection.

const NONE = -1;
const HIT_RADIUS = 14;         // distance at which the pointer hits a point, in CSS pixels
const MAX_ZOOM = 60;           // relative to the view of the whole map
const MARGIN = 36;             // around all points
const BULK = [0.02, 0.98];     // quantiles of the coordinates that the first view shows
const BULK_MARGIN = 0.05;      // around them, relative to their distance
const PAN_STEP = 80;           // pixels that an arrow key moves the map by
const FADED_OPACITY = 0.13;

/** The colour of a cluster: consecutive numbers have distant hues, however many clusters there are. */
function clusterColour(number, dark) {
  const hue = (25 + number * 137.508) % 360;
  const lightness = (dark ? [0.78, 0.7, 0.85] : [0.56, 0.64, 0.48])[number % 3];
  return { hue, lightness, chroma: dark ? 0.13 : 0.15 };
}

export class UtteranceMap {
  #canvas; #context; #handlers; #points; #counts; #groups; #new;
  #names = new Map(); #unnamed = new Set(); #rows = new Map(); #anchors = new Map();
  #cells; #cellSize; #columns; #origin; #bounds; #bulk; #view = null;
  #target = null; #animationStart = 0; #animationFrom = null;
  #emphasised = null; #selected = null; #hovered = null; #pointers = new Map(); #hasMoved = false;
  #chosen = null; #isLasso = false; #path = null;  // the path of a lasso in progress: positions in the canvas
  #discCache = new Map(); #colourCache = new Map(); #image;
  #palette = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  #paper = "#fff"; #ink = "#000"; #muted = "#777"; #dark = false; #frame = 0;
  #listeners = new AbortController(); #canvasSize; #resizeObserver;
  #reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

  constructor(canvas, data, handlers = {}) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.#handlers = handlers;
    this.#points = data.points;
    this.#counts = data.counts ?? null;
    this.#new = data.new ?? null;
    this.#buildGrid();
    this.update(data);
    this.refresh();
    this.#listen();
    this.#resizeObserver = new ResizeObserver(() => this.#resize());
    this.#resizeObserver.observe(canvas);
    this.#resize();
  }

  // ---- public methods

  update({ groups, clusters }) {
    this.#groups = groups;
    this.#names = new Map(clusters.map((cluster) => [cluster.number, cluster.name]));
    this.#unnamed = new Set(clusters.filter((cluster) => cluster.unnamed).map((cluster) => cluster.number));
    this.#rows = new Map();
    groups.forEach((group, row) => {
      if (!this.#rows.has(group)) this.#rows.set(group, []);
      this.#rows.get(group).push(row);
    });
    this.#anchors = new Map();
    for (const [group, rows] of this.#rows) if (group !== NONE) this.#anchors.set(group, this.#namePosition(rows));
    this.#requestDraw();
  }

  emphasise(rows) {
    this.#emphasised = rows === null ? null : new Set(rows);
    this.#requestDraw();
  }

  select(row) {
    this.#selected = row;
    this.#requestDraw();
  }

  zoomTo(rows) {
    const members = [...(rows ?? [])];
    this.#moveTo(members.length ? this.#viewOf(members) : this.#viewBulk());
  }

  reveal(rows) {
    const { width, height } = this.#size();
    const visible = rows.filter((row) => {
      const [x, y] = this.#toCanvas(row);
      return x >= 0 && y >= 0 && x <= width && y <= height;
    });
    if (visible.length >= rows.length / 2) return;
    if (rows.length > 1) this.#moveTo(this.#viewOf(rows));
    else this.#centre(rows[0]);
  }

  showAll() {
    this.#moveTo(this.#viewAll());
  }

  get distant() {
    const [left, low, right, high] = this.#bulk;
    return this.#points.filter(([x, y]) => x < left || x > right || y < low || y > high).length;
  }

  get lasso() {
    return this.#isLasso;
  }

  set lasso(on) {
    this.#isLasso = on;
    this.#path = null;
    this.#canvas.style.cursor = on ? "crosshair" : "grab";
    this.#requestDraw();
  }

  choose(rows) {
    this.#chosen = rows.length ? new Set(rows) : null;
    this.#requestDraw();
  }

  /** Return the points that are not faded; null: all. */
  get #lit() {
    return this.#chosen ?? this.#emphasised;
  }

  zoom(factor) {
    const { width, height } = this.#size();
    this.#moveTo(this.#zoomedView(this.#target ?? this.#view, factor, width / 2, height / 2));
  }

  near(row, count) {
    const [x, y] = this.#points[row];
    let found = [];
    const farthest = this.#cellSize * this.#columns * 4;
    for (let reach = this.#cellSize * 1.5; found.length <= count && reach < farthest; reach *= 2) {
      found = this.#within(x, y, reach);
    }
    found.sort((a, b) => a[1] - b[1] || a[0] - b[0]);
    return found.map(([other]) => other).filter((other) => other !== row).slice(0, count);
  }

  colour(group) {
    if (group === NONE) return this.#muted;
    const { hue, lightness, chroma } = clusterColour(group, this.#dark);
    return `oklch(${lightness} ${chroma} ${hue.toFixed(1)})`;
  }

  refresh() {
    const style = getComputedStyle(this.#canvas);
    this.#paper = style.getPropertyValue("--paper").trim() || "#fff";
    this.#ink = style.getPropertyValue("--ink").trim() || "#000";
    this.#muted = style.getPropertyValue("--muted").trim() || "#777";
    const [red, green, blue] = this.#pixel(this.#paper);
    this.#dark = 0.3 * red + 0.59 * green + 0.11 * blue < 128;
    this.#requestDraw();
  }

  destroy() {
    this.#listeners.abort();
    this.#resizeObserver.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  // ---- a grid of points, to find the nearest without visiting all

  #buildGrid() {
    const bounds = [Infinity, Infinity, -Infinity, -Infinity];
    for (const [x, y] of this.#points) {
      bounds[0] = Math.min(bounds[0], x); bounds[1] = Math.min(bounds[1], y);
      bounds[2] = Math.max(bounds[2], x); bounds[3] = Math.max(bounds[3], y);
    }
    if (!this.#points.length) bounds.splice(0, 4, 0, 0, 1, 1);
    this.#bounds = bounds;
    this.#bulk = this.#bulkBounds();
    const extent = Math.max(bounds[2] - bounds[0], bounds[3] - bounds[1]) || 1;
    this.#columns = Math.max(1, Math.ceil(Math.sqrt(this.#points.length / 2)));
    this.#cellSize = extent / this.#columns;
    this.#origin = [bounds[0], bounds[1]];
    this.#cells = new Map();
    this.#points.forEach(([x, y], row) => {
      const key = this.#cell(x, 0) * (this.#columns + 1) + this.#cell(y, 1);
      if (!this.#cells.has(key)) this.#cells.set(key, []);
      this.#cells.get(key).push(row);
    });
  }

  /** Return bounds of most points, with a margin; a few distant points do not determine the scale. */
  #bulkBounds() {
    if (this.#points.length < 100) return this.#bounds;
    const ranges = [0, 1].map((axis) => {
      const sorted = Float64Array.from(this.#points, (point) => point[axis]).sort();
      const [least, most] = BULK.map((share) => sorted[Math.round(share * (sorted.length - 1))]);
      const margin = BULK_MARGIN * (most - least);
      return [Math.max(least - margin, this.#bounds[axis]), Math.min(most + margin, this.#bounds[axis + 2])];
    });
    return [ranges[0][0], ranges[1][0], ranges[0][1], ranges[1][1]];
  }

  #cell(value, axis) {
    return Math.min(this.#columns, Math.max(0, Math.floor((value - this.#origin[axis]) / this.#cellSize)));
  }

  /** Return rows within a distance of a position, with their squared distances. */
  #within(x, y, reach) {
    const found = [];
    for (let across = this.#cell(x - reach, 0); across <= this.#cell(x + reach, 0); across++) {
      for (let up = this.#cell(y - reach, 1); up <= this.#cell(y + reach, 1); up++) {
        for (const row of this.#cells.get(across * (this.#columns + 1) + up) ?? []) {
          const distance = (this.#points[row][0] - x) ** 2 + (this.#points[row][1] - y) ** 2;
          if (distance <= reach * reach) found.push([row, distance]);
        }
      }
    }
    return found;
  }

  /** Return the position of a cluster's name: that of the member nearest to the median. */
  #namePosition(rows) {
    const sorted = (axis) => rows.map((row) => this.#points[row][axis]).sort((a, b) => a - b);
    const median = [0, 1].map((axis) => sorted(axis)[rows.length >> 1]);
    let best = rows[0], least = Infinity;
    for (const row of rows) {
      const distance = (this.#points[row][0] - median[0]) ** 2 + (this.#points[row][1] - median[1]) ** 2;
      if (distance < least) [best, least] = [row, distance];
    }
    return this.#points[best];
  }

  // ---- the view: pixels per unit, and the coordinates of the upper left corner

  #size() {
    return { width: this.#canvas.clientWidth || 1, height: this.#canvas.clientHeight || 1 };
  }

  #fit([left, low, right, high], margin, most = Infinity) {
    const { width, height } = this.#size();
    const space = Math.min(margin, width / 6, height / 6);
    const [across, down] = [(width - 2 * space) / (right - left || 1e-9), (height - 2 * space) / (high - low || 1e-9)];
    const scale = Math.min(across, down, most);
    return { scale, left: (left + right) / 2 - width / 2 / scale, top: (low + high) / 2 + height / 2 / scale };
  }

  #viewAll() {
    return this.#fit(this.#bounds, MARGIN, this.#points.length > 1 ? Infinity : 1);
  }

  #viewBulk() {
    return this.#fit(this.#bulk, MARGIN, this.#points.length > 1 ? Infinity : 1);
  }

  #viewOf(rows) {
    const sorted = [0, 1].map((axis) => rows.map((row) => this.#points[row][axis]).sort((a, b) => a - b));
    const at = (axis, share) => sorted[axis][Math.round(share * (rows.length - 1))];
    // a few distant members do not determine the scale
    return this.#fit([at(0, 0.02), at(1, 0.02), at(0, 0.98), at(1, 0.98)], 90, this.#viewBulk().scale * 5);
  }

  #zoomedView(view, factor, x, y) {
    const usual = this.#viewBulk().scale;
    const least = 0.7 * Math.min(usual, this.#viewAll().scale);
    const scale = Math.min(Math.max(view.scale * factor, least), usual * MAX_ZOOM);
    return { scale, left: view.left + x / view.scale - x / scale, top: view.top - y / view.scale + y / scale };
  }

  /** Move the view to a point without zooming. */
  #centre(row) {
    const { width, height } = this.#size();
    const [x, y] = this.#points[row], { scale } = this.#view;
    this.#moveTo({ scale, left: x - width / 2 / scale, top: y + height / 2 / scale });
  }

  #moveTo(target) {
    if (this.#reducedMotion.matches || this.#view === null) {
      this.#view = target;
      this.#target = null;
    } else {
      [this.#animationFrom, this.#target, this.#animationStart] = [this.#view, target, performance.now()];
    }
    this.#requestDraw();
  }

  #animate(now) {
    const share = Math.min(1, Math.max(0, now - this.#animationStart) / 350);
    const eased = 1 - (1 - share) ** 3;
    const { width, height } = this.#size();
    const middle = (view) => [view.left + width / 2 / view.scale, view.top - height / 2 / view.scale];
    const [from, to] = [middle(this.#animationFrom), middle(this.#target)];
    const scale = Math.exp(Math.log(this.#animationFrom.scale) * (1 - eased) + Math.log(this.#target.scale) * eased);
    // the centre moves with the scale, so that the target stays visible
    const ratio = this.#animationFrom.scale === this.#target.scale ? eased
      : (1 / this.#animationFrom.scale - 1 / scale) / (1 / this.#animationFrom.scale - 1 / this.#target.scale);
    const centre = [0, 1].map((axis) => from[axis] + (to[axis] - from[axis]) * ratio);
    this.#view = { scale, left: centre[0] - width / 2 / scale, top: centre[1] + height / 2 / scale };
    if (share === 1) this.#target = null;
    else this.#requestDraw();
  }

  #toCanvas(row) {
    const [x, y] = this.#points[row];
    return [(x - this.#view.left) * this.#view.scale, (this.#view.top - y) * this.#view.scale];
  }

  #pointAt(x, y) {
    const { scale, left, top } = this.#view;
    let best = null, least = Infinity;
    for (const [row, distance] of this.#within(left + x / scale, top - y / scale, HIT_RADIUS / scale)) {
      const seen = this.#emphasised === null || this.#emphasised.has(row);
      if (distance * (seen ? 1 : 1e6) < least) [best, least] = [row, distance * (seen ? 1 : 1e6)];
    }
    return best;
  }

  #resize() {
    const { width, height } = this.#size();
    const ratio = devicePixelRatio || 1;
    const before = this.#canvasSize;
    if (before?.width === width && before?.height === height && before?.ratio === ratio) return;
    this.#canvasSize = { width, height, ratio };
    this.#canvas.width = Math.round(width * ratio);
    this.#canvas.height = Math.round(height * ratio);
    this.#image = this.#context.createImageData(this.#canvas.width, this.#canvas.height);
    if (this.#view === null || before === undefined) {
      this.#view = this.#viewBulk();
    } else {
      this.#view.left += (before.width - width) / 2 / this.#view.scale;
      this.#view.top -= (before.height - height) / 2 / this.#view.scale;
    }
    this.#draw(performance.now());
  }

  // ---- drawing

  #requestDraw() {
    if (!this.#frame && this.#view !== null) {
      this.#frame = requestAnimationFrame((now) => {
        this.#frame = 0;
        this.#draw(now);
      });
    }
  }

  #draw(now) {
    if (this.#target !== null) this.#animate(now);
    const { width, height, ratio } = this.#canvasSize;
    const context = this.#context;
    const radius = this.#radius();
    const groups = [...this.#rows.keys()].sort((a, b) => (b === NONE) - (a === NONE) || a - b);
    // points are blended into the pixels directly: tens of thousands of drawing calls would take much longer
    const paper = new Uint32Array(Uint8Array.of(...this.#pixel(this.#paper), 255).buffer)[0];
    new Uint32Array(this.#image.data.buffer).fill(paper);
    for (const lit of this.#lit === null ? [true] : [false, true]) {
      // emphasised points are larger
      const size = radius * ratio * (this.#lit !== null && lit ? 1.25 : 1);
      for (const group of groups) this.#drawGroup(group, size, lit);
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.putImageData(this.#image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const row of new Set([this.#hovered, this.#selected])) if (row !== null) this.#ring(row, radius);
    this.#drawNames(width, height);
    if (this.#path !== null) this.#drawPath();
  }

  /** Return the radius of a point with one occurrence: larger for fewer points, and growing slowly with the zoom. */
  #radius() {
    const { width, height } = this.#size();
    const room = Math.sqrt((width * height) / Math.max(1, this.#points.length));
    const zoom = this.#view.scale / this.#viewBulk().scale;
    return Math.min(4.5, Math.max(1.3, room * 0.11)) * Math.min(2.2, Math.max(0.7, zoom ** 0.35));
  }

  #drawGroup(group, radius, lit) {
    const { data, width, height } = this.#image;
    const { ratio } = this.#canvasSize;
    const scale = this.#view.scale * ratio, { left, top } = this.#view;
    const faded = this.#lit !== null && !lit;
    const opacity = faded ? FADED_OPACITY : group === NONE ? 0.45 : 1;
    const colours = [this.#pixel(this.colour(group)), this.#pixel(this.#paper), this.#pixel(this.#ink)];
    for (const row of this.#rows.get(group)) {
      if (this.#lit !== null && this.#lit.has(row) !== lit) continue;
      const x = Math.round((this.#points[row][0] - left) * scale), y = Math.round((top - this.#points[row][1]) * scale);
      const disc = this.#disc(radius, this.#sizeClass(row), this.#new !== null && this.#new[row]);
      if (x + disc.reach < 0 || y + disc.reach < 0 || x - disc.reach >= width || y - disc.reach >= height) continue;
      const { across, down, colour, share } = disc;
      for (let pixel = 0; pixel < share.length; pixel++) {
        const column = x + across[pixel], line = y + down[pixel];
        if (column < 0 || line < 0 || column >= width || line >= height) continue;
        const place = 4 * (line * width + column), paint = colours[colour[pixel]], part = share[pixel] * opacity;
        data[place] += (paint[0] - data[place]) * part;
        data[place + 1] += (paint[1] - data[place + 1]) * part;
        data[place + 2] += (paint[2] - data[place + 2]) * part;
      }
    }
  }

  /** Return the size class of a point, 0 to 3, by its occurrences. */
  #sizeClass(row) {
    return this.#counts === null ? 0 : Math.min(3, Math.floor(Math.log2(this.#counts[row]) / 2));
  }

  /** Return the pixels of a point: offsets from its centre, colour (0: cluster, 1: paper, 2: ink) and opacity. */
  #disc(radius, sizeClass, isNew) {
    const key = Math.round(radius * 8) * 8 + sizeClass * 2 + (isNew ? 1 : 0);
    let disc = this.#discCache.get(key);
    if (disc !== undefined) return disc;
    const size = radius * (1 + 0.45 * sizeClass);
    const edge = isNew ? Math.max(1.2, radius * 0.4) : Math.max(0.6, radius * 0.2);
    const reach = Math.ceil(size + edge);
    const pixels = [];
    const covered = (wide, distance) => Math.min(1, Math.max(0, wide - distance + 0.5));
    for (let down = -reach; down <= reach; down++) {
      for (let across = -reach; across <= reach; across++) {
        const distance = Math.hypot(across, down);
        const inside = covered(size, distance), around = covered(size + edge, distance) - inside;
        if (around > 0) pixels.push([across, down, isNew ? 2 : 1, around * (isNew ? 1 : 0.5)]);
        if (inside > 0) pixels.push([across, down, 0, inside * 0.85]);
      }
    }
    disc = {
      reach, across: Int16Array.from(pixels, (pixel) => pixel[0]), down: Int16Array.from(pixels, (pixel) => pixel[1]),
      colour: Uint8Array.from(pixels, (pixel) => pixel[2]), share: Float32Array.from(pixels, (pixel) => pixel[3]),
    };
    this.#discCache.set(key, disc);
    return disc;
  }

  /** Return a CSS colour as red, green and blue. */
  #pixel(colour) {
    if (!this.#colourCache.has(colour)) {
      this.#palette.fillStyle = colour;
      this.#palette.fillRect(0, 0, 1, 1);
      this.#colourCache.set(colour, [...this.#palette.getImageData(0, 0, 1, 1).data.subarray(0, 3)]);
    }
    return this.#colourCache.get(colour);
  }

  #ring(row, radius) {
    const [x, y] = this.#toCanvas(row);
    const context = this.#context;
    const size = radius * (1 + 0.45 * this.#sizeClass(row));
    context.beginPath();
    context.arc(x, y, size, 0, 2 * Math.PI);
    context.fillStyle = this.colour(this.#groups[row]);
    context.fill();
    for (const [width, colour] of [[5, this.#paper], [2, this.#ink]]) {
      context.beginPath();
      context.arc(x, y, size + 3, 0, 2 * Math.PI);
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke();
    }
  }

  #drawPath() {
    const context = this.#context;
    context.beginPath();
    for (const [x, y] of this.#path) context.lineTo(x, y);
    context.closePath();
    context.fillStyle = this.#ink;
    context.globalAlpha = 0.08;
    context.fill();
    context.globalAlpha = 1;
    context.setLineDash([6, 4]);
    context.lineWidth = 1.5;
    context.strokeStyle = this.#ink;
    context.stroke();
    context.setLineDash([]);
  }

  /** Return the points within the path of the lasso, by the even-odd rule. */
  #encircled() {
    const path = this.#path;
    const inside = (x, y) => {
      let odd = false;
      for (let place = 0, before = path.length - 1; place < path.length; before = place++) {
        const [[x1, y1], [x2, y2]] = [path[place], path[before]];
        if (y1 > y !== y2 > y && x < x1 + ((y - y1) / (y2 - y1)) * (x2 - x1)) odd = !odd;
      }
      return odd;
    };
    return this.#points.flatMap((_, row) => (inside(...this.#toCanvas(row)) ? [row] : []));
  }

  /** Draw the names of visible clusters, the largest first, unless they would overlap another name. */
  #drawNames(width, height) {
    const context = this.#context;
    const taken = [];
    const family = getComputedStyle(this.#canvas).fontFamily;
    const sizeOf = (group) => this.#rows.get(group).length;
    const sized = [...this.#anchors.keys()].sort((a, b) => sizeOf(b) - sizeOf(a) || a - b);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    for (const group of sized) {
      if (this.#lit !== null && !this.#rows.get(group).some((row) => this.#lit.has(row))) continue;
      const [x, y] = this.#anchors.get(group);
      const across = (x - this.#view.left) * this.#view.scale, down = (this.#view.top - y) * this.#view.scale;
      if (across < 0 || down < 0 || across > width || down > height) continue;
      const size = 11.5 + Math.min(2.5, Math.log10(this.#rows.get(group).length) / 1.5) - (width < 600 ? 1.5 : 0);
      context.font = `${this.#unnamed.has(group) ? "italic 500" : "600"} ${size.toFixed(1)}px ${family}`;
      const name = truncate(this.#names.get(group) ?? String(group), 34);
      const half = context.measureText(name).width / 2 + 6;
      const middle = Math.min(Math.max(across, half), width - half), row = Math.min(Math.max(down, 12), height - 12);
      const box = [middle - half, row - size, middle + half, row + size];
      const overlaps = (other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3];
      if (taken.some(overlaps)) continue;
      taken.push(box);
      context.strokeStyle = this.#paper;
      context.lineWidth = 4;
      context.globalAlpha = 0.88;
      context.strokeText(name, middle, row);
      context.globalAlpha = 1;
      context.fillStyle = this.#ink;
      context.fillText(name, middle, row);
    }
  }

  // ---- pointer and keys

  #listen() {
    const canvas = this.#canvas;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.style.touchAction = "none";
    const signal = this.#listeners.signal;
    const on = (target, kind, handler, more = {}) => target.addEventListener(kind, handler, { signal, ...more });
    on(canvas, "pointerdown", (event) => this.#onPointerDown(event));
    on(canvas, "pointermove", (event) => this.#onPointerMove(event));
    for (const kind of ["pointerup", "pointercancel"]) on(canvas, kind, (event) => this.#onPointerUp(event));
    on(canvas, "pointerleave", () => this.#hover(null, 0, 0));
    on(canvas, "wheel", (event) => this.#onWheel(event), { passive: false });
    on(canvas, "keydown", (event) => this.#onKeyDown(event));
    on(matchMedia("(prefers-color-scheme: dark)"), "change", () => this.refresh());
  }

  #pointerPosition(event) {
    const box = this.#canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #onPointerDown(event) {
    if (event.button !== 0) return;
    this.#canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, this.#pointerPosition(event));
    this.#hasMoved = this.#pointers.size > 1;
    this.#target = null;
    this.#path = null;  // a second finger zooms instead
    if (this.#handlers.onlasso && (this.#isLasso || event.shiftKey) && !this.#hasMoved) {
      this.#path = [this.#pointerPosition(event)];
    }
  }

  #onPointerMove(event) {
    const place = this.#pointerPosition(event);
    const before = this.#pointers.get(event.pointerId);
    if (before === undefined) {
      this.#hover(this.#pointAt(...place), ...place);
      return;
    }
    if (!this.#hasMoved && Math.hypot(place[0] - before[0], place[1] - before[1]) < 4) return;
    this.#hasMoved = true;
    this.#hover(null, 0, 0);
    if (this.#path !== null) {
      this.#path.push(place);
      this.#pointers.set(event.pointerId, place);
      this.#requestDraw();
      return;
    }
    if (this.#isLasso && this.#pointers.size === 1) return;  // the lasso was cancelled
    const others = [...this.#pointers].filter(([id]) => id !== event.pointerId).map(([, other]) => other);
    if (others.length === 1) {
      const spread = (from) => Math.hypot(from[0] - others[0][0], from[1] - others[0][1]) || 1;
      const middle = [0, 1].map((axis) => (place[axis] + others[0][axis]) / 2);
      this.#view = this.#zoomedView(this.#view, spread(place) / spread(before), ...middle);
    } else {
      this.#view.left -= (place[0] - before[0]) / this.#view.scale;
      this.#view.top += (place[1] - before[1]) / this.#view.scale;
    }
    this.#pointers.set(event.pointerId, place);
    this.#requestDraw();
  }

  #onPointerUp(event) {
    const pressed = this.#pointers.delete(event.pointerId);
    const path = this.#path;
    if (path !== null && this.#hasMoved && event.type === "pointerup") {
      const rows = this.#encircled();
      this.#path = null;
      this.#requestDraw();
      this.#handlers.onlasso(rows, event.ctrlKey || event.metaKey);
      return;
    }
    this.#path = null;
    if (!pressed || this.#hasMoved || event.type === "pointercancel") return;
    this.#selectByUser(this.#pointAt(...this.#pointerPosition(event)), event);
  }

  #onWheel(event) {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 18 : 1;
    this.#target = null;
    const factor = Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016));
    this.#view = this.#zoomedView(this.#view, factor, ...this.#pointerPosition(event));
    this.#requestDraw();
  }

  #hover(row, x, y) {
    if (row === this.#hovered && row === null) return;
    const changed = row !== this.#hovered;
    this.#hovered = row;
    this.#canvas.style.cursor = row !== null ? "pointer" : this.#isLasso ? "crosshair" : "grab";
    this.#handlers.onhover?.(row, x, y);
    if (changed) this.#requestDraw();
  }

  #selectByUser(row, event) {
    this.#selected = row;
    this.#handlers.onselect?.(row, event);
    this.#requestDraw();
  }

  #onKeyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const direction = directions[event.key];
    if (direction !== undefined && event.shiftKey) {
      const view = this.#target ?? this.#view;
      const step = PAN_STEP / view.scale;
      this.#moveTo({ ...view, left: view.left + direction[0] * step, top: view.top - direction[1] * step });
    } else if (direction !== undefined) this.#selectNext(direction, event);
    else if (event.key === "+" || event.key === "=") this.zoom(1.5);
    else if (event.key === "-" || event.key === "_") this.zoom(1 / 1.5);
    else if (event.key === "0") this.zoomTo(null);
    else if (event.key === " " && this.#handlers.onlasso && this.#selected !== null) {
      this.#handlers.onlasso([this.#selected], true);
    } else if (event.key === "Escape" && this.#path !== null) {
      this.#path = null;
      this.#requestDraw();
    } else if (event.key === "Escape") this.#selectByUser(null, event);
    else return;
    event.preventDefault();
  }

  /** Select the next point in a direction; the point nearest to the centre of the view if none is selected. */
  #selectNext([across, down], event) {
    const { width, height } = this.#size();
    const from = this.#selected === null ? [width / 2, height / 2] : this.#toCanvas(this.#selected);
    let best = null, least = Infinity;
    for (let row = 0; row < this.#points.length; row++) {
      if (row === this.#selected || (this.#emphasised !== null && !this.#emphasised.has(row))) continue;
      const [x, y] = this.#toCanvas(row);
      const [dx, dy] = [x - from[0], y - from[1]];
      const ahead = dx * across + dy * down, aside = Math.abs(dx * down + dy * across);
      const isAhead = ahead > 0.5 && aside <= 2 * ahead;
      const cost = this.#selected === null ? Math.hypot(dx, dy) : isAhead ? ahead + 2 * aside : Infinity;
      if (cost < least) [best, least] = [row, cost];
    }
    if (best === null) return;
    this.#selectByUser(best, event);
    const [x, y] = this.#toCanvas(best);
    if (x < MARGIN || y < MARGIN || x > width - MARGIN || y > height - MARGIN) {
      this.#centre(best);
    }
  }
}

function truncate(text, letters) {
  return text.length <= letters ? text : `${text.slice(0, letters - 1)}…`;
}
