// @ts-check
import { areaOf, areaText } from "./areatext.js";
import { Arrangement, likeness } from "./arrange.js";
import { theme } from "./colors.js";
import { Details } from "./details.js";
import { listen } from "./controls.js";
import { drawTile, LANE, TABLES } from "./draw.js";
import { entry, fit, h, tip } from "./dom.js";
import { Laid } from "./laid.js";
import { Legend } from "./legend.js";
import { overlay } from "./overlay.js";
import { Notes } from "./notes.js";
import { detailsBorder, labelsBorder } from "./panes.js";
import { drawRuler } from "./ruler.js";
import { Says } from "./says.js";
import { Search } from "./search.js";
import { TILE_BINS, TileStore } from "./tiles.js";
import { duration, exact, moment, parseRanks, parseTime, rankText } from "./units.js";
import { keep } from "./url.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {import("./types.js").Track} Track */
/** @typedef {import("./types.js").Span} Span */
/** @typedef {import("./types.js").EventId} EventId */
/** @typedef {{id: string, rank: number, key: string, label: string, y: number, height: number, head: boolean,
 *   pin: string, tile?: import("./types.js").Tile}} Row */

const HEAD = 20;
const LEAST_NS = 20;
const MOST_STUCK = 0.6; // pinned tracks that fill more of the height scroll with the others
const MOST_ASKED = 256; // ranks with tracks requested at once

