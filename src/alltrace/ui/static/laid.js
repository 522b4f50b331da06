// @ts-check
/** What a query found, as tracks of the timeline. */
import { duration, exact } from "./units.js";

/** @typedef {import("./types.js").Tile} Tile */

/** The table of slices that are not events of the run. */
export const NO_TABLE = 255;

export class Laid {
  /** @param {import("./main.js").Context} ctx @param {() => void} changed */
  constructor(ctx, changed) {
    this.ctx = ctx;
    this.changed = changed;
    this.query = "";
    /** @type {Map<string, Tile>} the track of each rank, `-` for what is of no rank */
    this.tiles = new Map();
    this.stop = new AbortController();
  }

  close() {
    this.stop.abort();
  }

  /** @param {string} query */
  async ask(query) {
    if (query === this.query) return;
    this.query = query;
    this.tiles = new Map();
    this.stop.abort();
    this.stop = new AbortController();
    if (query) {
      try {
        const answer = await this.ctx.api.post("laid", { query }, this.stop.signal);
        for (const track of answer.tracks)
          this.tiles.set(track.rank === null ? "-" : String(track.rank), tileOf(track));
        const none = answer.tracks.length ? "" : "the query found no row with a time";
        this.ctx.tell([none, ...answer.notes.filter((/** @type {string} */ n) => n.startsWith("only the first"))]
          .filter(Boolean).join("; "));
      } catch (error) {
        this.ctx.failed(error);
      }
    }
    this.changed();
  }

  /** The details of a slice. @param {Tile} tile @param {number} item */
  static told(tile, item) {
    const { start, length, row, name } = tile.arrays;
    return { name: tile.names[name[item]] || `row ${row[item]}`,
      text: `row ${row[item]} of the query, ${duration(length[item])} from ${exact(start[item])}`,
      span: { start: start[item], end: start[item] + length[item] } };
  }
}

/** @param {any} track @returns {Tile} */
function tileOf(track) {
  const names = /** @type {string[]} */ ([...new Set(track.name)]);
  const number = new Map(names.map((n, i) => [n, i]));
  const same = (/** @type {number} */ value) => track.start.map(() => value);
  const arrays = { start: track.start, length: track.length, row: track.row, lane: track.lane,
    name: track.name.map((/** @type {string} */ n) => number.get(n)), count: same(1), code: same(4),
    table: same(NO_TABLE), share: same(255) };
  const lanes = track.lane.reduce((/** @type {number} */ most, /** @type {number} */ lane) => Math.max(most, lane + 1),
    1);
  return { track: `${track.rank ?? "-"}/query`, index: 0, level: 0, kind: "items", classes: [], arrays, names, used: 0,
    lanes };
}
