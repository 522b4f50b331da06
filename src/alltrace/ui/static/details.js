// @ts-check
import { classColor } from "./colors.js";
import { h } from "./dom.js";
import { listOf, tableOf } from "./table.js";
import { count, counted, duration, exact, rankText } from "./units.js";
import { link } from "./url.js";

/** @typedef {import("./types.js").EventId} EventId */

/**
 * When an event is drawn: a range that nobody closed ends with the run, an operation of which only the call is known has its times.
 * @param {any} found
 * @param {number} whole
 * @returns {import("./types.js").Span}
 */
function spanOf({ table, columns }, whole) {
  const start = columns.start ?? columns.api_start ?? 0;
  return { start, end: Math.max(start, columns.end ?? columns.api_end ?? (table === "ranges" ? whole : start)) };
}

/** What is told below the timeline: of an event, of a range of time, of a search. */
export class Details {
  /**
   * @param {import("./main.js").Context} ctx
   * @param {import("./timeline.js").Timeline} timeline
   */
  constructor(ctx, timeline) {
    this.ctx = ctx;
    this.timeline = timeline;
    this.element = h("section", { class: "details", "aria-label": "details", tabindex: "0" });
    this.stop = new AbortController();
    this.empty();
  }

  close() {
    this.stop.abort();
  }

  empty() {
    this.#fresh();
    this.element.replaceChildren(h("p", { class: "muted" }, "Click an event for its details, drag to select a range of time; ? shows the keys."));
  }