export class Timeline {
  /** @param {Context} ctx @param {Record<string, string>} values */
  constructor(ctx, values) {
    this.ctx = ctx;
    this.whole = ctx.run.grid.span_ns;
    /** @type {Span} */
    this.span = { start: 0, end: this.whole };
    this.ranks = /** @type {number[]} */ ([]);
    this.open = /** @type {Set<number>} */ (new Set());
    /** @type {Set<string>} tracks, a rank and a key; after a star, equal tracks on all ranks shown */
    this.pins = new Set();
    this.tracks = /** @type {Map<number, Track[]>} */ (new Map());
    this.asked = /** @type {Set<number>} */ (new Set());
    this.lanes = /** @type {Map<string, number>} */ (new Map());
    this.rows = /** @type {Row[]} */ ([]);
    this.cursors = /** @type {number[]} */ ([]);
    /** @type {Span|null} */
    this.range = null;
    /** @type {string[]|null} the tracks of the range; null for what the devices of all ranks did that are shown */
    this.area = null;
    /** @type {EventId|null} */
    this.chosen = null;
    /** @type {any} */
    this.facts = null;
    this.trackChosen = "";
    this.level = 0;
    /** @type {Map<string, number>} the largest value seen on each track of samples */
    this.tops = new Map();
    this.search = new Search(this);
    this.legend = new Legend();
    this.notes = new Notes(this);
    this.arrangement = new Arrangement(ctx.run, () => this.layout());
    /** @type {import("./draw.js").Hit[]} */
    this.hits = [];
    this.pointer = NaN;
    /** @type {{x: number, y: number, start: Span, pan: boolean, moved: boolean}|null} */
    this.drag = null;
    this.frame = 0;
    this.spent = 0;
    this.labelled = "";
    this.left = 200;
    this.width = 1000;
    this.height = 500;
    this.scrolled = 0;
    this.pinned = 0; // the height of the pinned tracks in pixels
    this.stuck = 0; // the height of those that do not scroll with the others
    this.store = new TileStore(ctx.api, { arrived: () => this.draw(), failed: ctx.failed });
    this.says = new Says(ctx);
    this.details = new Details(ctx, this);
    this.laid = new Laid(ctx, () => this.layout());
    ctx.main.className = "full";
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.rulerCanvas = h("canvas", { "aria-hidden": "true" });
    this.labels = h("div", { class: "labels" });
    this.space = h("div", { class: "space" }, this.labels);
    this.tracksBox = h("div", { class: "tracks", tabindex: "0", role: "application",
      "aria-label": "timeline; ? shows its keys" }, this.canvas, this.space);
    this.rankEntry = entry("ranks", "", (v) => this.setRanks(parseRanks(v, ctx.run.ranks.map((r) => r.rank))),
      { "aria-label": "ranks shown, such as 0-7,64 or all" });
    this.from = entry("from", "", (v) => this.#typed(v, "start"));
    this.to = entry("to", "", (v) => this.#typed(v, "end"));
    this.find = entry("search", "", (v) => void this.search.ask(v),
      { class: "wide", placeholder: "regular expression (/)", "aria-label": "search names by regular expression" });
    this.told = h("span", { class: "muted", role: "status" });
    const button = (/** @type {string} */ text, /** @type {string} */ title,
      /** @type {() => void} */ act) => h("button", { type: "button", title, on: { click: act } }, text);
    const bar = h(
      "div",
      { class: "bar" },
      this.rankEntry,
      button("all ranks", "show every rank, folded", () => this.setRanks(ctx.run.ranks.map((r) => r.rank))),
      button("fold", "fold all ranks", () => (this.open.clear(), this.layout())),
      this.from,
      this.to,
      button("+", "zoom in (W)", () => this.zoom(0.6)),
      button("-", "zoom out (S)", () => this.zoom(1 / 0.6)),
      button("whole run", "Home", () => this.look(0, this.whole)),
      button("range", "breakdown of what is shown (R)", () => this.selectRange({ ...this.span })),
      this.arrangement.element,
      this.find,
      this.search.element,
      this.notes.button,
      this.told,
      this.legend.element,
    );
    const box = h("div", { class: "timeline" }, h("div", { class: "ruler" }, this.rulerCanvas), this.tracksBox,
      labelsBorder(() => this.draw()));
    ctx.main.append(bar, this.says.element, box, detailsBorder(this.details.element), this.details.element);
    this.tracksBox.addEventListener("scroll", () => this.draw());
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.tracksBox);
    this.unlisten = listen(this);
    this.changed(values);
  }

  /** Read from the page what drawing needs of it; asking it more often costs layouts. */
  measure() {
    this.left = parseInt(getComputedStyle(document.documentElement).getPropertyValue("--labels"), 10) || 200;
    this.width = Math.max(this.tracksBox.clientWidth, this.left + 50);
    this.height = this.tracksBox.clientHeight;
    this.scrolled = this.tracksBox.scrollTop;
    this.stuck = this.pinned <= this.height * MOST_STUCK ? this.pinned : 0;
  }

  /** Where a row is on the screen. @param {Row} row */
  top(row) {
    return row.pin && this.stuck ? row.y : row.y - this.scrolled;
  }

  /** Whether a row is behind the pinned ones. @param {Row} row */
  behind(row) {
    return !row.pin && this.top(row) + row.height <= this.stuck;
  }

  /** The row at a height of the screen. @param {number} y */
  rowAt(y) {
    return this.visible().reverse().find((r) => this.top(r) <= y && y < this.top(r) + r.height);
  }

  get perPixel() {
    return (this.span.end - this.span.start) / (this.width - this.left);
  }

  close() {
    this.watcher.disconnect();
    cancelAnimationFrame(this.frame);
    this.unlisten();
    this.store.close();
    this.laid.close();
    this.search.close();
    this.details.close();
    tip.hide();
  }

  themed() {
    this.details.themed();
    this.legend.draw();
    this.draw();
  }

  /** Show what a URL says. @param {Record<string, string>} values */
  changed(values) {
    const known = this.ctx.run.ranks.map((r) => r.rank);
    const number = (/** @type {string|undefined} */ v,
      /** @type {number} */ other) => (v !== undefined && v !== "" && Number.isFinite(Number(v)) ? Number(v) : other);
    this.span = this.#bounded(number(values.start, 0), number(values.end, this.whole));
    this.open = new Set(parseRanks(values.open || "-", known));
    this.pins = new Set((values.pin ?? "").split(",").filter(Boolean));
    this.arrangement.read(values);
    this.cursors = (values.cursors ?? "").split(",").filter(Boolean).map(Number).filter(Number.isFinite).slice(0, 2);
    this.setRanks(values.ranks ? parseRanks(values.ranks, known) : known.slice(0, 16));
    if (values.open === undefined && this.ranks.length && !values.ranks) this.open.add(this.ranks[0]);
    void this.says.show(values.finding ?? "");
    const event = /^(\d+)\/(\w+)\/(\d+)$/.exec(values.event ?? "");
    this.chosen = this.facts = this.range = this.area = null; // an earlier choice stays only if the address has it
    if (event) void this.choose({ rank: Number(event[1]), table: event[2], row: Number(event[3]) });
    const range = /^(\d+)-(\d+)$/.exec(values.range ?? "");
    if (range) this.selectRange({ start: Number(range[1]), end: Number(range[2]) }, areaOf(values.area ?? "", known));
    if (!event && !range) this.details.empty();
    void this.laid.ask(values.sql ?? "");
    void this.notes.load(/^\d+$/.test(values.note ?? "") ? Number(values.note) : null);
    const input = this.find.querySelector("input");
    if (input) input.value = values.search ?? "";
    if ((values.search ?? "") !== this.search.pattern) void this.search.ask(values.search ?? "");
    this.layout();
    return true;
  }

  remember() {
    const { chosen, range } = this;
    keep("timeline", {
      start: Math.round(this.span.start),
      end: Math.round(this.span.end),
      ranks: this.ranks.length === this.ctx.run.ranks.length ? "all" : rankText(this.ranks),
      open: rankText([...this.open]) || "-",
      pin: [...this.pins].join(","),
      event: chosen ? `${chosen.rank}/${chosen.table}/${chosen.row}` : "",
      range: range ? `${Math.round(range.start)}-${Math.round(range.end)}` : "",
      area: range && this.area ? areaText(this.area) : "",
      sql: this.laid.query,
      note: this.notes.chosen,
      cursors: this.cursors.map(Math.round).join(","),
      search: this.search.pattern,
      finding: this.says.finding,
      ...this.arrangement.values(),
    });
  }

  /** @param {number[]} ranks */
  setRanks(ranks) {
    this.ranks = ranks;
    const input = this.rankEntry.querySelector("input");
    if (input) input.value = ranks.length === this.ctx.run.ranks.length ? "all" : rankText(ranks);
    this.layout();
  }

  /** @param {string} text @param {"start"|"end"} which */
  #typed(text, which) {
    const ns = parseTime(text);
    if (ns !== null) this.look(which === "start" ? ns : this.span.start, which === "end" ? ns : this.span.end);
  }

