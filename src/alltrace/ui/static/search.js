// @ts-check
/** A search over all ranks: how often, marks on every rank, and from one event to the next. */
import { theme } from "./colors.js";
import { h } from "./dom.js";
import { tableOf } from "./table.js";
import { count, counted } from "./units.js";

const COLUMNS = ["name", "rank", "table", "start", "duration_ns", "row"]
  .map((name) => ({ name, unit: name === "start" || name === "duration_ns" ? "ns" : null }));

export class Search {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.pattern = "";
    /** @type {any} */
    this.hits = null;
    /** @type {Set<string>|null} the names that are found, as far as tiles have them */
    this.lit = null;
    this.at = -1;
    this.stop = new AbortController();
    this.told = h("span", { role: "status" });
    const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {number} */ by) => h("button",
      { type: "button", title, "aria-label": title, on: { click: () => this.step(by) } }, text);
    this.element = h("span", { class: "found-bar", hidden: true }, this.told,
      button("‹", "previous event found (Shift N)", -1), button("›", "next event found (N)", 1),
      h("button", { type: "button", title: "end the search (Esc)", on: { click: () => this.timeline.clear() } }, "×"));
  }

  close() {
    this.stop.abort();
  }

  clear() {
    this.stop.abort();
    this.pattern = "";
    this.hits = this.lit = null;
    this.at = -1;
    this.element.hidden = true;
  }

  /** @param {string} pattern */
  async ask(pattern) {
    const { timeline } = this;
    this.clear();
    if (!pattern) return;
    this.pattern = pattern;
    this.stop = new AbortController();
    this.element.hidden = false;
    this.told.textContent = "searching ...";
    try {
      // all ranks, shown or not: marks and the total are of the run
      const hits = await timeline.ctx.api.post("search", { pattern }, this.stop.signal);
      this.hits = hits;
      this.lit = new Set(hits.names.map((/** @type {string} */ n) => n.slice(0, 200)));
      this.#tell();
      timeline.details.show(this.#panel());
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return;
      this.element.hidden = true;
      timeline.details.show(h("p", {}, error instanceof Error ? error.message : String(error)));
    }
    timeline.layout();
  }

  /** @param {number} by */
  step(by) {
    const events = this.hits?.events;
    if (!events?.row.length) return;
    const size = events.row.length;
    if (this.at < 0) {
      const { start } = this.timeline.span;
      const first = events.start.findIndex((/** @type {number} */ s) => s >= start);
      this.at = by > 0 ? (first < 0 ? 0 : first) : (first < 0 ? size : first) - 1;
    } else this.at += by;
    this.at = (this.at + size) % size;
    this.#tell();
    void this.timeline.choose({ rank: events.rank[this.at], table: events.table[this.at], row: events.row[this.at] },
      true);
  }

  #tell() {
    const { total, events, ranks_done: done, ranks_asked: asked } = this.hits;
    const of = done < asked ? `+ in ${count(done)} of ${count(asked)} ranks` : "";
    const among = events.row.length < total ? ` (${count(events.row.length)} can be stepped through)` : "";
    this.told.textContent = this.at < 0 ? `${count(total)}${of} found`
      : `${count(this.at + 1)} of ${count(total)}${of}${among}`;
  }

  #panel() {
    const { events, names, total, by_rank: by, ranks_done: done, ranks_asked: asked } = this.hits;
    const rows =
      events.row.map((/** @type {number} */ _, /** @type {number} */ i) => COLUMNS.map((c) => events[c.name][i]));
    const part = done < asked
      ? `, in the ${count(done)} of ${count(asked)} ranks that could be looked at in the time there is` : "";
    const more = rows.length < total ? ` The first ${count(rows.length)} are listed.` : "";
    return h(
      "div",
      {},
      h("p", {}, `${counted(names.length, "name")}, ${counted(total, "event")} on ` +
        `${counted(Object.keys(by).length, "rank")}${part}.${more} A row goes there; N and Shift N go from one to ` +
        `the next; Esc ends the search.`),
      tableOf(COLUMNS, rows, {
        name: "search",
        total,
        chosen: (row) => {
          this.at = events.row.findIndex((/** @type {number} */ r, /** @type {number} */ i) => r === row[5] &&
            events.rank[i] === row[1] && events.table[i] === row[2]);
          this.#tell();
          void this.timeline.choose({ rank: row[1], table: row[2], row: row[5] }, true);
        },
      }),
    );
  }

  /** Marks on the line of each rank. @param {CanvasRenderingContext2D} context */
  draw(context) {
    if (!this.hits) return;
    const { timeline } = this;
    const colors = theme();
    for (const row of timeline.visible()) {
      const marks = row.head ? this.hits.marks[row.rank] : null;
      if (!marks) continue;
      const y = timeline.top(row) + row.height;
      if (y <= timeline.stuck) continue;
      let free = -Infinity;
      for (const ns of marks) {
        const x = Math.round(timeline.x(ns));
        if (x < timeline.left - 4 || x < free || x > timeline.width + 4) continue;
        free = x + 3;
        context.beginPath();
        context.moveTo(x - 4, y);
        context.lineTo(x, y - 8);
        context.lineTo(x + 4, y);
        context.closePath();
        context.fillStyle = colors.mark;
        context.fill();
        context.strokeStyle = colors.text;
        context.lineWidth = 0.8;
        context.stroke();
      }
    }
    context.lineWidth = 1;
  }

  /** How many were found on a rank, for its label. @param {number} rank */
  of(rank) {
    const hits = this.hits?.by_rank[rank];
    return hits ? ` · ${count(hits)} found` : "";
  }
}
