// @ts-check
import { shades, theme } from "./colors.js";
import { fit, h, tip } from "./dom.js";
import { FineHeat } from "./heatfine.js";
import { drawRuler } from "./ruler.js";
import { exact } from "./units.js";

/** @typedef {import("./types.js").Run} Run */
/** @typedef {import("./types.js").Span} Span */
/** @typedef {{values: Uint16Array, bins: number, picture: HTMLCanvasElement|null, drawn: string}} HeatTile */
/** @typedef {{name: string, ranks: number[]}} Group */

const TILE = 512;
const GUTTER = 96;
const MOST_HEIGHT = 2600;
const NO_DATA = 65535;
const MARKED = 24; // the height of a marked row, if they leave room for others
const MOST_MARKED = 8;

/** The heat map: a row per rank, time from left to right. */
export class HeatMap {
  /** @param {import("./api.js").Api} api @param {Run} run
   * @param {{moved?: (span: Span) => void, opened?: (rank: number, ns: number, perPixel: number) => void,
   *   failed: (error: any) => void, painted?: () => void, most?: number, extent?: number}} calls `painted`: called once
   *   when the first tile is there or not available; `most`: pixels of height; `extent`: ns that can be shown, by
   *   default the run's span */
  constructor(api, run, calls) {
    this.api = api;
    this.run = run;
    this.calls = calls;
    this.metric = run.metrics[0]?.name ?? "busy";
    /** @type {Span} */
    this.span = { start: 0, end: run.grid.span_ns };
    /** @type {Group[]} */
    this.groups = [{ name: "", ranks: run.ranks.map((r) => r.rank) }];
    /** @type {Map<string, HeatTile|null>} */
    this.tiles = new Map();
    this.canvas = h("canvas", { tabindex: "0", role: "img" });
    this.ruler = h("canvas", { "aria-hidden": "true" });
    this.element = h("div", { class: "heat" }, this.ruler);
    this.rowOf = new Map(run.ranks.map((r, i) => [r.rank, i]));
    /** @type {Set<number>} */
    this.marked = new Set(); // ranks to blame; `arrange` draws them
    /** @type {number[]} */
    this.shown = [];
    this.tops = [0]; // where the rows begin, and where the last one ends
    this.wanted = 0;
    /** @type {{x: number, y: number, to: number}|null} */
    this.drag = null;
    this.fine = new FineHeat(api, this.rowOf, { arrived: () => this.draw(), failed: (e) => calls.failed(e) });
    this.scroll = h("div", { class: "heat-scroll" }, this.canvas);
    if (calls.most) this.scroll.style.maxHeight = `${calls.most}px`; // so that what is compared with it is in sight
    this.scroll.addEventListener("scroll", () => this.#finer && this.draw());
    this.element.append(this.scroll);
    this.#listen();
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
  }

  close() {
    this.fine.close();
    this.watcher.disconnect();
    cancelAnimationFrame(this.wanted);
    tip.hide();
  }

  /** @param {Group[]} groups */
  arrange(groups) {
    this.groups = groups;
    for (const tile of [...this.tiles.values(), ...this.fine.tiles.values()]) if (tile) tile.drawn = "";
    this.draw();
  }

  /** @param {Span} span */
  look(span) {
    const whole = this.calls.extent ?? this.run.grid.span_ns;
    const length = Math.max(64, Math.min(span.end - span.start, whole));
    const start = Math.max(0, Math.min(span.start, whole - length));
    this.span = { start, end: start + length };
    this.calls.moved?.(this.span);
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.wanted);
    this.wanted = requestAnimationFrame(() => this.#paint());
  }

  /** @param {number} x */
  #time(x) {
    return this.span.start + (x - GUTTER) * this.perPixel;
  }

  get perPixel() {
    return (this.span.end - this.span.start) / (this.width - GUTTER);
  }

