// @ts-check
/** The details of a selected area: some tracks in a range of time. */
import { classColor } from "./colors.js";
import { choice, h } from "./dom.js";
import { FlameGraph } from "./flame.js";
import { histogram } from "./histogram.js";
import { tableOf } from "./table.js";
import { count, counted, duration, exact, rankText } from "./units.js";
import { link } from "./url.js";

/** @typedef {import("./types.js").Span} Span */

const CLASSES = ["compute", "exposed communication", "exposed copy", "idle"];
const NAMED = ["kind", "name", "count", "total_ns", "mean_ns", "min_ns", "max_ns"].map((name) => ({ name, unit: name.endsWith("_ns") ? "ns" : null }));
const LONGEST = ["name", "rank", "start", "duration_ns", "table", "row"].map((name) => ({ name, unit: name === "start" || name === "duration_ns" ? "ns" : null }));

export class AreaPanel {
  /** @param {import("./timeline.js").Timeline} timeline @param {Span} range @param {string[]} tracks ranks and keys */
  constructor(timeline, range, tracks) {
    this.timeline = timeline;
    this.range = range;
    this.tracks = tracks;
    this.kind = "ranges";
    this.name = "";
    this.spent = 0; // ms of drawing, for measuring
    this.stop = new AbortController();
    /** @type {FlameGraph|null} */
    this.flame = null;
    /** @type {(() => void)|null} */
    this.redraw = null;
    this.ranks = [...new Set(tracks.map((t) => Number(t.slice(0, t.indexOf("/")))))];
    this.title = `${duration(range.end - range.start)} from ${exact(range.start)}`;
    this.element = h("div", {}, h("p", { class: "muted" }, `counting ${this.title} ...`));
    this.head = h("div");
    this.lasting = h("div", { class: "lasting" });
    this.flames = h("div", { class: "flames" });
  }

  close() {
    this.stop.abort();
    this.flame?.close();
  }

  themed() {
    this.flame?.draw();
    this.redraw?.();
  }

