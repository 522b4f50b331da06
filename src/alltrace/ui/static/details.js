// @ts-check
import { AreaPanel } from "./area.js";
import { h } from "./dom.js";
import { Laid } from "./laid.js";
import { listOf, tableOf } from "./table.js";
import { count, counted, duration, exact, rankText } from "./units.js";
import { link } from "./url.js";

/** @typedef {import("./types.js").EventId} EventId */

/**
 * When an event is drawn: a range that was not closed ends with the run, an operation of which only the call is known
 * has its times.
 * @param {any} shown @param {number} whole @returns {import("./types.js").Span} */
function spanOf({ table, columns }, whole) {
  const start = columns.start ?? columns.api_start ?? columns.time ?? 0;
  return { start, end: Math.max(start, columns.end ?? columns.api_end ?? (table === "ranges" ? whole : start)) };
}

/** What an event moves, where it runs and how, as far as it is known. @param {Record<string, any>} columns */
function wordsOf({ bytes, kind, stream, communicator, sequence, grid_x: blocks, block_x: threads, thread,
  return_value: returned }) {
  const parts = [
    bytes > 0 ? `${count(bytes)} bytes` : "",
    typeof kind === "string" && kind !== "pushpop" ? kind : "",
    communicator ? `on ${communicator}${Number.isInteger(sequence) ? `, operation ${sequence}` : ""}` : "",
    Number.isInteger(stream) ? `on stream ${stream}` : "",
    blocks && threads ? `${count(blocks)} blocks of ${count(threads)} threads in x` : "",
    Number.isInteger(thread) && !Number.isInteger(stream) ? `on thread ${thread}` : "",
    returned ? `returned ${returned}` : "",
  ].filter(Boolean);
  const words = parts.join(", ");
  return words ? `${words[0].toUpperCase()}${words.slice(1)}.` : null;
}

/** The details below the timeline: of an event, of a range of time, of a search. */
export class Details {
  /** @param {import("./main.js").Context} ctx @param {import("./timeline.js").Timeline} timeline */
  constructor(ctx, timeline) {
    this.ctx = ctx;
    this.timeline = timeline;
    this.element = h("section", { class: "details", "aria-label": "details", tabindex: "0" });
    this.stop = new AbortController();
    /** @type {AreaPanel|null} */
    this.panel = null;
    this.empty();
  }

  close() {
    this.stop.abort();
    this.panel?.close();
  }

  themed() {
    this.panel?.themed();
  }

  empty() {
    this.#fresh();
    this.element.classList.add("empty");
    this.element.replaceChildren(h("p", { class: "muted" },
      "Click an event for its details, drag over tracks to select an area; ? shows the keys."));
  }

  /** Hide the details, or show them again. */
  toggle() {
    this.element.hidden = !this.element.hidden;
  }