  #fresh() {
    this.stop.abort();
    this.stop = new AbortController();
    return this.stop.signal;
  }

  /**
   * @template T
   * @param {Promise<T>} answer
   * @returns {Promise<T|null>}
   */
  async #of(answer) {
    try {
      return await answer;
    } catch (error) {
      if (!(error instanceof DOMException && error.name === "AbortError")) {
        this.element.replaceChildren(h("p", {}, error instanceof Error ? error.message : String(error)));
      }
      return null;
    }
  }

  /** @param {EventId} event */
  async event(event) {
    const signal = this.#fresh();
    const found = await this.#of(this.ctx.api.get("event", { rank: event.rank, table: event.table, row: event.row }, signal));
    if (!found) return found;
    found.span = spanOf(found, this.ctx.run.grid.span_ns);
    this.element.replaceChildren(...this.#eventParts(found));
    return found;
  }

  /**
   * A button that chooses an event and goes there.
   * @param {string} text
   * @param {EventId} event
   */
  #go(text, event) {
    return h("button", { type: "button", class: "plain", on: { click: () => void this.timeline.choose(event, true) } }, text);
  }

  /** @param {any} found */
  #eventParts(found) {
    const { timeline } = this;
    const act = (/** @type {string} */ text, /** @type {string} */ key, /** @type {() => void} */ f) => h("button", { type: "button", title: key, on: { click: f } }, text);
    const { rank, table, row, name, host, columns, span } = found;
    const length = span.end - span.start;
    const around = { start: Math.max(0, span.start - 1_000_000), end: span.start + 1_000_000, ranks: rank, tables: table, track: found.track, row };
    const parts = [
      h("div", { class: "bar" }, h("strong", {}, name), h("span", { class: "muted" }, `${table} of rank ${rank} on ${host}, ${duration(length)} from ${exact(span.start)}`)),
      h(
        "div",
        { class: "bar" },
        act("previous of this name", ",", () => void timeline.sameName(false)),
        act("next of this name", ".", () => void timeline.sameName(true)),
        act("zoom to it", "F", () => timeline.look(span.start - length - 5, span.end + length + 5)),
        h("a", { href: link("events", around) }, "what came before and after"),
      ),
    ];
    const groups = h("div", { class: "columns" }, h("div", {}, h("h3", {}, "Event"), listOf(columns)));
    if (found.call) {
      groups.append(h("div", {}, h("h3", {}, "Launched by"), this.#go(`${found.call.columns.name}`, found.call), listOf({ ...found.call.columns, "before it": duration(span.start - found.call.columns.start) })));
    }
    if (found.launched?.length) {
      groups.append(h("div", {}, h("h3", {}, "Launched"), ...found.launched.map((/** @type {any} */ w) => h("div", {}, this.#go(`${w.table} at ${exact(w.start)}, ${duration(w.end - w.start)}`, { rank, table: w.table, row: w.row })))));
    }
    if (found.ranges?.length) {
      groups.append(
        h(
          "div",
          {},
          h("h3", {}, "Ranges around it"),
          h("ol", {}, ...found.ranges.map((/** @type {any} */ r) => h("li", {}, this.#go(r.name, { rank, table: "ranges", row: r.row }), ` ${duration(r.end - r.start)}`))),
        ),
      );
    }
    if (found.instance) groups.prepend(this.#instance(found));
    else if (found.collective !== undefined) groups.append(h("div", {}, h("h3", {}, "Collective"), h("p", { class: "muted" }, "no other rank has a part of it that could be matched")));
    parts.push(groups);
    return parts;
  }

  /** @param {any} found */
  #instance(found) {
    const { instance } = found;
    const ranks = instance.members.map((/** @type {any} */ m) => m.rank);
    const columns = [{ name: "rank", unit: null }, { name: "arrived_ns", unit: "ns", doc: "after the first rank, by the aligned clocks" }, { name: "wait_ns", unit: "ns", doc: "to the last arrival; empty below three residuals of the clocks" }, { name: "transfer_ns", unit: "ns", doc: "from the last arrival to the end" }, { name: "note", unit: null }];
    const first = Math.min(...instance.members.map((/** @type {any} */ m) => m.start));
    const several = instance.perhaps_last.length > 1;
    const note = (/** @type {any} */ m) => {
      if (m.rank === instance.last_rank && !several) return "last to arrive";
      if (instance.perhaps_last.includes(m.rank)) return several && instance.perhaps_last.length < ranks.length ? "perhaps last to arrive" : "below what the clocks can tell";
      return m.certain ? "" : "below what the clocks can tell";
    };
    const rows = instance.members.map((/** @type {any} */ m) => [m.rank, m.start - first, m.certain ? m.wait_ns : null, Math.max(m.end - instance.last_arrival, 0), note(m)]);
    const sure = instance.members.filter((/** @type {any} */ m) => m.certain);
    const waited = sure.reduce((/** @type {number} */ n, /** @type {any} */ m) => n + m.wait_ns, 0);
    const unsure = ranks.length - sure.length - 1;
    const least = Math.max(0, ...instance.members.map((/** @type {any} */ m) => m.least_ns ?? 0));
    const apart = instance.members.some((/** @type {any} */ m) => m.least_ns === null);
    const why = apart ? "clocks that nothing connects" : `three residuals of the clocks, ${duration(least)}`;
    const told = !sure.length
      ? `All ranks arrived within what the clocks can tell (${why}): who was last, and how long others waited, is not known.`
      : `${several ? `Rank ${rankText(instance.perhaps_last)} arrived last: which of them, the clocks cannot tell` : `Rank ${instance.last_rank} arrived last`}; ${count(sure.length)} ${sure.length > 1 ? "others together" : "other"} waited ${duration(waited)} for it.${unsure > 0 ? ` Waits below what the clocks can tell (${why}) are not counted.` : ""}`;
    return h(
      "div",
      {},
      h("h3", {}, `The same operation on ${counted(ranks.length, "rank")}`),
      h("p", { class: "told" }, told),
      h("button", { type: "button", on: { click: () => this.timeline.setRanks(ranks) } }, "show these ranks"),
      tableOf(columns, rows, {
        name: "members",
        sort: "-arrived_ns",
        filter: false,
        chosen: (row) => {
          const member = instance.members.find((/** @type {any} */ m) => m.rank === row[0]);
          if (member) void this.timeline.choose({ rank: member.rank, table: "collectives", row: member.row }, true);
        },
      }),
    );
  }

  /**
   * @param {import("./types.js").Span} range
   * @param {number[]} ranks
   */
  async range(range, ranks) {
    const signal = this.#fresh();
    const title = `${duration(range.end - range.start)} from ${exact(range.start)}`;
    this.element.replaceChildren(h("p", { class: "muted" }, `counting ${title} ...`));
    const found = await this.#of(this.ctx.api.post("window", { ...range, ranks }, signal));
    if (!found) return;
    const classes = ["compute", "exposed communication", "exposed copy", "idle"];
    const totals = classes.map((c) => found.breakdown.reduce((/** @type {number} */ n, /** @type {any} */ r) => n + r[`${c.replace(" ", "_")}_ns`], 0));
    const all = totals.reduce((a, b) => a + b, 0) || 1;
    const share = h("span", { class: "share", role: "img", "aria-label": classes.map((c, i) => `${c} ${((100 * totals[i]) / all).toFixed(1)} %`).join(", ") });
    classes.forEach((c, i) => {
      const part = h("span", { title: `${c} ${((100 * totals[i]) / all).toFixed(1)} %` });
      part.style.width = `${(100 * totals[i]) / all}%`;
      part.style.background = classColor(c);
      share.append(part);
    });
    const hue = (/** @type {string} */ c) => {
      const made = h("span", { class: "hue" });
      made.style.background = classColor(c);
      return made;
    };
    const time = (/** @type {string} */ name) => ({ name, unit: "ns" });
    const rows = found.breakdown.map((/** @type {any} */ r) => [r.rank, r.device, r.compute_ns, r.exposed_communication_ns, r.exposed_copy_ns, r.idle_ns]);
    const named = [{ name: "name", unit: null }, { name: "count", unit: null }, time("total_ns"), time("mean_ns"), time("min_ns"), time("max_ns")];
    const byName = (/** @type {any[]} */ list) => list.map((r) => named.map((c) => r[c.name]));
    const of = found.ranks_done < found.ranks_asked ? `, ${count(found.ranks_done)} of ${count(found.ranks_asked)} ranks were counted in the time there is` : "";
    this.element.replaceChildren(
      h("div", { class: "bar" }, h("strong", {}, title), share, ...classes.map((c, i) => h("span", {}, hue(c), `${c} ${((100 * totals[i]) / all).toFixed(1)} %`)), h("span", { class: "muted" }, of)),
      h("div", { class: "bar" }, h("a", { href: link("events", { start: range.start, end: range.end, ranks: rankText(ranks), tables: "kernels" }) }, "its events"), h("button", { type: "button", on: { click: () => this.timeline.look(range.start, range.end) } }, "zoom to it")),
      ...(totals.slice(0, 3).some((t) => t > 0) ? [] : [h("p", {}, "Nothing ran on any device of these ranks in this time.")]),
      h(
        "div",
        { class: "columns" },
        h("div", {}, h("h3", {}, "Breakdown"), tableOf([{ name: "rank", unit: null }, { name: "device", unit: null }, time("compute_ns"), time("exposed_communication_ns"), time("exposed_copy_ns"), time("idle_ns")], rows, { name: "breakdown" })),
        h("div", {}, h("h3", {}, "Kernels"), tableOf(named, byName(found.kernels), { name: "kernels" })),
        h("div", {}, h("h3", {}, "Collectives"), tableOf(named, byName(found.collectives), { name: "collectives" })),
      ),
    );
  }

  /**
   * @param {string} pattern
   * @param {number[]} ranks
   */
  async search(pattern, ranks) {
    const signal = this.#fresh();
    this.element.replaceChildren(h("p", { class: "muted" }, "searching ..."));
    const found = await this.#of(this.ctx.api.post("search", { pattern, ranks }, signal));
    if (!found) return null;
    const { events } = found;
    const columns = [{ name: "name", unit: null }, { name: "rank", unit: null }, { name: "table", unit: null }, { name: "start", unit: "ns" }, { name: "duration_ns", unit: "ns" }, { name: "row", unit: null }];
    const rows = events.row.map((/** @type {number} */ _, /** @type {number} */ i) => columns.map((c) => events[c.name][i]));
    const more = found.complete ? "" : ", the first that were found";
    this.element.replaceChildren(
      h("p", {}, `${counted(found.names.length, "name")}, ${counted(rows.length, "event")}${more}. A row goes there; Esc ends the search.`),
      tableOf(columns, rows, { name: "search", chosen: (row) => void this.timeline.choose({ rank: row[1], table: row[2], row: row[5] }, true) }),
    );
    return found;
  }
}
