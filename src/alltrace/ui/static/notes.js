// @ts-check
/** Notes on the time of a run: kept with it, drawn as flags, listed, and
 * added at the pointer or for what is selected. */
import { theme } from "./colors.js";
import { h } from "./dom.js";
import { line } from "./heatmap.js";
import { tableOf } from "./table.js";
import { duration, exact } from "./units.js";

/** @typedef {{id: number, text: string, start: number, end: number, ranks: number[]}} Note */

export class Notes {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** @type {Note[]} */
    this.list = [];
    /** @type {number|null} the note that is shown */
    this.chosen = null;
    this.button = h("button",
      { type: "button", title: "the notes on this run; B adds one", on: { click: () => this.show() } }, "notes");
  }

  /** @param {number|null} chosen the note to go to */
  async load(chosen) {
    try {
      this.#have((await this.timeline.ctx.api.get("notes")).notes);
      if (chosen !== null) this.choose(chosen, false);
    } catch (error) {
      this.timeline.ctx.failed(error);
    }
  }

  /** @param {Note[]} list */
  #have(list) {
    this.list = list;
    this.button.textContent = list.length ? `notes (${list.length})` : "notes";
    this.timeline.draw();
  }

  /** Ask for the text of a new note, on what is selected or at a moment. @param {number} ns */
  write(ns) {
    const { range, area, facts, ranks } = this.timeline;
    const span = range ?? facts?.span ?? { start: ns, end: ns };
    const [start, end] = [Math.round(span.start), Math.round(span.end)];
    const about = area ? [...new Set(area.map((t) => parseInt(t, 10)))] : facts ? [facts.rank] : ranks;
    const text = h("input", { type: "text", class: "wide", maxlength: "2000", "aria-label": "text of the note",
      placeholder: "what is to be seen here" });
    const save = async () => {
      try {
        const { notes } = await this.timeline.ctx.api.post("note-add",
          { text: text.value, start, end, ranks: about.slice(0, 64) });
        this.#have(notes);
        this.show();
        this.timeline.tracksBox.focus();
      } catch (error) {
        this.timeline.ctx.failed(error);
      }
    };
    text.addEventListener("keydown", (e) => {
      if (e.key === "Enter") void save();
      if (e.key === "Escape") this.show();
    });
    this.timeline.details.show(
      h("div", {}, h("h3", {}, `A note on ${end > start ? `${duration(end - start)} from ` : ""}${exact(start)}`),
        h("div", { class: "bar" }, text, h("button", { type: "button", class: "primary",
          on: { click: () => void save() } }, "Keep")), h("p", { class: "muted" },
          "It is kept in the run's folder, or in the cache where that cannot be written, for all who look at the " +
          "run.")),
    );
    text.focus();
  }

  show() {
    const columns = [{ name: "note", unit: null }, { name: "start", unit: "ns" }, { name: "duration_ns", unit: "ns" },
      { name: "ranks", unit: null }, { name: "id", unit: null }];
    const rows = this.list.map((n) => [n.text, n.start, n.end - n.start, n.ranks, n.id]);
    const chosen = this.list.find((n) => n.id === this.chosen);
    const remove = chosen && h("div", { class: "bar" }, h("strong", {}, chosen.text),
      h("button", { type: "button", on: { click: () => void this.#remove(chosen.id) } }, "remove this note"));
    this.timeline.details.show(h("div", {}, h("h3", {}, "Notes"), remove ?? "",
      this.list.length ? tableOf(columns, rows, { name: "notes", filter: false, chosen: (row) => this.choose(row[4]) })
      : h("p", { class: "muted" }, "None yet: B adds one at the pointer, or on what is selected.")));
  }

  /** Go to a note. @param {number} id @param {boolean} [move] whether the view goes there too */
  choose(id, move = true) {
    const note = this.list.find((n) => n.id === id);
    if (!note) return this.timeline.ctx.tell(`unknown note ${id} on this run`);
    const { timeline } = this;
    this.chosen = id;
    if (move) {
      const room = Math.max((note.end - note.start) / 2,
        (timeline.span.end - timeline.span.start) / (note.end > note.start ? 1e9 : 2), 500);
      const there = note.ranks.filter((r) => timeline.ctx.run.ranks.some((k) => k.rank === r));
      if (there.some((r) => !timeline.ranks.includes(r))) timeline.setRanks(there);
      timeline.look(note.start - room, note.end + room);
    }
    this.show();
    timeline.draw();
  }

  /** @param {number} id */
  async #remove(id) {
    try {
      this.chosen = null;
      this.#have((await this.timeline.ctx.api.post("note-remove", { id })).notes);
      this.show();
    } catch (error) {
      this.timeline.ctx.failed(error);
    }
  }

  /** Flags over the tracks. @param {CanvasRenderingContext2D} context */
  draw(context) {
    const { timeline } = this;
    const colors = theme();
    for (const note of this.list) {
      const x = Math.round(timeline.x(note.start)) + 0.5;
      const end = timeline.x(note.end);
      if (end < timeline.left || x > timeline.width) continue;
      context.strokeStyle = context.fillStyle = colors.link;
      context.globalAlpha = note.id === this.chosen ? 0.18 : 0.08;
      if (end > x) context.fillRect(Math.max(x, timeline.left), 0, end - Math.max(x, timeline.left), timeline.height);
      context.globalAlpha = 1;
      if (x < timeline.left) continue;
      line(context, x, 0, x, timeline.height);
      const text = note.text.length > 30 ? `${note.text.slice(0, 29)}…` : note.text;
      const y = timeline.height - 34;
      context.fillRect(x, y, context.measureText(text).width + 8, 16);
      context.fillStyle = colors.back;
      context.fillText(text, x + 4, y + 12);
    }
  }
}