  #fresh() {
    this.stop.abort();
    this.element.classList.remove("empty");
    this.panel?.close();
    this.panel = null;
    this.stop = new AbortController();
    return this.stop.signal;
  }

  /** @template T @param {Promise<T>} answer @returns {Promise<T|null>} */
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
    const shown =
      await this.#of(this.ctx.api.get("event", { rank: event.rank, table: event.table, row: event.row }, signal));
    if (!shown) return shown;
    shown.span ??= spanOf(shown, this.ctx.run.grid.span_ns);
    this.element.replaceChildren(...this.#eventParts(shown));
    return shown;
  }

  /** A button that chooses an event and goes there. @param {string} text @param {EventId} event */
  #go(text, event) {
    return h("button", { type: "button", class: "plain", on: { click: () => void this.timeline.choose(event, true) } },
      text);
  }

  /** @param {any} shown */
  #eventParts(shown) {
    const { timeline } = this;
    const act = (/** @type {string} */ text, /** @type {string} */ key, /** @type {() => void} */ f) => h("button",
      { type: "button", title: key, on: { click: f } }, text);
    const { rank, table, row, name, host, columns, span } = shown;
    const length = span.end - span.start;
    const around = { start: Math.max(0, span.start - 1_000_000), end: span.start + 1_000_000, ranks: rank,
      tables: table, track: shown.track, row };
    const parts = /** @type {HTMLElement[]} */ ([
      h(
        "div",
        { class: "bar" },
        h("strong", {}, name),
        h("span", { class: "muted" },
          `${table} of rank ${rank} on ${host}, ${duration(length)} from ${exact(span.start)}`),
        act("previous of this name", ",", () => void timeline.sameName(false)),
        act("next of this name", ".", () => void timeline.sameName(true)),
        act("zoom to it", "F", () => timeline.look(span.start - length - 5, span.end + length + 5)),
        h("a", { href: link("events", around) }, "what came before and after"),
      ),
    ]);
    const groups = h("div", { class: "columns" });
    const about = shown.instance ? null : wordsOf(columns);
    if (about) groups.append(h("p", { class: "sentence" }, about));
    if (shown.call) {
      groups.append(h("div", {}, h("h3", {}, "Launched by"), this.#go(`${shown.call.columns.name}`, shown.call),
        `, ${duration(span.start - shown.call.columns.start)} before it began`));
    }
    if (shown.launched?.length) {
      groups.append(h("div", {}, h("h3", {}, "Launched"), ...shown.launched.map((/** @type {any} */ w) => h("div", {},
        this.#go(`${w.table} at ${exact(w.start)}, ${duration(w.end - w.start)}`,
          { rank, table: w.table, row: w.row })))));
    }
    groups.append(...this.#eventWaits(shown));
    if (shown.ranges?.length) {
      groups.append(
        h(
          "div",
          {},
          h("h3", {}, "Ranges around it"),
          h("ol", {}, ...shown.ranges.map((/** @type {any} */ r) => h("li", {},
            this.#go(r.name, { rank, table: "ranges", row: r.row }), ` ${duration(r.end - r.start)}`))),
        ),
      );
    }
    if (shown.instance) groups.prepend(this.#instance(shown));
    else if (shown.collective !== undefined) groups.append(h("div", {}, h("h3", {}, "Collective"),
      h("p", { class: "muted" }, "no other rank has a part of it that could be matched")));
    parts.push(groups, h("details", {}, h("summary", {}, "all columns"),
      h("div", { class: "columns" }, listOf(columns),
        shown.call ? h("div", {}, h("h3", {}, "of its call"), listOf(shown.call.columns)) : null)));
    return parts;
  }

  /**
   * Of a wait for a CUDA event the call that recorded it and the work on both sides; of a record the calls that wait
   * for it.
   * @param {any} shown */
  #eventWaits({ rank, span, awaits, waited_by: waits }) {
    const parts = [];
    const work = (/** @type {string} */ text, /** @type {any} */ w) => w &&
      h("p", {}, text, this.#go(w.name, { rank, table: w.table, row: w.row }),
        ` from ${exact(w.start)} to ${exact(w.end)}`);
    if (awaits) {
      const { record, event, stream, before, behind } = awaits;
      parts.push(
        h(
          "div",
          {},
          h("h3", {}, `Waits for CUDA event ${event ?? "?"}${stream === null ? "" : ` of stream ${stream}`}`),
          h("p", {}, "recorded by ", this.#go(record.columns.name, record),
            `, ${duration(span.start - record.columns.start)} before`),
          work("last work before the record: ", before),
          work("first work behind the wait: ", behind),
        ),
      );
    }
    if (waits?.length) {
      const one = (/** @type {any} */ w) => h("div", {}, this.#go(w.columns.name, w),
        ` at ${exact(w.columns.start)}, ${duration(w.columns.start - span.start)} later`);
      parts.push(h("div", {}, h("h3", {}, "Calls that wait for its event"), ...waits.map(one)));
    }
    return parts;
  }

  /** @param {any} shown */
  #instance(shown) {
    const { instance } = shown;
    const ranks = instance.members.map((/** @type {any} */ m) => m.rank);
    const columns = [{ name: "rank", unit: null }, { name: "arrived_ns", unit: "ns",
      doc: "after the first rank, by the aligned clocks" }, { name: "wait_ns", unit: "ns",
      doc: "to the last arrival; empty below what the clocks may be off" },
      { name: "transfer_ns", unit: "ns", doc: "from the last arrival to the end" }, { name: "note", unit: null }];
    const first = Math.min(...instance.members.map((/** @type {any} */ m) => m.start));
    const several = instance.perhaps_last.length > 1;
    const note = (/** @type {any} */ m) => {
      if (m.rank === instance.last_rank && !several) return "last to arrive";
      if (instance.perhaps_last.includes(m.rank)) return several && instance.perhaps_last.length < ranks.length
        ? "perhaps last to arrive" : "below what the clocks can tell";
      return m.certain ? "" : "below what the clocks can tell";
    };
    const rows = instance.members.map((/** @type {any} */ m) => [m.rank, m.start - first, m.certain ? m.wait_ns : null,
      Math.max(m.end - instance.last_arrival, 0), note(m)]);
    const sure = instance.members.filter((/** @type {any} */ m) => m.certain);
    const waited = sure.reduce((/** @type {number} */ n, /** @type {any} */ m) => n + m.wait_ns, 0);
    const unsure = ranks.length - sure.length - 1;
    const least = Math.max(0, ...instance.members.map((/** @type {any} */ m) => m.least_ns ?? 0));
    const apart = instance.members.some((/** @type {any} */ m) => m.least_ns === null);
    const why = apart ? "clocks that nothing connects" : `the clocks may be off by ${duration(least)}`;
    const told = !sure.length
      ? `All ranks arrived within what the clocks can tell (${why}): who was last, and how long others waited, is ` +
        `not known.`
      : `Rank ${several ? rankText(instance.perhaps_last) : instance.last_rank} arrived last` +
        `${several ? ": which of them, the clocks cannot tell" : ""}; ${count(sure.length)} ` +
        `${sure.length > 1 ? "others together" : "other"} waited ${duration(waited)} for it.` +
        (unsure > 0 ? ` Waits below what the clocks can tell (${why}) are not counted.` : "");
    return h(
      "div",
      {},
      h("p", { class: "sentence" }, told, " ", wordsOf(shown.columns)),
      h("h3", {}, `The same operation on ${counted(ranks.length, "rank")}`),
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

  /** @param {import("./types.js").Span} range @param {string[]} tracks */
  async area(range, tracks) {
    this.#fresh();
    const panel = (this.panel = new AreaPanel(this.timeline, range, tracks));
    this.element.replaceChildren(panel.element);
    await this.#of(panel.show());
  }

  /** The details of a slice that is not an event of the run. @param {import("./types.js").Tile} tile
   * @param {number} item */
  laid(tile, item) {
    this.#fresh();
    const { name, text, span } = Laid.told(tile, item);
    const room = Math.max(span.end - span.start, 500);
    this.element.replaceChildren(h("div", { class: "bar" }, h("strong", {}, name), h("span", { class: "muted" }, text)),
      h("button", { type: "button", on: { click: () => this.timeline.look(span.start - room, span.end + room) } },
        "zoom to it"));
  }

  /** @param {HTMLElement} told */
  show(told) {
    this.#fresh();
    this.element.replaceChildren(told);
  }
}