  /** @param {number} start @param {number} end @returns {Span} */
  #bounded(start, end) {
    const length = Math.max(LEAST_NS, Math.min(end - start, this.whole * 1.02 + LEAST_NS));
    const from = Math.max(-length * 0.5, Math.min(start, this.whole - length * 0.5));
    return { start: from, end: from + length };
  }

  /** @param {number} start @param {number} end */
  look(start, end) {
    this.span = this.#bounded(start, end);
    this.draw();
  }

  /** @param {number} factor @param {number} [around] */
  zoom(factor, around = (this.span.start + this.span.end) / 2) {
    this.look(around - (around - this.span.start) * factor, around + (this.span.end - around) * factor);
  }

  /** @param {number} share */
  pan(share) {
    const by = (this.span.end - this.span.start) * share;
    this.look(this.span.start + by, this.span.end + by);
  }

  /** Ask for the tracks of ranks that are open. */
  async #need() {
    const pins = [...this.pins]
      .flatMap((p) => (p.startsWith("*") ? [parseInt(p.slice(1), 10), ...this.ranks] : [parseInt(p, 10)]));
    const ranks = [...new Set([...this.open, ...pins])].filter((r) => !this.asked.has(r));
    if (!ranks.length) return;
    for (const r of ranks) this.asked.add(r);
    try {
      for (let i = 0; i < ranks.length; i += MOST_ASKED) {
        const { tracks } = await this.ctx.api.post("tracks", { ranks: ranks.slice(i, i + MOST_ASKED) });
        for (const [rank, known] of Object.entries(tracks)) this.tracks.set(Number(rank), known);
        this.layout();
      }
    } catch (error) {
      this.ctx.failed(error);
    }
  }

  /** Where every row is. */
  layout() {
    void this.#need();
    const rows = /** @type {Row[]} */ ([]);
    let y = 0;
    const addLaid = (/** @type {number} */ rank) => {
      const tile = this.laid.tiles.get(rank < 0 ? "-" : `${rank}`);
      if (!tile) return;
      this.lanes.set(tile.track, tile.lanes);
      add(rank, "query", rank < 0 ? "query" : `${rank}: query`);
      rows[rows.length - 1].tile = tile;
    };
    const add = (/** @type {number} */ rank, /** @type {string} */ key, /** @type {string} */ label, head = false,
      pin = "") => {
      const id = key === "query" && rank < 0 ? "-/query" : `${rank}/${key}`;
      const height = head ? HEAD : Math.max(LANE + 3, (this.lanes.get(id) ?? 1) * LANE + 3);
      rows.push({ id, rank, key, label, y, height, head, pin });
      y += height;
    };
    const named = new Map(this.ctx.run.ranks.map((r) => [r.rank, r.host]));
    const ranks = this.arrangement.sorted(this.ranks);
    for (const pin of this.pins) for (const { rank, key, label } of this.#pinned(pin, ranks))
      add(rank, key, `${rank}: ${label}`, false, pin);
    this.pinned = y;
    if (this.laid.tiles.has("-")) addLaid(-1);
    const chosen = this.facts && this.tracks.get(this.facts.rank)?.find((t) => t.key === this.facts.track);
    const shownOf = (/** @type {number} */ rank) => this.arrangement.of(rank,
      (this.tracks.get(rank) ?? []).filter((t) => t.key !== "summary"), chosen);
    for (const rank of ranks) {
      const host = named.get(rank) ?? "";
      add(rank, "summary", `rank ${rank} · ${host}${this.arrangement.told(rank)}${this.search.of(rank)}`, true);
      addLaid(rank);
      if (this.open.has(rank) && !this.arrangement.byKind) {
        const visible = shownOf(rank);
        for (const t of visible) add(rank, t.key, t.label);
        if (this.tracks.has(rank) && !visible.length) add(rank, "summary", "no track is shown");
      }
    }
    if (this.arrangement.byKind) {
      const every = ranks.filter((r) => this.open.has(r))
        .flatMap((rank) => shownOf(rank).map((t) => ({ rank, t, like: likeness(t) })));
      const [groups, likes] = [[...new Set(every.map((e) => e.t.group))], [...new Set(every.map((e) => e.like))]];
      const [group, like] = [groups, likes].map((names) => new Map(names.map((name, i) => [name, i])));
      // equal tracks are grouped, such as one stream of every rank
      every.sort((a, b) => (group.get(a.t.group) ?? 0) - (group.get(b.t.group) ?? 0) ||
        (like.get(a.like) ?? 0) - (like.get(b.like) ?? 0));
      for (const { rank, t } of every) add(rank, t.key, `${rank}: ${t.label}`);
    }
    this.rows = rows;
    this.space.style.height = `${Math.max(y, 1)}px`;
    this.draw();
  }

  /** The tracks of a pin, as far as they are known. @param {string} pin
   * @param {number[]} ranks those that are shown, in their order */
  #pinned(pin, ranks) {
    const [every, at] = [pin.startsWith("*"), pin.indexOf("/")];
    const [rank, key] = [Number(pin.slice(every ? 1 : 0, at)), pin.slice(at + 1)];
    if (key === "summary") return (every ? ranks : [rank]).map((r) => ({ rank: r, key, label: "devices" }));
    const one = this.tracks.get(rank)?.find((t) => t.key === key);
    if (!one) return [];
    if (!every) return [{ rank, key, label: one.label }];
    const like = likeness(one);
    return ranks.flatMap((r) => (this.tracks.get(r) ?? []).filter((t) => likeness(t) === like)
      .map((t) => ({ rank: r, key: t.key, label: t.label })));
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      const before = performance.now();
      this.#paint();
      this.spent = performance.now() - before;
    });
  }

  /** The rows on the screen, pinned ones last; the first is found by halving, there may be many thousands. */
  visible() {
    const [top, bottom] = [this.scrolled + this.stuck, this.scrolled + this.height];
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].y + this.rows[middle].height <= top) low = middle + 1;
      else high = middle;
    }
    const rows = [];
    for (let i = low; i < this.rows.length && this.rows[i].y < bottom; i++) rows.push(this.rows[i]);
    return this.stuck ? [...rows.filter((r) => !r.pin), ...this.rows.filter((r) => r.pin)] : rows;
  }

  /** @param {number} ns */
  x(ns) {
    return this.left + (ns - this.span.start) / this.perPixel;
  }

  #paint() {
    this.measure();
    const { width, height, left } = this;
    const context = fit(this.canvas, width, height);
    if (this.canvas.dataset.height !== `${height}`) this.canvas.style.marginBottom = `${-height}px`;
    this.canvas.dataset.height = `${height}`;
    const colors = theme();
    context.fillStyle = colors.back;
    context.fillRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    const frame = { left, width, start: this.span.start, scale: 1 / this.perPixel };
    const level = (this.level = Math.max(0, Math.min(52, Math.floor(Math.log2(Math.max(this.perPixel, 1))))));
    const tileNs = 2 ** level * TILE_BINS;
    const [first, last] = [Math.max(0, Math.floor(this.span.start / tileNs)),
      Math.max(0, Math.floor(Math.min(this.span.end, this.whole - 1) / tileNs))];
    const rows = this.visible();
    const style = { text: document.documentElement.dataset.theme === "dark" ? "#f2f5f8" : "#101820", soft: colors.soft,
      lit: this.search.lit, mark: colors.mark };
    this.hits = [];
    let grown = false;
    for (const row of rows) {
      const y = this.top(row);
      if (row.pin && this.stuck) {
        context.fillStyle = colors.back;
        context.fillRect(0, y, width, row.height);
      }
      if (row.head) {
        context.fillStyle = colors.panel;
        context.fillRect(left, y, width - left, row.height);
      }
      if (row.tile) drawTile(row.tile,
        { context, frame, from: left, to: width, y, height: row.height, style, hits: this.hits, tops: this.tops });
      const drawn = new Set();
      for (let i = first; i <= last && !row.tile; i++) {
        const tile = this.store.best(row.id, level, i);
        if (!tile) continue;
        if (tile.lanes > (this.lanes.get(row.id) ?? 1)) {
          this.lanes.set(row.id, tile.lanes);
          grown = true;
        }
        if (drawn.has(tile)) continue;
        drawn.add(tile);
        const wide = 2 ** tile.level * TILE_BINS;
        // a coarser tile is used only if finer ones are missing
        const from = tile.level === level ? tile.index * wide : i * tileNs;
        let to = tile.level === level ? from + wide : from + tileNs;
        for (let k = i + 1; tile.level !== level && k <= last && this.store.best(row.id, level, k) === tile; k++)
          to = (k + 1) * tileNs;
        const [x0, x1] = [Math.max(left, Math.round(this.x(from))), Math.min(width, Math.round(this.x(to)))];
        drawTile(tile,
          { context, frame, from: x0, to: x1, y, height: row.height, style, hits: this.hits, tops: this.tops });
      }
      context.fillStyle = colors.line;
      context.globalAlpha = 0.5;
      context.fillRect(left, Math.round(y + row.height) - 0.5, width - left, 0.5);
      context.globalAlpha = 1;
    }
    if (this.stuck) {
      context.fillStyle = colors.soft;
      context.fillRect(0, this.stuck - 1, width, 1);
    }
    this.search.draw(context);
    this.notes.draw(context);
    overlay(this, context);
    this.#labelRows(rows);
    drawRuler(this.rulerCanvas, width, left, this.span, this.ctx.run.steps);
    const ends = /** @type {[HTMLElement, number][]} */ ([[this.from, this.span.start], [this.to, this.span.end]]);
    for (const [label, ns] of ends) {
      const input = label.querySelector("input");
      if (input && input !== document.activeElement) input.value = moment(Math.round(ns), this.perPixel);
    }
    this.told.textContent = `${duration(this.span.end - this.span.start)} shown${this.#measured()}`;
    this.store.want(rows.filter((r) => !r.tile).map((r) => r.id), level, first, last);
    this.remember();
    if (grown) this.layout();
  }

  #measured() {
    if (this.cursors.length < 2) return this.cursors.length ? `, cursor at ${exact(this.cursors[0])}` : "";
    return `, cursors ${duration(Math.abs(this.cursors[1] - this.cursors[0]))} apart`;
  }

  /** @param {number} rank @param {string} other */
  collectiveKey(rank, other) {
    return this.tracks.get(rank)?.find((t) => t.group === "collectives")?.key ?? other;
  }

  /** @param {Row[]} rows */
  #labelRows(rows) {
    const now =
      rows.map((r) => `${r.id} ${r.pin && this.stuck ? this.scrolled : ""} ${r.y} ${r.height} ` +
        `${this.open.has(r.rank)} ${r.pin || this.pins.has(r.id)} ${r.id === this.trackChosen} ${r.label}`).join();
    if (now === this.labelled) return;
    this.labelled = now;
    const made = rows.map((row) => {
      const open = this.open.has(row.rank);
      const culprit = row.head && row.rank === this.arrangement.first[0];
      const marks = ["label", row.head && "rank", culprit && "culprit", row.id === this.trackChosen && "chosen"];
      const label = h("div", { class: marks.filter(Boolean).join(" "), title: row.label });
      label.style.top = `${this.top(row) + this.scrolled}px`;
      label.style.height = `${row.height}px`;
      if (row.head)
        label.append(h("button", { type: "button", "data-act": "fold", "data-rank": row.rank,
          "aria-expanded": String(open), "aria-label": `tracks of rank ${row.rank}` }, open ? "▾" : "▸"));
      label.append(h("span", {}, row.label));
      const pin = row.pin || row.id;
      const pinned = this.pins.has(pin);
      if (!row.head && !row.tile && row.key !== "summary") label.append(h("button",
        { type: "button", "data-act": "hide", "data-id": row.id, "aria-label": `hide ${row.label}`, title: "hide" },
        "×"));
      label.append(h("button", { type: "button", "data-act": "pin", "data-id": pin, "aria-pressed": String(pinned),
        "aria-label": `pin ${row.label}`, title: pinned ? "unpin"
        : "pin to the top; with Shift what is like it on all ranks shown" }, pinned ? "★" : "☆"));
      return label;
    });
    const held = /** @type {HTMLElement|null} */ (document.activeElement);
    const [act, of] = [held?.dataset?.act, held?.dataset?.rank ?? held?.dataset?.id];
    this.labels.replaceChildren(...made);
    if (act && of !== undefined)
      /** @type {HTMLElement|null} */ (this.labels.querySelector(
        `[data-act="${act}"][data-${act === "fold" ? "rank" : "id"}="${CSS.escape(of)}"]`))?.focus();
  }

  /** @param {Span|null} range
   * @param {string[]|null} [tracks] ranks and keys; null for what the devices of all ranks did that are shown */
  selectRange(range, tracks = null) {
    this.range = range;
    this.area = tracks;
    if (range) {
      this.facts = this.chosen = null;
      range.start = Math.max(0, Math.floor(range.start));
      range.end = Math.min(this.whole, Math.ceil(range.end));
      if (range.end > range.start) void this.details.area(range, tracks ?? this.ranks.map((r) => `${r}/summary`));
      else this.range = null;
    } else if (!this.chosen) {
      this.details.empty();
    }
    this.draw();
  }

  /** @param {EventId} event @param {boolean} [go] whether to go where it is */
  async choose(event, go = false) {
    this.chosen = event;
    this.range = this.area = null;
    const facts = await this.details.event(event);
    if (!facts || this.chosen !== event) return;
    this.facts = facts;
    this.trackChosen = `${event.rank}/${facts.track}`;
    if (this.arrangement.kind === "main") this.layout();
    if (go) this.reveal(facts);
    this.draw();
  }

  /** @param {any} facts */
  reveal(facts) {
    const { start, end } = facts.span;
    const length = this.span.end - this.span.start;
    if (!this.ranks.includes(facts.rank)) this.setRanks([...this.ranks, facts.rank].sort((a, b) => a - b));
    if (!this.open.has(facts.rank) && ![...this.pins].includes(`${facts.rank}/${facts.track}`)) {
      this.open.add(facts.rank);
      this.layout();
    }
    if (end - start > length * 0.8 || end - start < length / 2000) {
      const room = Math.max((end - start) * 2, 200);
      this.look(start - room, end + room);
    } else if (start < this.span.start || end > this.span.end) {
      this.look((start + end - length) / 2, (start + end + length) / 2);
    }
    const row = this.rows.find((r) => r.id === `${facts.rank}/${facts.track}`);
    const { scrollTop, clientHeight } = this.tracksBox;
    if (row && !(row.pin && this.stuck) && (row.y < scrollTop + this.stuck ||
      row.y + row.height > scrollTop + clientHeight)) this.tracksBox.scrollTop = row.y - clientHeight / 3;
  }

  /** Choose nothing. */
  deselect() {
    this.chosen = this.facts = this.range = this.area = this.notes.chosen = null;
    this.details.empty();
    this.draw();
  }

  clear() {
    this.deselect();
    this.cursors = [];
    this.search.clear();
    const input = this.find.querySelector("input");
    if (input) input.value = "";
    this.layout();
  }

  /**
   * Go along the arrow: from work to its call, from a call to its work, in a collective to who was last, from there to
   * the next; from a wait for a CUDA event to its record, from a record to the first wait. */
  follow() {
    const { facts } = this;
    if (!facts || !this.chosen) return;
    const { rank } = facts;
    const members = facts.instance?.members ?? [];
    const at = members.findIndex((/** @type {any} */ m) => m.rank === rank);
    const other = rank === facts.instance?.last_rank ? members[(at + 1) % members.length]
      : members.find((/** @type {any} */ m) => m.rank === facts.instance.last_rank);
    if (other && other.rank !== rank)
      void this.choose({ rank: other.rank, table: "collectives", row: other.row }, true);
    else if (facts.call) void this.choose({ rank, table: "api", row: facts.call.row }, true);
    else if (facts.launched?.length) void this.choose({ rank, table: facts.launched[0].table,
      row: facts.launched[0].row }, true);
    else if (facts.awaits) void this.choose(facts.awaits.record, true);
    else if (facts.waited_by?.length) void this.choose(facts.waited_by[0], true);
    else this.ctx.tell("no arrow leads from this event");
  }

  /** @param {boolean} forward */
  async sameName(forward) {
    if (!this.chosen) return;
    try {
      const { event } = await this.ctx.api.get("neighbour", { ...this.chosen, forward });
      if (event) await this.choose({ rank: event.rank, table: event.table, row: event.row }, true);
      else this.ctx.tell("there is no other event of that name in that direction");
    } catch (error) {
      this.ctx.failed(error);
    }
  }

  /** @param {boolean} forward */
  async onTrack(forward) {
    const rows = this.rows.filter((r) => !r.head);
    this.trackChosen = rows.some((r) => r.id === this.trackChosen) ? this.trackChosen : rows[0]?.id ?? "";
    const slash = this.trackChosen.indexOf("/");
    const [rank, key] = [Number(this.trackChosen.slice(0, slash)), this.trackChosen.slice(slash + 1)];
    const tables = { gpu: TABLES.slice(0, 3) }[key.split("/")[0]] ?? [key.split("/")[0]];
    if (!TABLES.includes(tables[0])) return;
    const from = this.facts && this.chosen ? this.facts.span.start : forward ? this.span.start : this.span.end;
    const reach = Math.max(this.span.end - this.span.start, 1000);
    for (const far of [1, 50, 1e9]) {
      const [start, end] = forward ? [from, from + reach * far] : [from - reach * far, from + 1];
      const bounds = { start: Math.round(Math.max(start, -1)), end: Math.round(Math.min(end, this.whole + 1)) };
      const events = await this.ctx.api.post("events", { ranks: [rank], tables, track: key, ...bounds })
        .catch(this.ctx.failed);
      if (!events) return;
      const places = events.start.map((/** @type {number} */ s, /** @type {number} */ i) => ({ s, i }));
      // several may start together: they keep the order of the answer
      const own = this.chosen?.rank === rank ? this.chosen : null;
      const at = places.findIndex((/** @type {{i: number}} */ p) => own && events.row[p.i] === own.row &&
        events.table[p.i] === own.table);
      const good = places.filter((/** @type {{s: number, i: number}} */ p) => (at >= 0 ? (forward ? p.i > at : p.i < at)
        : forward ? p.s >= from : p.s <= from));
      const pick = forward ? good[0] : good[good.length - 1];
      if (pick) return this.choose({ rank, table: events.table[pick.i], row: events.row[pick.i] }, true);
    }
  }

  /** @param {number} by */
  nextTrack(by) {
    const rows = this.rows.filter((r) => !r.head || !this.open.has(r.rank));
    const at = rows.findIndex((r) => r.id === this.trackChosen);
    const row = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    if (!row) return;
    this.trackChosen = row.id;
    const top = this.top(row);
    if (!(row.pin && this.stuck) && (top < this.stuck || top > this.height - 40))
      this.tracksBox.scrollTop = row.y - this.stuck - 60;
    this.draw();
  }

  /** Pin a track, or what is like it on all ranks shown; or take the pin away. @param {string} id
   * @param {boolean} [every] */
  pin(id, every = false) {
    const pin = every && !id.startsWith("*") ? `*${id}` : id;
    if (!this.pins.delete(pin)) this.pins.add(pin);
    this.layout();
  }

  /** @param {number} rank */
  fold(rank) {
    if (!this.open.delete(rank)) this.open.add(rank);
    this.layout();
  }

  /** @param {number} ns */
  mark(ns) {
    this.cursors = [...this.cursors, Math.round(ns)].slice(-2);
    this.draw();
  }

  /** @param {MouseEvent} e */
  at(e) {
    const box = this.tracksBox.getBoundingClientRect();
    const x = e.clientX - box.left;
    return { x, y: e.clientY - box.top, ns: this.span.start + (x - this.left) * this.perPixel };
  }

  /** The tracks between two heights on the screen; those of a query are not the run's. @param {number} from
   * @param {number} to */
  between(from, to) {
    const [top, bottom] = [Math.min(from, to), Math.max(from, to)];
    const inside = (/** @type {Row} */ r) => this.top(r) + r.height > (r.pin ? top : Math.max(top, this.stuck)) &&
      this.top(r) <= bottom;
    return [...new Set(this.rows.filter((r) => !r.tile && inside(r)).map((r) => r.id))];
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    let best;
    for (const b of this.hits) {
      if (y < this.stuck && b.y + b.h > this.stuck) continue; // it is behind the pinned ones
      if (x >= b.x - 1 && x <= b.x + b.w + 1 && y >= b.y && y <= b.y + b.h &&
        (!best || Math.abs(b.x + b.w / 2 - x) < Math.abs(best.x + best.w / 2 - x))) best = b;
    }
    return best;
  }
}

/** @param {Context} ctx @param {Record<string, string>} values */
export function show(ctx, values) {
  const timeline = new Timeline(ctx, values);
  Object.assign(window, { alltraceTimeline: timeline }); // for measuring
  return timeline;
}
