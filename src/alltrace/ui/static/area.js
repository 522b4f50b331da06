// @ts-check
/** The details of a selected area: some tracks in a range of time. */
import { classColor, sliceColor, theme } from "./colors.js";
import { choice, fit, h, tip } from "./dom.js";
import { clipped } from "./draw.js";
import { tableOf } from "./table.js";
import { count, counted, duration, exact, rankText } from "./units.js";
import { link } from "./url.js";

/** @typedef {import("./types.js").Span} Span */

const CLASSES = ["compute", "exposed communication", "exposed copy", "idle"];
const NAMED = ["kind", "name", "count", "total_ns", "mean_ns", "min_ns", "max_ns"]
  .map((name) => ({ name, unit: name.endsWith("_ns") ? "ns" : null }));
const LONGEST = ["name", "rank", "start", "duration_ns", "table", "row"]
  .map((name) => ({ name, unit: name === "start" || name === "duration_ns" ? "ns" : null }));

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
    const pattern = this.name &&
      `^${this.name.replace(/[^A-Za-z0-9_ ]/g, (c) => (c.charCodeAt(0) < 128 ? `\\${c}` : c))}$`;
    return this.timeline.ctx.api.post("area",
      { tracks: this.tracks, start: this.range.start, end: this.range.end, flame: this.kind, pattern }, signal);
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
    const of = summary.ranks_done < summary.ranks_asked
      ? `, ${count(summary.ranks_done)} of ${count(summary.ranks_asked)} ranks were counted in the time there is` : "";
    const about = `${counted(this.tracks.length, "track")} of ${counted(ranks.length, "rank")}${of}`;
    const breakdown = summary.breakdown.length ? this.#breakdown(summary.breakdown) : null;
    const totals = summary.totals.map((/** @type {any} */ r) => NAMED.map((c) => r[c.name]));
    const more = summary.names > totals.length
      ? `, the largest ${count(totals.length)} of ${count(summary.names)}` : "";
    this.element.replaceChildren(
      h("div", { class: "bar" }, h("strong", {}, this.title), ...(breakdown?.share ?? []),
        h("span", { class: "muted" }, about)),
      h(
        "div",
        { class: "bar" },
        h("a", { href: link("events",
          { start: range.start, end: range.end, ranks: rankText(ranks), tables: this.#tables() }) }, "its events"),
        h("button", { type: "button", on: { click: () => timeline.look(range.start, range.end) } }, "zoom to it"),
      ),
      ...(summary.totals.length ? [] : [h("p", {}, "Nothing ran on these tracks in this time.")]),
      this.flames,
      h(
        "div",
        { class: "columns" },
        summary.totals.length > 0 && h("div", {}, h("h3", {}, "Totals by name"),
          h("p", { class: "muted" }, `A row shows how long its events last${more}.`),
          tableOf(NAMED, totals,
            { name: "totals",
              chosen: (row) => ((this.name = this.name === row[1] ? "" : row[1]), void this.#again()) })),
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
    const chooser = choice("flame graph of", [["ranges", "ranges"], ["operators", "operators"],
      ["stacks", "Python functions"]], this.kind, (v) => ((this.kind = v), void this.#again()));
    const what = { ranges: "no range", operators: "no operator of PyTorch", stacks: "no Python function" }[this.kind];
    this.flames.replaceChildren(h("div", { class: "bar" }, chooser, this.flame?.path),
      this.flame?.element ??
      h("p", { class: "muted" },
        `The threads of these tracks have ${what} in this time; ` +
        "open ranks and select tracks of ranges, or whole ranks."));
    this.flame?.draw();
  }

  /** @param {any} summary */
  #lasting(summary) {
    const { timeline, range } = this;
    const chart = histogram(summary.histogram, (least) => (location.hash = link("events",
      { start: range.start, end: range.end, ranks: rankText(this.ranks), tables: this.#tables(), least,
        pattern: this.name ? `^${this.name.replace(/[^A-Za-z0-9_ ]/g, "\\$&")}$` : "", sort: "-duration_ns" })));
    this.redraw = chart.draw;
    const rows = summary.longest.map((/** @type {any} */ r) => LONGEST.map((c) => r[c.name]));
    this.lasting.replaceChildren(
      h("h3", {}, "How long they last"),
      h("p", { class: "muted" }, this.name ? `those called ${this.name} ` : "all of them",
        this.name ? h("button", { type: "button", on: { click: () => ((this.name = ""), void this.#again()) } }, "all")
        : null),
      chart.element,
      h("h3", {}, "The longest"),
      tableOf(LONGEST, rows, { name: "longest", filter: false,
        chosen: (row) => void timeline.choose({ rank: row[1], table: row[4], row: row[5] }, true) }),
    );
  }

  /** @param {any[]} rows */
  #breakdown(rows) {
    const totals = CLASSES.map((c) => rows.reduce((n, r) => n + r[`${c.replace(" ", "_")}_ns`], 0));
    const all = totals.reduce((a, b) => a + b, 0) || 1;
    const told = CLASSES.map((c, i) => `${c} ${((100 * totals[i]) / all).toFixed(1)} %`);
    const hue = (/** @type {string} */ c, /** @type {string} */ kind) => {
      const span = h("span", { class: kind });
      span.style.background = classColor(c);
      return span;
    };
    const share = h("span", { class: "share", role: "img", "aria-label": told.join(", ") });
    CLASSES.forEach((c, i) => {
      const part = hue(c, "part");
      part.title = told[i];
      part.style.width = `${(100 * totals[i]) / all}%`;
      share.append(part);
    });
    const columns = [{ name: "rank", unit: null }, { name: "device", unit: null },
      ...CLASSES.map((c) => ({ name: `${c.replace(" ", "_")}_ns`, unit: "ns" }))];
    const table = tableOf(columns, rows.map((r) => columns.map((c) => r[c.name])), { name: "breakdown" });
    return { share: [share, ...CLASSES.map((c, i) => h("span", {}, hue(c, "hue"), told[i]))], table };
  }
}

/** A flame graph on a canvas: the callers on top, each as wide as it lasts with all that it calls. */

const ROW = 18;
const MOST_ROWS = 40;
const RANGE = 4;

/** @typedef {{name: string[], parent: number[], total_ns: number[], self_ns: number[], count: number[],
 *   left_out: number}} Nodes */

class FlameGraph {
  /** @param {Nodes} nodes a parent before its children, children longest first */
  constructor(nodes) {
    this.nodes = nodes;
    /** @type {number} the node that fills the width; -1 for all */
    this.root = -1;
    /** @type {{node: number, x: number, y: number, w: number}[]} */
    this.drawn = [];
    /** @type {number[][]} */
    this.children = nodes.name.map(() => []);
    /** @type {number[]} */
    this.tops = [];
    nodes.parent.forEach((p, i) => (p < 0 ? this.tops : this.children[p]).push(i));
    this.canvas = h("canvas", { role: "img", tabindex: "0" });
    this.path = h("span", { class: "muted", role: "status" });
    this.element = h("div", { class: "flame" }, this.canvas);
    this.canvas.addEventListener("pointermove", (e) => this.#hover(e));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.canvas.addEventListener("click", (e) => this.focus(this.#at(e)?.node ?? -1));
    this.canvas.addEventListener("keydown", (e) => {
      const up = this.root < 0 ? -1 : nodes.parent[this.root];
      const siblings = up < 0 ? this.tops : this.children[up];
      const place = siblings.indexOf(this.root);
      const to = { ArrowUp: up, ArrowDown: (this.root < 0 ? this.tops : this.children[this.root])[0],
        ArrowRight: siblings[place + 1], ArrowLeft: siblings[place - 1] }[e.key];
      if (to === undefined) return;
      e.preventDefault();
      e.stopPropagation();
      this.focus(to);
    });
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
  }

  close() {
    this.watcher.disconnect();
  }

  get whole() {
    return this.tops.reduce((n, t) => n + this.nodes.total_ns[t], 0);
  }

  /** @param {number} node */
  focus(node) {
    this.root = node;
    this.draw();
  }

  /** @param {number} node */
  told(node) {
    const { name, total_ns, self_ns, count } = this.nodes;
    const share = ((100 * total_ns[node]) / Math.max(this.whole, 1)).toFixed(1);
    return [name[node], `${duration(total_ns[node])} in all (${share} %), ${duration(self_ns[node])} of its own`,
      counted(count[node], "time")];
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    const { nodes, root } = this;
    const colors = theme();
    /** @type {number[]} */
    const above = [];
    for (let n = root; n >= 0; n = nodes.parent[n]) above.unshift(n);
    this.drawn = above.map((node, i) => ({ node, x: 0, y: i * ROW, w: width }));
    const total = root < 0 ? this.whole : nodes.total_ns[root];
    const place = (/** @type {number[]} */ list, /** @type {number} */ x, /** @type {number} */ depth) => {
      if (depth >= MOST_ROWS) return;
      for (const node of list) {
        const w = (width * nodes.total_ns[node]) / Math.max(total, 1);
        if (w < 0.6) break; // the following ones are shorter
        this.drawn.push({ node, x, y: depth * ROW, w });
        place(this.children[node], x, depth + 1);
        x += w;
      }
    };
    place(root < 0 ? this.tops : this.children[root], 0, above.length);
    const rows = this.drawn.reduce((most, d) => Math.max(most, d.y / ROW + 1), 1);
    const context = fit(this.canvas, width, rows * ROW + 1);
    context.fillStyle = colors.back;
    context.fillRect(0, 0, width, rows * ROW + 1);
    context.font = "11px system-ui, sans-serif";
    const text = document.documentElement.dataset.theme === "dark" ? "#f2f5f8" : "#101820";
    for (const { node, x, y, w } of this.drawn) {
      context.fillStyle = sliceColor(RANGE, nodes.name[node]);
      context.globalAlpha = above.includes(node) && node !== root ? 0.45 : 1;
      context.fillRect(x, y, Math.max(w - 0.6, 0.4), ROW - 1);
      if (w > 30) {
        context.fillStyle = text;
        context.fillText(clipped(context, nodes.name[node], w - 6), x + 3, y + 13);
      }
      context.globalAlpha = 1;
    }
    const here = root < 0 ? `${counted(nodes.name.length, "chain")} of names, ${duration(this.whole)} in all`
      : this.told(root).join(", ");
    this.path.textContent =
      `${here}${root < 0 ? "" : "; a click on what is above leads back"}` +
      (nodes.left_out ? `; ${counted(nodes.left_out, "shorter chain")} left out` : "");
    this.canvas.setAttribute("aria-label", `flame graph: ${here}; arrows go from one to the other`);
  }

  /** @param {MouseEvent} e */
  #at(e) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [e.clientX - box.left, e.clientY - box.top];
    return this.drawn.find((d) => y >= d.y && y < d.y + ROW && x >= d.x && x <= d.x + d.w);
  }

  /** @param {PointerEvent} e */
  #hover(e) {
    const hit = this.#at(e);
    if (hit) tip.show(e.clientX, e.clientY, this.told(hit.node));
    else tip.hide();
  }
}

/** How long events last: a bar per quarter of an octave, its height by the logarithm of how many they are. */

const HEIGHT = 130;
const FOOT = 18;

/** @typedef {{from_ns: number[], to_ns: number[], count: number[], total_ns: number[]}} Bins */

/** @param {Bins} bins
 * @param {(least: number, most: number) => void} chosen called with the durations of a bar that is clicked */
function histogram(bins, chosen) {
  const all = bins.count.reduce((a, b) => a + b, 0);
  const whole = bins.total_ns.reduce((a, b) => a + b, 0);
  const range = all ? `${duration(bins.from_ns[0])} to ${duration(bins.to_ns[bins.to_ns.length - 1])}` : "none";
  const canvas = h("canvas", { role: "img", "aria-label": `histogram of ${counted(all, "duration")}, ${range}` });
  const width = 420;
  const wide = width / Math.max(bins.count.length, 1);
  const most = Math.log1p(Math.max(1, ...bins.count));
  const draw = () => {
    const context = fit(canvas, width, HEIGHT);
    const colors = theme();
    context.fillStyle = colors.back;
    context.fillRect(0, 0, width, HEIGHT);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = classColor("ranges");
    bins.count.forEach((n, i) => {
      const high = n ? Math.max(2, ((HEIGHT - FOOT - 4) * Math.log1p(n)) / most) : 0;
      context.fillRect(i * wide, HEIGHT - FOOT - high, Math.max(wide - 1, 1), high);
    });
    context.fillStyle = colors.soft;
    context.fillRect(0, HEIGHT - FOOT, width, 1);
    let free = 0;
    bins.from_ns.forEach((ns, i) => {
      const text = duration(ns);
      const room = context.measureText(text).width + 12;
      if (i * wide < free || i * wide + room > width) return;
      context.fillText(text, i * wide + 1, HEIGHT - 5);
      free = i * wide + room;
    });
  };
  const at = (/** @type {MouseEvent} */ e) => Math.floor((e.clientX - canvas.getBoundingClientRect().left) / wide);
  canvas.addEventListener("pointermove", (e) => {
    const i = at(e);
    if (!(bins.count[i] >= 0)) return tip.hide();
    tip.show(e.clientX, e.clientY, [`${duration(bins.from_ns[i])} to ${duration(bins.to_ns[i])}`,
      `${counted(bins.count[i], "event")}, ${duration(bins.total_ns[i])} together`,
      `${((100 * bins.total_ns[i]) / Math.max(whole, 1)).toFixed(1)} % of the time`]);
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
  canvas.addEventListener("click", (e) => {
    const i = at(e);
    if (bins.count[i]) chosen(Math.floor(bins.from_ns[i]), bins.to_ns[i]);
  });
  draw();
  return { element: h("div", {}, canvas, h("p", { class: "muted" },
    `${count(all)} durations, ${range}; heights are logarithmic. A bar leads to its events.`)), draw };
}