  /** The level with bins as wide as a pixel. */
  get #level() {
    return Math.ceil(Math.log2(Math.max(this.perPixel, 1)));
  }

  get width() {
    return Math.max(this.element.clientWidth - 12, 200);
  }

  get rowHeight() {
    const rows = Math.max(this.run.ranks.length, 1);
    const fits = Math.min((this.calls.most ?? 560) / rows, 22);
    return fits >= 1 ? Math.floor(fits) : rows <= MOST_HEIGHT ? 1 : MOST_HEIGHT / rows;
  }

  /** Where each row begins, and where the last one ends: those of marked ranks are higher. @param {number[]} rows */
  #tops(rows) {
    const high = this.rowHeight;
    const marked = this.marked.size <= MOST_MARKED ? Math.max(MARKED, high) : high;
    let at = 0;
    return [0, ...rows.map((rank) => (at += this.marked.has(rank) ? marked : high))];
  }

  /** A tile's rows, those of equal height at once; a marked rank's is red. @param {CanvasRenderingContext2D} context
   * @param {HeatTile|import("./heatfine.js").FineTile} tile @param {number} x @param {number} wide */
  #draw(context, tile, x, wide) {
    const picture = this.#picture(tile);
    for (let from = 0, to = 1; from < this.shown.length; from = to++) {
      const marked = this.marked.has(this.shown[from]);
      while (!marked && to < this.shown.length && !this.marked.has(this.shown[to])) to++;
      const [y, tall] = [this.tops[from], this.tops[to] - this.tops[from]];
      context.drawImage(picture, 0, from, tile.bins, to - from, x, y, wide, tall);
    }
  }

  #paint() {
    const [width, rows, high] = [this.width, this.groups.flatMap((g) => g.ranks), this.rowHeight];
    this.shown = rows;
    this.tops = this.#tops(rows);
    const height = Math.max(this.tops[rows.length], 12);
    const colors = theme();
    const context = fit(this.canvas, width, height);
    context.fillStyle = colors.back;
    context.fillRect(0, 0, width, height);
    const { perPixel } = this;
    const level = Math.max(this.run.grid.level, this.#level);
    const tileNs = 2 ** level * TILE;
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, width - GUTTER, height);
    context.clip();
    context.imageSmoothingEnabled = high < 1;
    for (let i = Math.floor(this.span.start / tileNs); i * tileNs < Math.min(this.span.end, this.run.grid.span_ns);
      i++) {
      const tile = this.#tile(level, i);
      const x = GUTTER + (i * tileNs - this.span.start) / perPixel;
      if (tile) this.#draw(context, tile, x, (tile.bins * 2 ** level) / perPixel);
    }
    if (this.#finer) this.#paintFine(context);
    context.strokeStyle = colors.soft;
    context.globalAlpha = 0.35;
    if (this.run.steps.length < (width - GUTTER) / 6) {
      for (const step of this.run.steps) {
        const x = Math.round(GUTTER + (step.start - this.span.start) / perPixel) + 0.5;
        if (x > GUTTER && x < width) line(context, x, 0, x, height);
      }
    }
    context.restore();
    this.#labels(context, width, high, colors);
    if (this.drag && Math.abs(this.drag.to - this.drag.x) > 3) {
      context.fillStyle = colors.link;
      context.globalAlpha = 0.25;
      context.fillRect(Math.min(this.drag.x, this.drag.to), 0, Math.abs(this.drag.to - this.drag.x), height);
      context.globalAlpha = 1;
    }
    drawRuler(this.ruler, width, GUTTER, this.span, this.run.steps);
    this.canvas.setAttribute("aria-label",
      `heat map of ${this.metric}: ${rows.length} ranks from ${exact(this.span.start)} to ${exact(this.span.end)}`);
  }

  /** Whether the view is finer than the stored data of all ranks, and the metric can be computed from events. */
  get #finer() {
    return this.#level < this.run.grid.level && !this.run.metrics.find((m) => m.name === this.metric)?.scale;
  }

  /** The number of the row at a height, by halving. @param {number} y */
  #rowAt(y) {
    let [low, high] = [0, this.shown.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tops[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Finer tiles over the coarse ones, as far as they are there. @param {CanvasRenderingContext2D} context */
  #paintFine(context) {
    const [level, high, perPixel] = [this.#level, this.rowHeight, this.perPixel];
    const tileNs = 2 ** level * TILE;
    const end = Math.min(this.span.end, this.run.grid.span_ns);
    if (end <= this.span.start) return;
    const [first, last] = [Math.floor(this.span.start / tileNs), Math.ceil(end / tileNs) - 1];
    for (let i = first; i <= last; i++) {
      const tile = this.fine.get(this.metric, level, i);
      const x = GUTTER + (i * tileNs - this.span.start) / perPixel;
      if (tile) this.#draw(context, tile, x, (tile.bins * 2 ** level) / perPixel);
    }
    const top = this.#rowAt(this.scroll.scrollTop);
    const rows = this.shown.slice(top, top + Math.ceil(this.scroll.clientHeight / high) + 1);
    this.fine.want(this.metric, level, first, last, rows);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} width @param {number} high
   * @param {ReturnType<typeof theme>} colors */
  #labels(context, width, high, colors) {
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    let [at, row] = [0, 0];
    let free = 0; // no label covers the one above it
    for (const group of this.groups) {
      const size = this.tops[row + group.ranks.length] - at;
      if (group.name) {
        const narrow = size < 12;
        context.strokeStyle = narrow ? colors.line : colors.text;
        if (at) line(context, 0, Math.round(at) + 0.5, narrow ? GUTTER : width, Math.round(at) + 0.5);
        if (size >= 11) {
          context.fillStyle = colors.soft;
          context.fillText(group.name.slice(0, 10), 2, at + Math.min(size / 2, 8), 58);
        }
      }
      const every = Math.max(1, Math.ceil(12 / high));
      context.fillStyle = colors.text;
      context.textAlign = "right";
      for (let i = 0; i < group.ranks.length; i += this.marked.has(group.ranks[i]) ? 1 : every) {
        const [top, end] = [this.tops[row + i], this.tops[row + i + 1]];
        const y = Math.max((top + end) / 2, top + 6);
        const marked = this.marked.has(group.ranks[i]);
        if (marked && end - top >= MARKED) {
          context.strokeStyle = colors.high;
          context.lineWidth = 2;
          context.strokeRect(GUTTER + 1, top + 1, width - GUTTER - 2, end - top - 2);
          context.lineWidth = 1;
        }
        if (y < free || (y + 5 > at + size && i > 0)) continue;
        context.fillStyle = marked ? colors.high : colors.text;
        context.font = `${marked ? "bold 12" : "11"}px system-ui, sans-serif`;
        context.fillText(String(group.ranks[i]), GUTTER - 4, y);
        free = y + 11;
      }
      context.textAlign = "left";
      at += size;
      row += group.ranks.length;
    }
  }

  /** @param {number} level @param {number} index */
  #tile(level, index) {
    const key = `${this.metric}/${level}/${index}`;
    const cached = this.tiles.get(key);
    if (cached !== undefined) return cached;
    this.tiles.set(key, null);
    this.api.heat(this.metric, level, index).then(
      (tile) => {
        this.tiles.set(key, { ...tile, picture: null, drawn: "" });
        if (this.tiles.size > 160) this.tiles.delete(/** @type {string} */ (this.tiles.keys().next().value));
        this.draw();
        this.#first();
      },
      (error) => {
        this.tiles.delete(key);
        this.calls.failed(error);
        this.#first();
      },
    );
    return null;
  }

  #first() {
    const told = this.calls.painted;
    this.calls.painted = undefined;
    if (told) requestAnimationFrame(() => setTimeout(told));
  }

  /** @param {HeatTile|import("./heatfine.js").FineTile} tile its rows that are not there yet are left open */
  #picture(tile) {
    const want = document.documentElement.dataset.theme ?? "light";
    if (tile.picture && tile.drawn === want) return tile.picture;
    const picture = tile.picture ?? h("canvas");
    [picture.width, picture.height] = [Math.max(tile.bins, 1), Math.max(this.shown.length, 1)];
    const context = picture.getContext("2d");
    if (context && tile.bins) {
      const image = context.createImageData(picture.width, picture.height);
      const pixels = new Uint32Array(image.data.buffer);
      const [plain, red] = [shades(), shades(true)];
      const awaited = this.metric === "waiting" && this.marked.size ? this.#awaited(tile) : null;
      let to = 0;
      for (const rank of this.shown) {
        const table = this.marked.has(rank) ? red : plain;
        const row = this.rowOf.get(rank) ?? 0;
        const from = row * tile.bins;
        if ("have" in tile && !tile.have[row]) {
          pixels.fill(0, to, (to += tile.bins));
          continue;
        }
        for (let b = 0; b < tile.bins; b++) {
          const value = awaited && table === red ? awaited[b] : tile.values[from + b];
          pixels[to++] = table[value === NO_DATA ? 256 : value >> 8];
        }
      }
      context.putImageData(image, 0, 0);
    }
    tile.picture = picture;
    tile.drawn = want;
    return picture;
  }

  /**
   * What ranks that are not marked wait meanwhile, the mean of each bin: that is what a marked one costs, which itself
   * waits for nobody.
   * @param {HeatTile|import("./heatfine.js").FineTile} tile */
  #awaited(tile) {
    const [sums, counts] = [new Float64Array(tile.bins), new Uint32Array(tile.bins)];
    for (const rank of this.shown) {
      const row = this.rowOf.get(rank) ?? 0;
      if (this.marked.has(rank) || ("have" in tile && !tile.have[row])) continue;
      for (let b = 0; b < tile.bins; b++) {
        const value = tile.values[row * tile.bins + b];
        if (value === NO_DATA) continue;
        sums[b] += value;
        counts[b]++;
      }
    }
    return Uint16Array.from(sums, (sum, b) => (counts[b] ? sum / counts[b] : NO_DATA));
  }

  /** The share under a point, 0 to 1; null if nothing is known. @param {number} rank @param {number} ns */
  value(rank, ns) {
    const row = this.rowOf.get(rank) ?? 0;
    let level = this.#level;
    const fine = level < this.run.grid.level ? this.fine.get(this.metric, level, Math.floor(ns / 2 ** level / TILE))
      : undefined;
    if (!fine?.have[row]) level = Math.max(this.run.grid.level, level);
    const bin = Math.floor(ns / 2 ** level);
    const tile = fine?.have[row] ? fine : this.tiles.get(`${this.metric}/${level}/${Math.floor(bin / TILE)}`);
    const value = tile?.values[row * tile.bins + (bin % TILE)];
    return value === undefined || value === NO_DATA ? null : value / 65534;
  }

  #listen() {
    const at = (/** @type {MouseEvent} */ e) => {
      const box = this.canvas.getBoundingClientRect();
      return { x: e.clientX - box.left, y: e.clientY - box.top };
    };
    const rankAt = (/** @type {number} */ y) => this.shown[this.#rowAt(y)];
    this.canvas.addEventListener("pointerdown", (e) => {
      const { x, y } = at(e);
      if (e.button !== 0 || x < GUTTER) return;
      this.canvas.setPointerCapture(e.pointerId);
      this.drag = { x, y, to: x };
    });
    this.canvas.addEventListener("pointermove", (e) => {
      const { x, y } = at(e);
      if (this.drag) {
        this.drag.to = Math.max(GUTTER, Math.min(x, this.width));
        this.draw();
      }
      const rank = rankAt(y);
      if (rank === undefined || x < GUTTER) return tip.hide();
      const [ns, facts] = [this.#time(x), this.run.ranks[this.rowOf.get(rank) ?? 0]];
      tip.show(e.clientX, e.clientY, [`rank ${rank} on ${facts.host}`, exact(ns),
        this.marked.has(rank) && this.metric === "waiting" ? "red: how many of the others wait"
        : `${this.metric}: ${this.told(this.value(rank, ns))}`]);
    });
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.canvas.addEventListener("pointerup", (e) => {
      const drag = this.drag;
      this.drag = null;
      if (!drag) return;
      if (Math.abs(drag.to - drag.x) > 3) {
        this.look({ start: this.#time(Math.min(drag.x, drag.to)), end: this.#time(Math.max(drag.x, drag.to)) });
      } else {
        const rank = rankAt(at(e).y);
        if (rank !== undefined) this.calls.opened?.(rank, this.#time(drag.x), this.perPixel);
      }
    });
    this.canvas.addEventListener("dblclick", () => this.look({ start: 0, end: this.run.grid.span_ns }));
    this.canvas.addEventListener(
      "wheel",
      (e) => {
        if (!e.ctrlKey && !e.metaKey) return;
        e.preventDefault();
        this.zoom(Math.exp(e.deltaY / 300), this.#time(at(e).x));
      },
      { passive: false },
    );
    this.canvas.addEventListener("keydown", (e) => {
      const middle = (this.span.start + this.span.end) / 2;
      const pan = (/** @type {number} */ by) => this.look({ start: this.span.start + by, end: this.span.end + by });
      const sixth = (this.span.end - this.span.start) / 6;
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      if (e.key === "w") this.zoom(0.7, middle);
      else if (e.key === "s") this.zoom(1 / 0.7, middle);
      else if (e.key === "a" || e.key === "ArrowLeft") pan(-sixth);
      else if (e.key === "d" || e.key === "ArrowRight") pan(sixth);
      else if (e.key === "Home" || e.key === "0") this.look({ start: 0, end: this.run.grid.span_ns });
      else if (e.key === "Enter") this.calls.opened?.(this.shown[0], middle, this.perPixel);
      else return;
      e.preventDefault();
    });
  }

  /** @param {number} factor @param {number} around */
  zoom(factor, around) {
    this.look({ start: around - (around - this.span.start) * factor, end: around + (this.span.end - around) * factor });
  }

  /** @param {number|null} share */
  told(share) {
    if (share === null) return "no data";
    const scale = this.run.metrics.find((m) => m.name === this.metric)?.scale;
    if (scale) return (scale[0] + share * (scale[1] - scale[0])).toLocaleString("en", { maximumSignificantDigits: 4 });
    return `${(100 * share).toFixed(1)} %`;
  }
}

/** @param {CanvasRenderingContext2D} context @param {number} x0 @param {number} y0 @param {number} x1
 * @param {number} y1 */
export function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}