  /** @param {AbortSignal} [signal] */
  async #asked(signal = this.stop.signal) {
    const pattern = this.name && `^${this.name.replace(/[^A-Za-z0-9_ ]/g, (c) => (c.charCodeAt(0) < 128 ? `\\${c}` : c))}$`;
    return this.timeline.ctx.api.post("area", { tracks: this.tracks, start: this.range.start, end: this.range.end, flame: this.kind, pattern }, signal);
  }

  async show() {
    const summary = await this.#asked();
    const before = performance.now();
    this.#fill(summary);
    this.spent = performance.now() - before;
    return summary;
  }

  /** Ask again for another flame graph or the durations of one name. */
  async #again() {
    this.stop.abort();
    this.stop = new AbortController();
    try {
      const summary = await this.#asked();
      this.#flames(summary);
      this.#lasting(summary);
    } catch (error) {
      this.timeline.ctx.failed(error);
    }
  }

  /** @param {any} summary */
  #fill(summary) {
    const { timeline, range, ranks } = this;
    const of = summary.ranks_done < summary.ranks_asked ? `, ${count(summary.ranks_done)} of ${count(summary.ranks_asked)} ranks were counted in the time there is` : "";
    const about = `${counted(this.tracks.length, "track")} of ${counted(ranks.length, "rank")}${of}`;
    const breakdown = summary.breakdown.length ? this.#breakdown(summary.breakdown) : null;
    const totals = summary.totals.map((/** @type {any} */ r) => NAMED.map((c) => r[c.name]));
    const more = summary.names > totals.length ? `, the largest ${count(totals.length)} of ${count(summary.names)}` : "";
    this.element.replaceChildren(
      h("div", { class: "bar" }, h("strong", {}, this.title), ...(breakdown?.share ?? []), h("span", { class: "muted" }, about)),
      h(
        "div",
        { class: "bar" },
        h("a", { href: link("events", { start: range.start, end: range.end, ranks: rankText(ranks), tables: this.#tables() }) }, "its events"),
        h("button", { type: "button", on: { click: () => timeline.look(range.start, range.end) } }, "zoom to it"),
      ),
      ...(summary.totals.length ? [] : [h("p", {}, "Nothing ran on these tracks in this time.")]),
      this.flames,
      h(
        "div",
        { class: "columns" },
        summary.totals.length > 0 && h("div", {}, h("h3", {}, "Totals by name"), h("p", { class: "muted" }, `A row shows how long its events last${more}.`), tableOf(NAMED, totals, { name: "totals", chosen: (row) => ((this.name = this.name === row[1] ? "" : row[1]), void this.#again()) })),
        summary.totals.length > 0 && this.lasting,
        breakdown && h("div", {}, h("h3", {}, "Breakdown"), breakdown.table),
      ),
    );
    this.#flames(summary);
    this.#lasting(summary);
  }

  #tables() {
    const groups = new Set(this.tracks.map((t) => t.split("/")[1]));
    if (groups.has("summary") || groups.has("gpu")) return "kernels";
    return [...groups][0];
  }

  /** @param {any} summary */
  #flames(summary) {
    this.flame?.close();
    this.flame = summary.flame.name.length ? new FlameGraph(summary.flame) : null;
    const chooser = choice("flame graph of", [["ranges", "ranges"], ["operators", "operators"], ["stacks", "Python functions"]], this.kind, (v) => ((this.kind = v), void this.#again()));
    const what = { ranges: "no range", operators: "no operator of PyTorch", stacks: "no Python function" }[this.kind];
    this.flames.replaceChildren(h("div", { class: "bar" }, chooser, this.flame?.path), this.flame?.element ?? h("p", { class: "muted" }, `The threads of these tracks have ${what} in this time; open ranks and select tracks of ranges, or whole ranks.`));
    this.flame?.draw();
  }

  /** @param {any} summary */
  #lasting(summary) {
    const { timeline, range } = this;
    const made = histogram(summary.histogram, (least) => (location.hash = link("events", { start: range.start, end: range.end, ranks: rankText(this.ranks), tables: this.#tables(), least, pattern: this.name ? `^${this.name.replace(/[^A-Za-z0-9_ ]/g, "\\$&")}$` : "", sort: "-duration_ns" })));
    this.redraw = made.draw;
    const rows = summary.longest.map((/** @type {any} */ r) => LONGEST.map((c) => r[c.name]));
    this.lasting.replaceChildren(
      h("h3", {}, "How long they last"),
      h("p", { class: "muted" }, this.name ? `those called ${this.name} ` : "all of them", this.name ? h("button", { type: "button", on: { click: () => ((this.name = ""), void this.#again()) } }, "all") : null),
      made.element,
      h("h3", {}, "The longest"),
      tableOf(LONGEST, rows, { name: "longest", filter: false, chosen: (row) => void timeline.choose({ rank: row[1], table: row[4], row: row[5] }, true) }),
    );
  }

  /** @param {any[]} rows */
  #breakdown(rows) {
    const totals = CLASSES.map((c) => rows.reduce((n, r) => n + r[`${c.replace(" ", "_")}_ns`], 0));
    const all = totals.reduce((a, b) => a + b, 0) || 1;
    const told = CLASSES.map((c, i) => `${c} ${((100 * totals[i]) / all).toFixed(1)} %`);
    const hue = (/** @type {string} */ c, /** @type {string} */ kind) => {
      const made = h("span", { class: kind });
      made.style.background = classColor(c);
      return made;
    };
    const share = h("span", { class: "share", role: "img", "aria-label": told.join(", ") });
    CLASSES.forEach((c, i) => {
      const part = hue(c, "part");
      part.title = told[i];
      part.style.width = `${(100 * totals[i]) / all}%`;
      share.append(part);
    });
    const columns = [{ name: "rank", unit: null }, { name: "device", unit: null }, ...CLASSES.map((c) => ({ name: `${c.replace(" ", "_")}_ns`, unit: "ns" }))];
    const table = tableOf(columns, rows.map((r) => columns.map((c) => r[c.name])), { name: "breakdown" });
    return { share: [share, ...CLASSES.map((c, i) => h("span", {}, hue(c, "hue"), told[i]))], table };
  }
}
